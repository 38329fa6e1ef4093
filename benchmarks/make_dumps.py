"""Writes Flight Recorder dumps as NCCL jobs leave them, with one fault injected.

    python benchmarks/make_dumps.py --ranks 256 --entries 2000 --fault stuck_host --out dumps/

The job has tensor groups of `--tensor` neighbouring ranks and data groups across them; a step is
a few collectives of the tensor group, then a reduction over the data group. Every dump holds the
last `--entries` records, like the recorder's ring. A rank without the fault goes on until it needs
a rank that does not come. They are pickled as torch's C++ pickler does.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = "2.10"
BEGIN_NS = 1_790_000_000_000_000_000
STEP_NS = 500_000_000
TIMEOUT_MS = 600_000
FAULTS = ("stuck_host", "stuck_device", "mismatch", "extra")
AHEAD = 4  # collectives a host enqueues while the first of them does not finish
TENSOR_OPS = ("_all_gather_base", "_reduce_scatter_base", "all_reduce", "all_reduce")


@dataclass(frozen=True)
class Plan:
    """One job: `fault` happens on `culprit` in the middle of its last step."""

    ranks: int
    entries: int
    culprit: int
    fault: str = "stuck_host"
    tensor: int = 8


@dataclass
class Recorder:
    """What one rank records."""

    rank: int
    frames: list[dict[str, Any]]
    ring: deque[dict[str, Any]]
    width: int = 1  # ranks of its tensor group
    seqs: dict[str, int] = field(default_factory=dict)
    records: int = 0

    def add(
        self, group: tuple[int, str, str], op: str, size: int, when: int, state: str, line: int
    ) -> None:
        """Record one collective of `size` rows on this rank."""
        pg_id, name, desc = group
        seq = self.seqs[name] = self.seqs.get(name, 0) + 1
        done = state == "completed"
        self.ring.append(
            {
                "record_id": self.records,
                "pg_id": pg_id,
                "process_group": (name, desc),
                "collective_seq_id": seq,
                "p2p_seq_id": 0,
                "op_id": seq,
                "profiling_name": _name(op),
                "time_created_ns": when,
                "input_sizes": [[size * (self.width if "scatter" in op else 1), 512]],
                "input_dtypes": ["BFloat16"],
                "output_sizes": [[size * (self.width if "gather" in op else 1), 512]],
                "output_dtypes": ["BFloat16"],
                "state": state,
                "time_discovered_started_ns": None,
                "time_discovered_completed_ns": when + 900_000 if done else None,
                "retired": done,
                "timeout_ms": TIMEOUT_MS,
                "is_p2p": False,
                "thread_id": "140000000000001",
                "thread_name": "python",
                "frames": [*self.frames[:6], self.frames[6 + line], *self.frames[-2:]],
            }
        )
        self.records += 1


_NAMES: dict[str, str] = {}


def _name(op: str) -> str:
    return _NAMES.setdefault(op, f"nccl:{op}")


def _frames() -> list[dict[str, Any]]:
    torch = "/opt/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    train = "/app/train.py"
    inner = [{"name": f"call_{n}", "filename": torch, "line": 100 + n} for n in range(6)]
    user = [{"name": "step", "filename": train, "line": 100 + n} for n in range(16)]
    outer = [{"name": name, "filename": train, "line": 300} for name in ("main", "<module>")]
    return [*inner, *user, *outer]


def _groups(plan: Plan, rank: int) -> dict[str, tuple[int, str, str, list[int]]]:
    tensors = plan.ranks // plan.tensor
    tensor, column = divmod(rank, plan.tensor)
    first = tensor * plan.tensor
    return {
        "world": (0, "0", "default_pg", list(range(plan.ranks))),
        "tensor": (
            1, str(1 + tensor), "TENSOR_MODEL_PARALLEL_GROUP",
            list(range(first, first + plan.tensor)),
        ),
        "data": (
            2, str(1 + tensors + column), "DATA_PARALLEL_GROUP",
            list(range(column, plan.ranks, plan.tensor)),
        ),
    }  # fmt: skip


def _steps(plan: Plan) -> int:
    return plan.entries // (len(TENSOR_OPS) + 1) + 2


def dump(plan: Plan, rank: int) -> dict[str, Any]:
    """The dump of `rank`: whole steps, then the step in which the fault happens."""
    groups = _groups(plan, rank)
    recorder = Recorder(rank, _frames(), deque(maxlen=plan.entries), plan.tensor)
    tensor, data = groups["tensor"][:3], groups["data"][:3]
    steps = _steps(plan)
    for step in range(steps):
        when = BEGIN_NS + step * STEP_NS
        for line, op in enumerate(TENSOR_OPS):
            recorder.add(tensor, op, 1024 * (line + 1), when + line * 1000, "completed", line)
        recorder.add(data, "all_reduce", 4096, when + 9000, "completed", 9)
    _last_step(plan, rank, recorder, groups, BEGIN_NS + steps * STEP_NS)
    status = {
        str(groups[kind][0]): {
            "last_enqueued_collective": recorder.seqs.get(groups[kind][1], -1),
            "last_started_collective": -1,
            "last_completed_collective": max(
                (
                    entry["collective_seq_id"]
                    for entry in recorder.ring
                    if entry["pg_id"] == groups[kind][0] and entry["state"] == "completed"
                ),
                default=-1,
            ),
        }
        for kind in groups
    }
    config = {
        name: {"name": name, "desc": desc, "ranks": json.dumps(ranks)}
        for _, name, desc, ranks in groups.values()
    }
    return {
        "version": VERSION,
        "comm_lib_version": "2.26.2",
        "pg_config": config,
        "pg_status": status,
        "entries": list(recorder.ring),
    }


def _last_step(
    plan: Plan,
    rank: int,
    recorder: Recorder,
    groups: dict[str, tuple[int, str, str, list[int]]],
    when: int,
) -> None:
    tensor, data = groups["tensor"][:3], groups["data"][:3]
    near = plan.culprit // plan.tensor == rank // plan.tensor
    if not near:
        for line, op in enumerate(TENSOR_OPS):
            recorder.add(tensor, op, 1024 * (line + 1), when + line * 1000, "completed", line)
        recorder.add(data, "all_reduce", 4096, when + 9000, "scheduled", 9)
        return
    recorder.add(tensor, TENSOR_OPS[0], 1024, when, "completed", 0)
    if rank != plan.culprit:
        first = "completed" if plan.fault == "stuck_device" else "scheduled"
        recorder.add(tensor, TENSOR_OPS[1], 2048, when + 1000, first, 1)
        for line in range(2, min(AHEAD, len(TENSOR_OPS))):
            recorder.add(
                tensor, TENSOR_OPS[line], 1024 * (line + 1), when + 2000, "scheduled", line
            )
    elif plan.fault == "stuck_device":
        recorder.add(tensor, TENSOR_OPS[1], 2048, when + 1000, "scheduled", 1)
    elif plan.fault == "mismatch":
        recorder.add(tensor, "broadcast", 7, when + 1000, "scheduled", 12)
        for line in range(2, len(TENSOR_OPS)):
            recorder.add(
                tensor, TENSOR_OPS[line], 1024 * (line + 1), when + 2000, "scheduled", line
            )
    elif plan.fault == "extra":
        recorder.add(tensor, "all_reduce", 3, when + 1000, "scheduled", 12)
        for line in range(1, len(TENSOR_OPS)):
            recorder.add(
                tensor, TENSOR_OPS[line], 1024 * (line + 1), when + 2000, "scheduled", line
            )


class Pickler:
    """Writes plain data as torch's C++ pickler does: only strings and frames go into the memo."""

    def __init__(self) -> None:
        self._out: list[bytes] = [b"\x80\x02"]
        self._memo: dict[str | int, bytes] = {}

    def dumps(self, value: object) -> bytes:
        """The pickle of one value."""
        self._write(value)
        return b"".join(self._out) + b"."

    def _write(self, value: object) -> None:
        out = self._out
        if isinstance(value, str):
            if value not in self._memo:
                text = value.encode()
                out.append(b"X" + len(text).to_bytes(4, "little") + text + self._put(value))
            else:
                out.append(self._memo[value])
        elif value is None or isinstance(value, bool):
            out.append(b"N" if value is None else b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            out.append(_int(value))
        elif isinstance(value, tuple):
            for part in value:
                self._write(part)
            out.append(b"\x86")
        elif isinstance(value, list):
            out.append(b"](")
            for part in value:
                self._write(part)
            out.append(b"e")
        elif isinstance(value, dict):
            self._dict(value)

    def _dict(self, value: dict[str, object]) -> None:
        frame = "filename" in value
        if frame and id(value) in self._memo:
            self._out.append(self._memo[id(value)])
            return
        self._out.append(b"}(")
        for key, part in value.items():
            self._write(key)
            self._write(part)
        self._out.append(b"u" + (self._put(id(value)) if frame else b""))

    def _put(self, key: str | int) -> bytes:
        slot = len(self._memo)
        short = slot < 256
        tail = bytes([slot]) if short else slot.to_bytes(4, "little")
        self._memo[key] = (b"h" if short else b"j") + tail
        return (b"q" if short else b"r") + tail


def _int(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 65536:
        return b"M" + value.to_bytes(2, "little")
    if -(2**31) <= value < 2**31:
        return b"J" + value.to_bytes(4, "little", signed=True)
    return b"\x8a\x08" + value.to_bytes(8, "little", signed=True)


def dumps(plan: Plan) -> Iterator[tuple[int, dict[str, Any]]]:
    """(rank, dump) of every rank."""
    for rank in range(plan.ranks):
        yield rank, dump(plan, rank)


def write(plan: Plan, folder: Path, prefix: str = "nccl_trace_rank_") -> int:
    """Write a folder of dumps; returns its size in bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    return sum(
        (folder / f"{prefix}{rank}").write_bytes(Pickler().dumps(content))
        for rank, content in dumps(plan)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--entries", type=int, default=2000)
    parser.add_argument("--tensor", type=int, default=8)
    parser.add_argument("--culprit", type=int, default=77)
    parser.add_argument("--fault", choices=FAULTS, default="stuck_host")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if not 0 <= options.culprit < options.ranks or options.ranks % options.tensor:
        parser.error("--culprit must be a rank, --ranks a multiple of --tensor")
    plan = Plan(options.ranks, options.entries, options.culprit, options.fault, options.tensor)
    print(f"{write(plan, options.out) / 2**20:.1f} MiB in {options.out}")


if __name__ == "__main__":
    main()
