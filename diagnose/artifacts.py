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
    from diagnose.parse.comm_rank import CommRank
    from diagnose.parse.flight_recorder import Dump
    from diagnose.parse.stacks import Stack


@dataclass(slots=True)
class Documents:
    """What the documents of a job hold.

    `dumps` are Flight Recorder dumps, `ras` and `inspector` what these tell of single ranks,
    `stacks` where threads stood. `passing`: a difference between ranks may have been in passing,
    seen in one look at counters of a job that may have moved. `notes` say what went wrong, `unread`
    which documents could not be read to their end.
    """

    dumps: list[Dump] = field(default_factory=list)
    ras: list[CommRank] = field(default_factory=list)
    inspector: list[CommRank] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    passing: bool = False
    notes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    def missed(self, text: str) -> None:
        """Tell of a document that cannot be read."""
        self.notes.append(text)
        self.unread.append(text)


def collect(sources: Iterable[Source]) -> Documents:
    """Read every document among the sources of a job."""
    found = Documents()
    for source in sources:
        try:
            _read(source, found)
        except ValueError as error:
            found.missed(str(error))
        except Exception as error:  # a document that its reader has no words for ends no triage
            found.missed(f"{source.name}: not read: {type(error).__name__}: {str(error)[:120]}")
        found.notes += [f"{source.name}: {note}" for note in source.notes if note != source.note]
    return found


def _read(source: Source, found: Documents) -> None:
    # Imported where needed: few jobs have documents, and every start would pay for their readers.
    if source.kind == "fr_dump":
        from diagnose.parse.flight_recorder import read_dump  # noqa: PLC0415

        dump = read_dump(source.content(), source.name)
        found.dumps.append(dump)
        if dump.partial:
            found.unread.append(f"{source.name}: truncated dump")
    elif source.kind == "ras":
        from diagnose.parse.ras import read_ras  # noqa: PLC0415

        report = read_ras(source.content(), source.name)
        found.ras += report.ranks
        found.passing |= report.moving is None
        found.notes += [f"{source.name}: {note}" for note in report.notes]
    elif source.kind == "inspector":
        from diagnose.parse.inspector import read_inspector  # noqa: PLC0415

        found.passing = True
        pieces = (chunk.data for chunk in source.chunks())
        found.inspector += read_inspector(pieces, source.name)
    elif source.kind == "stacks":
        from diagnose.parse.stacks import read_stacks  # noqa: PLC0415

        found.stacks += read_stacks(source.content(), source.name)
