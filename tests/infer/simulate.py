"""Random jobs with one fault, and whether the judge of their dumps is right.

A `World` is drawn from a seed: a layout (data parallel, sharded, tensor × data, pipeline, experts),
one fault on one rank, and how much of the dumps is left. `python -m tests.infer.simulate` judges a
few thousand of them and prints how often each kind of fault is found.
"""

from __future__ import annotations

import json
import pickle
import random
import sys
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from diagnose.infer.collectives.analyze import judge
from diagnose.infer.collectives.table import Table
from diagnose.infer.judge.verdict import Verdict
from tests.infer.dump_jobs import CRASH, DEVICE, HOST, KERNEL, Call, Groups, Job, tables
from tests.infer.layouts import LAYOUTS, Program

FAULTS = (
    "stuck_host", "stuck_device", "stuck_kernel", "crashed", "extra", "extra_alike", "skipped",
    "other_op", "other_size", "swapped", "network",
)  # fmt: skip
CALLED = {"extra", "extra_alike", "skipped", "other_op", "other_size"}
ALIKE = {"extra_alike", "skipped"}  # may hit a send or receive as well


@dataclass(frozen=True)
class World:
    """One job, its fault and what is left of its dumps."""

    seed: int
    layout: str
    fault: str
    culprit: int
    job: Job
    dumps: dict[str, bytes]
    lost: tuple[int, ...]
    cut: bool  # whether one of the dumps is
    look: str  # what the recorder leaves: whole, pending, ring, gloo

    def table(self) -> Table:
        """The table of its dumps; the job's log tells how many ranks it had."""
        return tables(self.dumps.items(), len(self.job.ranks))

    def __str__(self) -> str:
        lost = f" lost {self.lost}" if self.lost else ""
        world = len(self.job.ranks)
        return (
            f"{self.seed}: {self.layout} {world} {self.fault} of {self.culprit}, {self.look}{lost}"
        )


def _sends(call: Call) -> bool:
    return call.peer is not None or bool(call.parts)


def _faulty(rng: random.Random, program: Program, fault: str, groups: Groups) -> Program | None:
    """The culprit's program; None where this one has no place for the fault."""
    begin = len(program) // 3
    fits = [
        n
        for n in range(begin, len(program) - 4)
        if not program[n].stop
        and (fault in ALIKE or fault not in CALLED or not _sends(program[n]))
        and len(groups[program[n].group][1]) > 1
    ]
    if not fits:
        return None
    at = rng.choice(fits)
    call, stops = program[at], {"stuck_device": DEVICE, "stuck_kernel": KERNEL, "crashed": CRASH}
    if fault == "stuck_host":
        return [*program[:at], HOST]
    if fault in stops:
        return [*program[:at], stops[fault], *program[at:]]
    if fault == "extra":
        return [*program[:at], Call(call.group, "all_reduce", 3, 99), *program[at:]]
    if fault == "extra_alike":
        return [*program[:at], replace(call, line=99), *program[at:]]
    if fault == "skipped":
        return program[:at] + program[at + 1 :]
    if fault == "other_op":
        return [*program[:at], replace(call, op="broadcast", line=98), *program[at + 1 :]]
    if fault == "other_size":
        other = call.op.startswith("all_to_all") or call.op == "barrier"
        return None if other else [*program[:at], replace(call, size=9999), *program[at + 1 :]]
    assert fault == "swapped"
    return _swap(rng, program, begin, groups)


def _swap(rng: random.Random, program: Program, begin: int, groups: Groups) -> Program | None:
    """Two calls one behind the other, of two groups with at least two ranks in common."""
    pairs = [
        n
        for n in range(begin, len(program) - 5)
        if program[n].group != program[n + 1].group
        and not (program[n].stop or program[n + 1].stop)
        and len({*groups[program[n].group][1]} & {*groups[program[n + 1].group][1]}) > 1
    ]
    if not pairs:
        return None
    at = rng.choice(pairs)
    return [*program[:at], program[at + 1], program[at], *program[at + 2 :]]


def world(seed: int, fault: str | None = None) -> World | None:
    """The world of a seed; None where the fault does no harm or has no place."""
    rng = random.Random(seed)
    fault = fault or rng.choice(FAULTS)
    look = rng.choice(("whole", "whole", "pending", "ring", "gloo"))
    layout = rng.choice([*LAYOUTS])
    if look == "gloo" and layout in ("pipeline", "experts"):
        layout = "tensor"  # its recorder has no sends; its calls do not pass each other
    groups, programs = LAYOUTS[layout](rng)
    size = len(programs)
    culprit, dead = rng.randrange(size), None
    if fault == "network":
        calls = Counter(call.group for call in programs[culprit] if not call.stop)
        group = rng.choice([n for n in calls if len(groups[n][1]) > 1 and groups[n][0] != "PIPE"])
        dead = (group, rng.randint(calls[group] // 3 + 1, calls[group]))
    else:
        changed = _faulty(rng, programs[culprit], fault, groups)
        if changed is None:
            return None
        programs[culprit] = changed
    ahead = rng.choice((2, 4, 16, 1000))
    if look == "gloo":
        ahead = 1
    elif look == "ring":  # no ring is as short as to lose what is pending
        ahead = min(ahead, 4)
    timing = look != "gloo" and rng.random() < 0.2
    if rng.random() < 0.2:
        groups = {name: ("undefined", members) for name, (_, members) in groups.items()}
    job = Job(groups, lambda rank: programs[rank], ahead, dead, timing, rng.random() < 0.2)
    lost = {culprit} if fault == "crashed" else set()
    drawn = rng.random()
    if drawn < 0.5:
        share = 0.5 if drawn < 0.2 else rng.choice((0.05, 0.1, 0.25))
        others = [rank for rank in range(size) if rank != culprit or rng.random() < 0.1]
        lost |= set(rng.sample(others, min(len(others), max(1, int(size * share)))))
    ring = rng.randint(20, 60) if look == "ring" else None
    kept = {
        "frames": rng.random() < 0.7,
        "status": look == "pending" or rng.random() < 0.8,
        "json": rng.random() < 0.2,
        "cut": rng.randrange(size) if rng.random() < 0.1 else -1,
    }
    dumps = {}
    for rank in range(size):
        if rank not in lost:
            content = job.content(rank, look == "pending", ring)
            dumps[f"_dump_{rank}"] = _dump(
                _gloo(content) if look == "gloo" else content, rank, kept
            )
    hung = any(k.call for r, rank in enumerate(job.ranks) if r not in lost for k in rank.queue)
    if not hung:
        return None
    cut = 0 <= kept["cut"] < size
    return World(seed, layout, fault, culprit, job, dumps, tuple(sorted(lost)), cut, look)


def _dump(content: dict[str, Any], rank: int, kept: dict[str, Any]) -> bytes:
    """The file of one rank: as pickle or JSON, with or without frames and status, or cut off."""
    entries = content["entries"]
    if not kept["frames"] or kept["json"]:
        drop = {"frames"}
        content["entries"] = [{k: v for k, v in e.items() if k not in drop} for e in entries]
    if not kept["status"]:
        del content["pg_status"]
    if kept["json"]:
        return json.dumps(content, sort_keys=True).encode()
    data = pickle.dumps(content, 2)
    return data[: len(data) * 9 // 10] if rank == kept["cut"] and len(entries) > 20 else data


def _gloo(content: dict[str, Any]) -> dict[str, Any]:
    """A dump as gloo's recorder leaves it."""
    entries = [
        {
            **entry,
            "profiling_name": entry["profiling_name"].replace("nccl:", "gloo:"),
            "state": "scheduled",
        }
        for entry in content["entries"]
    ]
    config = {"": {"name": "", "desc": "", "ranks": "[]"}}
    return {**content, "entries": entries, "pg_config": config}


def marked(world: World, found: Verdict | None) -> str:
    """How good a verdict is.

    `right`; `tie`: the culprit is among the suspects; `open`: no rank is named, where dumps are
    lost; `likely`: the only rank without a dump is named, which nobody could tell from a crash;
    `kind`: the right rank, but not the kind; `missed`; `wrong`: another rank is named.
    """
    if found is None:
        return "missed"
    if set(found.ranks) - {world.culprit}:
        likely = found.kind == "missing" and not found.sure and set(found.ranks) == {*world.lost}
        return "likely" if likely else "wrong"
    if not found.ranks:
        network = world.fault in ("network", "stuck_kernel")
        exact = ("network",) if network else ("cycle", "deadlock")
        if found.kind in exact and world.fault in ("network", "stuck_kernel", "swapped"):
            return "right"
        if found.tie and world.culprit in found.suspects:
            return "tie"
        return "open" if world.lost or world.cut else "missed"
    kinds = {"crashed": "missing", "stuck_kernel": "stuck_device", "swapped": "mismatched"}
    kind = "mismatched" if world.fault in CALLED else kinds.get(world.fault, world.fault)
    if world.culprit in world.lost:
        kind = "missing"
    return "right" if found.kind == kind else "kind"


def main(first: int, count: int, show: str = "") -> None:
    """Judge `count` worlds from a seed on."""
    marks: Counter[tuple[str, str, str]] = Counter()
    for seed in range(first, first + count):
        drawn = world(seed)
        if drawn is None:
            continue
        found = judge(drawn.table())
        mark = marked(drawn, found)
        group = "lost" if drawn.lost and drawn.fault != "crashed" else drawn.look
        marks[drawn.fault, group, mark] += 1
        if found is not None and found.sure and mark in ("wrong", "kind"):
            mark = f"SURE-{mark}"
        if any(word in mark for word in show.split(",") if word):
            told = (found.kind, found.ranks, found.suspects, found.why[:160]) if found else None
            print(f"{mark} {drawn}\n    {told}")
    for fault in FAULTS:
        for group in ("whole", "pending", "ring", "gloo", "lost"):
            of_both = {m: n for (f, g, m), n in sorted(marks.items()) if (f, g) == (fault, group)}
            if of_both:
                print(f"{fault:14}{group:9}{of_both}")
    total = Counter(mark for (_, _, mark) in marks.elements())
    print(dict(total), f"of {sum(total.values())}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
