"""The sources of a large job, and the parts of large ones, scanned by several processes.

Small files are scanned in batches, and what they tell comes back as a column for each field of
their events: objects cost several times as much to send as the plain values in them, and most
columns of the events of a few sources hold one value only.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import chain, islice, repeat, starmap
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from diagnose.catalog.load import load_catalog
from diagnose.errors import InputError
from diagnose.ingest.read import PASTE_LIMIT, TextChunks
from diagnose.ingest.source import TEXT_KINDS, Source
from diagnose.job.identity import authors
from diagnose.match.calls import Noted
from diagnose.match.compile import Matcher, compile_matcher
from diagnose.match.gather import Gathered, gather, join, portable
from diagnose.match.scanner import SourceScan, finish, scan_source
from diagnose.parse.stamps import Stamp
from diagnose.runtime.command import cores
from diagnose.timeline.event import Event, Meaning, Work
from diagnose.timeline.readings import events_of

if TYPE_CHECKING:
    from concurrent.futures import Executor

PART = 16 << 20  # bytes of a source that are scanned at once
SMALL = 1 << 20  # bytes of a file that is scanned with others
_BATCH = 512 << 10  # bytes of small files that are scanned at once
PAYS = 256 << 20  # bytes of a job for which starting processes takes less time than it saves
_TELLING = 32  # of small files most lines tell something, which costs more than to read them
_UNPACKED = 8  # what a byte of compressed log stands for, roughly

_Part = tuple[int, int | None]  # start and end in its source
_Scanned = Union["Scans", "_Piece"]

_matchers: dict[
    tuple[str, ...], Matcher
] = {}  # of the last catalog; copies of this process have it


def processes(sources: Sequence[Source]) -> int:
    """How many processes are best for these sources: one for each core, if there is enough work."""
    readable = [source for source in sources if source.kind in TEXT_KINDS]
    if sum(map(_cost, readable)) < PAYS or cores() < 2:
        return 1
    return min(cores(), sum(len(_parts(source)) for source in readable))


def scan_in(
    sources: Sequence[Source],
    patterns: Sequence[str | Path],
    matcher: Matcher,
    *,
    workers: int = 1,
    executor: Executor | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> list[SourceScan]:
    """Scan sources in several processes; those that only exist in this one are scanned here.

    In those of an `executor`, else in so many `workers`, of which this process is one if it can be
    copied. A large source is scanned in parts, small ones in batches. What comes out is the
    same for any of them. `meanwhile` is called once they work. Raises InputError where a worker was
    killed.
    """
    key = tuple(str(path) for path in patterns)
    _matchers.clear()
    _matchers[key] = matcher
    plan = _plan(sources)
    if len(plan.tasks) + len(plan.together) < 2:
        return [scan_source(source, matcher) for source in sources]
    calls: list[Callable[[], _Scanned]] = [
        *(partial(_scan_elsewhere, key, sources[task.source], task.part) for task in plan.tasks),
        *(partial(_scan_batch, key, [sources[n] for n in batch]) for batch in plan.together),
    ]
    scans: dict[int, SourceScan] = {}
    pieces: dict[int, dict[int, _Piece]] = defaultdict(dict)

    def here() -> None:
        if meanwhile is not None:
            meanwhile()
        scans.update((number, scan_source(sources[number], matcher)) for number in plan.here)

    # As they come: those sent later know what these took of their archive's quota.
    for n, found in _spread(calls, here, workers, executor):
        if isinstance(found, _Piece):
            number, place, _ = plan.tasks[n]
            pieces[number][place] = found
            continue
        whole = n < len(plan.tasks)
        numbers = [plan.tasks[n].source] if whole else plan.together[n - len(plan.tasks)]
        for number, scan in zip(numbers, found.scans, strict=True):
            sources[number].take_back(scan.source)
            scan.source = sources[number]
            scans[number] = scan
    for number, gathered in pieces.items():
        in_order = [gathered[index] for index in sorted(gathered)]
        scans[number] = _joined(sources[number], in_order, matcher)
    return [scans[number] for number in range(len(sources))]


class _Task(NamedTuple):
    """A source to scan, by its number, or one of its parts."""

    source: int
    number: int
    part: _Part | None


class _Plan(NamedTuple):
    """What is scanned by any process, together in batches, and in this one, by its numbers."""

    tasks: list[_Task]
    together: list[list[int]]
    here: list[int]


def _plan(sources: Sequence[Source]) -> _Plan:
    tasks: list[_Task] = []
    few: list[int] = []
    here: list[int] = []
    for number, source in enumerate(sources):
        own = _parts(source)
        whole = len(own) == 1
        if whole and small(source):
            few.append(number)
        elif not _portable(source):
            here.append(number)
        else:
            tasks += [_Task(number, n, None if whole else part) for n, part in enumerate(own)]
    # What takes long comes first, so that all processes are done at about the same time.
    tasks.sort(key=lambda task: _effort(sources[task.source], task.part), reverse=True)
    return _Plan(tasks, batches(few, sources), here)


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


def _effort(source: Source, part: _Part | None) -> int:
    """How long scanning it takes, as bytes of a plain log."""
    if part is None:
        return _size(source)
    start, end = part
    return 2 * PART if end is None else end - start  # where a log ends is looked at closely


def _spread(
    calls: Sequence[Callable[[], _Scanned]],
    here: Callable[[], object],
    workers: int,
    executor: Executor | None,
) -> Iterator[tuple[int, _Scanned]]:
    """What each of these calls gives, as it comes; `here` is called once they are under way."""
    from diagnose.runtime.workers import Pool, possible, share  # noqa: PLC0415  seldom needed

    if executor is not None:
        yield from _sent(calls, here, executor)
    elif possible():
        yield from share(calls, workers - 1, here)
    else:
        with Pool(workers) as own:
            yield from _sent(calls, here, own)


def _sent(
    calls: Sequence[Callable[[], _Scanned]], here: Callable[[], object], executor: Executor
) -> Iterator[tuple[int, _Scanned]]:
    from concurrent.futures import BrokenExecutor, as_completed  # noqa: PLC0415  as above

    from diagnose.runtime.workers import KILLED  # noqa: PLC0415

    sent = {executor.submit(call): n for n, call in enumerate(calls)}
    try:
        here()
        for future in as_completed(sent):
            yield sent[future], future.result()
    except BrokenExecutor as error:
        raise InputError(KILLED) from error
    finally:
        for future in sent:
            future.cancel()


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
        texts = dict.fromkeys(text for piece in pieces for text in getattr(piece, theirs))
        mine += [text for text in texts if text not in mine]
    found = join([piece.found for piece in pieces], source.chunks.part, matcher)
    return finish(source, found, matcher)


def _parts(source: Source) -> list[_Part]:
    """The parts in which a source is scanned, one if it is read as a whole."""
    chunks = source.chunks
    if not isinstance(chunks, TextChunks) or chunks.size <= PART or not chunks.seekable():
        return [(0, None)]
    starts = chunks.starts(PART)
    if len(starts) > 1 and source.size - starts[-1] < PART // 2:
        starts.pop()  # the last words are all in the last part, else they are looked for again
    return list(zip(starts, [*starts[1:], None], strict=True))


def _cost(source: Source) -> int:
    """What scanning it takes, as bytes of a large plain log."""
    return _size(source) * (_TELLING if source.size <= SMALL else 1)


def _size(source: Source) -> int:
    """Bytes of its text, roughly."""
    if not isinstance(source.chunks, TextChunks):
        return source.size
    packed = source.chunks.opened.codec is not None
    return source.chunks.size * (_UNPACKED if packed else 1)


def _portable(source: Source) -> bool:
    """Whether a source can be sent to another process; standard input cannot."""
    try:
        pickle.dumps(source)
    except (TypeError, AttributeError, pickle.PicklingError):
        return False
    return True


def _scan_elsewhere(patterns: tuple[str, ...], source: Source, part: _Part | None) -> _Scanned:
    """Scan one source in another process, whose matcher is compiled or cached there.

    Of a part of it what another process joins with the others.
    """
    matcher, chunks = _matcher(patterns), source.chunks
    if part is None or not isinstance(chunks, TextChunks):
        return _scan_batch(patterns, [source])
    found = gather(chunks.part(*part), matcher, Noted(), to_end=part[1] is None)
    return _Piece(portable(found), source.notes, source.unread)


def _scan_batch(patterns: tuple[str, ...], batch: Sequence[Source]) -> Scans:
    """Scan sources, as far as their events."""
    matcher = _matcher(patterns)
    return Scans([_as_events(scan_source(source, matcher), matcher) for source in batch])


def _as_events(scan: SourceScan, matcher: Matcher) -> SourceScan:
    return SourceScan(
        scan.source, counts=scan.counts, total_lines=scan.total_lines, truncated=scan.truncated,
        problem=scan.problem, comm_ranks=scan.comm_ranks, authors=authors(scan),
        events=list(events_of(scan, matcher.signatures)),
    )  # fmt: skip


def _matcher(patterns: tuple[str, ...]) -> Matcher:
    if patterns not in _matchers:
        _matchers.clear()
        _matchers[patterns] = compile_matcher(load_catalog([Path(path) for path in patterns]))
    return _matchers[patterns]


@dataclass(frozen=True, slots=True)
class Scans:
    """The scans of a batch, in its order. To another process their events go as columns."""

    scans: list[SourceScan]

    def __reduce__(self) -> tuple[Callable[..., Scans], tuple[object, ...]]:
        events = [scan.events or [] for scan in self.scans]
        bare = [replace(scan, events=None) for scan in self.scans]
        return _unpacked, (bare, [*map(len, events)], pack(Event, [*chain.from_iterable(events)]))


def _unpacked(scans: list[SourceScan], sizes: Sequence[int], packed: _Packed) -> Scans:
    events = iter(unpack(packed))
    for scan, size in zip(scans, sizes, strict=True):
        scan.events = list(islice(events, size))
    return Scans(scans)


# What events share or do without, by the name under which they have it.
_SHARED: dict[str, type[Any]] = {"meaning": Meaning, "work": Work, "stamp": Stamp}
# A class, how many objects, and of each field the values, one in a tuple where all are the same. Of
# what they share these are numbers among the different ones, which follow in the same form.
_Packed = tuple[type[Any], int, list[tuple[list[Any] | tuple[Any], Any]]]


def pack(kind: type[Any], objects: Sequence[Any]) -> _Packed:
    """Objects of a dataclass as columns."""
    columns: list[tuple[list[Any] | tuple[Any], Any]] = []
    for name in (field.name for field in fields(kind)):
        values, shared = list(map(attrgetter(name), objects)), None
        if name in _SHARED:
            different = {id(value): value for value in values if value is not None}
            numbers = {of: number for number, of in enumerate(different)}
            values = [numbers.get(id(value)) for value in values]
            shared = pack(_SHARED[name], list(different.values()))
        same = bool(values) and values.count(values[0]) == len(values)
        columns.append(((values[0],) if same else values, shared))
    return kind, len(objects), columns


def unpack(packed: _Packed) -> list[Any]:
    """The objects that were packed."""
    kind, size, columns = packed
    rows: list[Iterable[Any]] = []
    for values, shared in columns:
        own: Iterable[Any] = repeat(values[0], size) if isinstance(values, tuple) else values
        if shared is not None:
            known: dict[int | None, Any] = dict(enumerate(unpack(shared)))
            own = map(known.get, own)
        rows.append(own)
    return list(starmap(kind, zip(*rows, strict=True)))
