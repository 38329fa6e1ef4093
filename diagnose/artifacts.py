"""What a job left besides logs: dumps, reports and stacks, each taken as a whole by a reader.

A file that is damaged or no such document becomes a note; the others go on. Files are read one at
a time and only their columns are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from diagnose.ingest.source import Source

if TYPE_CHECKING:
    from diagnose.catalog.schema import Held
    from diagnose.parse.comm_rank import CommRank
    from diagnose.parse.detectors import Claim
    from diagnose.parse.flight_recorder import Dump
    from diagnose.parse.probes import Look, Sign
    from diagnose.parse.ras import RasReport
    from diagnose.parse.tracebacks import Stack


class Reader(NamedTuple):
    """What an entry point of the group `diagnose.readers` names: a reader of its own documents.

    `recognises` is given the first bytes of a source and its name; `read` the source, and raises
    ValueError with a line for people where it is none.
    """

    recognises: Callable[[bytes, str], bool]
    read: Callable[[Source], Artifacts]


@dataclass(slots=True)
class Artifacts:
    """What documents of a job hold.

    `dumps` are Flight Recorder dumps, `ras` and `inspector` what these tell of single ranks,
    `stacks` where threads stood, `looks` what processes did when a bundle was collected and
    `silent_mounts` which of their file systems gave no answer then, `signs` what nodes said of
    their devices and limits, `claims` whom other detectors blame; `concluded`: there is a report of
    one, be it that nothing is wrong. `reports` are RAS reports by file, until `collect` has weighed
    them together. `passing`: a difference between ranks may have been in passing, seen
    in one look at counters of a job that may have moved; `halted`: no counter moved between two
    looks; `glances`: when somebody looked who could not see whether any moved (seconds, None: no
    line says when).
    `notes` say what went wrong, `unread` which documents could not be read to their end.
    """

    dumps: list[Dump] = field(default_factory=list)
    ras: list[CommRank] = field(default_factory=list)
    reports: list[tuple[str, RasReport]] = field(default_factory=list)
    inspector: list[CommRank] = field(default_factory=list)
    stacks: list[Stack] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    silent_mounts: list[str] = field(default_factory=list)
    signs: list[Sign] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    concluded: bool = False
    passing: bool = False
    halted: bool = False
    glances: list[float | None] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def useful(self) -> bool:
        """Whether a verdict can be made of these alone."""
        return bool(
            self.dumps or self.stacks or self.ras or self.inspector or self.looks or self.concluded
        )

    def held(self) -> list[Held]:
        """The evidence that nobody needs to take once more."""
        kinds: dict[Held, bool] = {
            "stacks": bool(self.stacks),
            "bundle": bool(self.looks),
            "dumps": bool(self.dumps),
        }
        return [kind for kind, there in kinds.items() if there]

    def add(self, other: Artifacts) -> None:
        """Take over what another document holds."""
        self.dumps += other.dumps
        self.ras += other.ras
        self.reports += other.reports
        self.inspector += other.inspector
        self.stacks += other.stacks
        self.looks += other.looks
        self.silent_mounts += other.silent_mounts
        self.signs += other.signs
        self.claims += other.claims
        self.concluded |= other.concluded
        self.passing |= other.passing
        self.halted |= other.halted
        self.glances += other.glances
        self.notes += other.notes
        self.unread += other.unread

    def missed(self, text: str) -> None:
        """Tell of a document that cannot be read."""
        self.notes.append(text)
        self.unread.append(text)


def collect(sources: Iterable[Source]) -> Artifacts:
    """Read every document among the sources of a job."""
    found = Artifacts()
    for source in sources:
        # Few jobs have documents, and every start would pay for the import of their readers.
        readers = import_module("diagnose.readers")
        try:
            found.add(readers.reader_of(source.kind)(source))
        except ValueError as error:
            found.missed(str(error))
        except MemoryError:
            found.missed(f"{source.name}: not read: it needs more memory than there is")
        except Exception as error:  # a document that its reader has no words for ends no triage
            found.missed(f"{source.name}: not read: {type(error).__name__}: {str(error)[:120]}")
        found.notes += [f"{source.name}: {note}" for note in source.notes if note != source.note]
    if found.reports:
        found.add(import_module("diagnose.readers").weighed(found.reports))
        found.reports.clear()
    return found
