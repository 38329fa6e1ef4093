"""NCCL's call lines, read from the end of a source only as far back as their last calls need.

A log may hold millions of call lines, of which the last few of every communicator count. The
automaton of the marks notes on its way where such lines are (passes of their own for these literals
take a tenth of the time that a log without such lines takes, and a fifth of that of a log full of
them), and the lines by which communicators begin are kept. Then the last chunks with call lines are
read; of those before them only what holds a communicator that still has too few. The rest is what
the whole source gives, so all of it is read where that cannot be known: where sends and receives
are to be counted, or a communicator has no init line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diagnose.ingest.source import Chunk, Source
from diagnose.lazy import expression
from diagnose.match.rows import CALL, CALLS, INIT
from diagnose.parse.nccl_inits import Inits
from diagnose.search import compile_database, hits_of

if TYPE_CHECKING:
    from diagnose.parse.comm_rank import CommRank
    from diagnose.parse.nccl_coll import CollReader


_INIT_TEXT = b"- Init "
_ENDS = expression(rb"- Init [SC]")


@dataclass(slots=True)
class CallMarks:
    """Of a block of bytes: where `- Init S` or `C` ends, whether there are calls, also p2p."""

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
    return {same for same in kinds if _INIT_TEXT in same}


def marks_in(kinds: Collection[bytes], inits: Iterable[tuple[int, bytes]]) -> CallMarks:
    """The same by the shapes of lines, and the place and shape of each that is `with_init`."""
    held = b"\n".join(kinds)  # the literals have no digits
    calls = CALLS[CALL] in held
    p2p = calls and any(text in held for number, text in CALLS.items() if number != CALL)
    ends = [at + found.end() for at, same in inits for found in _ENDS.finditer(same)]
    return CallMarks(ends, calls, p2p)


_WINDOW = 2  # last chunks with call lines, which are read in any case
_REACH = 1024  # bytes of a line around `- Init ` that are kept
_MOST = 10_000  # communicators that are looked for

ReadPart = Callable[[int, int | None, int], Iterator[Chunk]]


@dataclass(slots=True)
class Forward:
    """Reads call lines as they go by, for what cannot be read again; `reader`: of the calls."""

    source: Source
    inits: Inits = field(default_factory=Inits)
    reader: CollReader | None = None

    def feed(self, chunk: Chunk, marks: CallMarks) -> None:
        """Read the next chunk, of which the marks told this."""
        if marks.calls:
            self.reader = self.reader or _reader(self.source, self.inits)
            self.reader.feed(chunk)
        elif self.reader is not None and marks.inits:
            lines = _lines_with_init(chunk, marks.inits)
            self.reader.feed(_of_inits([Init(chunk.offset, *line) for line in lines]))
        else:
            for line, text in _lines_with_init(chunk, marks.inits):
                self.inits.read(text, line)


@dataclass(slots=True)
class Init:
    """A line by which a communicator begins or is ready; `chunk` is the offset of its chunk."""

    chunk: int
    line: int
    text: bytes


@dataclass(slots=True)
class Noted:
    """Where a source has call lines: offset and first line of the chunks, and init lines in full.

    `p2p`: there are sends or receives.
    """

    chunks: list[tuple[int, int]] = field(default_factory=list)
    inits: list[Init] = field(default_factory=list)
    p2p: bool = False

    def feed(self, chunk: Chunk, marks: CallMarks) -> None:
        """Keep what counts of the next chunk, of which the marks told this."""
        for line, text in _lines_with_init(chunk, marks.inits):
            self.inits.append(Init(chunk.offset, line, text))
        if marks.calls:
            self.chunks.append((chunk.offset, chunk.first_line))
        self.p2p = self.p2p or marks.p2p

    def append(self, other: Noted, lines: int) -> None:
        """Add what was noted of the next part of the source, behind so many lines."""
        self.chunks += [(offset, line + lines) for offset, line in other.chunks]
        self.inits += [Init(one.chunk, one.line + lines, one.text) for one in other.inits]
        self.p2p = self.p2p or other.p2p


def _lines_with_init(chunk: Chunk, ends: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Number and text of the lines with `- Init `, of long ones what is around it."""
    data = chunk.data
    reached = 0
    for at in ends:
        if at <= reached:
            continue
        start = data.rfind(b"\n", max(0, at - _REACH), at) + 1 or max(0, at - _REACH)
        end = data.find(b"\n", at, at + _REACH)
        reached = end if end >= 0 else min(len(data), at + _REACH)
        line = chunk.newlines(start)
        yield (
            chunk.first_line + line if chunk.lines is None else chunk.lines[line],
            (data[start:reached]),
        )


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
    reader = None if noted.p2p else backwards.read()
    return (reader or backwards.all()).result()


@dataclass(slots=True)
class _Backwards:
    source: Source
    noted: Noted
    chunk: Callable[[int, int], Iterator[Chunk]]  # by its offset and first line

    def read(self) -> CollReader | None:
        """A reader that has seen what counts; None where only the whole tells."""
        chosen = self.noted.chunks[-_WINDOW:]
        reader = self._fed(chosen)
        before = chosen[0][1] if chosen else 0
        missing = reader.short(before)
        if missing:
            if len(missing) > _MOST:
                return None
            more, complete = self._holding(missing)
            chosen = [*more, *chosen]
            reader = self._fed(chosen)
            if not complete and reader.short(before):
                return None
        return None if reader.unannounced() else reader

    def all(self) -> CollReader:
        """A reader that has seen all call lines."""
        return self._fed(self.noted.chunks)

    def _fed(self, chosen: Sequence[tuple[int, int]]) -> CollReader:
        """A reader of these chunks, and of the init lines of all others, in their order."""
        whole = dict(chosen)
        other: dict[int, list[Init]] = {}
        for init in self.noted.inits:
            if init.chunk not in whole:
                other.setdefault(init.chunk, []).append(init)
        reader = _reader(self.source)
        for offset in sorted((*whole, *other)):
            if offset in whole:
                for chunk in self.chunk(offset, whole[offset]):
                    reader.feed(chunk)
            else:
                reader.feed(_of_inits(other[offset]))
        return reader

    def _holding(self, missing: dict[bytes, int]) -> tuple[list[tuple[int, int]], bool]:
        """The chunks before the last ones with calls of these communicators, so many of each.

        And whether all chunks were looked at.
        """
        pointers = list(missing)
        literals = [b" comm " + pointer + b" [" for pointer in pointers]
        database = compile_database(
            literals, list(range(len(literals))), [0] * len(literals), literal=True
        )
        left = dict(enumerate(missing.values()))
        found: list[tuple[int, int]] = []
        for offset, line in reversed(self.noted.chunks[:-_WINDOW]):
            if not left:
                return found[::-1], False
            hits = Counter(
                number
                for chunk in self.chunk(offset, line)
                for number, _ in hits_of(database, chunk.data)
            )
            if any(number in left for number in hits):
                found.append((offset, line))
            left = {number: n - hits[number] for number, n in left.items() if n > hits[number]}
        return found[::-1], True


def _of_inits(inits: Sequence[Init]) -> Chunk:
    """A chunk of nothing but init lines."""
    lines = [init.line for init in inits]
    data = b"".join(init.text + b"\n" for init in inits)
    return Chunk(data, inits[0].chunk, lines[0], lines)


def _reader(source: Source, inits: Inits | None = None) -> CollReader:
    from diagnose.parse.nccl_coll import CollReader  # noqa: PLC0415  few logs hold call lines

    return CollReader(source, inits)
