"""The sources of a large job, and the parts of large ones, scanned by several processes."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path

from diagnose.catalog.load import load_catalog
from diagnose.ingest.paste import PASTE_LIMIT
from diagnose.ingest.read import TextChunks
from diagnose.ingest.source import TEXT_KINDS, Source
from diagnose.job.batches import SMALL, Batch, Scanned, batches, collect, scan_batch, small
from diagnose.match.calls import Noted
from diagnose.match.compile import Matcher, compile_matcher
from diagnose.match.gather import Gathered, gather, join, portable
from diagnose.match.scanner import SourceScan, finish, scan_source
from diagnose.process import cores

PART = 32 << 20  # bytes of a source that are scanned at once
PAYS = 256 << 20  # bytes of a job for which starting processes takes less time than it saves
_TELLING = 32  # of small files most lines tell something, which costs more than to read them
_UNPACKED = 8  # what a byte of compressed log stands for, roughly

_Part = tuple[int, int | None]  # start and end in its source

_matchers: dict[tuple[str, ...], Matcher] = {}  # of the last catalog; processes forked off know it


def processes(sources: Sequence[Source]) -> int:
    """How many processes are best for these sources: one for each core, if there is enough work."""
    readable = [source for source in sources if source.kind in TEXT_KINDS]
    size = sum(source.size * _cost(source) for source in readable)
    if size < PAYS or cores() < 2:
        return 1
    return min(cores(), sum(len(_parts(source)) for source in readable))


def scan_in(
    executor: Executor,
    sources: Sequence[Source],
    patterns: Sequence[str | Path],
    matcher: Matcher,
    meanwhile: Callable[[], object] | None = None,
) -> list[SourceScan]:
    """Scan sources in other processes; those that only exist in this one are scanned here.

    A large one is scanned in parts. What comes out is the same for any executor, and without any.
    `meanwhile` is called once they work.
    """
    key = tuple(str(path) for path in patterns)
    _matchers.clear()
    _matchers[key] = matcher
    parts = [_parts(source) if _portable(source) else [] for source in sources]
    few = [n for n, source in enumerate(sources) if len(parts[n]) == 1 and small(source)]
    together = list(batches([sources[number] for number in few]))
    for number in few:
        parts[number] = []
    if sum(map(len, parts)) + len(together) < 2:
        return [scan_source(source, matcher) for source in sources]
    # What large chunks need is loaded once, before processes are forked off.
    import_module("diagnose.ingest.bulk")
    scan = partial(_scan_elsewhere, key)
    scans: dict[int, SourceScan] = {}
    pieces: dict[int, dict[int, _Piece]] = defaultdict(dict)
    sent = {
        executor.submit(scan, source, part if len(own) > 1 else None): (number, index)
        for number, (source, own) in enumerate(zip(sources, parts, strict=True))
        for index, part in enumerate(own)
    }
    of_batches = [executor.submit(_scan_batch, key, batch) for batch in together]
    try:
        if meanwhile is not None:
            meanwhile()
        scans.update(zip(few, collect(of_batches, together, matcher), strict=True))
        for number, source in enumerate(sources):
            if not parts[number] and number not in scans:
                scans[number] = scan_source(source, matcher)
        # As they come: those sent later know what these took of their archive's quota.
        for future in as_completed(sent):
            number, index = sent[future]
            source, found = sources[number], future.result()
            if isinstance(found, _Piece):
                pieces[number][index] = found
            else:
                source.take_back(found.source)
                found.source = source
                scans[number] = found
    finally:
        for future in sent:
            future.cancel()
        for batch in of_batches:
            batch.cancel()
    for number, own in pieces.items():
        scans[number] = _joined(sources[number], [own[index] for index in sorted(own)], matcher)
    return [scans[number] for number in range(len(sources))]


@dataclass(frozen=True, slots=True)
class _Piece:
    """What a part of a source gave, and what reading it told."""

    found: Gathered
    notes: list[str]
    unread: list[str]


def _joined(source: Source, pieces: Sequence[_Piece], matcher: Matcher) -> SourceScan:
    """What scanning a source at once would give, by its parts in their order."""
    if not isinstance(source.chunks, TextChunks) or sum(p.found.size for p in pieces) < PASTE_LIMIT:
        return scan_source(source, matcher)  # so little text may be a paste
    for mine, theirs in ((source.notes, "notes"), (source.unread, "unread")):
        told = dict.fromkeys(text for piece in pieces for text in getattr(piece, theirs))
        mine += [text for text in told if text not in mine]
    found = join([piece.found for piece in pieces], source.chunks.part)
    return finish(source, found, matcher)


def _parts(source: Source) -> list[_Part]:
    """The parts in which a source is scanned, one if it is read as a whole."""
    chunks = source.chunks
    if not isinstance(chunks, TextChunks) or source.size <= PART or not chunks.seekable():
        return [(0, None)]
    starts = chunks.starts(PART)
    return list(zip(starts, [*starts[1:], None], strict=True))


def _cost(source: Source) -> int:
    """What a byte of it costs, compared to one of a large log."""
    return (_UNPACKED if _packed(source) else 1) * (_TELLING if source.size <= SMALL else 1)


def _packed(source: Source) -> bool:
    return isinstance(source.chunks, TextChunks) and source.chunks.opened.codec is not None


def _portable(source: Source) -> bool:
    """Whether a source can be sent to another process; standard input cannot."""
    try:
        pickle.dumps(source)
    except (TypeError, AttributeError, pickle.PicklingError):
        return False
    return True


def _scan_elsewhere(
    patterns: tuple[str, ...], source: Source, part: _Part | None
) -> SourceScan | _Piece:
    """Scan one source in another process, whose matcher is compiled or cached there.

    Of a part of it what another process joins with the others.
    """
    matcher, chunks = _matcher(patterns), source.chunks
    if part is None or not isinstance(chunks, TextChunks):
        return scan_source(source, matcher)
    found = gather(chunks.part(*part), matcher, Noted())
    return _Piece(portable(found), source.notes, source.unread)


def _scan_batch(patterns: tuple[str, ...], batch: Batch) -> Scanned:
    return scan_batch(batch, _matcher(patterns))


def _matcher(patterns: tuple[str, ...]) -> Matcher:
    if patterns not in _matchers:
        _matchers.clear()
        _matchers[patterns] = compile_matcher(load_catalog([Path(path) for path in patterns]))
    return _matchers[patterns]
