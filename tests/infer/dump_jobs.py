"""A small simulator of NCCL jobs that leaves Flight Recorder dumps.

Every rank runs a program of calls. Its host enqueues up to `AHEAD` calls that have not finished;
its device takes them in order. A collective finishes when it is at the head of all members'
devices with the same operation and size; a send when the receive of its peer is.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from diagnose.infer.collective_table import Table, table
from diagnose.parse.flight_recorder import Dump, read_dump

AHEAD = 4
BEGIN_NS = 1_790_000_000_000_000_000


@dataclass(frozen=True)
class Call:
    """One call of a program. `peer` is a global rank; `stop` halts the host or the device."""

    group: str = ""
    op: str = "all_reduce"
    size: int = 8
    line: int = 1
    peer: int | None = None
    stop: str = ""


HOST = Call(stop="host")
DEVICE = Call(stop="device")


@dataclass
class Rank:
    program: list[Call]
    at: int = 0
    queue: list[dict[str, Any]] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    seqs: dict[tuple[str, bool], int] = field(default_factory=dict)
    device_stops_at: int | None = None


class Job:
    """Groups by name with their members, and a program per rank."""

    def __init__(
        self, groups: dict[str, tuple[str, list[int]]], program: Callable[[int], list[Call]]
    ) -> None:
        self.groups = groups
        world = 1 + max(rank for _, members in groups.values() for rank in members)
        self.ranks = [Rank(program(rank)) for rank in range(world)]
        self.clock = BEGIN_NS
        while any([self._enqueue(rank) for rank in range(world)]) or self._finish():  # noqa: C419
            pass

    def _enqueue(self, number: int) -> bool:
        rank = self.ranks[number]
        if len(rank.queue) >= AHEAD or rank.at >= len(rank.program):
            return False
        call = rank.program[rank.at]
        if call.stop == "host":
            return False
        rank.at += 1
        if call.stop == "device":
            rank.device_stops_at = len(rank.entries)
            return True
        members = self.groups[call.group][1]
        p2p = call.peer is not None
        key = (call.group, p2p)
        rank.seqs[key] = rank.seqs.get(key, 0) + 1
        name = f"nccl:{call.op}"
        if call.peer is not None:
            arrow = "->" if call.op == "send" else "<-"
            name += f" {members.index(number)}{arrow}{members.index(call.peer)}"
        self.clock += 1_000_000
        entry = {
            "record_id": len(rank.entries),
            "pg_id": [n for n, (_, m) in self.groups.items() if number in m].index(call.group),
            "process_group": (call.group, self.groups[call.group][0]),
            "collective_seq_id": rank.seqs.get((call.group, False), 0),
            "p2p_seq_id": rank.seqs.get((call.group, True), 0),
            "op_id": len(rank.entries),
            "profiling_name": name,
            "time_created_ns": self.clock,
            "input_sizes": [[call.size]],
            "input_dtypes": ["Float"],
            "output_sizes": [[call.size]],
            "output_dtypes": ["Float"],
            "state": "scheduled",
            "retired": False,
            "timeout_ms": 600_000,
            "is_p2p": p2p,
            "frames": [{"name": "step", "filename": "/app/train.py", "line": call.line}],
            "_call": call,
        }
        rank.entries.append(entry)
        rank.queue.append(entry)
        return True

    def _head(self, number: int) -> dict[str, Any] | None:
        rank = self.ranks[number]
        if not rank.queue:
            return None
        head = rank.queue[0]
        stop = rank.device_stops_at
        return None if stop is not None and head["record_id"] >= stop else head

    def _finish(self) -> bool:
        done = False
        for number in range(len(self.ranks)):
            head = self._head(number)
            if head is None:
                continue
            call: Call = head["_call"]
            if call.peer is None:
                members = self.groups[call.group][1]
                heads = [self._device(m, call, head) for m in members]
            else:
                members = [number, call.peer]
                heads = [head, self._matching(number, call)]
            if any(h is None for h in heads):
                continue
            for member, entry in zip(members, heads, strict=True):
                if self._head(member) is entry:
                    entry["state"], entry["retired"] = "completed", True
                    self.ranks[member].queue.pop(0)
                    done = True
        return done

    def _device(self, member: int, call: Call, head: dict[str, Any]) -> dict[str, Any] | None:
        """The member's side of a collective: at the head, or stuck in it while others go on."""
        rank = self.ranks[member]
        entry = rank.queue[0] if rank.queue else None
        if entry is None:
            return None
        other: Call = entry["_call"]
        same = (other.group, other.op, other.size) == (call.group, call.op, call.size)
        return entry if same and other.peer is None else None

    def _matching(self, number: int, call: Call) -> dict[str, Any] | None:
        assert call.peer is not None
        head = self._head(call.peer)
        if head is None:
            return None
        other: Call = head["_call"]
        fits = (other.peer, other.group) == (number, call.group) and other.op != call.op
        return head if fits else None

    def files(self, only_pending: bool = False) -> dict[str, bytes]:
        """Name → bytes of every rank's dump."""
        return {f"_dump_{n}": self._dump(n, only_pending) for n in range(len(self.ranks))}

    def _dump(self, number: int, only_pending: bool) -> bytes:
        rank = self.ranks[number]
        entries = [
            {key: value for key, value in entry.items() if key != "_call"}
            for entry in rank.entries
            if not (only_pending and entry["state"] == "completed")
        ]
        own = [(n, d, m) for n, (d, m) in self.groups.items() if number in m]
        status = {}
        for pg_id, (name, _, _) in enumerate(own):
            of_group = [e for e in rank.entries if e["process_group"][0] == name]
            done = [e for e in of_group if e["state"] == "completed"]
            status[str(pg_id)] = {
                "last_enqueued_collective": _number(of_group[-1:]),
                "last_started_collective": -1,
                "last_completed_collective": _number(done[-1:]),
            }
        return pickle.dumps(
            {
                "version": "2.10",
                "comm_lib_version": "2.26.2",
                "pg_config": {n: {"name": n, "desc": d, "ranks": str(m)} for n, d, m in own},
                "pg_status": status,
                "entries": entries,
            },
            2,
        )


def _number(last: list[dict[str, Any]]) -> int:
    if not last:
        return -1
    return int(last[0]["p2p_seq_id" if last[0]["is_p2p"] else "collective_seq_id"])


def tables(files: Iterable[tuple[str, bytes]], world: int | None = None) -> Table:
    """The table of dumps in the order given."""
    dumps: list[Dump] = [read_dump(data, name) for name, data in files]
    return table(dumps, world)


def grid(world: int, tensor: int) -> dict[str, tuple[str, list[int]]]:
    """The default group, tensor groups of neighbours and data groups across them."""
    groups = {"0": ("default_pg", list(range(world)))}
    for first in range(0, world, tensor):
        groups[str(len(groups))] = ("TENSOR_GROUP", list(range(first, first + tensor)))
    for column in range(tensor):
        groups[str(len(groups))] = ("DATA_GROUP", list(range(column, world, tensor)))
    return groups


def of(groups: dict[str, tuple[str, list[int]]], desc: str, rank: int) -> str:
    """Name of the group of a kind that `rank` is in."""
    return next(n for n, (d, members) in groups.items() if d == desc and rank in members)
