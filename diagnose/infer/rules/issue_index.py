"""Which known issues a job may have at all, and the lines in which their wording is looked for.

Most issues ask for a word or a fact that a job does not have.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from diagnose.catalog.schema import Catalog, KnownIssue
from diagnose.infer.events.facts import Facts
from diagnose.timeline.event import Meaning, Timeline

# What an issue asks for, the rarest first; words are those of any log.
_FIELDS = ("signature", "trainer", "fact", "framework", "wording")
_GLOB = re.compile(r"[*?\[]")
# Words apart, all digits alike: lines that differ in their numbers have the same words.
_WORDS = {code: " " for code in range(128) if not re.match(r"[\w\n]", chr(code))}
_WORDS |= dict.fromkeys(range(ord("0"), ord("9") + 1), "0")
_ANY = ""  # the key of issues that any job may have
_ROLES = ("cause", "effect", "aftermath")
_TELLS = ("exception", "trouble", "handled")
_SIZE = 1 << 20  # of all lines


def possible(
    catalog: Catalog, facts: Facts, signatures: Iterable[str], text: str
) -> list[KnownIssue]:
    """The issues that may hold, in the order of the catalog; wordings are looked for in `text`."""
    index = _index(catalog)
    lines = {*text.translate(_WORDS).split("\n")}
    present = {_ANY, *" ".join(lines).split()}
    present.update(f"signature {id_.lower()}" for id_ in signatures)
    present.update(f"{fact} {value.lower()}" for fact, has in facts.values.items() for value in has)
    found = {number for key in index.keys() & present for number in index[key]}
    return [catalog.known_issues[number] for number in sorted(found)]


@lru_cache(maxsize=2)
def _index(catalog: Catalog) -> Mapping[str, list[int]]:
    """Key → the numbers of the issues that need a job with it, or with another one of a few."""
    index: dict[str, list[int]] = defaultdict(list)
    for number, issue in enumerate(catalog.known_issues):
        for key in _needed(issue):
            index[key].append(number)
    return index


def _needed(issue: KnownIssue) -> set[str]:
    """The keys of which a job must have one."""
    for name in _FIELDS:
        for condition in issue.all:
            keys = {_key(name, asked) for asked in getattr(condition, name)}
            if keys and _ANY not in keys:
                return keys
    return {_ANY}


def _key(name: str, asked: str) -> str:
    """The key of what has this: a word, or with a blank a fact or a signature."""
    if name == "wording":  # its words at both ends may be parts of longer ones
        parts = (part.translate(_WORDS).split(" ")[1:-1] for part in asked.split("*"))
        return max((word for words in parts for word in words), key=len, default=_ANY)
    if name == "fact":
        name, _, asked = asked.partition("=")
    return f"{name} {asked.lower()}" if asked and not _GLOB.search(asked) else _ANY


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines as one text, where each begins, and the index of its event."""

    text: str = ""
    starts: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def find(self, wording: str) -> int | None:
        """The event of the first line that has this wording; `*` stands for any text between."""
        first, *rest = wording.split("*")
        at = self.text.find(first)
        while at >= 0:
            end = self.text.find("\n", at)
            if _in_order(rest, self.text, at + len(first), end):
                return self.rows[bisect_right(self.starts, at) - 1]
            at = self.text.find(first, end)
        return None


def lines_of(timeline: Timeline) -> Lines:
    """Each different line once, in order."""
    starts, rows, texts, size = [], [], [], 0
    for text, row in _different(timeline):
        if size + len(text) > _SIZE:
            break
        starts.append(size)
        rows.append(row)
        texts.append(text)
        size += len(text)
    return Lines("".join(texts), starts, rows)


def _different(timeline: Timeline) -> Iterator[tuple[str, int]]:
    seen = set()
    for event in timeline.where(_tells):
        if event.text not in seen:
            seen.add(event.text)
            yield " ".join(event.text.split()) + "\n", event.index


def _tells(meaning: Meaning) -> bool:
    return meaning.role in _ROLES or meaning.signal in _TELLS


def _in_order(parts: list[str], text: str, start: int, end: int) -> bool:
    for part in parts:
        at = text.find(part, start, end)
        if at < 0:
            return False
        start = at + len(part)
    return True
