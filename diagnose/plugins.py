"""What other packages add by entry points: readers, rules and folders of patterns.

A plug-in that does not work costs a note and itself, never the diagnosis.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

READERS = "diagnose.readers"
RULES = "diagnose.rules"
PATTERNS = "diagnose.patterns"


@dataclass(slots=True)
class Plugins:
    """The plug-ins of a group by name, and what is wrong with those that were left out."""

    found: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def drop(self, name: str, error: Exception) -> None:
        """Leave one out from now on; the first error is told."""
        if self.found.pop(name, None) is not None:
            self.notes.append(_left_out(name, error))


@cache
def loaded(group: str) -> Plugins:
    """The plug-ins of a group, in order of their names; imported at the first call."""
    plugins = Plugins()
    for entry in sorted(_entry_points(group), key=lambda entry: entry.name):
        try:
            plugins.found[entry.name] = entry.load()
        except Exception as error:
            plugins.notes.append(_left_out(entry.name, error))
    return plugins


def notes() -> list[str]:
    """What is wrong with plug-ins, of all groups."""
    return [note for group in (PATTERNS, READERS, RULES) for note in loaded(group).notes]


def _entry_points(group: str) -> Iterable[Any]:
    if not _any_declared():
        return ()
    from importlib import metadata  # noqa: PLC0415  a tenth of a paste's time, for few users

    return metadata.entry_points(group=group)


@cache
def _any_declared() -> bool:
    """Whether some installed package may have entry points for us, by a look at their files."""
    for folder in map(Path, dict.fromkeys(sys.path)):
        if folder.is_file():
            return True  # an archive, into which this does not look
        try:
            declared = [file.read_bytes() for file in folder.glob("*-info/entry_points.txt")]
        except OSError:
            return True  # not for us to read: importlib.metadata says what of it counts
        if any(b"[diagnose." in text for text in declared):
            return True
    return False


def _left_out(name: str, error: Exception) -> str:
    return f"plug-in {name}: left out: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
