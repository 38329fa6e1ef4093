"""The lines that hold a mark, told while the automaton of the marks reads the bytes.

A line with a mark has half a dozen: those behind the first cost no more than a look at their place.
"""

from __future__ import annotations

from diagnose.automaton import Automaton
from diagnose.match.call_marks import FIRST, CallMarks

Span = tuple[int, int]


def marked_lines(marks: Automaton, data: bytes) -> tuple[list[Span], CallMarks]:
    """Start and end of each line with a mark, in order; and what these tell of NCCL's calls."""
    lines: list[Span] = []
    calls = CallMarks()
    find, rfind, append = data.find, data.rfind, lines.append
    reached = -1

    def each(number: int, _from: int, to: int, _flags: int, _context: object) -> None:
        nonlocal reached
        if to > reached:
            reached = find(b"\n", to)
            if reached < 0:
                reached = len(data)
            append((rfind(b"\n", 0, to) + 1, reached))
        if number >= FIRST:
            calls.add(number, to)

    marks.search(data, each)
    return lines, calls
