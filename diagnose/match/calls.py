"""NCCL's call lines, read from the end of a source only as far back as their last calls need.

A log may hold millions of call lines, of which the last few of every communicator count. The
automaton of the marks notes on its way where such lines are, and the lines by which communicators
begin: init lines, and calls with the number 0. Then the last chunks with call lines are read. Where
these have a communicator that began nowhere, the log lost its beginning, and a call of each thread
in each of the chunks before says which communicators there are. For those that may have made more
of the calls that count, these chunks are searched for the pointers of just these, the last one
first, until enough were found. A communicator that never made a call is not searched for. Where
sends and receives are to be counted, all call lines are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from diagnose.ingest.source import Chunk, Source
from diagnose.lazy import expression
from diagnose.match.rows import CALL, CALLS, FIRST_CALLS, INIT
from diagnose.parse.nccl_inits import Inits, Key
from diagnose.search import compile_database, hits_of

if TYPE_CHECKING:
    from diagnose.parse.comm_rank import CommRank
    from diagnose.parse.nccl_calls import CallReader, Missing


_INIT_TEXTS = (b"- Init ", b": opCount 0 ")
_ENDS = expression(rb"- Init [SC]|" + b"|".join(FIRST_CALLS))


@dataclass(slots=True)
class CallMarks:
    """Of a block of bytes: where the marks by which communicators begin end, and what calls it has.

    `p2p`: some are sends or receives.
    """

    inits: list[int] = field(default_factory=list)
    calls: bool = False
    p2p: bool = False

    def add(self, number: int, end: int) -> None:
        """Take what one of these literals tells, by its number and where it ends."""
        if number == INIT:
            self.inits.append(end)
        else:
            self.calls = True
            self.p2p = self.p2p or number != CALL


def with_init(kinds: Collection[bytes]) -> set[bytes]:
    """The shapes of lines by which communicators may begin or be ready."""
    return {same for same in kinds if any(text in same for text in _INIT_TEXTS)}


def marks_in(kinds: Collection[bytes], inits: Iterable[tuple[int, bytes]]) -> CallMarks:
    """The same by the shapes of lines, and the place and shape of each that is `with_init`.

    A shape has any digit as 0, so calls up to the number 9 count as first ones.
    """
    held = b"\n".join(kinds)  # the other literals have no digits
    calls = CALLS[CALL] in held
    p2p = calls and any(text in held for number, text in CALLS.items() if number != CALL)
    ends = [at + found.end() for at, same in inits for found in _ENDS.finditer(same)]
    return CallMarks(ends, calls, p2p)


_WINDOW = 2  # last chunks with call lines, which are read in any case
_REACH = 1024  # bytes of a line around a mark that are kept
_MOST = 1 << 18  # lines by which communicators begin
_LOOKED = 2_000_000  # lines with a pointer that are looked at; it may be that of many processes
_END = expression(rb"[\r\n]")
_INFO = b" NCCL INFO "
# Bytes in front of it that tell threads apart, of an address, and of an operation.
_CALLER, _POINTER, _OPERATION = 14, 20, 48


ReadPart = Callable[[int, int | None, int], Iterator[Chunk]]


@dataclass(slots=True)
class Forward:
    """Reads call lines as they go by, for what cannot be read again; `reader`: of the calls."""

    source: Source
    inits: Inits = field(default_factory=Inits)
    reader: CallReader | None = None

    def feed(self, chunk: Chunk, marks: CallMarks) -> None:
        """Read the next chunk, of which the marks told this."""
        if marks.calls:
            self.reader = self.reader or _reader(self.source, self.inits)
            self.reader.feed(chunk)
        elif self.reader is not None and marks.inits:
            self.reader.feed(_of_lines([*_lines_with_init(chunk, marks.inits)]))
        else:
            for kept in _lines_with_init(chunk, marks.inits):
                self.inits.read(kept.text, kept.line)


@dataclass(slots=True)
class Kept:
    """A line, or what stands between two carriage returns, that is kept.

    `chunk` is the offset of its chunk, `end` where it ends there.
    """

    chunk: int
    end: int
    line: int
    text: bytes


@dataclass(slots=True)
class Noted:
    """Where a source has call lines: offset and first line of the chunks.

    And in full the lines by which communicators begin. `p2p`: there are sends or receives.
    """

    chunks: list[tuple[int, int]] = field(default_factory=list)
    inits: list[Kept] = field(default_factory=list)
    p2p: bool = False

    def feed(self, chunk: Chunk, marks: CallMarks) -> None:
        """Keep what counts of the next chunk, of which the marks told this."""
        if marks.inits and len(self.inits) < _MOST:
            self.inits += _lines_with_init(chunk, marks.inits)
        if marks.calls:
            self.chunks.append((chunk.offset, chunk.first_line))
        self.p2p = self.p2p or marks.p2p

    def append(self, other: Noted, lines: int) -> None:
        """Add what was noted of the next part of the source, behind so many lines."""
        self.chunks += [(offset, line + lines) for offset, line in other.chunks]
        self.inits += [_moved(kept, lines) for kept in other.inits]
        self.p2p = self.p2p or other.p2p


def _moved(kept: Kept, lines: int) -> Kept:
    return Kept(kept.chunk, kept.end, kept.line + lines, kept.text)


def _lines_with_init(chunk: Chunk, ends: Sequence[int]) -> Iterator[Kept]:
    """The lines with a mark by which a communicator begins, of long ones what is around it."""
    reached = 0
    for at in ends:
        if at > reached:
            kept = _line_at(chunk, at)
            reached = kept.end
            yield kept


def _line_at(chunk: Chunk, at: int) -> Kept:
    start, end = _span(chunk.data, at)
    number = chunk.number(chunk.newlines(start))
    return Kept(chunk.offset, end, number, chunk.data[start:end])


def _span(data: bytes, at: int) -> tuple[int, int]:
    """Start and end of what is kept of the line around a place."""
    low = max(0, at - _REACH)
    start = max(data.rfind(end, low, at) for end in (b"\n", b"\r")) + 1 or low
    found = _END.search(data, at, at + _REACH)
    return start, found.start() if found else min(at + _REACH, len(data))


def forward_calls(calls: Forward) -> list[CommRank]:
    """What every rank did last in every communicator, by the lines that went by."""
    return calls.reader.result() if calls.reader else calls.inits.result(calls.source)


def last_calls(
    source: Source, noted: Noted, starts: Sequence[tuple[int, int]], read: ReadPart
) -> list[CommRank]:
    """The same by what was noted; `starts` are the offsets and first lines of all chunks."""
    if not noted.chunks:
        inits = Inits()
        for init in noted.inits:
            inits.read(init.text, init.line)
        return inits.result(source)
    offsets = [offset for offset, _ in starts]
    ends = dict(zip(offsets, [*offsets[1:], None], strict=True))
    backwards = _Backwards(source, noted, lambda start, line: read(start, ends[start], line))
    whole = noted.chunks if noted.p2p else noted.chunks[-_WINDOW:]
    reader = backwards.fed(whole, [])
    if noted.p2p:
        return reader.result()
    some = backwards.some_calls() if reader.unannounced() else []
    if some:
        reader = backwards.fed(whole, some)
    if missing := reader.short(whole[0][1]):
        reader = backwards.fed(whole, [*some, *backwards.found(missing, reader)])
    return reader.result()


@dataclass(slots=True)
class _Backwards:
    source: Source
    noted: Noted
    chunk: Callable[[int, int], Iterator[Chunk]]  # by its offset and first line

    def fed(self, whole: Sequence[tuple[int, int]], found: Sequence[Kept]) -> CallReader:
        """A reader of these chunks, of lines found, and of those noted, in their order."""
        offsets = dict(whole)
        lines = {
            (kept.chunk, kept.end): kept
            for kept in (*self.noted.inits, *found)
            if kept.chunk not in offsets
        }
        by_chunk: dict[int, list[Kept]] = {}
        for kept in sorted(lines.values(), key=attrgetter("end")):
            by_chunk.setdefault(kept.chunk, []).append(kept)
        reader = _reader(self.source)
        for offset in sorted((*offsets, *by_chunk)):
            if offset in offsets:
                for chunk in self.chunk(offset, offsets[offset]):
                    reader.feed(chunk)
            else:
                reader.feed(_of_lines(by_chunk[offset]))
        return reader

    def some_calls(self) -> list[Kept]:
        """Of every chunk before the last ones a call of each thread and communicator.

        Not of all chunks together: it may be torn.
        """
        found: list[Kept] = []
        for offset, line in self.noted.chunks[:-_WINDOW]:
            for chunk in self.chunk(offset, line) if len(found) < _MOST else ():
                pieces = chunk.data.split(_INFO)
                starts = [*accumulate(len(piece) + len(_INFO) for piece in pieces)]
                calls = {
                    (before[-_CALLER:], call.partition(b" comm ")[2][:_POINTER]): number
                    for number, (before, call) in enumerate(pairwise(pieces))
                }
                found += [
                    _line_at(chunk, starts[number])
                    for (_, pointer), number in calls.items()
                    if pointer and CALLS[CALL] in pieces[number + 1][:_OPERATION]
                ]
        return found

    def found(self, missing: dict[Key, Missing], reader: CallReader) -> list[Kept]:
        """The calls that are missing, of before the last chunks; `reader` knows who makes them."""
        search = _Search(missing, reader)
        for offset, line in reversed(self.noted.chunks[:-_WINDOW]):
            if search.done():
                break
            for chunk in [*self.chunk(offset, line)][::-1]:
                search.feed(chunk)
            search.reached(line)
        return search.found


class _Search:
    """Finds the last calls of some communicators, a chunk at a time, the last one first."""

    def __init__(self, missing: dict[Key, Missing], reader: CallReader) -> None:
        self.left = {key: one.more for key, one in missing.items()}
        self.found: list[Kept] = []
        self._missing, self._reader = missing, reader
        self._met = {key for key, one in missing.items() if one.met}
        self._looked = 0
        pointers = sorted({key[2] for key in missing})
        literals = [b" comm %s [" % pointer.encode() for pointer in pointers]
        self._database = compile_database(
            literals, [*range(len(literals))], [0] * len(literals), literal=True
        )

    def feed(self, chunk: Chunk) -> None:
        """Take what a chunk holds of it."""
        from diagnose.parse.nccl_calls import call_line, number_of  # noqa: PLC0415  as above

        data, start = chunk.data, len(chunk.data)
        for _, at in reversed(hits_of(self._database, data)):
            if at > start or self._looked > _LOOKED:
                continue  # of a line that was looked at
            start, end = _span(data, at)
            self._looked += 1
            parts = call_line(data[start:end])
            key = self._reader.key(parts) if parts else None
            more = self.left.get(key) if key else None
            if parts is None or key is None or more is None:
                continue
            if key not in self._met:  # this is its last call
                self._met.add(key)
                more = min(more, number_of(parts[2]) + 1)
            self.found.append(_line_at(chunk, at))
            self.left[key] = more - 1
            if more <= 1:
                del self.left[key]
                if not self.left:
                    return

    def done(self) -> bool:
        """Whether there is nothing more to be found."""
        return not self.left or self._looked > _LOOKED

    def reached(self, line: int) -> None:
        """All from this line on was searched."""
        for key in [key for key in self.left if self._missing[key].begin >= line]:
            del self.left[key]


def _of_lines(kept: Sequence[Kept]) -> Chunk:
    """A chunk of nothing but these lines."""
    lines = [one.line for one in kept]
    data = b"".join(one.text + b"\n" for one in kept)
    return Chunk(data, kept[0].chunk, lines[0], lines)


def _reader(source: Source, inits: Inits | None = None) -> CallReader:
    from diagnose.parse.nccl_calls import CallReader  # noqa: PLC0415  as above

    return CallReader(source, inits)
