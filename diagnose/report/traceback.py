"""The traceback that a verdict rests on, for all reports: own frames in full, others folded.

Input is a diagnosis made `safe`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Literal

from diagnose.diagnosis import CodeFrame, PythonException
from diagnose.text.ranks import plural

MAX_OWN = 12  # frames of the program in a row; of recursion the innermost ones


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a traceback as shown; `mark` is where in the user's program it was raised."""

    text: str
    kind: Literal["own", "mark", "code", "folded", "raised"]


@dataclass(frozen=True, slots=True)
class Run:
    """Frames that follow each other, all of the user's program or all of installed packages."""

    own: bool
    frames: list[CodeFrame]


def heading(found: PythonException) -> str:
    """`Traceback of rank 6`."""
    return "Traceback" if found.rank is None else f"Traceback of rank {found.rank}"


def place(found: PythonException) -> str:
    """`train.log:4-13`."""
    first = "" if found.first_line == found.line else f"{found.first_line}-"
    return f"{found.source}:{first}{found.line}"


def raised(found: PythonException) -> str:
    """The exception as Python prints it."""
    return f"{found.type}: {found.message}" if found.message else found.type


def runs(found: PythonException) -> list[Run]:
    """The frames, outermost first; the innermost stands alone, for there it was raised."""
    frames = found.frames
    if frames and not frames[-1].own:
        return [*_runs(frames[:-1]), Run(own=False, frames=frames[-1:])]
    return _runs(frames)


def lines(found: PythonException) -> Iterator[Line]:
    """The traceback with the frames of packages folded, in words."""
    parts = runs(found)
    for part in parts:
        last = part is parts[-1]
        shown = part.frames[-MAX_OWN:] if part.own or last else []
        if hidden := len(part.frames) - len(shown):
            noun = plural(hidden, "frame")
            whose = f"{noun} of the program" if part.own else f"library {noun}"
            yield Line(f"… {hidden} {whose}", "folded")
        for frame in shown:
            mark = frame == found.where
            text = f"{frame.file}:{frame.line} in {frame.function}"
            yield Line(text, "mark" if mark else "own" if frame.own else "folded")
            if frame.code:
                yield Line(f"  {frame.code}", "code")
    yield Line(raised(found) or "… the log breaks off here", "raised")


def _runs(frames: list[CodeFrame]) -> list[Run]:
    return [Run(own, [*group]) for own, group in groupby(frames, attrgetter("own"))]
