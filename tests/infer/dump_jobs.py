"""A small simulator of NCCL jobs that leaves Flight Recorder dumps.

Every rank runs a program of calls. Its host enqueues up to `ahead` kernels that have not finished.
Each group has a stream of its own on the device (each pair of ranks one for plain sends and
receives), in which kernels run in order. Between streams the order is that of the compute stream:
a kernel starts when those have finished that the compute stream waited for when it was enqueued.
A call waits at once, unless it is `later`; then WAIT does. SYNC halts the host until the compute
stream is through, as `.item()` does.

A collective finishes when the devices of all members have reached the same operation of the same
size; a send when the device of its peer has reached the receive, and the other way round (an eager
one at once).
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from diagnose.infer.collectives.table import Table, table
from diagnose.parse.flight_recorder import Dump, read_dump

AHEAD = 4
BEGIN_NS = 1_790_000_000_000_000_000

Groups = dict[str, tuple[str, list[int]]]


@dataclass(frozen=True)
class Call:
    """One call of a program. `peer` is a global rank; `parts` are the calls of a batch.

    `stop` is no call: `host` halts the host, `device` the device in its next kernel, of which the
    peers see no trouble, `kernel` the device before its next kernel, `crash` both; `sync`, `wait`.
    """

    group: str = ""
    op: str = "all_reduce"
    size: int = 8
    line: int = 1
    peer: int | None = None
    stop: str = ""
    later: bool = False
    parts: tuple[Call, ...] = ()


HOST, DEVICE, KERNEL, CRASH = (Call(stop=what) for what in ("host", "device", "kernel", "crash"))
SYNC, WAIT = Call(stop="sync"), Call(stop="wait")


@dataclass(eq=False)
class Kernel:
    """A call that one rank enqueued, and where its device is with it."""

    rank: int
    call: Call
    seq: int
    entries: list[dict[str, Any]]
    waits: int = 0  # kernels before it that have not finished
    holds: list[Kernel] = field(default_factory=list)  # that wait for this one
    reached: bool = False
    done: bool = False
    open: int = 0  # sends and receives whose other side the device has not reached
    stuck: str = ""


@dataclass
class Rank:
    program: list[Call]
    at: int = 0
    queue: list[Kernel] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    seqs: dict[tuple[str, bool], int] = field(default_factory=dict)
    streams: dict[Any, Kernel] = field(default_factory=dict)  # the last kernel in each
    waited: list[Kernel] = field(default_factory=list)  # by the compute stream
    ops: int = 0
    halt: str = ""


class Job:
    """Groups by name with their members, and a program per rank.

    `dead`: (group, number) of a collective that never finishes, however many join. `timing`: the
    recorder notes what the device has started.
    """

    def __init__(
        self,
        groups: Groups,
        program: Callable[[int], list[Call]],
        ahead: int = AHEAD,
        dead: tuple[str, int] | None = None,
        timing: bool = False,
        eager: bool = False,
    ) -> None:
        self.groups, self.ahead, self.dead = groups, ahead, dead
        self.timing, self.eager = timing, eager
        world = 1 + max(rank for _, members in groups.values() for rank in members)
        self.ranks = [Rank(program(rank)) for rank in range(world)]
        self.clock = BEGIN_NS
        self._own = [
            [name for name, (_, members) in groups.items() if rank in members]
            for rank in range(world)
        ]
        self._joined: dict[tuple[str, int], list[Kernel]] = {}
        self._channels: dict[tuple[str, int, int], tuple[list[Kernel], list[Kernel]]] = {}
        self._ready = deque(range(world))
        while self._ready:
            self._host(self._ready.popleft())

    def _host(self, number: int) -> None:
        """Let a host go on for one call."""
        rank = self.ranks[number]
        if rank.at >= len(rank.program) or len(rank.queue) >= self.ahead:
            return
        call = rank.program[rank.at]
        if call.stop == "host" or (call.stop == "sync" and any(not k.done for k in rank.waited)):
            return
        rank.at += 1
        if call.stop == "crash":
            rank.halt, rank.at = "kernel", len(rank.program)
        elif call.stop == "wait":
            rank.waited += [kernel for kernel in rank.queue if kernel not in rank.waited]
        elif call.stop in ("device", "kernel"):
            rank.halt = call.stop
        elif call.stop != "sync":
            self._enqueue(number, call)
        self._ready.append(number)

    def _enqueue(self, number: int, call: Call) -> None:
        rank = self.ranks[number]
        p2p = call.peer is not None or bool(call.parts)
        key = (call.group, p2p)
        seq = rank.seqs[key] = rank.seqs.get(key, 0) + 1
        kernel = Kernel(number, call, seq, [], stuck=rank.halt)
        kernel.entries = [self._entry(number, part, p2p) for part in call.parts or (call,)]
        if call.parts:
            kernel.entries.append(self._entry(number, Call(call.group, "coalesced"), p2p))
        pair = () if call.peer is None else tuple(sorted((number, call.peer)))
        stream = (call.group, pair)
        rank.waited = [other for other in rank.waited if not other.done]
        before = dict.fromkeys(rank.waited)
        if stream in rank.streams and not rank.streams[stream].done:
            before[rank.streams[stream]] = None
        if rank.halt:  # nothing runs on a device that is stuck
            before.update(dict.fromkeys(k for k in rank.queue if k.stuck))
        for other in before:
            other.holds.append(kernel)
        kernel.waits = len(before)
        rank.streams[stream] = kernel
        rank.queue.append(kernel)
        if not call.later:
            rank.waited.append(kernel)
        if not kernel.waits:
            self._reach(kernel)

    def _entry(self, number: int, call: Call, p2p: bool) -> dict[str, Any]:
        rank, members = self.ranks[number], self.groups[call.group][1]
        rank.ops += 1
        name = f"nccl:{call.op}"
        if call.peer is not None:
            arrow = "->" if call.op == "send" else "<-"
            name += f" {members.index(number)}{arrow}{members.index(call.peer)}"
        self.clock += 1_000_000
        sizes = [] if call.op == "coalesced" else [[call.size]]
        entry = {
            "record_id": len(rank.entries),
            "pg_id": self._own[number].index(call.group),
            "process_group": (call.group, self.groups[call.group][0]),
            "collective_seq_id": rank.seqs.get((call.group, False), 0),
            "p2p_seq_id": rank.seqs.get((call.group, True), 0),
            "op_id": rank.ops,
            "profiling_name": name,
            "time_created_ns": self.clock,
            "input_sizes": sizes,
            "input_dtypes": ["Float"] if sizes else [],
            "output_sizes": sizes,
            "output_dtypes": ["Float"] if sizes else [],
            "state": "scheduled",
            "retired": False,
            "timeout_ms": 600_000,
            "is_p2p": p2p,
            "frames": [{"name": "step", "filename": "/app/train.py", "line": call.line}],
        }
        rank.entries.append(entry)
        return entry

    def _reach(self, kernel: Kernel) -> None:
        """The device has come to a kernel."""
        if kernel.stuck == "kernel":
            return
        kernel.reached = True
        if self.timing:
            kernel.entries[-1]["state"] = "started"
        call = kernel.call
        if call.peer is None and not call.parts:
            unit = (call.group, kernel.seq)
            joined = self._joined.setdefault(unit, [])
            joined.append(kernel)
            alike = all((k.call.op, _volume(k)) == (call.op, _volume(kernel)) for k in joined)
            if alike and unit != self.dead and len(joined) == len(self.groups[call.group][1]):
                for member in joined:
                    self._finish(member)
            return
        parts = call.parts or (call,)
        kernel.open = sum(not self.eager or part.op == "recv" for part in parts)
        for part in parts:
            assert part.peer is not None
            sends = part.op == "send"
            ends = (kernel.rank, part.peer) if sends else (part.peer, kernel.rank)
            channel = self._channels.setdefault((call.group, *ends), ([], []))
            mine, theirs = channel if sends else channel[::-1]
            mine.append(kernel)
            if len(theirs) >= len(mine):
                other = theirs[len(mine) - 1]
                for side in (kernel, other):
                    if not (self.eager and side is (kernel if sends else other)):
                        side.open -= 1
                        if side.open == 0:
                            self._finish(side)
        if kernel.open == 0 and not kernel.done:
            self._finish(kernel)

    def _finish(self, kernel: Kernel) -> None:
        if kernel.stuck:
            return
        kernel.done = True
        kernel.entries[-1].update(state="completed", retired=True)
        if kernel.call.parts:  # torch leaves the state of the members of a batch as it was
            for entry in kernel.entries[:-1]:
                entry["retired"] = True
        self.ranks[kernel.rank].queue.remove(kernel)
        self._ready.append(kernel.rank)
        for later in kernel.holds:
            later.waits -= 1
            if not later.waits:
                self._reach(later)

    def files(self, only_pending: bool = False, ring: int | None = None) -> dict[str, bytes]:
        """Name → bytes of every rank's dump; `ring`: entries the recorder keeps."""
        return {
            f"_dump_{n}": pickle.dumps(self.content(n, only_pending, ring), 2)
            for n in range(len(self.ranks))
        }

    def content(
        self, number: int, only_pending: bool = False, ring: int | None = None
    ) -> dict[str, Any]:
        """The dump of one rank."""
        rank = self.ranks[number]
        kept = rank.entries[-ring:] if ring else rank.entries
        entries = [e for e in kept if not (only_pending and e["state"] == "completed")]
        status = {}
        for pg_id, name in enumerate(self._own[number]):
            of_group = [e for e in rank.entries if e["process_group"][0] == name]
            done = [e for e in of_group if e["state"] == "completed"]
            status[str(pg_id)] = {
                "last_enqueued_collective": _number(of_group[-1:]),
                "last_started_collective": -1,
                "last_completed_collective": _number(done[-1:]),
            }
        config = {
            name: {"name": name, "desc": desc, "ranks": str(members)}
            for name, (desc, members) in self.groups.items()
            if number in members
        }
        return {
            "version": "2.10",
            "comm_lib_version": "2.26.2",
            "pg_config": config,
            "pg_status": status,
            "entries": entries,
        }


def _volume(kernel: Kernel) -> int:
    """What must be equal on all members."""
    return 0 if kernel.call.op.startswith("all_to_all") else kernel.call.size


def _number(last: list[dict[str, Any]]) -> int:
    if not last:
        return -1
    return int(last[0]["p2p_seq_id" if last[0]["is_p2p"] else "collective_seq_id"])


def tables(files: Iterable[tuple[str, bytes]], world: int | None = None) -> Table:
    """The table of dumps in the order given."""
    dumps: list[Dump] = [read_dump(data, name) for name, data in files]
    return table(dumps, world)


def grid(world: int, tensor: int) -> Groups:
    """The default group, tensor groups of neighbours and data groups across them."""
    groups: Groups = {"0": ("default_pg", list(range(world)))}
    for first in range(0, world, tensor):
        groups[str(len(groups))] = ("TENSOR_GROUP", list(range(first, first + tensor)))
    for column in range(tensor):
        groups[str(len(groups))] = ("DATA_GROUP", list(range(column, world, tensor)))
    return groups


def of(groups: Groups, desc: str, rank: int) -> str:
    """Name of the group of a kind that `rank` is in."""
    return next(n for n, (d, members) in groups.items() if d == desc and rank in members)
