"""A job: its sources and all that follows from them, worked out when it is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from diagnose.artifacts import Artifacts
from diagnose.catalog.schema import Catalog
from diagnose.ingest.find import PASTED
from diagnose.ingest.source import TEXT_KINDS, Source
from diagnose.job.identity import hosts_of_ranks, ranks_of_pids
from diagnose.match.scanner import SourceScan, scan_source
from diagnose.text.ranks import counted
from diagnose.timeline.build import build
from diagnose.timeline.event import Timeline

if TYPE_CHECKING:
    import pandas as pd

    from diagnose.checkpoint.model import Inspection
    from diagnose.infer.collectives.clock_fit import ClockFit
    from diagnose.infer.collectives.parallelism import Group
    from diagnose.infer.collectives.table import Table
    from diagnose.infer.stacks.classify import Place
    from diagnose.infer.stacks.groups import PlaceClass
    from diagnose.parse.comm_rank import CommRank
    from diagnose.parse.topology import Topology
    from diagnose.timeline.pace import Pace


_SHOWN = 10  # sources and notes in a notebook


# The readers of dumps and stacks, and pandas, are imported by the properties that need them: most
# jobs have no such document, and a pasted log is diagnosed before pandas would be loaded.
@dataclass(repr=False)
class Job:
    """One run: what it left behind, as events.

    `scans` are what the sources gave, with the lines that matched until `events` are made of these.
    `events` are what the engine works on; `timeline` and `ranks` are the same as DataFrames, and
    `progress` has every step.
    `collectives` is the table of all operations that dumps tell of (None without any), `groups` has
    the process groups, also those of communicators in which nothing was called yet, `places` the
    ranks that stand alike by their stacks, `checkpoints` what its folders hold of these (None where
    nothing does), `topology` where its hosts are (None where nobody says it). `notes` says what was
    cut or could not be read, for people; `unread` names the sources that were not read to their
    end, as `name: reason`: with any, an end that looks good proves nothing.
    """

    sources: list[Source]
    scans: list[SourceScan]
    catalog: Catalog
    notes: list[str] = field(default_factory=list)
    documents: Artifacts = field(default_factory=Artifacts)
    checkpoints: Inspection | None = None
    topology: Topology | None = None
    unread: list[str] = field(default_factory=list)

    @property
    def pasted(self) -> bool:
        """Whether its text may be any part of a log, cut anywhere."""
        return all(source.name.partition("!")[0] in PASTED for source in self.sources)

    @cached_property
    def events(self) -> Timeline:
        """Everything that lines and documents tell, in time order."""
        rows = []
        if self.collectives:
            from diagnose.infer.collectives.by_table import table_rows  # noqa: PLC0415

            # RAS reports of all ranks, whichever node it is asked on.
            files = [source for source in self.sources if source.kind != "ras"]
            hosts = {source.name: source.host for source in files if source.host}
            rows += table_rows(self.collectives, hosts)
        if self.places:
            from diagnose.infer.stacks.groups import place_rows  # noqa: PLC0415

            rows += place_rows(self.places)
        if self.documents.claims:
            from diagnose.job.claims import claim_rows  # noqa: PLC0415  few jobs have any

            rows += claim_rows(self.documents.claims, self.catalog)
        shifts = self.clocks.certain() if self.clocks else {}
        logs = [source.name for source in self.sources if source.kind in ("text", "empty")]
        cut = {scan.source.name for scan in self.scans if scan.truncated} | self._lacking_calls
        return build(self._spent(), self.catalog, rows, shifts, logs, cut)

    def complete_claims(self) -> None:
        """Find whom other detectors name, and leave out who is no part of the job."""
        if self.events.signalling("concluded"):
            from diagnose.job.claims import complete, of_the_job  # noqa: PLC0415  few jobs have any

            complete(self)
            self.events, notes = of_the_job(self.events)
            self.notes += [note for note in notes if note not in self.notes]

    def lines_around(
        self, places: Iterable[tuple[str, int]], above: int, below: int
    ) -> dict[tuple[str, int], dict[int, str]]:
        """Lines of logs read again; see `diagnose.job.reread`."""
        from diagnose.job.reread import lines_around  # noqa: PLC0415  it needs this class

        return lines_around(self, places, above, below)

    def lines_near(
        self, places: Iterable[tuple[str, int]], above: int, below: int
    ) -> dict[str, dict[int, str]]:
        """The same by source, each line once; see `diagnose.job.reread`."""
        from diagnose.job.reread import lines_near  # noqa: PLC0415  it needs this class

        return lines_near(self, places, above, below)

    def _spent(self) -> Iterator[SourceScan]:
        """The scans, each without its lines once these were looked at.

        They are events then: lines of ten thousand ranks are not held twice.
        """
        for scan in self.scans:
            yield scan
            scan.lines.clear()
            scan.beats.clear()
            if scan.events is not None:
                scan.events.clear()

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """The events as a DataFrame; see `diagnose.timeline.frame` for its columns."""
        from diagnose.timeline.frame import frame_of  # noqa: PLC0415

        return frame_of(self.events)

    @cached_property
    def pace(self) -> Pace:
        """Times of steps by rank, of logs that are read again; see `diagnose.job.pace`."""
        from diagnose.job.pace import read  # noqa: PLC0415  few jobs are asked

        return read(self)

    @cached_property
    def progress(self) -> pd.DataFrame:
        """One row per step and author: the logs are read anew, for `timeline` has samples of them.

        See `diagnose.timeline.frame` for its columns.
        """
        from diagnose.match.compile import compile_matcher  # noqa: PLC0415
        from diagnose.timeline.frame import progress_table  # noqa: PLC0415

        matcher = compile_matcher(self.catalog)
        logs = [source for source in self.sources if source.kind in TEXT_KINDS]
        scans = (scan_source(source, matcher, every_step=True) for source in logs)
        return progress_table(build(scans, self.catalog))

    def __repr__(self) -> str:
        """Short: what a cell of a notebook ends in, and a debugger shows."""
        sources = counted(len(self.sources), "source")
        return f"<Job of {sources}, {counted(len(self.events), 'event')}>"

    def _repr_html_(self) -> str:
        """The sources and the first notes, for a notebook."""
        shown = [source.name for source in self.sources[:_SHOWN]]
        shown += [f"note: {note}" for note in self.notes[:_SHOWN]]
        from html import escape  # noqa: PLC0415  only a notebook needs either

        from diagnose.report import safe  # noqa: PLC0415

        rows = "".join(f"<li>{escape(safe.masked_line(one, 200))}</li>" for one in shown)
        return f"<p>{escape(repr(self))}</p><ul>{rows}</ul>"

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """One row per rank seen; see `diagnose.timeline.frame` for its columns."""
        from diagnose.timeline.frame import rank_table  # noqa: PLC0415

        return rank_table(self.timeline)

    @cached_property
    def collectives(self) -> Table | None:
        """Rank × group × sequence number; see `diagnose.infer.collectives.table`."""
        # One kind of evidence only, the fullest: counts of different ones do not compare.
        counters = self._communicators or self.documents.ras or self.documents.inspector
        if not self.documents.dumps and (not counters or self._begun):
            return None
        from diagnose.infer.collectives.table import table  # noqa: PLC0415

        if self.documents.dumps and not self._few_dumps:
            return table(self.documents.dumps)
        from diagnose.infer.collectives.from_counters import dumps_of  # noqa: PLC0415

        dumps = dumps_of(counters)
        return table(dumps) if dumps else None

    @cached_property
    def _few_dumps(self) -> bool:
        """Whether RAS reports tell of more than twice the ranks that left a dump."""
        dumped = {dump.rank for dump in self.documents.dumps}
        counted = {
            (rank.comm, rank.comm_rank) for rank in self.documents.ras if rank.launched is not None
        }
        most = max(Counter(comm for comm, _ in counted).values(), default=0)
        return most > 2 * len(dumped)

    @cached_property
    def groups(self) -> tuple[list[Group], int]:
        """The process groups of the job, and how many ranks it has by them; 0 if nothing tells."""
        if self.collectives is not None:
            return [*self.collectives.groups.values()], self.collectives.world
        return self._begun or ([], 0)

    @cached_property
    def _communicators(self) -> list[CommRank]:
        """What NCCL's own lines tell of communicators."""
        telling = [scan for scan in self.scans if scan.comm_ranks]
        several = len(telling) > 1  # what one log has of all ranks ends at one moment
        cut = {scan.source.name for scan in telling if several and scan.truncated}
        cut |= self._lacking_calls
        return [
            replace(rank, truncated=True) if scan.source.name in cut else rank
            for scan in telling
            for rank in scan.comm_ranks
        ]

    @cached_property
    def _lacking_calls(self) -> frozenset[str]:
        """Logs that lack calls which their process made; asked before lines become events."""
        telling = [scan for scan in self.scans if scan.comm_ranks]
        if len(telling) < 2 or not any(one.calls for scan in telling for one in scan.comm_ranks):
            return frozenset()
        from diagnose.infer.collectives.lost_calls import sources_cut  # noqa: PLC0415

        return sources_cut(telling, self.catalog.signatures)

    @cached_property
    def _begun(self) -> tuple[list[Group], int] | None:
        """The groups where these lines tell of no call, so that there is no table to make."""
        if self.documents.dumps or not self._communicators:
            return None
        from diagnose.infer.collectives.communicators import groups_of  # noqa: PLC0415

        return groups_of(self._communicators)

    @cached_property
    def clocks(self) -> ClockFit | None:
        """How the hosts' clocks differ, by the collectives they share; None where nothing tells."""
        if not self.groups[1]:
            return None
        host_of = hosts_of_ranks(self.sources, self.scans)
        hosts = sorted(set(host_of.values()))
        if len(hosts) < 2:
            return None
        if self.collectives is None:
            from diagnose.infer.collectives.clock_fit import ClockFit  # noqa: PLC0415

            return ClockFit(residual=dict.fromkeys(hosts))
        from diagnose.infer.collectives.clock_skew import align  # noqa: PLC0415

        return align(self.collectives, host_of)

    @cached_property
    def _ranks_of_pids(self) -> dict[int | None, int]:
        """Asked before `events` took the lines, by `places`, where there is any stack."""
        return ranks_of_pids(self.scans)

    @cached_property
    def lone_stacks(self) -> list[Place]:
        """Where processes stand by stack dumps that tell no rank."""
        if not self.documents.stacks:
            return []
        from diagnose.infer.stacks.classify import unranked  # noqa: PLC0415

        ranks = self._ranks_of_pids
        return unranked(stack for stack in self.documents.stacks if stack.pid not in ranks)

    @cached_property
    def places(self) -> list[PlaceClass]:
        """Ranks that are alike by their stacks and by what the kernel says, the odd ones first."""
        if not self.documents.stacks and not self.documents.looks:
            return []
        from diagnose.infer.stacks.classify import places  # noqa: PLC0415
        from diagnose.infer.stacks.groups import fold  # noqa: PLC0415
        from diagnose.infer.stacks.processes import refined  # noqa: PLC0415

        ranks = self._ranks_of_pids
        stacks = [
            stack._replace(rank=ranks.get(stack.pid)) if stack.rank is None else stack
            for stack in self.documents.stacks
        ]
        silent = self.documents.silent_mounts
        return fold(refined(places(stacks), self.documents.looks, silent))
