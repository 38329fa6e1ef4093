"""Which process is which rank, and on which host, by the kept lines of the logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from diagnose.ingest.source import Source
from diagnose.match.scanner import SourceScan

if TYPE_CHECKING:
    from diagnose.parse.prefix import Prefix


def ranks_of_pids(scans: Sequence[SourceScan]) -> dict[int | None, int]:
    """Process → rank, where lines of the logs tell both and only one rank has that number."""
    seen: dict[int, set[int]] = {}
    for rank, prefix in _ranked_lines(scans):
        if prefix.pid is not None:
            seen.setdefault(prefix.pid, set()).add(rank)
    return {pid: min(ranks) for pid, ranks in seen.items() if len(ranks) == 1}


def hosts_of_ranks(sources: Sequence[Source], scans: Sequence[SourceScan]) -> dict[int, str]:
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
