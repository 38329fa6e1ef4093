"""How far every rank got in every communicator by NCCL's own lines (FORMATS 4.2 and 4.3).

`NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=COLL` prints a line a call, with the number of the call in
its communicator in hexadecimal; INIT lines tell what rank of which communicator a pointer stands
for. There are millions of call lines, so blocks of bytes are read with numpy and only the last few
calls of every (process, communicator) are kept. What comes out is the same for any chunking.

`opCount` counts launches, sends and receives included, and these differ between ranks. So `seq` of
a collective is its opCount less the launches of sends and receives before it; without any, it is
the opCount. Of a send or receive, `seq` counts those between the same two ranks in this direction.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from diagnose.ingest.source import Chunk, Source
from diagnose.parse.comm_rank import CollCall, CommRank
from diagnose.parse.nccl_calls import REACH, Calls, Ints, Words, decimal, find
from diagnose.parse.prefix import peel

KEEP_CALLS = 64  # last calls kept of a communicator on a rank
KEEP_P2P = 8  # of sends to, or receives from, one peer
KEEP_TOTAL = 1 << 20  # with very many communicators fewer are kept of each
MAX_COMMS = 100_000  # processes × communicators
MAX_STREAMS = 200_000  # pairs of sender and receiver; threads of processes
INIT = "init"  # the call of a rank that printed Init START and not COMPLETE
_BLOCK = 512 << 10  # stays in the processor's cache
_COMPACT = 1 << 17  # rows
_COLUMNS = 8  # code, place, line, seq, op, digits of elements (two) and of the type
_NAME = 512
_STALE, _NONE = -2, -1  # hashes whose communicator is to be looked up, and that have none
_P2P = re.compile(r"(?:send|recv)\b")

_OPS = {
    "AllReduc": "all_reduce", "AllGathe": "all_gather", "ReduceSc": "reduce_scatter",
    "Broadcas": "broadcast", "Reduce": "reduce", "AlltoAll": "all_to_all",
    "AllToAll": "all_to_all", "Gather": "gather", "Scatter": "scatter",
    "Send": "send", "Recv": "recv",
}  # fmt: skip
_DTYPES = (
    "Char", "Byte", "Int", "UInt32", "Long", "UInt64", "Half", "Float", "Double", "BFloat16",
    "Float8_e4m3fn", "Float8_e5m2",
)  # fmt: skip
_PROCESS = rb"([A-Za-z0-9][\w.\-]{0,127}):(\d{1,7}):\d{1,20} \[(-?\d{1,4})\] NCCL INFO "
_CALL = re.compile(
    _PROCESS + rb"\w{1,32}: opCount \w{1,16} .{1,400} root (\d{1,9}) comm (0x[0-9a-f]{1,16}) "
    rb"\[nranks=(\d{1,7})\]"
)
_INIT = re.compile(
    _PROCESS + rb"(?:\[Rank \d{1,7}\] )?(?:\w{1,64} )?comm (?P<comm>0x[0-9a-f]{1,16}) "
    rb"rank (?P<rank>\d{1,7}) nranks (?P<size>\d{1,7}) cudaDev (?P<dev>-?\d{1,4})"
    rb"(?: nvmlDev -?\d{1,4})?(?: busId (?P<bus>[0-9a-f]{1,12}))?"
    rb"(?: parent (?P<parent>0x[0-9a-f]{1,16}))?"
    rb"(?: (?:splitCount|childCount) (?P<split>\d{1,9}))?"
    rb"(?: color (?P<color>-?\d{1,10}) key -?\d{1,10})?"
    rb"(?: commId (?P<id>0x[0-9a-f]{1,16}))? ?- Init (?P<what>START|COMPLETE)"
)

Key = tuple[str, int, str]  # host, process, pointer of the communicator


class _Index:
    """Hashes to codes 0, 1, 2 … in the order of their first appearance."""

    def __init__(self, limit: int) -> None:
        self.full = False
        self._limit = limit
        self._known: Words = np.zeros(0, np.uint64)
        self._codes: Ints = np.zeros(0, np.int64)

    def codes(self, hashes: Words) -> tuple[Ints, Ints]:
        """The code of each hash (-1: not known and no room), and the rows where a new one is."""
        codes, missing = self._look_up(hashes)
        if not len(missing):
            return codes, missing
        _, first = np.unique(hashes[missing], return_index=True)
        rows: Ints = np.sort(missing[first])
        room = self._limit - len(self._known)
        self.full |= len(rows) > room
        rows = rows[:room]
        known = np.concatenate((self._known, hashes[rows]))
        new = np.arange(len(self._codes), len(self._codes) + len(rows))
        order = np.argsort(known)
        self._codes = np.concatenate((self._codes, new))[order]
        self._known = known[order]
        return self._look_up(hashes)[0], rows

    def _look_up(self, hashes: Words) -> tuple[Ints, Ints]:
        if not len(self._known):
            return np.full(len(hashes), -1), np.arange(len(hashes))
        place = np.minimum(np.searchsorted(self._known, hashes), len(self._known) - 1)
        same = self._known[place] == hashes
        return np.where(same, self._codes[place], -1), np.flatnonzero(~same)


class _Last:
    """The last rows of every code, which is their first column."""

    def __init__(self, keep: int) -> None:
        self.known = 0  # codes
        self._most = keep
        self._parts: list[Ints] = [np.zeros((0, _COLUMNS), np.int64)]
        self._rows = 0
        self._limit = _COMPACT

    @property
    def keep(self) -> int:
        """How many rows are kept of each code; it only ever falls."""
        return max(2, min(self._most, KEEP_TOTAL // max(1, self.known)))

    def add(self, rows: Ints) -> None:
        self._parts.append(rows)
        self._rows += len(rows)
        if self._rows > self._limit:
            self._limit = max(_COMPACT, 3 * len(self.rows()))

    def rows(self) -> Ints:
        """All rows kept, by code, oldest first."""
        rows = np.concatenate(self._parts)
        self._parts = [rows[last_rows(rows[:, 0], self.keep)]]
        self._rows = len(self._parts[0])
        return self._parts[0]


def last_rows(codes: Ints, keep: int) -> Ints:
    """The places of the last `keep` rows of every code, ordered by code and then as they were."""
    if not len(codes):
        return codes
    small = codes.astype(np.uint16) if codes.max() < 1 << 16 else codes  # sorted by radix
    order = np.argsort(small, kind="stable")
    counts = np.bincount(codes)
    behind = np.cumsum(counts)[codes[order]] - np.arange(len(codes))
    chosen: Ints = order[behind <= keep]
    return chosen


@dataclass(slots=True)
class _Comm:
    """A communicator of a process as its call lines tell it.

    `whole`: seen from its first call on. `launch` is the opCount of its last call, `p2p` how many
    launches of sends and receives came before.
    """

    key: Key
    device: int
    size: int
    whole: bool


@dataclass(slots=True)
class _Life:
    """A communicator of a process as its init lines tell it."""

    name: str
    rank: int
    size: int
    device: int
    bus_id: str | None
    line: int
    done: bool
    splits: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class _Piece:
    """A block of a chunk as it is read; `carried` newlines of it are from before the chunk."""

    data: bytes
    place: int
    newlines: Ints
    carried: int
    before: int  # newlines of the chunk in front of it
    chunk: Chunk

    def lines(self, at: Ints) -> Ints:
        """Line numbers of offsets."""
        index = np.searchsorted(self.newlines, at) - self.carried + self.before
        if self.chunk.lines is not None:
            return np.asarray(self.chunk.lines)[np.clip(index, 0, len(self.chunk.lines) - 1)]
        return index + self.chunk.first_line


class CollReader:
    """Reads the chunks of one text source as they go by; `result` when all have been fed.

    Chunks without call and init lines may be left out. Never raises; what passes a bound is
    dropped, with a note in the source.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._hashes = _Index(MAX_STREAMS)
        self._code_of: Ints = np.zeros(0, np.int64)  # of a hash: its communicator, or below 0
        self._comms: list[_Comm] = []
        self._launch: Ints = np.zeros(0, np.int64)  # by communicator: opCount of the last call
        self._p2p_launches: Ints = np.zeros(0, np.int64)
        self._calls = _Last(KEEP_CALLS)
        self._pair_hashes = _Index(MAX_STREAMS)
        self._pairs: list[tuple[int, int]] = []  # communicator and peer
        self._pair_counts: Ints = np.zeros(0, np.int64)
        self._pair_calls = _Last(KEEP_P2P)
        self._current: dict[Key, int] = {}
        self._lives: dict[Key, _Life] = {}
        self._seen: dict[Key, None] = {}  # in order of appearance
        self._ranks: dict[tuple[str, int], int | None] = {}
        self._full = False
        self._carry = b""
        self._low = 0
        self._place = 0
        self._next_line = 1

    def feed(self, chunk: Chunk) -> None:
        """Read the next chunk."""
        if self._carry and chunk.first_line != self._next_line:
            self._end_line()
        data, start, before = chunk.data, 0, 0
        while start < len(data):
            end = data.rfind(b"\n", start, start + _BLOCK) + 1 or min(len(data), start + _BLOCK)
            before += self._read(data[start:end], chunk, before)
            start = end
        self._next_line = chunk.first_line + before

    def _end_line(self) -> None:
        """The unfinished line will not go on."""
        if self._carry:
            self._read(b"\n", Chunk(b"\n", 0, self._next_line), 0)

    def _read(self, part: bytes, chunk: Chunk, before: int) -> int:
        """Read a part of a chunk behind what was carried over; returns its newlines."""
        data = self._carry + part if self._carry else part
        high = len(data) if data.endswith(b"\n") else max(self._low, len(data) - REACH)
        block = find(data, self._low, high)
        carried = self._carry.count(b"\n")
        piece = _Piece(data, self._place - len(self._carry), block.newlines, carried, before, chunk)
        begin = 0
        calls = block.calls
        for at in block.inits.tolist():
            # A pointer that was used before is another communicator from here on.
            key = self._init(piece, at)
            if calls is not None and key in self._current:
                middle = int(np.searchsorted(calls.at, at))
                self._add(calls.take(slice(begin, middle)), piece)
                begin = middle
            if key is not None:
                self._forget(key)
        if calls is not None:
            self._add(calls.take(slice(begin, None)), piece)
        self._place += len(part)
        cut = max(0, high - REACH)
        self._carry = b"" if high == len(data) else data[cut:]
        self._low = high - cut if self._carry else 0
        return len(block.newlines) - carried

    def _init(self, piece: _Piece, at: int) -> Key | None:
        """Note an init line; the key when a new communicator begins with it."""
        low = max(0, at - REACH + 64)
        text = piece.data[low : at + 16]
        text = text[max(text.rfind(b"\n", 0, at - low), text.rfind(b"\r", 0, at - low)) + 1 :]
        found = _INIT.search(text)
        if found is None:
            return None
        host, pid, pointer = found[1].decode(), int(found[2]), found["comm"].decode()
        key = (host, pid, pointer)
        rank, size = int(found["rank"]), int(found["size"])
        life = self._lives.get(key)
        if (found["what"] == b"COMPLETE" and life is not None and not life.done) and (
            (life.rank, life.size) == (rank, size)
        ):
            life.done = True
            return None
        if key not in self._seen and len(self._seen) >= MAX_COMMS:
            self._full = True
            return None
        self._who(host, pid, text)
        self._lives[key] = _Life(
            self._name(host, pid, found), rank, size, int(found["dev"]),
            found["bus"].decode() if found["bus"] else None, int(piece.lines(np.array([at]))[0]),
            found["what"] == b"COMPLETE",
        )  # fmt: skip
        self._seen.pop(key, None)
        self._seen[key] = None
        return key

    def _name(self, host: str, pid: int, found: re.Match[bytes]) -> str:
        """What names the communicator on all its ranks; "" where the line does not tell.

        Splits have no commId from 2.23 on. Before 2.25 nothing counts them either: the n-th split
        of a color is taken, because ranks that get none (NCCL_SPLIT_NOCOLOR) print no line.
        """
        if found["id"]:
            return found["id"].decode()
        parent = self._lives.get((host, pid, (found["parent"] or b"").decode()))
        if parent is None or not parent.name or not found["color"]:
            return ""
        color = found["color"].decode()
        parent.splits[color] += 1
        number = found["split"].decode() if found["split"] else f"n{parent.splits[color]}"
        name = f"{parent.name}/{number}.{color}"
        return name if len(name) <= _NAME else ""

    def _who(self, host: str, pid: int, text: bytes) -> None:
        """Note the rank that the prefixes of a process's first line tell."""
        if (host, pid) not in self._ranks:
            prefix = peel(text.decode(errors="replace"))
            self._ranks[host, pid] = prefix.rank if prefix.rank is not None else prefix.task

    def _forget(self, key: Key) -> None:
        code = self._current.pop(key, None)
        if code is not None:
            self._code_of[self._code_of == code] = _STALE

    def _add(self, calls: Calls, piece: _Piece) -> None:
        """Take in the calls of a block, all of them behind those taken in before."""
        hashes, new = self._hashes.codes(calls.comm)
        self._code_of = np.concatenate((self._code_of, np.full(len(new), _STALE)))
        code = np.where(hashes < 0, _NONE, self._code_of[hashes])
        if (code == _STALE).any():
            stale = np.flatnonzero(code == _STALE)
            for row in stale[np.sort(np.unique(hashes[stale], return_index=True)[1])].tolist():
                self._code_of[hashes[row]] = self._meet(calls, row, piece)
            code = np.where(hashes < 0, _NONE, self._code_of[hashes])
        if (code < 0).any():
            rows = np.flatnonzero(code >= 0)
            calls, code = calls.take(rows), code[rows]
        if not len(code):
            return
        p2p = calls.side != 0
        seq = self._sequence(code, calls.count, p2p)
        if not p2p.any():
            self._keep(self._calls, code, seq, calls, piece)
            return
        rows = np.flatnonzero(~p2p)
        self._keep(self._calls, code[rows], seq[rows], calls.take(rows), piece)
        rows = np.flatnonzero(p2p)
        self._add_pairs(code[rows], calls.take(rows), piece)

    def _keep(self, last: _Last, code: Ints, seq: Ints, calls: Calls, piece: _Piece) -> None:
        rows = last_rows(code, last.keep)
        taken = calls.take(rows)
        columns = (
            code[rows], taken.at + piece.place, piece.lines(taken.at), seq[rows],
            taken.op.view(np.int64), *taken.numbers(),
        )  # fmt: skip
        last.add(np.stack(columns, axis=1))

    def _meet(self, calls: Calls, row: int, piece: _Piece) -> int:
        """The communicator of a call that is the first of its kind."""
        begin, at, end = (int(column[row]) for column in (calls.begin, calls.at, calls.end))
        found = _CALL.search(piece.data, begin, end)
        if found is None:
            return _NONE
        key = (found[1].decode(), int(found[2]), found[5].decode())
        code = self._current.get(key)
        if code is not None:
            return code
        if key not in self._seen and len(self._seen) >= MAX_COMMS:
            self._full = True
            return _NONE
        low = max(0, at - REACH)
        start = max(piece.data.rfind(mark, low, begin) for mark in (b"\n", b"\r")) + 1
        self._who(*key[:2], piece.data[max(start, low) : end])
        code = self._current[key] = len(self._comms)
        self._seen.setdefault(key)
        self._comms.append(_Comm(key, int(found[3]), int(found[6]), int(calls.count[row]) == 0))
        self._launch = np.append(self._launch, -1)
        self._p2p_launches = np.append(self._p2p_launches, 0)
        self._calls.known = len(self._comms)
        return code

    def _sequence(self, code: Ints, count: Ints, p2p: npt.NDArray[np.bool_]) -> Ints:
        """The opCount less the launches of sends and receives before, by communicator."""
        if not p2p.any() and not self._pairs:
            return count
        order = np.argsort(code, kind="stable")
        ordered, launch = code[order], count[order]
        first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
        before = np.where(first, self._launch[ordered], np.roll(launch, 1))
        running = np.cumsum((launch != before) & p2p[order])
        starts = np.flatnonzero(first)
        base = np.concatenate(([0], running))[starts]
        running += np.repeat(
            self._p2p_launches[ordered[starts]] - base, np.diff(np.append(starts, len(ordered)))
        )
        last = np.append(starts[1:], len(ordered)) - 1
        self._launch[ordered[last]] = launch[last]
        self._p2p_launches[ordered[last]] = running[last]
        seq = np.empty_like(count)
        seq[order] = launch - running
        return seq

    def _add_pairs(self, code: Ints, calls: Calls, piece: _Piece) -> None:
        """Number sends and receives by communicator, direction and peer."""
        key = (code.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD6E8FEB86659FD93)
        pair, new = self._pair_hashes.codes(calls.side ^ key)
        for row in new.tolist():
            found = _CALL.search(piece.data, int(calls.begin[row]), int(calls.end[row]))
            self._pairs.append((int(code[row]), int(found[4]) if found else -1))
        self._pair_counts = np.concatenate((self._pair_counts, np.zeros(len(new), np.int64)))
        self._pair_calls.known = len(self._pairs)
        rows = np.flatnonzero(pair >= 0)
        order = rows[np.argsort(pair[rows], kind="stable")]
        ordered = pair[order]
        counts = np.bincount(ordered, minlength=len(self._pairs))
        seq = np.zeros(len(pair), np.int64)
        place = np.arange(len(order)) - (np.cumsum(counts) - counts)[ordered]
        seq[order] = place + self._pair_counts[ordered]
        self._pair_counts += counts
        self._keep(self._pair_calls, pair[rows], seq[rows], calls.take(rows), piece)

    def result(self) -> list[CommRank]:
        """Every communicator of every process, in the order of their first lines.

        `launched` counts collectives only: -1 for none. It is None when a log that begins in the
        middle of the job leaves the number open because of sends and receives. A process that
        never completed its init has one call `INIT` with the number -1.
        """
        self._end_line()
        calls: dict[int, list[tuple[int, CollCall]]] = {}
        for code, place, *rest in self._calls.rows().tolist():
            calls.setdefault(code, []).append((place, _call(rest, "")))
        for pair, place, *rest in self._pair_calls.rows().tolist():
            code, peer = self._pairs[pair]
            life = self._lives.get(self._comms[code].key)
            to = f" {life.rank}{{}}{peer}" if life else ""
            calls.setdefault(code, []).append((place, _call(rest, to)))
        if self._full or self._hashes.full or self._pair_hashes.full:
            self._source.notes.append(
                f"more than {MAX_COMMS:,} NCCL communicators or {MAX_STREAMS:,} senders and "
                "receivers: the rest is left out"
            )
            self._full = self._hashes.full = self._pair_hashes.full = False
        return [self._told(key, calls) for key in self._seen]

    def _told(self, key: Key, calls: dict[int, list[tuple[int, CollCall]]]) -> CommRank:
        life, code = self._lives.get(key), self._current.get(key)
        own = [call for _, call in sorted(calls.get(-1 if code is None else code, []), key=_place)]
        launched: int | None = max((c.seq for c in own if not _P2P.match(c.op)), default=-1)
        if code is not None and self._p2p_launches[code] and not self._comms[code].whole:
            own, launched = [], None
        source = self._source
        rank = self._ranks.get(key[:2])
        if rank is None:
            rank = source.rank if source.rank is not None else source.task
        told = CommRank(
            source.name, 0, life.name if life else "", life.rank if life else None, None, rank,
            key[0], key[1], calls=own, launched=launched,
        )  # fmt: skip
        if code is not None:
            told.size, told.device = self._comms[code].size, self._comms[code].device
        if life is not None:
            told.size, told.device, told.bus_id = life.size, life.device, life.bus_id
            if code is None and not life.done:
                told.calls = [CollCall(-1, INIT, -1, "", life.line)]
        told.line = own[-1].line if own else life.line if life else 0
        return told


def _place(call: tuple[int, CollCall]) -> int:
    return call[0]


def _call(row: list[int], peer: str) -> CollCall:
    """A kept row without code and place; `peer` is how torch names the ends of a send."""
    line, seq, op, size, front, dtype = row
    word = op.to_bytes(8, "little", signed=True).rstrip(b"\0:").decode(errors="replace")
    name = _OPS.get(word, word.lower())
    if name in ("send", "recv"):
        name += peer.format("->" if name == "send" else "<-")
    number, kind = decimal(size), decimal(dtype)
    if front:
        number += decimal(front) * 10**8
    return CollCall(seq, name, number, _DTYPES[kind] if kind < len(_DTYPES) else str(kind), line)
