"""What interpreters print while they end: ignored exceptions, and ends that are no success.

Python reports what fails in a finaliser, an exit handler or a helper thread and goes on ("Exception
ignored in: …"). The traceback below such a line is nobody's death. The other way round a rank that
died of an exception leaves its script, too, and its libraries say so in the words of a clean end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

# The traceback below "Exception ignored in" is short; further on it is another one.
_BLOCK_LINES = 60
_TRACEBACK = "Traceback (most recent call last)"
_ENDS_BLOCK = ("ignored", "teardown", "exit")
_WORK = ("progress", "phase")

_COLUMNS = ["source", "line", "rank", "kind", "tells", "role", "strength", "text"]

# A source and the rank that wrote there (None: not named).
_Author = tuple[str, int | None]


def settled(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame without exceptions that Python ignored, and without ends that a crash brought."""
    drop = list(_ignored(frame)) if (frame["tells"] == "ignored").any() else []
    if drop:
        frame = frame.drop(index=drop).reset_index(drop=True)
    left = list(_ends_of_crashes(frame)) if (frame["tells"] == "finished").any() else []
    if left:
        frame = frame.copy()
        frame.loc[left, "tells"] = None
    return frame


@dataclass(slots=True)
class _Block:
    """The traceback below an "ignored" line, as far as it was read."""

    line: int
    begun: bool = False
    end: int | None = None  # the line of its exception


def _ignored(frame: pd.DataFrame) -> Iterator[int]:
    """Rows of the tracebacks that belong to "ignored" lines: up to the exceptions' own lines."""
    blocks: dict[_Author, _Block] = {}
    rows = frame.loc[(frame["kind"] != "edge").fillna(True), _COLUMNS]
    for row in rows.sort_values("line", kind="stable").itertuples():
        author = _author(row)
        block = blocks.get(author)
        if block is not None and row.line > block.line:
            if _belongs(row, block):
                yield int(row.Index)
            else:
                del blocks[author]
        if row.tells == "ignored":
            blocks[author] = _Block(row.line)


def _belongs(row: Any, block: _Block) -> bool:
    if row.line > block.line + _BLOCK_LINES:
        return False
    if block.end is not None and row.line > block.end + 1:
        return False  # the code line above an error may quote it
    if row.tells in _ENDS_BLOCK or row.kind in _WORK:
        return False
    if row.role == "cause" and row.strength != "weak":
        return False  # what it names is true, wherever it was noticed
    if _TRACEBACK in row.text:
        first, block.begun = not block.begun, True
        return first
    if row.role in ("cause", "effect", "aftermath"):
        block.end = row.line
    return True


def _ends_of_crashes(frame: pd.DataFrame) -> Iterator[int]:
    """Implied ends before which the same rank (or one that is not named) raised and did no more."""
    raised: dict[_Author, int] = {}
    worked: dict[_Author, int] = {}
    for row in frame[_COLUMNS].itertuples():
        author = _author(row)
        if row.kind in _WORK:
            worked[author] = row.Index
        elif row.kind == "exception" and row.role == "cause":
            raised[author] = row.Index
        elif _implies_end(row):
            authors = (author, (author[0], None))
            last = max(raised.get(one, -1) for one in authors)
            if last > max(worked.get(one, -1) for one in authors):
                yield int(row.Index)


def _implies_end(row: Any) -> bool:
    """A rank's own words at exit which do not claim success (those are markers of a phase)."""
    return row.tells == "finished" and row.role == "context" and not pd.isna(row.rank)


def _author(row: Any) -> _Author:
    return str(row.source), None if pd.isna(row.rank) else int(row.rank)
