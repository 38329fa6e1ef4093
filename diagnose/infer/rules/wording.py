"""The lines of failure or trouble of a job, searched for the wording of known issues."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from diagnose.timeline.event import Meaning, Timeline

_ROLES = ("cause", "effect", "aftermath")
_TELLS = ("exception", "trouble", "handled")
_SIZE = 1 << 20  # of all lines


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
    return meaning.role in _ROLES or meaning.tells in _TELLS


def _in_order(parts: list[str], text: str, start: int, end: int) -> bool:
    for part in parts:
        at = text.find(part, start, end)
        if at < 0:
            return False
        start = at + len(part)
    return True
