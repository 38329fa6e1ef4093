"""The many small files of a large job, scanned by several processes in batches.

What they tell comes back as columns: to send all of their lines as objects takes longer than to
read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from diagnose.catalog.schema import Signature
from diagnose.ingest.read import TextChunks
from diagnose.ingest.source import Source
from diagnose.job.identity import authors
from diagnose.match.compile import Matcher
from diagnose.match.scanner import SourceScan, scan_source
from diagnose.timeline.draft import Drafted, drafts_of
from diagnose.timeline.packed import Packed, pack, unpack

SMALL = 1 << 20  # bytes of a file that is scanned with others
_BATCH = 512 << 10  # bytes that are scanned at once


def small(source: Source) -> bool:
    """Whether a source is a small file of its own, which any process can read."""
    chunks = source.chunks
    return isinstance(chunks, TextChunks) and source.size <= SMALL and source.budget is None


def batches(numbers: Iterable[int], sources: Sequence[Source]) -> list[list[int]]:
    """The numbers of sources in their order, those together that are scanned at once."""
    found: list[list[int]] = []
    size = _BATCH
    for number in numbers:
        if size >= _BATCH:
            found.append([])
            size = 0
        found[-1].append(number)
        size += sources[number].size
    return found


@dataclass(frozen=True, slots=True)
class Scans:
    """The scans of a batch, in its order. To another process their drafts go as columns."""

    scans: list[Drafted]

    def __reduce__(self) -> tuple[Callable[..., Scans], tuple[object, ...]]:
        drafts = [draft for scan in self.scans for draft in scan.drafts]
        sizes = [len(scan.drafts) for scan in self.scans]
        return _unpacked, ([replace(scan, drafts=[]) for scan in self.scans], sizes, pack(drafts))


def _unpacked(scans: list[Drafted], sizes: Sequence[int], packed: Packed) -> Scans:
    drafts = iter(unpack(packed))
    for scan, size in zip(scans, sizes, strict=True):
        scan.drafts = list(islice(drafts, size))
    return Scans(scans)


def scan_batch(batch: Iterable[Source], matcher: Matcher) -> Scans:
    """Scan sources, as far as their drafts."""
    return Scans([_drafted(scan_source(source, matcher), matcher.signatures) for source in batch])


def _drafted(scan: SourceScan, signatures: Sequence[Signature]) -> Drafted:
    return Drafted(
        scan.source, counts=scan.counts, total_lines=scan.total_lines, problem=scan.problem,
        comm_ranks=scan.comm_ranks, drafts=list(drafts_of(scan, signatures)), authors=authors(scan),
    )  # fmt: skip
