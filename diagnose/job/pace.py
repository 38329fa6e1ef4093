"""Times of steps, read again from the logs of a job: events keep samples of them only.

A log of some size is read at places spread over it. Of a compressed one, or one that cannot be read
at any place, its beginning is read.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import isnan
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from diagnose.ingest.read import TextChunks
from diagnose.ingest.source import TEXT_KINDS, Source
from diagnose.match.compile import compile_matcher
from diagnose.match.shapes import ShapeTable
from diagnose.parse.pace import Columns, Times, columns_of, row_of
from diagnose.parse.prefix import Prefix
from diagnose.timeline.event import Timeline
from diagnose.timeline.pace import Pace, Track, Watched

if TYPE_CHECKING:
    from diagnose.infer.collectives.table import Table
    from diagnose.job.model import Job

MAX_BYTES = 512 << 10  # that are read of all logs of a job
_LEAST = 4 << 10  # of one log
_WINDOW = 32 << 10
_SOURCES = 64  # logs that are read
_BARS = 8  # of one author, with different numbers of steps: the longest is the training
_GPUS = 4096
_EXTREMES = 4096
_ENTERED = 2000  # times at which a rank entered collectives of one kind
_LINE = 2000  # bytes of a line
_DIGITS = re.compile(r"\d+(?:\.\d+)?")
_KIND = 80  # characters by which lines of one kind are known

_Key = TypeVar("_Key")
Who = tuple[int | None, int | None, str | None, int | None, int | None]  # as in Prefix


class _Row(NamedTuple):
    """A line of a log with its number; `whole`: all lines before it were read."""

    number: int
    data: bytes
    whole: bool


@dataclass(slots=True)
class _Author:
    """What is kept of an author of a log while it is read."""

    tracks: dict[int | None, Track] = field(default_factory=dict)  # by how many steps there are
    rows: int = 0  # without a step of their own
    step: int | None = None
    heading: str | None = None
    ranked: dict[int, Track] = field(default_factory=dict)


def read(job: Job) -> Pace:
    """What the logs of a job say of the times of its steps; bounded, whatever their size."""
    found = Pace()
    logs = [source for source in job.sources if source.kind in TEXT_KINDS and source.size]
    ranks = ranks_of_authors(job.events)
    shapes = compile_matcher(job.catalog).shapes
    share = max(_LEAST, MAX_BYTES // max(1, len(logs)))
    for source in islice(logs, _SOURCES):
        reader = _Reader(source, found, shapes)
        for row in _lines(source, share):
            reader.take(row)
        for who, author in reader.authors.items():
            _keep(found, source, who, author, ranks)
    _of_one_node(found)
    if job.documents.dumps and job.collectives is not None:
        _of_dumps(found, job.collectives)
    return found


def _of_dumps(found: Pace, table: Table) -> None:
    """Take when ranks entered collectives, of the last ones of each."""
    columns = {
        name: table.columns[name].tolist()
        for name in ("rank", "group", "call", "seq", "p2p", "time_created")
    }
    marks: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for rank, group, call, seq, p2p, created in zip(*columns.values(), strict=True):
        if created and not p2p:
            marks.setdefault((rank, f"collective {group} {call}"), []).append((seq, created))
    for (rank, kind), entered in marks.items():
        track = found.ranks.setdefault(rank, Track())
        track.places = track.places or [(table.files.get(rank, ""), 0)]
        for seq, created in entered[-_ENTERED:]:
            track.mark(kind, seq, created)


class _Reader:
    """Reads the lines of one log."""

    def __init__(self, source: Source, pace: Pace, shapes: ShapeTable) -> None:
        self.source, self.pace, self.shapes = source, pace, shapes
        self.authors: dict[Who, _Author] = {}
        self.columns: Columns | None = None

    def take(self, row: _Row) -> None:
        """Take the next line."""
        if b"clock" in row.data:
            self.columns = columns_of(row.data.decode(errors="replace")) or self.columns
        if self.columns is not None and self._gpu(row):
            return
        found = self.shapes.times(row.data)
        if found is None:
            return
        prefix, message, times = found
        who = prefix.rank, prefix.local_rank, prefix.host, prefix.task, prefix.pid
        author = self.authors.setdefault(who, _Author())
        place = self.source.name, row.number
        if times.heading is not None:
            author.heading = times.heading
        elif times.rank is not None and times.seconds is not None:
            if author.heading and author.step is not None:
                track = author.ranked.setdefault(times.rank, Track())
                track.add(author.step, {author.heading: times.seconds}, place)
        else:
            self._step(author, times, row, place)
            self._mark(author, times, prefix, message, place)

    def _step(self, author: _Author, times: Times, row: _Row, place: tuple[str, int]) -> None:
        author.heading = None
        track = author.tracks.get(times.total)
        if track is None and len(author.tracks) < _BARS:
            track = author.tracks[times.total] = Track()
        if track is None:
            return
        if times.step is not None:
            author.step = times.step
        for extreme in times.extremes:
            if len(self.pace.extremes) < _EXTREMES:
                self.pace.extremes.append((extreme, place))
        if times.phases:
            author.rows += times.step is None
            key = -author.rows if times.step is None else times.step
            if times.step is not None or row.whole:
                track.add(key, times.phases, place)

    def _mark(
        self, author: _Author, times: Times, prefix: Prefix, message: str, place: tuple[str, int]
    ) -> None:
        """Take when an author came to a place of its program, in a step."""
        track, stamp = author.tracks.get(times.total), prefix.stamp
        if track is None or times.step is None or stamp is None or stamp.boot:
            return
        track.mark(_DIGITS.sub("0", message)[:_KIND], times.step, stamp.ns)
        track.places = track.places or [place]

    def _gpu(self, row: _Row) -> bool:
        assert self.columns is not None
        sample = row_of(row.data.decode(errors="replace"), self.columns)
        if sample is None:
            return False
        key = sample.host or self.source.host, sample.number
        if key in self.pace.gpus or len(self.pace.gpus) < _GPUS:
            watched = self.pace.gpus.setdefault(key, Watched(place=(self.source.name, row.number)))
            watched.add(sample)
            if sample.throttled:
                watched.place = self.source.name, row.number
        return True


def _keep(
    found: Pace, source: Source, who: Who, author: _Author, ranks: Mapping[object, int]
) -> None:
    """Put what an author wrote where it belongs."""
    for number, own in author.ranked.items():
        _join(found.ranks, number, own)
    track = max(author.tracks.values(), key=len, default=Track())
    if not track.steps and not track.marks:
        return
    rank: int | None = who[0] if who[0] is not None else source.rank
    for known in author_keys(source.name, who[2], who[1], who[3], who[4]):
        rank = rank if rank is not None else ranks.get(known)
    if rank is not None:
        _join(found.ranks, rank, track)
    else:
        local = who[1] if who[1] is not None else source.local_rank
        _join(found.others, (source.node, source.host or who[2], local, source.name), track)


def _of_one_node(found: Pace) -> None:
    """Take local ranks for ranks where nothing names a rank, and they are those of one node."""
    nodes = {(node, host) for node, host, local, _ in found.others if local is not None}
    locals_ = sorted(local for _, _, local, _ in found.others if local is not None)
    if not found.ranks and len(nodes) == 1 and locals_ == [*range(len(locals_))]:
        for key in [*found.others]:
            if key[2] is not None:
                found.ranks[key[2]] = found.others.pop(key)


def _join(tracks: dict[_Key, Track], key: _Key, track: Track) -> None:
    """Put a track behind what is known of its author."""
    known = tracks.get(key)
    if known is None:
        tracks[key] = track
        return
    for at, step in enumerate(track.steps):
        phases = {name: own[at] for name, own in track.phases.items() if not isnan(own[at])}
        known.add(step, phases, track.places[0])
    for kind, (steps, times) in track.marks.items():
        own = known.marks.setdefault(kind, (array("q"), array("q")))
        own[0].extend(steps)
        own[1].extend(times)


def ranks_of_authors(timeline: Timeline) -> Mapping[object, int]:
    """By what an author is known in a log → its rank, where that is one alone."""
    found: dict[object, int | None] = {}
    columns = ("source", "host", "local_rank", "task", "pid", "rank")
    for source, host, local_rank, task, pid, rank in set(
        zip(*map(timeline.column, columns), strict=True)
    ):
        if rank is not None:
            for key in author_keys(source, host, local_rank, task, pid):
                found[key] = rank if found.get(key, rank) == rank else None
    return {key: rank for key, rank in found.items() if rank is not None}


def author_keys(
    source: str, host: str | None, local_rank: int | None, task: int | None, pid: int | None
) -> Iterable[object]:
    """By what the author of a line may be known, the surest first."""
    if pid is not None:
        yield source, host, "pid", pid
    if task is not None:
        yield source, "task", task
    if local_rank is not None:
        yield source, host, "local", local_rank
    if pid is None and task is None and local_rank is None:
        yield source, host, "all"


def _lines(source: Source, share: int) -> Iterator[_Row]:
    """The lines of a log as far as they are read, at most `share` bytes."""
    chunks = source.chunks
    if source.size <= share or not isinstance(chunks, TextChunks) or not chunks.opened.as_stored:
        yield from _first(source, share)
        return
    count = max(1, share // _WINDOW)
    try:
        with chunks.store.open() as reader:
            for number in range(count):
                start = (source.size - _WINDOW) * number // max(1, count - 1)
                data = reader.read_at(start, _WINDOW)
                pieces = data.split(b"\n")[1 if start else 0 : -1]
                yield from _rows(pieces, 0, whole=False)
    except OSError:
        return


def _first(source: Source, share: int) -> Iterator[_Row]:
    left = share
    for chunk in source.chunks():
        pieces = chunk.data[:left].split(b"\n")
        yield from _rows(pieces, chunk.first_line, whole=True)
        left -= len(chunk.data)
        if left <= 0:
            break


def _rows(pieces: Iterable[bytes], first: int, *, whole: bool) -> Iterator[_Row]:
    for number, piece in enumerate(pieces, first):
        for part in piece[: 64 * _LINE].split(b"\r"):
            if part:
                yield _Row(number if first else 0, part[:_LINE], whole)
