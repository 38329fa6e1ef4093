"""Reads what a job left besides logs: dumps, reports and stacks that a reader takes as a whole.

A file that is damaged or no such document becomes a note; the others go on. Files are read one at
a time and only their columns are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diagnose.ingest.source import Source

if TYPE_CHECKING:
    from diagnose.parse.flight_recorder import Dump


@dataclass(slots=True)
class Documents:
    """What the documents of a job hold.

    `dumps` are Flight Recorder dumps; `notes` say what went wrong.
    """

    dumps: list[Dump] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def collect(sources: Iterable[Source]) -> Documents:
    """Read every document among the sources of a job."""
    found = Documents()
    for source in sources:
        try:
            _read(source, found)
        except ValueError as error:
            found.notes.append(str(error))
        found.notes += [f"{source.name}: {note}" for note in source.notes if note != source.note]
    return found


def _read(source: Source, found: Documents) -> None:
    # Imported where needed: few jobs have documents, and every start would pay for their readers.
    if source.kind == "fr_dump":
        from diagnose.parse.flight_recorder import read_dump  # noqa: PLC0415

        found.dumps.append(read_dump(source.content(), source.name))
