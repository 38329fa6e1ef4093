"""The many small files of a large job, scanned by several processes in batches.

What they tell comes back as columns: to send all of their lines as objects takes longer than to
read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import islice

from diagnose.ingest.read import TextChunks
from diagnose.ingest.source import Source
from diagnose.job.identity import authors
from diagnose.match.compile import Matcher
from diagnose.match.scanner import SourceScan, scan_source
from diagnose.timeline.draft import Draft, Drafted, drafts_of
from diagnose.timeline.meaning import Plans
from diagnose.timeline.packed import Packed, pack, unpack

SMALL = 1 << 20  # bytes of a file that is scanned with others
_BATCH = 1 << 20  # bytes that are scanned at once

Batch = list[Source]
# Scans, whose drafts follow each other in the columns; and how many each has.
Scanned = tuple[list[Drafted], list[int], Packed]


def small(source: Source) -> bool:
    """Whether a source is a small file of its own, which any process can read."""
    chunks = source.chunks
    return isinstance(chunks, TextChunks) and source.size <= SMALL and source.meter is None


def batches(sources: Sequence[Source]) -> Iterator[Batch]:
    """Sources in their order, those together that are scanned at once."""
    batch: Batch = []
    size = 0
    for source in sources:
        batch.append(source)
        size += source.size
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def scan_batch(batch: Batch, matcher: Matcher) -> Scanned:
    """Scan sources for another process."""
    scans = _scanned(batch, matcher)
    drafts = [draft for scan in scans for draft in scan.drafts]
    sizes = [len(scan.drafts) for scan in scans]
    for scan in scans:
        scan.drafts.clear()
    return scans, sizes, pack(drafts)


def collect(
    sent: Sequence[Future[Scanned]], given: Sequence[Batch], matcher: Matcher
) -> list[SourceScan]:
    """The scans of all batches; this process scans those that no other one has begun."""
    front: list[SourceScan] = []
    behind: list[list[Drafted]] = []
    low, high = 0, len(given)
    while low < high:
        if sent[low].done() or not sent[high - 1].cancel():
            front += _taken(given[low], sent[low].result())
            low += 1
        else:
            high -= 1
            behind.append(_scanned(given[high], matcher))
    return [*front, *(scan for scans in reversed(behind) for scan in scans)]


def _scanned(batch: Batch, matcher: Matcher) -> list[Drafted]:
    plans = Plans(matcher.signatures)
    return [_drafted(scan_source(source, matcher), plans) for source in batch]


def _drafted(scan: SourceScan, plans: Plans) -> Drafted:
    return Drafted(
        scan.source, counts=scan.counts, total_lines=scan.total_lines, problem=scan.problem,
        comm_ranks=scan.comm_ranks, drafts=list(drafts_of(scan, plans)), authors=authors(scan),
    )  # fmt: skip


def _taken(batch: Batch, scanned: Scanned) -> list[Drafted]:
    """The scans that another process made of these sources."""
    scans, sizes, packed = scanned
    drafts: Iterator[Draft] = iter(unpack(packed))
    for source, scan, size in zip(batch, scans, sizes, strict=True):
        source.take_back(scan.source)
        scan.source = source
        scan.drafts = list(islice(drafts, size))
    return scans
