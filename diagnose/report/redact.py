"""Hides secrets and people in text that will be shared, and keeps what explains a job.

One `Redactor` makes one report: the same secret, address or user gets the same mask everywhere,
`[hf-token-1]`, `[email-2]`, `[user-1]`, so a reader still sees what belongs together. What it has
hidden once, or learned from the lines around, it knows again without its name and in part. Hosts,
group names, hashes, pointers, devices, runs and the rest of a path stay.

Text should have gone through `safe.clean` before: an escape code inside a token hides the token.
Text that is cut should be given whole and cut afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from diagnose.lazy import expression
from diagnose.report import credentials, spread
from diagnose.report.credentials import PEOPLE, Clues
from diagnose.report.known import Known
from diagnose.report.shapes import Span
from diagnose.report.values import lowered, words

_MASK = expression(r"\[(?:masked|[a-z]{2,12}(?:-[a-z]{2,12}){0,2}-\d{1,9})\]")
_REMEMBERED = 2000  # characters of a text that may come again; of longer ones memory would fill
_ROUNDS = 4  # a mask may uncover another secret beside it; more than two were never needed


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
        self._known = Known()

    def text(self, text: str) -> str:
        """`text`, of any number of lines, without secrets, e-mail addresses and user names.

        The number of lines stays, also where a key of many lines was. Masks stay as they are, so
        redacting twice changes nothing.
        """
        fresh = not self._users and not self._known
        if fresh and len(text) <= _REMEMBERED and _harmless(text, self._people):
            return text
        return self._worked(text)

    def _worked(self, text: str) -> str:
        clues = credentials.clues(text)
        if self._people:
            words = [word for word in _PEOPLE if word in lowered(text)]
            clues = clues._replace(words=(*clues.words, *words))
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
            if number not in held and not any(map(line.__contains__, self._users)):
                continue
            if line not in quiet:
                lines[number] = self._settle(line, clues)
                if lines[number] == line:
                    quiet.add(line)
        if self._known:
            whole = self._known.within("\n".join(lines))
            lines = [self._replace(line, self._known.spans(line, whole)) for line in lines]
        return "\n".join(lines)

    def _spread(self, text: str, clues: Clues) -> list[Span]:
        def find(line: str) -> list[Span]:
            return [span for span in credentials.find(line, clues) if span.kind not in PEOPLE]

        found: list[Span] = []
        # A line may hold others, their ends written out.
        for lines in {text, text.replace("\\n", "\n ")}:
            found += spread.key_files(lines)
            found += spread.wrapped(lines, find, lambda tails: credentials.unfinished(tails, clues))
            found += spread.columns(lines)
        return found

    def _settle(self, line: str, clues: Clues) -> str:
        for _ in range(_ROUNDS):
            before, line = line, self._replace(line, self._find(line, clues))
            if line == before:
                break
        return line

    def _find(self, line: str, clues: Clues) -> Iterator[Span]:
        secrets = list(credentials.find(line, clues))
        yield from (span for span in secrets if span.kind not in PEOPLE)
        if not self._people:
            return
        for span in [s for s in secrets if s.kind in PEOPLE] + list(_people(line, self._users)):
            value = line[span.start : span.end]
            if span.kind == "email":
                yield span
            elif _is_person(value):
                if len(self._users) < _MAX_KNOWN and len(value) > 2:
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
            self._masks[key] = f"[{kind}-{number}]" if self._numbers else "[masked]"
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
            kind = last.kind if first < order else span.kind
            whole = last.value or span.value
            end = max(last.end, span.end)
            secrets[-1] = min(first, order), Span(last.start, end, kind, whole)
        else:
            secrets.append((order, span))
    taken = _merge(taken, [span for _, span in secrets])
    people = sorted((span for span in spans if span.kind in PEOPLE), key=lambda s: s.start)
    return [span for span in _merge(taken, people) if span.kind]


def _merge(taken: list[Span], more: list[Span]) -> list[Span]:
    """`taken` and what of `more` overlaps none of them, nor one before it; both by start."""
    merged: list[Span] = []
    end, following = 0, iter([*taken, None])
    coming = next(following)
    for span in more:
        while coming and coming.start < span.end:
            merged.append(coming)
            end = coming.end
            coming = next(following)
        if span.start >= end:
            merged.append(span)
            end = span.end
    while coming:
        merged.append(coming)
        coming = next(following)
    return merged


# --- people -------------------------------------------------------------------------------------

# Accounts and folders that say what a machine is, not who works there.
_NOBODY = words(
    "root user users admin administrator nobody none null true false unknown default guest system"
    " ubuntu debian centos fedora rocky opc ec2-user azureuser azureml core vagrant runner jenkins"
    " gitlab-runner circleci jovyan coder vscode codespace node app service worker ray spark hadoop"
    " hdfs yarn airflow slurm munge sagemaker-user sagemaker conda mambauser nonroot docker git hg"
    " postgres mysql redis mongodb oauth2 oauth2accesstoken x-access-token token __token__ aws"
    " linuxbrew shared public common all data dataset datasets projects project models checkpoints"
    " ckpt logs tmp scratch software apps opt conda miniconda3 anaconda3 venv current me you"
    " username your_name yourname name uid id str int bytes self and or is optional"
)
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
_WINDOWS = expression(
    r"[A-Za-z]:(?:\\{1,2}|/)Users(?:\\{1,2}|/)"
    r"([\w.+-]{1,64}(?: [\w.+-]{1,32})?(?=\\)|[\w.+-]{1,64})"
)
# Users keep folders under these, and so do others: only names known from elsewhere count.
_SHARED = expression(
    r"/(?:scratch|work|checkpoints?|fsx|lustre|data|u|nfs|mnt|gpfs|projects?)\w{0,8}"
    r"((?:/[\w.+-]{1,64}){1,6})"
)
_MAX_KNOWN = 64  # user names looked for there
_FOLDER = expression(rf"/(?:torchinductor|hsperfdata)_({_NAME})")
_FILE = expression(r".*\.(?:py|sh|log|txt|json|ya?ml|out|err|cpp|cu|so|md|zip|tar|gz)", re.S)

_ADDRESS = expression(
    r"(?<![\w.%+/-])(?:(?<=\\)[nrt])?"  # a written-out \n before it is not part of it
    r"([\w.%+-]{1,64}?)(?:@|%40)([A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?)"
)
_REMOTE = expression(r"\b(?:ssh|scp|rsync|sftp|mosh|sshfs)\b")
_PROMPT = expression(r":[~/]|\s[^\s\]]{1,60}\][$#]")
_TOP_LEVEL = words(
    "com org net edu gov mil int info biz name pro dev app xyz tech cloud online site email systems"
    " computer science academy institute university company global group team work works"
)
_INTERNAL = words("local localdomain internal intern lan cluster corp home private")
# Two letters that follow a dot in code and file names more often than in an address.
_NO_COUNTRY = words("py so cc sh md rs gz xz bz cu hh ts js db h5 ai2")

# On lower-case text: the names of fields and variables, then sentences and commands.
_USER_FIELD = expression(
    r"(?:user|logname)([_-]?name|[_-]?id)?\\{0,3}[\"']?\s{0,2}([=:])\s{0,2}\\{0,3}([\"']?)"
    rf"({_NAME})(?=[\s\"',;()&|\]}}\\]|\Z)"
)
_USER_SAID = expression(
    r"(?:logged in as:? |--user[_-]?name |\bsudo -u "
    r"|\b(?:accepted|failed) \w{1,24} for (?:invalid user )?)[\"']?"
    rf"({_NAME})"
    rf"|\bfor user (?:[\"']({_NAME})[\"']|({_NAME})(?:\(uid| from | by ))"
    rf"|\b[ug]id=\d{{1,10}}\(({_NAME})\)|\buid=({_NAME});"
)
_UID = expression(r"\(\d+\)")  # Slurm: UserId=alice(1001)
_SAID = ("logged in", "--user", "sudo", "accepted", "failed", "for user", "id=")
# In lower case a line with a person's name has one of these, or the name is known.
_PEOPLE = ("@", "%40", "/home", "user", "logname", "inductor_", "hsperfdata_", *_SAID)
_USER_KNOWN = expression(rf"\buser:? ({_NAME})|({_NAME})@\w")
# Source lines of tracebacks: user=self.user, username=get_user()
_VALUE_IN_CODE = expression(r"(?:.*[._])?(?:user|username|name)\Z|(?:self|args|cfg|config|os)\.")


def _people(line: str, known: set[str]) -> Iterator[Span]:
    lower = lowered(line)
    if "@" in line or "%40" in line:
        yield from _addresses(line)
    if "/home" in line or "users" in lower or "/user/" in line:
        yield from _homes(line)
    if "inductor_" in line or "hsperfdata_" in line:
        yield from (Span(*match.span(1), "user") for match in _FOLDER.finditer(line))
    if "user" in lower or "logname" in lower:
        for match in _USER_FIELD.finditer(lower):
            sure = match[2] == "=" or match[3] or (match[1] or "").endswith("name")
            call = lower[match.end() : match.end() + 1] == "(" and not _UID.match(
                lower, match.end()
            )
            if sure and not call and not match[4].isdigit() and not _VALUE_IN_CODE.match(match[4]):
                yield Span(*match.span(4), "user")
    if any(word in lower for word in _SAID):
        for match in _USER_SAID.finditer(lower):
            yield Span(*match.span(match.lastindex or 0), "user")
    if any(name in line for name in known):
        yield from _known(line, known)


def _known(line: str, known: set[str]) -> Iterator[Span]:
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
        if remote or top in _INTERNAL or _PROMPT.match(line, match.end()):
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
    yield from (Span(*match.span(1), "user") for match in _WINDOWS.finditer(line))


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


def _is_person(name: str) -> bool:
    return name.lower() not in _NOBODY
