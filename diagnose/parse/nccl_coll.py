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
from dataclasses import dataclass

import numpy as np

from diagnose.parse.chunk import Chunk, Origin
from diagnose.parse.comm_rank import CollCall, CommRank
from diagnose.parse.nccl_call_line import CALL, CALLER, call_of
from diagnose.parse.nccl_calls import SEND, Calls, Finder, Ints, op_counts
from diagnose.parse.nccl_inits import MAX_COMMS, REACH, Inits, Key, key_of
from diagnose.parse.nccl_peers import Launches, Peers
from diagnose.parse.nccl_streams import Index, Last, Piece

KEEP_CALLS = 64  # last calls kept of a communicator on a rank
KEEP_P2P = 8  # of sends to, or receives from, one peer
MAX_STREAMS = 200_000  # pairs of sender and receiver; threads of processes
_BLOCK = 1 << 20  # stays in the processor's cache
_STALE, _NONE = -2, -1  # hashes whose communicator is to be looked up, and that have none
_P2P = re.compile(r"(?:send|recv)\b")


@dataclass(slots=True)
class _Comm:
    """A communicator of a process as its call lines tell it; `whole`: from its first call on."""

    key: Key
    device: int
    size: int
    whole: bool


class CollReader:
    """Reads the chunks of one text source as they go by; `result` when all have been fed.

    Chunks without call and init lines may be left out. Never raises; what passes a bound is
    dropped, with a note in the source. `inits` has what init lines told before the first chunk.
    """

    def __init__(self, source: Origin, inits: Inits | None = None) -> None:
        self._source = source
        self._finder = Finder()
        self._hashes = Index(MAX_STREAMS)
        self._code_of: Ints = np.zeros(0, np.int64)  # of a hash: its communicator, or below 0
        self._comms: list[_Comm] = []
        self._launches = Launches()
        self._calls = Last(KEEP_CALLS)
        self._peers = Peers(KEEP_P2P, MAX_STREAMS)
        self._current: dict[Key, int] = {}
        self._inits = inits or Inits()
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
        block = self._finder.find(data, self._low, high)
        carried = self._carry.count(b"\n")
        piece = Piece(data, self._place - len(self._carry), block.newlines, carried, before, chunk)
        calls, begin = block.calls, 0
        for at in block.inits:
            found = self._inits.find(piece.data, at)
            if found is None:
                continue
            # A pointer used before is another communicator from here on, so calls go first.
            if calls is not None:
                middle = int(np.searchsorted(calls.at, at))
                self._add(calls.take(slice(begin, middle)), piece)
                begin = middle
            self._begin(found, piece.line(at))
        if calls is not None:
            self._add(calls.take(slice(begin, None)), piece)
        self._place += len(part)
        cut = max(0, high - REACH)
        self._carry = b"" if high == len(data) else data[cut:]
        self._low = high - cut if self._carry else 0
        return len(block.newlines) - carried

    def _begin(self, found: re.Match[bytes], line: int) -> None:
        """A communicator begins with this init line."""
        self._inits.begin(found, line)
        code = self._current.pop(key_of(found), None)
        if code is not None:
            self._code_of[self._code_of == code] = _STALE

    def _add(self, calls: Calls, piece: Piece) -> None:
        """Take in the calls of a block, all of them behind those taken in before."""
        if not len(calls.at):
            return
        hashes, new = self._hashes.codes(calls.comm)
        self._code_of = np.concatenate((self._code_of, np.full(len(new), _STALE)))
        code = np.where(hashes < 0, _NONE, self._code_of[hashes])
        if (code < 0).any():
            unknown: set[int] = set(np.unique(hashes[code == _STALE]).tolist())
            dropped = code == _NONE
            for row in np.flatnonzero(code == _STALE).tolist():
                if not unknown:
                    break
                if int(hashes[row]) in unknown:
                    met = self._code_of[hashes[row]] = self._meet(calls, row, piece)
                    dropped[row] = met < 0
                    if met != _STALE:
                        unknown.discard(int(hashes[row]))
            code = np.where(dropped, _NONE, self._code_of[hashes])
            rows = np.flatnonzero(code >= 0)
            calls, code = calls.take(rows), code[rows]
        if not len(code):
            return
        p2p = calls.op >= SEND
        if not p2p.any() and not len(self._peers):
            self._calls.add(piece, code, np.zeros(len(code), np.int64), calls)
            return
        launch = op_counts(piece.data, calls.count)
        if (launch < 0).any():
            rows = np.flatnonzero(launch >= 0)
            calls, code, launch, p2p = calls.take(rows), code[rows], launch[rows], p2p[rows]
        before = self._launches.before(code, launch, p2p)
        rows = np.flatnonzero(~p2p)
        self._calls.add(piece, code[rows], before[rows], calls.take(rows))
        rows = np.flatnonzero(p2p)
        self._peers.add(code[rows], calls.take(rows), piece)

    def _meet(self, calls: Calls, row: int, piece: Piece) -> int:
        """The communicator of a call that is the first of its kind; `_STALE` if it is torn."""
        info, at = int(calls.info[row]), int(calls.at[row])
        low = max(0, at - REACH)
        low = max(low, *(piece.data.rfind(mark, low, info) + 1 for mark in (b"\n", b"\r")))
        before = piece.data[low:info]
        caller, found = CALLER.search(before), CALL.match(piece.data, info)
        if caller is None or found is None or found.end() < at:
            return _STALE
        key = (caller[1].decode(), int(caller[2]), found[5].decode())
        code = self._current.get(key)
        if code is not None:
            return code
        if not self._inits.room(key):
            return _NONE
        self._inits.who(*key[:2], before[: caller.start()])
        code = self._current[key] = len(self._comms)
        self._inits.seen.setdefault(key)
        self._comms.append(_Comm(key, int(caller[3]), int(found[6]), int(found[1], 16) == 0))
        self._launches.begin(code)
        self._calls.known = len(self._comms)
        return code

    def short(self, line: int) -> dict[bytes, int]:
        """How many calls more, before this line, may count, by the pointer of a communicator.

        Only communicators with an init line before it are looked at.
        """
        self._end_line()
        have = Counter(self._calls.rows()[:, 0].tolist())
        missing: dict[bytes, int] = {}
        for key, life in self._inits.lives.items():
            code = self._current.get(key)
            more = KEEP_CALLS - (have[code] if code is not None else 0)
            if more > 0 and life.line < line:
                pointer = key[2].encode()
                missing[pointer] = max(missing.get(pointer, 0), more)
        return missing

    def unannounced(self) -> bool:
        """Whether a communicator had calls but no init line."""
        return any(key not in self._inits.lives for key in self._current)

    def result(self) -> list[CommRank]:
        """Every communicator of every process, in the order of their first lines.

        `launched` counts collectives only: -1 for none. It is None when a log that begins in the
        middle of the job leaves the number open because of sends and receives. A process that
        never completed its init has one call `INIT` with the number -1.
        """
        self._end_line()
        calls: dict[int, list[tuple[int, CollCall]]] = {}
        for code, place, *rest in self._calls.rows().tolist():
            call = call_of(rest, "")
            if call is not None:
                calls.setdefault(code, []).append((place, call))
        for code, peer, place, rest in self._peers.rows():
            life = self._inits.lives.get(self._comms[code].key)
            call = call_of(rest, f" {life.rank}{{}}{peer}" if life else "")
            if call is not None:
                calls.setdefault(code, []).append((place, call))
        if self._inits.full or self._hashes.full or self._peers.hashes.full:
            self._source.notes.append(
                f"more than {MAX_COMMS:,} NCCL communicators or {MAX_STREAMS:,} senders and "
                "receivers: the rest is left out"
            )
            self._inits.full = self._hashes.full = self._peers.hashes.full = False
        return [self._comm_rank(key, calls) for key in self._inits.seen]

    def _comm_rank(self, key: Key, calls: dict[int, list[tuple[int, CollCall]]]) -> CommRank:
        found, code = self._inits.comm_rank(key, self._source), self._current.get(key)
        if code is None:
            return found
        comm = self._comms[code]
        if key not in self._inits.lives:
            found.size, found.device = comm.size, comm.device
        found.calls = [call for _, call in sorted(calls.get(code, []), key=_place)]
        found.line = found.calls[-1].line if found.calls else found.line
        found.launched = max((c.seq for c in found.calls if not _P2P.match(c.op)), default=-1)
        if self._launches.any(code) and not comm.whole:
            found.calls, found.launched = [], None
        return found


def _place(call: tuple[int, CollCall]) -> int:
    return call[0]
