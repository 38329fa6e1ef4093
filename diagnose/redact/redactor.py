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
from collections.abc import Iterable, Iterator
from functools import lru_cache

from diagnose.lazy import expression
from diagnose.redact import credentials, multiline, people
from diagnose.redact.credentials import PEOPLE, Clues
from diagnose.redact.multiline import wrapped
from diagnose.redact.names import mixed
from diagnose.redact.views import Span, lowered, plain_lines, through

_MASK = expression(r"\[(?:masked|[a-z]{2,12}(?:-[a-z]{2,12}){0,2}-\d{1,9})\]")
_REMEMBERED = 2000  # characters of a text that may come again; of longer ones memory would fill
_ROUNDS = 16  # a mask may uncover another secret beside it; more than two were never needed


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
            clues = clues._replace(people=tuple(filter(lower.__contains__, people.WORDS)))
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
        for span in [s for s in secrets if s.kind in PEOPLE] + list(people.find(line, self._users)):
            value = line[span.start : span.end]
            if span.kind == "email":
                yield span
            elif people.is_person(value):
                if len(self._users) < people.MAX_KNOWN and len(value) > 2:
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
