"""Hides secrets and people in text that will be shared, and keeps what explains a job.

One `Redactor` makes one report: the same secret, address or user gets the same mask everywhere,
`[hf-token-1]`, `[email-2]`, `[user-1]`, so a reader still sees what belongs together. What it has
hidden once, or learned from the lines around, it knows again without its name and in part, where
text was cut. Hosts, group names, hashes, pointers, devices, runs and the rest of a path stay.

Text should have gone through `safe.clean` before: an escape code inside a token hides the token.
Text that is cut should be given whole and cut afterwards.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Set
from functools import lru_cache

from diagnose.formats import data
from diagnose.lazy import expression
from diagnose.redact import credentials, multiline
from diagnose.redact.credentials import PEOPLE, Clues, by_kind, kind_of, mixed, words
from diagnose.redact.multiline import wrapped
from diagnose.redact.views import Span, lowered, plain_lines, through

_MASK = expression(r"\[(?:masked|[a-z]{2,12}(?:-[a-z]{2,12}){0,2}-\d{1,9})\]")
_REMEMBERED = 2000  # characters of a text that may come again; of longer ones memory would fill
_ROUNDS = 16  # a mask may uncover another secret beside it; more than two were never needed
MASKED = "[masked]"  # in place of a secret


class Redactor:
    """Replaces what must not leave the house, with masks numbered in order of appearance.

    Without `people` only secrets; without `numbers` every mask is `[masked]`.
    """

    def __init__(self, *, people: bool = True, numbers: bool = True) -> None:
        self._people = people
        self._numbers = numbers
        self._masks: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._users: set[str] = set()
        self._known = KnownSecrets()

    def text(self, text: str) -> str:
        """`text`, of any number of lines, without secrets, e-mail addresses and user names.

        The number of lines stays, also where a key of many lines was. Masks stay as they are, so
        redacting twice changes nothing.
        """
        fresh = not self._users and not self._known and len(text) <= _REMEMBERED
        return text if fresh and _harmless(text, self._people) else self._worked(text)

    def _worked(self, text: str) -> str:
        seen = plain_lines(text)
        whole = f"{text}\n{seen}" if seen else text
        clues = credentials.clues(whole)._replace(views=bool(seen))
        if self._people:
            lower = lowered(whole)
            clues = clues._replace(people=tuple(filter(lower.__contains__, PEOPLE_WORDS)))
        quiet: set[str] = set()
        for _ in range(_ROUNDS):
            before, users = text, len(self._users)
            text = self._once(text, clues, quiet)
            if text == before:
                break
            if len(self._users) > users:
                quiet.clear()
        return text

    def learn(self, text: str) -> None:
        """Know the secrets in `text` wherever they stand afterwards."""
        self.text(text)

    def _once(self, text: str, clues: Clues, quiet: set[str]) -> str:
        """One round; `quiet` are lines that hold nothing by themselves."""
        text = self._replace(text, self._spread(text, clues))
        lines = text.split("\n")
        held = credentials.holding(lines, clues)
        for number, line in enumerate(lines):
            near = number in held or any(map(line.__contains__, self._users))
            if near and line not in quiet:
                spans = through(line, lambda view: self._find(view, clues), views=clues.views)
                lines[number] = self._replace(line, spans)
                if lines[number] == line:
                    quiet.add(line)
        if self._known:
            lines = self._without_known(lines, clues)
        return "\n".join(lines)

    def _without_known(self, lines: list[str], clues: Clues) -> list[str]:
        text = "\n".join(lines)
        whole = self._known.within(f"{text}\n{plain_lines(text)}" if clues.views else text)

        def find(line: str) -> Iterator[Span]:
            return self._known.spans(line, whole)

        return [self._replace(line, through(line, find, views=clues.views)) for line in lines]

    def _spread(self, text: str, clues: Clues) -> list[Span]:
        def find(line: str) -> list[Span]:
            spans = through(line, lambda view: credentials.find(view, clues), views=clues.views)
            return [span for span in spans if span.kind not in PEOPLE]

        found: list[Span] = []
        # A line may hold others, their ends written out.
        for lines in dict.fromkeys((text, text.replace("\\n", "\n "))):
            found += multiline.key_files(lines)
            found += wrapped(lines, find, lambda tails: credentials.unfinished(tails, clues))
            found += multiline.columns(lines)
        return found

    def _find(self, line: str, clues: Clues) -> Iterator[Span]:
        secrets = list(credentials.find(line, clues))
        yield from (span for span in secrets if span.kind not in PEOPLE)
        if not self._people:
            return
        for span in [s for s in secrets if s.kind in PEOPLE] + list(find_people(line, self._users)):
            value = line[span.start : span.end]
            if span.kind == "email":
                yield span
            elif is_person(value):
                if len(self._users) < MAX_KNOWN and len(value) > 2:
                    self._users.add(value)
                yield span

    def _mask(self, kind: str, value: str) -> str:
        family = kind if kind in PEOPLE else ""
        key = (family, value.lower() if family else value)
        if key not in self._masks:
            if not family and not _MASK.search(value):
                self._known.add(kind, value)
            self._counts[kind] = self._counts.get(kind, 0) + 1
            number = self._counts[kind]
            self._masks[key] = f"[{kind}-{number}]" if self._numbers else MASKED
        return self._masks[key]

    def _replace(self, text: str, spans: Iterable[Span]) -> str:
        """`text` with the mask of each span in its place."""
        found = list(spans)
        if not found:
            return text
        parts, at = [], 0
        for start, end, kind, value in _apart(text, found):
            parts += [text[at:start], self._mask(kind, value or text[start:end])]
            at = end
        return "".join([*parts, text[at:]])


@lru_cache(maxsize=4096)
def _harmless(text: str, people: bool) -> bool:
    """Whether a text holds nothing by itself: asked again and again of what the catalog says."""
    alone = Redactor(people=people, numbers=False)
    return alone._worked(text) == text and not alone._users and not alone._known


def secrets_only() -> Redactor:
    """A redactor that leaves people and does not number its masks."""
    return Redactor(people=False, numbers=False)


def mask(text: str) -> str:
    """`text` with every secret replaced by `[masked]`; people stay."""
    return secrets_only().text(text)


def _apart(text: str, spans: list[Span]) -> list[Span]:
    """The spans in order, none overlapping another or a mask.

    Of overlapping secrets one mask covers all, of the kind found first; an address or a user name
    inside is not looked at.
    """
    taken = [Span(*match.span(), "") for match in _MASK.finditer(text)]
    secrets: list[tuple[int, Span]] = []
    found = enumerate(span for span in spans if span.kind not in PEOPLE)
    for order, span in sorted(found, key=lambda item: item[1].start):
        if secrets and span.start < secrets[-1][1].end:
            first, last = secrets[-1]
            kind, end = (last if first < order else span).kind, max(last.end, span.end)
            whole = Span(last.start, end, kind, last.value or span.value)
            secrets[-1] = min(first, order), whole
        else:
            secrets.append((order, span))
    taken = _merge(taken, [span for _, span in secrets])
    people = sorted((span for span in spans if span.kind in PEOPLE), key=lambda s: s.start)
    return [span for span in _merge(taken, people) if span.kind]


def _merge(taken: list[Span], more: list[Span]) -> list[Span]:
    """`taken` and what of `more` overlaps none of them, nor one before it; both by start."""
    starts = [span.start for span in taken]
    added: list[Span] = []
    for span in more:
        before = bisect_left(starts, span.end) - 1
        end = max(taken[before].end if before >= 0 else 0, added[-1].end if added else 0)
        if span.start >= end:
            added.append(span)
    return sorted([*taken, *added])


_MOST_VALUES = 1024  # values that are kept
_MOST_TEXT = 64 << 10  # characters of them together
_WHOLE = 8  # characters of a value that is looked for
_PART = 12  # … and of a part of one
_RUN = re.compile(r"[A-Za-z0-9_+/=.~-]{12,}+")


class KnownSecrets:
    """Values of secrets, bounded in number and size."""

    def __init__(self) -> None:
        self._kinds: dict[str, str] = {}
        self._all = ""  # one a line

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._kinds)

    def add(self, kind: str, value: str) -> None:
        """Keep a value, if it can be told from the words of a log."""
        room = len(self._kinds) < _MOST_VALUES and len(self._all) + len(value) <= _MOST_TEXT
        if room and value not in self._kinds and _telling(value):
            self._kinds[value] = kind
            self._all += f"{value}\n"

    def within(self, text: str) -> list[str]:
        """The values that a text of any number of lines holds as a whole."""
        return [value for value in self._kinds if value in text]

    def spans(self, line: str, whole: Iterable[str]) -> Iterator[Span]:
        """Where one line holds a value of `whole`, or a run of characters that is a part of any."""
        for value in whole:
            at = line.find(value)
            while at >= 0:
                yield Span(at, at + len(value), self._kinds[value], value)
                at = line.find(value, at + len(value))
        for run in _RUN.finditer(line):
            part = run.group().strip(".")
            if len(part) >= _PART and part in self._all and mixed(part):
                value = next((one for one in self._kinds if part in one), "")
                if value and part != value:
                    start = run.start() + run.group().index(part)
                    yield Span(start, start + len(part), self._kinds[value], value)


def _telling(value: str) -> bool:
    """Whether a value would not be met by chance."""
    if len(value) < _WHOLE or not mixed(value) or "://" in value:
        return False
    drawn = value.lower() != value and value.upper() != value
    odd = not value.replace("-", "").replace("_", "").isalnum()
    return len(value) >= _PART or drawn or odd


# --- people ---------------------------------------------------------------------------------------

# Accounts and folders that say what a machine is, not who works there.
_NOBODY = words("nobody")
_NAME = r"\w[\w.+-]{0,63}"

# Behind these a user's folder stands; /home/a/alice is filed by first letter.
_HOME = expression(
    r"/(home/jusers|home\d{0,2}|homes|Users|users|user)/(?:([A-Za-z])/(?=\2))?"
    rf"({_NAME}(?:@[\w.-]{{1,80}})?)(?!\w|/\[user-)(/?)"
)
_NO_PATH = expression(r"[^\w.+/-]")
_METHOD = expression(r"\b(?:GET|HEAD|POST|PUT|PATCH|DELETE) \Z")
# Storage mounted for all, where homes are kept: the whole path before /home.
_MOUNT = expression(
    r"/(?:mnt|data|nfs|gpfs|lustre|fsx|exports?|scratch|work|storage|ceph|beegfs|global|net|var|usr"
    r"|vol|volume|cluster|shared?|p|fs|efs|c|d|private|System|afs)\w{0,16}(?:/[\w.+-]{1,40}){0,4}"
)
_BUCKET = expression(r"\b(?:s3a?|gs|hdfs|viewfs|dbfs|oss|abfss?|wasbs?):(?://)?[^\s/]{0,100}\Z")
# Users keep folders under these, and so do others: only names known from elsewhere count.
_SHARED = expression(
    r"/(?:scratch|work|checkpoints?|fsx|lustre|data|u|nfs|mnt|gpfs|projects?)\w{0,8}"
    r"((?:/[\w.+-]{1,64}){1,6})"
)
MAX_KNOWN = 64  # user names looked for there
_FILE = expression(r".*\.(?:py|sh|log|txt|json|ya?ml|out|err|cpp|cu|so|md|zip|tar|gz)", re.S)

_ADDRESS = expression(
    r"(?<![\w.%+/-])(?:(?<=\\)[nrt])?"  # a written-out \n before it is not part of it
    r"([\w.%+-]{1,64}?)@([A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?)"
)
_NUMERIC = expression(r"\d{1,3}(?:\.\d{1,3}){3}\Z")
_REMOTE = expression(r"\b(?:ssh|scp|rsync|sftp|mosh|sshfs)\b")
_PROMPT = expression(r":[~/]|\s[^\s\]]{1,60}\][$#]")
_TOP_LEVEL = words("top_level")
_INTERNAL = words("internal")
_NO_COUNTRY = words("no_country")  # which follow a dot in code and file names more often

_KINDS = tuple(map(kind_of, data("secrets/people")))
# In lower case a line with a person's name has one of these, or the name is known.
_WORDS = {"@", "/home", "user", *(word for one in _KINDS for word in one.keywords)}
PEOPLE_WORDS = tuple([word for word in _WORDS if not any(o in word for o in _WORDS - {word})])
_USER_KNOWN = expression(rf"\buser:? ({_NAME})|({_NAME})(?:@\w|\(\d)")


def find_people(line: str, known: Set[str]) -> Iterator[Span]:
    """Names and addresses of people in one line; `known` are names seen elsewhere."""
    lower = lowered(line)
    if "@" in line:
        yield from _addresses(line)
    if "/home" in line or "users" in lower or "/user/" in line:
        yield from _homes(line)
    yield from (span._replace(kind="user") for span in by_kind(line, lower, _KINDS))
    if any(name in line for name in known):
        yield from _known(line, known)


def _known(line: str, known: Set[str]) -> Iterator[Span]:
    """Names known from elsewhere, where a name may stand: shared folders, user alice, alice@n1."""
    for match in _USER_KNOWN.finditer(line):
        if match.group(match.lastindex or 0) in known:
            yield Span(*match.span(match.lastindex or 0), "user")
    for path in _SHARED.finditer(line):
        at = path.start(1) + 1
        for part in path.group(1)[1:].split("/"):
            if part in known:
                yield Span(at, at + len(part), "user")
            at += len(part) + 1


def _addresses(line: str) -> Iterator[Span]:
    """E-mail addresses; of user@host only the user."""
    for match in _ADDRESS.finditer(line):
        top = match[2].rpartition(".")[2].lower() if "." in match[2] else ""
        remote = _REMOTE.search(line, max(0, match.start() - 160), match.start())
        if (
            remote
            or top in _INTERNAL
            or _NUMERIC.match(match[2])
            or _PROMPT.match(line, match.end())
        ):
            yield Span(*match.span(1), "user")
        elif line[match.end() : match.end() + 1] in ("(", "[", "_") or match[1].lower() == "git":
            continue  # q@k.transpose(…) in a source line; git@github.com
        elif top in _TOP_LEVEL or (len(top) == 2 and top.isalpha() and top not in _NO_COUNTRY):
            yield Span(match.start(1), match.end(), "email")


def _homes(line: str) -> Iterator[Span]:
    for match in _HOME.finditer(line):
        name = match[3].rstrip(".+-")
        if _is_home(line, match.start(), match[1], bool(match[2])) and (
            match[4] or not _FILE.fullmatch(name)
        ):
            yield Span(match.start(3), match.start(3) + len(name), "user")


def _is_home(line: str, at: int, root: str, by_letter: bool) -> bool:
    """Whether the path that comes to `/home/` (or another root) at `at` keeps users there."""
    near = line[max(0, at - 120) : at]
    before = _NO_PATH.split(near)[-1]
    start = at - len(before)
    if ":" in near and _BUCKET.search(near):
        return True
    if root == "user" and not by_letter:
        return False
    if before in ("", "-I", "-L", "//"):
        return not _METHOD.search(line, max(0, start - 8), start)
    if before in ("n", "r", "t"):
        return line[start - 1 : start] == "\\"
    return by_letter or _MOUNT.fullmatch(before) is not None


def is_person(name: str) -> bool:
    """Whether a name is no account of a machine or a service."""
    return name.lower() not in _NOBODY
