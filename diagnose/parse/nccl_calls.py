"""How far every rank got in every communicator by NCCL's own lines (FORMATS 4.2 and 4.3).

    node01:4001:4901 [0] NCCL INFO AllReduce: opCount 1f sendbuff 0x7f… recvbuff 0x7f… count 1024
    datatype 7 op 0 root 0 comm 0x55… [nranks=8] stream 0x55…

`NCCL_DEBUG=INFO` with `NCCL_DEBUG_SUBSYS=COLL` prints a line a call, with the number of the call in
its communicator in hexadecimal; INIT lines tell what rank of which communicator a pointer stands
for. There are millions of call lines, so of each only the process, the communicator and the kind of
the operation are looked at, and the last few of every communicator are kept and parsed at the end.
What comes out is the same for any chunking.

`opCount` counts launches, sends and receives included, and these differ between ranks. So `seq` of
a collective is its opCount less the launches of sends and receives before it; without any, it is
the opCount. Of a send or receive, `seq` counts those between the same two ranks in this direction.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from diagnose.parse.chunk import Chunk, Origin
from diagnose.parse.comm_rank import CollCall, CommRank
from diagnose.parse.nccl_inits import ENDS, MAX_COMMS, PROCESS, REACH, Inits, Key, key_of

KEEP_CALLS = 64  # last calls kept of a communicator on a rank
KEEP_P2P = 8  # of sends to, or receives from, one peer
KEEP_TOTAL = 1 << 19  # calls; with very many communicators fewer are kept of each
MAX_STREAMS = 200_000  # pairs of sender and receiver
_FORMS = 1 << 16  # forms of lines of which the communicator is remembered
_COUNT, _INFO = b": opCount ", b" NCCL INFO "
_COMM, _ROOT, _INIT = b" comm 0x", b" root ", b"- Init "
_LONG = 256  # bytes of a line from the number of the call on that are looked at
_P2P = {b"Send": "->", b"Recv": "<-"}
_OPS = {
    b"AllReduce": "all_reduce", b"AllGather": "all_gather", b"ReduceScatter": "reduce_scatter",
    b"Broadcast": "broadcast", b"Reduce": "reduce", b"AlltoAll": "all_to_all",
    b"AllToAll": "all_to_all", b"Gather": "gather", b"Scatter": "scatter",
    b"Send": "send", b"Recv": "recv",
}  # fmt: skip
_DTYPES = (
    "Char", "Byte", "Int", "UInt32", "Long", "UInt64", "Half", "Float", "Double", "BFloat16",
    "Float8_e4m3fn", "Float8_e5m2",
)  # fmt: skip
_CALLER = re.compile(PROCESS + rb"\Z")
_CALL = re.compile(
    rb"([0-9a-f]{1,15}) sendbuff \S{1,20} recvbuff \S{1,20} count (\d{1,20}) datatype (\d{1,3}) "
    rb"op \d{1,10} root (-?\d{1,9}) comm (0x[0-9a-f]{1,16}) \[nranks=(\d{1,6})\] stream"
)

Form = tuple[bytes, ...]  # alike for the calls of one thread in one communicator
CallLine = tuple[bytes, bytes, bytes, Form]  # ahead of NCCL's prefix, operation, rest, form


def call_line(line: bytes) -> CallLine | None:
    """The parts of a line without carriage returns, the rest from the number of the call on.

    None where it is of no call. A line torn by another writer can have two; the last is meant.
    """
    before, found, rest = line.partition(_COUNT)
    if not found:
        return None
    if _COUNT in rest:
        before, _, rest = line.rpartition(_COUNT)
    ahead, _, op = before.rpartition(_INFO)
    comm = rest.find(_COMM, 0, _LONG)
    if comm < 0 or op not in _OPS:
        return None
    return ahead, op, rest[:_LONG], (*ahead.rsplit(b" ", 2)[-2:], rest[comm:_LONG])


class Called(NamedTuple):
    """One call: the pointer of its communicator, and what is called, of how much, for people."""

    comm: str
    what: str


def called(line: bytes) -> Called | None:
    """The collective that a line calls; None of sends and receives, and of other lines."""
    parts = call_line(line)
    found = _CALL.match(parts[2]) if parts and parts[1] not in _P2P else None
    if parts is None or found is None:
        return None
    kind = int(found[3])
    dtype = _DTYPES[kind] if kind < len(_DTYPES) else f"type {kind}"
    return Called(found[5].decode(), f"{parts[1].decode()} of {int(found[2])} {dtype}")


@dataclass(slots=True)
class _Comm:
    """A communicator of a process as its call lines tell it; `whole`: from its first call on.

    `begin` is the line of the first one known, `calls` have line, launches of sends and receives
    before it, operation and text. `peers`: by operation and peer how many there were, and the last.
    """

    key: Key
    device: int
    size: int
    whole: bool
    begin: int
    calls: deque[tuple[int, int, bytes, bytes]]
    launches: int = 0
    last_launch: bytes = b""
    peers: dict[tuple[bytes, bytes], tuple[list[int], deque[tuple[int, bytes]]]] = field(
        default_factory=dict
    )
    ended: bool = False


class CallReader:
    """Reads the chunks of one text source as they go by; `result` when all have been fed.

    Chunks without call and init lines may be left out. Never raises; what passes a bound is
    dropped, with a note in the source. `inits` has what init lines told before the first chunk.
    """

    def __init__(self, source: Origin, inits: Inits | None = None) -> None:
        self.inits = inits or Inits()
        self._source = source
        self._most = KEEP_CALLS
        self._forms: dict[Form, _Comm] = {}
        self._comms: dict[Key, _Comm] = {}
        self._peers = 0
        self._carry = b""  # the end of an unfinished line
        self._carry_line = self._next_line = 1

    def feed(self, chunk: Chunk) -> None:
        """Read the next chunk."""
        if self._carry and chunk.first_line != self._next_line:
            self._end_line()
        rows = chunk.data.split(b"\n")
        rows[0] = self._carry + rows[0]
        lines = chunk.lines or range(chunk.first_line, chunk.first_line + len(rows))
        self._carry = rows.pop()[-2 * REACH :]
        self._next_line = chunk.first_line + len(rows)
        self._carry_line = lines[min(len(rows), len(lines) - 1)]
        begins = _INIT in chunk.data or _INIT in self._carry
        for number, row in zip(lines, rows, strict=False):
            parts = call_line(row) if b"\r" not in row else None
            if parts is not None:
                self._call(parts, number)
            elif begins or b"\r" in row:
                self._read(row, number)

    def _end_line(self) -> None:
        """The unfinished line will not go on."""
        self._read(self._carry, self._carry_line)
        self._carry = b""

    def _read(self, row: bytes, line: int) -> None:
        for text in row.split(b"\r") if b"\r" in row else (row,):
            parts = call_line(text) if _COUNT in text else None
            if parts is not None:
                self._call(parts, line)
                continue
            for end in ENDS.finditer(text):
                found = self.inits.find(text, end.end())
                if found is not None:
                    self._begin(found, line)

    def _begin(self, init: re.Match[bytes], line: int) -> None:
        """A communicator begins with this init line; a pointer used before is another one now."""
        self.inits.begin(init, line)
        before = self._comms.pop(key_of(init), None)
        if before is not None:
            before.ended = True

    def _call(self, parts: CallLine, line: int) -> None:
        _, op, text, form = parts
        comm = self._forms.get(form)
        if comm is None or comm.ended:
            comm = self._meet(parts, line)
            if comm is None:
                return
        if op in _P2P:
            self._between_two(comm, op, text, line)
        else:
            comm.calls.append((line, comm.launches, op, text))

    def _between_two(self, comm: _Comm, op: bytes, text: bytes, line: int) -> None:
        """A send or a receive, of which a launch may hold several."""
        if _CALL.match(text) is None:
            return
        launch, _, rest = text.partition(b" ")
        if launch != comm.last_launch:
            comm.launches, comm.last_launch = comm.launches + 1, launch
        peer = rest[rest.find(_ROOT) + len(_ROOT) : rest.find(_COMM)]
        own = comm.peers.get((op, peer))
        if own is None:
            if self._peers >= MAX_STREAMS:
                self.inits.full = True
                return
            self._peers += 1
            own = comm.peers[op, peer] = [0], deque(maxlen=KEEP_P2P)
        own[0][0] += 1
        own[1].append((line, text))

    def _meet(self, parts: CallLine, line: int) -> _Comm | None:
        """The communicator of a call of a new form; None if it is torn, or there is no room."""
        ahead, _, text, form = parts
        ahead = ahead[-REACH:]
        caller, found = _CALLER.search(ahead), _CALL.match(text)
        if caller is None or found is None:
            return None
        key = (caller[1].decode(), int(caller[2]), found[5].decode())
        comm = self._comms.get(key)
        if comm is None:
            if not self.inits.room(key):
                return None
            self.inits.who(*key[:2], ahead[: caller.start()])
            self.inits.seen.setdefault(key)
            whole = int(found[1], 16) == 0
            comm = self._comms[key] = _Comm(
                key, int(caller[3]), int(found[6]), whole, line, deque(maxlen=self._most)
            )
            self._keep_fewer()
        if len(self._forms) >= _FORMS:
            self._forms.clear()
        self._forms[form] = comm
        return comm

    def _keep_fewer(self) -> None:
        if self._most > 2 and len(self._comms) * self._most > KEEP_TOTAL:
            self._most //= 2
            for comm in self._comms.values():
                comm.calls = deque(comm.calls, self._most)

    def short(self, line: int) -> dict[Key, Missing]:
        """The communicators that may have made more of the calls that count, before this line."""
        self._end_line()
        missing: dict[Key, Missing] = {}
        for key, comm in self._comms.items():
            life = self.inits.lives.get(key)
            begin = life.line if life else comm.begin
            calls = [call for call in comm.calls if call[0] >= line]
            more = self._most if not calls else min(self._most, number_of(calls[-1][3]) + 1)
            if begin < line and len(calls) < more:
                missing[key] = Missing(begin, more - len(calls), bool(calls))
        return missing

    def unannounced(self) -> bool:
        """Whether a communicator was met in the middle of its calls, without its beginning."""
        return any(
            not comm.whole and key not in self.inits.lives for key, comm in self._comms.items()
        )

    def key(self, parts: CallLine) -> Key | None:
        """Whose call this is, of those that were met."""
        comm = self._forms.get(parts[3]) or self._meet(parts, 0)
        return comm.key if comm else None

    def result(self) -> list[CommRank]:
        """Every communicator of every process, in the order of their first lines.

        `launched` counts collectives only: -1 for none. It is None when a log that begins in the
        middle of the job leaves the number open because of sends and receives. A process that
        never completed its init has one call `INIT` with the number -1.
        """
        self._end_line()
        if self.inits.full:
            self._source.notes.append(
                f"more than {MAX_COMMS:,} NCCL communicators or {MAX_STREAMS:,} senders and "
                "receivers: the rest is left out"
            )
            self.inits.full = False
        return [self._comm_rank(key) for key in self.inits.seen]

    def _comm_rank(self, key: Key) -> CommRank:
        found, comm = self.inits.comm_rank(key, self._source), self._comms.get(key)
        if comm is None:
            return found
        life = self.inits.lives.get(key)
        if life is None:
            found.size, found.device = comm.size, comm.device
        own = [*_collectives(comm)]
        found.calls = [*own, *_sent(comm, life.rank if life else None)]
        found.calls.sort(key=_line)
        found.line = found.calls[-1].line if found.calls else found.line
        found.launched = max((call.seq for call in own), default=-1)
        if comm.launches and not comm.whole:
            found.calls, found.launched = [], None
        return found


@dataclass(frozen=True, slots=True)
class Missing:
    """What may be missing of a communicator's calls: `more` of them, from the line `begin` on.

    `met`: some of its last ones are known already.
    """

    begin: int
    more: int
    met: bool


def number_of(text: bytes) -> int:
    """The number of a call; that of a torn line is large."""
    found = _CALL.match(text)
    return int(found[1], 16) if found else KEEP_TOTAL


def _collectives(comm: _Comm) -> Iterator[CollCall]:
    for line, launches, op, text in comm.calls:
        found = _CALL.match(text)
        if found is not None:
            yield _made(int(found[1], 16) - launches, _OPS[op], found, line)


def _sent(comm: _Comm, rank: int | None) -> Iterator[CollCall]:
    """Sends and receives; torch names them by both ends."""
    for (op, _), ((count,), last) in comm.peers.items():
        for number, (line, text) in enumerate(last, count - len(last)):
            found = _CALL.match(text)
            if found is not None:
                ends = "" if rank is None else f" {rank}{_P2P[op]}{int(found[4])}"
                yield _made(number, _OPS[op] + ends, found, line)


def _made(number: int, op: str, found: re.Match[bytes], line: int) -> CollCall:
    kind = int(found[3])
    dtype = _DTYPES[kind] if kind < len(_DTYPES) else str(kind)
    return CollCall(number, op, int(found[2]), dtype, line)


def _line(call: CollCall) -> int:
    return call.line
