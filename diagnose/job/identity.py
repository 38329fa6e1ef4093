"""Which process is which rank, and on which host, by the kept lines of the logs."""

from __future__ import annotations

from collections.abc import Sequence

from diagnose.ingest.source import Source
from diagnose.match.scanner import Author, SourceScan


def ranks_of_pids(scans: Sequence[SourceScan]) -> dict[int | None, int]:
    """Process → rank, where lines of the logs tell both and only one rank has that number."""
    seen: dict[int, set[int]] = {}
    for scan in scans:
        for rank, _, pid in authors(scan):
            if pid is not None:
                seen.setdefault(pid, set()).add(rank)
    return {pid: min(ranks) for pid, ranks in seen.items() if len(ranks) == 1}


def hosts_of_ranks(sources: Sequence[Source], scans: Sequence[SourceScan]) -> dict[int, str]:
    """Rank → host, by the names of files and by lines that tell both."""
    found = {s.rank: s.host for s in sources if s.rank is not None and s.host}
    for scan in scans:
        for rank, named, _ in authors(scan):
            if host := named or scan.source.host:
                found.setdefault(rank, host)
    return found


def authors(scan: SourceScan) -> list[Author]:
    """Who printed the kept lines whose rank is known, each once, in their order."""
    if scan.events is not None:
        return scan.authors
    found: dict[Author, None] = {}
    for line in (*scan.lines, *scan.edges):
        prefix = line.prefix
        rank = prefix.rank if prefix.rank is not None else scan.source.rank
        if rank is not None:
            found[rank, prefix.host, prefix.pid] = None
    return list(found)
