"""The facade a notebook uses: a job's sources, its timeline and its ranks."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from diagnose.artifacts import Documents, collect
from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Catalog
from diagnose.errors import InputError
from diagnose.ingest import find_sources, text_source
from diagnose.ingest.find import MAX_FILES
from diagnose.ingest.source import DOCUMENT_KINDS, TEXT_KINDS, Source
from diagnose.match.compile import Matcher, compile_matcher
from diagnose.match.scanner import SourceScan, scan_source
from diagnose.timeline.build import build, rank_table
from diagnose.timeline.rows import table_rows

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from diagnose.checkpoint.model import Inspection
    from diagnose.infer.collectives.clock_skew import ClockFit
    from diagnose.infer.collectives.table import Table
    from diagnose.infer.stacks.classify import PlaceClass
    from diagnose.parse.prefix import Prefix


@dataclass
class Job:
    """One run: what it left behind, as events.

    `timeline` is the frame of `timeline.build`, `ranks` one row per rank, `collectives` the
    table of all operations that dumps tell of (None without any), `places` the ranks that stand
    alike by their stacks, `checkpoints` what its folders hold of these (None where nothing does),
    `notes` says what was cut or could not be read, for people; `unread` names the sources that were
    not read to their end, as `name: reason`: with any, an end that looks good proves nothing.
    """

    sources: list[Source]
    scans: list[SourceScan]
    catalog: Catalog
    notes: list[str] = field(default_factory=list)
    documents: Documents = field(default_factory=Documents)
    checkpoints: Inspection | None = None
    unread: list[str] = field(default_factory=list)

    @cached_property
    def timeline(self) -> pd.DataFrame:
        """Events in time order; see `diagnose.timeline.build` for the columns."""
        hosts = {source.name: source.host for source in self.sources if source.host}
        rows = table_rows(self.collectives, hosts) if self.collectives else []
        if self.places:
            from diagnose.infer.rules.stacks import place_rows  # noqa: PLC0415  seldom needed

            rows += place_rows(self.places)
        shifts = self.clocks.certain() if self.clocks else {}
        return build(self.scans, self.catalog.signatures, rows, shifts)

    @cached_property
    def collectives(self) -> Table | None:
        """Rank × group × sequence number; see `diagnose.infer.collectives.table`."""
        called = [rank for scan in self.scans for rank in scan.comm_ranks]
        # One kind of evidence only, the fullest: counts of different ones do not compare.
        told = called or self.documents.ras or self.documents.inspector
        if not self.documents.dumps and not told:
            return None
        from diagnose.infer.collectives.table import table  # noqa: PLC0415  seldom needed

        if self.documents.dumps:
            return table(self.documents.dumps)
        from diagnose.infer.collectives.from_counters import dumps_of  # noqa: PLC0415  seldom needed

        dumps = dumps_of(told)
        return table(dumps) if dumps else None

    @cached_property
    def clocks(self) -> ClockFit | None:
        """How the hosts' clocks differ, by the collectives they share; None where nothing tells."""
        if self.collectives is None:
            return None
        host_of = _hosts_of_ranks(self.sources, self.scans)
        if len(set(host_of.values())) < 2:
            return None
        from diagnose.infer.collectives.clock_skew import align  # noqa: PLC0415  seldom needed

        return align(self.collectives, host_of)

    @cached_property
    def places(self) -> list[PlaceClass]:
        """Ranks that stand alike by their stack dumps, the odd ones first."""
        if not self.documents.stacks:
            return []
        from diagnose.infer.stacks.classify import fold, places  # noqa: PLC0415  seldom needed

        ranks = _ranks_of_pids(self.scans)
        stacks = [
            replace(stack, rank=ranks.get(stack.pid)) if stack.rank is None else stack
            for stack in self.documents.stacks
        ]
        return fold(places(stacks))

    @cached_property
    def ranks(self) -> pd.DataFrame:
        """One row per rank seen; see `diagnose.timeline.build.rank_table`."""
        return rank_table(self.timeline)


def _ranks_of_pids(scans: Sequence[SourceScan]) -> dict[int | None, int]:
    """Process → rank, where lines of the logs tell both and only one rank has that number."""
    seen: dict[int, set[int]] = {}
    for rank, prefix in _ranked_lines(scans):
        if prefix.pid is not None:
            seen.setdefault(prefix.pid, set()).add(rank)
    return {pid: min(ranks) for pid, ranks in seen.items() if len(ranks) == 1}


def _hosts_of_ranks(sources: Sequence[Source], scans: Sequence[SourceScan]) -> dict[int, str]:
    """Rank → host, by the names of files and by lines that tell both."""
    found = {s.rank: s.host for s in sources if s.rank is not None and s.host}
    for scan in scans:
        for rank, prefix in _ranked_lines([scan]):
            if host := prefix.host or scan.source.host:
                found.setdefault(rank, host)
    return found


def _ranked_lines(scans: Iterable[SourceScan]) -> Iterator[tuple[int, Prefix]]:
    """Rank and prefix of every kept line whose rank is known."""
    for scan in scans:
        for line in (*scan.lines, *scan.edges):
            rank = line.prefix.rank if line.prefix.rank is not None else scan.source.rank
            if rank is not None:
                yield rank, line.prefix


def load(
    paths: str | Path | Iterable[str | Path],
    *,
    patterns: Sequence[str | Path] = (),
    checkpoints: Sequence[str | Path] = (),
    executor: Executor | None = None,
) -> Job:
    """Read a job from files and folders.

    `patterns` are directories with further catalog entries, `checkpoints` where the job saved to;
    without any, the folders given are searched for checkpoints too. With an `executor` of processes
    (a `ProcessPoolExecutor`, a Dask client's) the sources of a large job are scanned in parallel.
    Raises InputError when nothing of it can be read, CatalogError when a catalog entry is wrong.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise InputError("no path given")
    sources = find_sources([Path(path) for path in given])
    job = read(sources, patterns=patterns, executor=executor)
    job.checkpoints = saved(given, checkpoints)
    return job


def saved(paths: Iterable[str | Path], checkpoints: Sequence[str | Path] = ()) -> Inspection | None:
    """The checkpoints in `checkpoints`, or without these in the folders among `paths`.

    None where there are none. Raises InputError when one of `checkpoints` cannot be read.
    """
    from diagnose.checkpoint.tree import holds_states  # noqa: PLC0415  seldom needed

    folders = [str(path) for path in checkpoints or paths if checkpoints or Path(path).is_dir()]
    if not checkpoints:
        folders = [folder for folder in folders if holds_states(folder, MAX_FILES)]
    if not folders:
        return None
    from diagnose.checkpoint.find import inspect  # noqa: PLC0415  seldom needed

    inspection = inspect(folders) if checkpoints else inspect(folders, max_files=MAX_FILES)
    return inspection if inspection.checkpoints else None


def load_text(text: str, *, patterns: Sequence[str | Path] = ()) -> Job:
    """Read a job from pasted text."""
    return read([text_source(text)], patterns=patterns)


def read(
    sources: Sequence[Source],
    *,
    patterns: Sequence[str | Path] = (),
    executor: Executor | None = None,
) -> Job:
    """Scan sources into a job. Raises InputError when none of them holds anything to read."""
    catalog = load_catalog([Path(path) for path in patterns])
    readable = [source for source in sources if source.kind in TEXT_KINDS]
    documents = collect(source for source in sources if source.kind in DOCUMENT_KINDS)
    notes = [f"{source.name}: {source.note}" for source in sources if source.note]
    useful = documents.dumps or documents.stacks
    if not readable and not useful:
        raise InputError("; ".join(documents.notes[:3]) or _nothing_to_read(sources))
    matcher = compile_matcher(catalog)
    if executor is None or len(readable) < 2:
        scans = [scan_source(source, matcher) for source in readable]
    else:
        scans = _scan_in(executor, readable, patterns, matcher)
    for scan in scans:
        later = [note for note in scan.source.notes if note != scan.source.note]
        notes += [f"{scan.source.name}: {note}" for note in (*later, scan.problem) if note]
    notes += documents.notes
    if not any(scan.edges for scan in scans) and not useful:
        raise InputError("; ".join(notes) or "the input is empty")
    unread = [f"{source.name}: {why}" for source in sources for why in source.unread]
    return Job(
        list(sources),
        scans,
        catalog,
        list(dict.fromkeys(notes)),
        documents,
        unread=list(dict.fromkeys(unread + documents.unread)),
    )


def _scan_in(
    executor: Executor,
    sources: Sequence[Source],
    patterns: Sequence[str | Path],
    matcher: Matcher,
) -> list[SourceScan]:
    """Scan sources in other processes; those that only exist in this one are scanned here."""
    from concurrent.futures import as_completed  # noqa: PLC0415  seldom needed

    scan = partial(_scan_elsewhere, tuple(str(path) for path in patterns))
    scans: dict[int, SourceScan] = {}
    sent = {
        executor.submit(scan, source): number
        for number, source in enumerate(sources)
        if _portable(source)
    }
    try:
        for number in set(range(len(sources))) - set(sent.values()):
            scans[number] = scan_source(sources[number], matcher)
        # As they come: those sent later know what these took of their archive's quota.
        for future in as_completed(sent):
            found = scans[sent[future]] = future.result()
            source = sources[sent[future]]
            source.take_back(found.source)
            found.source = source
    finally:
        for future in sent:
            future.cancel()
    return [scans[number] for number in range(len(sources))]


def _portable(source: Source) -> bool:
    """Whether a source can be sent to another process; standard input cannot."""
    try:
        pickle.dumps(source)
    except (TypeError, AttributeError, pickle.PicklingError):
        return False
    return True


def _scan_elsewhere(patterns: tuple[str, ...], source: Source) -> SourceScan:
    """Scan one source in another process, whose matcher is compiled or cached there."""
    return scan_source(source, _matcher(patterns))


@lru_cache(maxsize=1)
def _matcher(patterns: tuple[str, ...]) -> Matcher:
    return compile_matcher(load_catalog([Path(path) for path in patterns]))


def _nothing_to_read(sources: Sequence[Source]) -> str:
    if not sources:
        return "no logs found"
    shown = "; ".join(f"{source.name}: {source.note or source.kind}" for source in sources[:3])
    more = f" (and {len(sources) - 3} more)" if len(sources) > 3 else ""
    return f"no log to read: {shown}{more}"
