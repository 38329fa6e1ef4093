"""One module per layout of checkpoints; each tells its own folders and what makes them whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder


def _nothing(run: Folder, found: list[Found]) -> None:
    """Most layouts have nothing to compare."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How one framework lays out checkpoints.

    `read` takes a folder and gives the checkpoint it holds, judged as far as its own files go, or
    None when it is none of this layout. A folder whose name and rests tell what it was to become is
    one, however little is left of it. `compare` gets a folder and the checkpoints of this layout
    right inside it, in order of step, and adds what markers (`latest` …) and the others tell.
    """

    name: str
    read: Callable[[Folder, Looker], Found | None]
    compare: Callable[[Folder, list[Found]], None] = _nothing
