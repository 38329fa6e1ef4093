"""Reports of `ncclras` on a simulated job, as text and as JSON (NCCL 2.28 and 2.29).

NCCL counts what each rank has launched in each communicator, by kind of collective; sends and
receives are not counted. A process that is gone does not answer.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

from benchmarks.hangbench.case import Files
from benchmarks.hangbench.sim.evidence.names import Names, names, wall
from benchmarks.hangbench.sim.outcome import Outcome

_KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
_KIND_OF = {
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "all_gather": "AllGather",
    "_allgather_base": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "_reduce_scatter_base": "ReduceScatter",
    "all_reduce": "AllReduce",
    "barrier": "AllReduce",
}
_VERSION, _CUDA = "2.28.9", "13.0"
_LISTED = 0.25  # the share of a communicator's ranks up to which they are listed one by one


@dataclass(frozen=True, slots=True)
class _Communicator:
    """members: global ranks by number. counts: by member that answers, by kind."""

    identity: int
    members: tuple[int, ...]
    counts: dict[int, Counter[str]]


def reports(
    outcome: Outcome, rng: random.Random, *, text: bool = True, data: bool = True, times: int = 2
) -> Files:
    """Reports taken `times` times some seconds apart, of which the last two do not differ."""
    known = names(outcome)
    communicators = _communicators(outcome, rng)
    begin = max((work.created for rank in outcome.ranks for work in rank.works), default=0.0)
    begin += min(outcome.timeout_s * 0.5, 120.0)
    files: Files = {}
    for number in range(1, times + 1):
        time = begin + 10.0 * number
        if text:
            files[f"ncclras-{number}.txt"] = _text(outcome, known, communicators).encode()
        if data:
            content = _content(outcome, known, communicators, time)
            files[f"ncclras-{number}.json"] = json.dumps(content, indent=2).encode()
    return files


def names_all(text: str) -> bool:
    """Whether a report in text tells which ranks have which count.

    Of one count of an operation the ranks may go unnamed, as they are all others; of two nobody
    knows which has which.
    """
    unnamed = 0
    lines = text.split("\n")
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("  Communicator ranks have different"):
            unnamed = 0
        elif " launched" in line and not line.startswith("  Rank"):
            unnamed += not after.startswith("  Rank") or " launched" in after
        if unnamed > 1:
            return False
    return True


def _communicators(outcome: Outcome, rng: random.Random) -> list[_Communicator]:
    """Those of the groups in use, the largest first. Earlier calls count as the first that is seen.

    Left out are communicators that were never complete, and those of single sends and receives,
    which have no counts.
    """
    found: dict[str, dict[int, Counter[str]]] = {}
    for rank in outcome.ranks:
        for work in rank.works:
            if work.op in ("send", "recv"):
                continue
            of_group = found.setdefault(work.group, {})
            counts = of_group.get(rank.rank)
            kind = _KIND_OF.get(work.op)
            if counts is None:
                counts = of_group[rank.rank] = Counter()
                if kind is not None:
                    counts[kind] = work.seq - 1
            if kind is not None:
                counts[kind] += 1
    made = []
    for name, by_rank in found.items():
        members = outcome.groups[name].members
        if len(by_rank) == len(members):
            alive = {r: counts for r, counts in by_rank.items() if outcome.ranks[r].ended is None}
            made.append(_Communicator(rng.getrandbits(64), members, alive))
    return sorted(made, key=lambda one: -len(one.members))


def _content(
    outcome: Outcome, known: Names, communicators: list[_Communicator], time: float
) -> dict[str, Any]:
    listed = []
    for one in communicators:
        present = [
            {
                **_process(outcome, known, place, rank),
                "status": {
                    "init_state": 0,
                    "async_error": 0,
                    "finalize_called": False,
                    "destroy_flag": False,
                    "abort_flag": False,
                },
                "collective_counts": {kind: one.counts[rank][kind] for kind in _KINDS},
            }
            for place, rank in enumerate(one.members)
            if rank in one.counts
        ]
        absent = [
            {
                **_process(outcome, known, place, rank),
                "status": {
                    "unresponsive": True,
                    "considered_dead": outcome.ranks[rank].ended is not None,
                },
            }
            for place, rank in enumerate(one.members)
            if rank not in one.counts
        ]
        listed.append(
            {
                "hash": f"{one.identity:#018x}",
                "size": len(one.members),
                "ranks_count": len(present),
                "missing_ranks_count": len(absent),
                "ranks": present,
                "missing_ranks": absent,
            }
        )
    return {
        "nccl_version": _VERSION,
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": f"{wall(outcome, time):%Y-%m-%d %H:%M:%S}",
        "communicators_count": len(listed),
        "communicators": listed,
        "ras": {"collection_time_sec": 0.0, "timeouts_count": 0},
    }


def _process(outcome: Outcome, known: Names, place: int, rank: int) -> dict[str, Any]:
    of_rank = outcome.ranks[rank]
    return {
        "rank": place,
        "host": known.ips[of_rank.node],
        "pid": known.pids[rank],
        "cuda_dev": of_rank.local_rank,
        "nvml_dev": of_rank.local_rank,
    }


def _text(outcome: Outcome, known: Names, communicators: list[_Communicator]) -> str:
    alive = sum(rank.ended is None for rank in outcome.ranks)
    dead = outcome.world - alive
    out = [
        f"NCCL version {_VERSION} compiled with CUDA {_CUDA}",
        "CUDA runtime version 13000, driver version 13000",
        "",
        "Job summary",
        "===========",
        "",
        "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        f"{outcome.nodes:7d}{outcome.ranks_per_node:11d}{1:13d}{alive:11d}{alive:9d}",
        "",
        "Communicators... (0.00s)",
        "=============",
        "",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
    ]
    groups: dict[tuple[int, int, str], list[_Communicator]] = {}
    for one in communicators:
        nodes = len({outcome.ranks[rank].node for rank in one.members})
        groups.setdefault((len(one.members), nodes, _errors(one)), []).append(one)
    errors: list[str] = []
    warnings: list[str] = []
    if dead:
        noun = "process is" if dead == 1 else "processes are"
        errors += ["DEAD", f"  {dead} job {noun} considered dead (unreachable via the RAS network)"]
        for rank in outcome.ranks:
            if rank.ended is not None:
                host, pid = known.ips[rank.node], known.pids[rank.rank]
                errors.append(f"  Process {pid} on node {host} managing GPU {rank.local_rank}")
        errors.append("")
    for number, ((size, nodes, status), members) in enumerate(groups.items()):
        present = sum(len(one.counts) for one in members)
        out.append(
            f"{number:5d}{len(members):10d}{nodes:10d}{-(-size // nodes):10d}{size:10d}"
            f"{present:10d}{'RUNNING':>10}  {status}"
        )
        for index, one in enumerate(members):
            head = f"#{number}-{index} ({one.identity:016x})"
            if "INCOMPLETE" in status:
                errors += _incomplete(outcome, known, one, head)
            if "MISMATCH" in status:
                warnings += _mismatch(outcome, known, one, head)
    out += ["", "Errors", "======", "", *errors, "Warnings", "========", "", *warnings]
    return "\n".join(out) + "\n"


def _errors(one: _Communicator) -> str:
    found = ["INCOMPLETE"] if len(one.counts) < len(one.members) else []
    if any(len({counts[kind] for counts in one.counts.values()}) > 1 for kind in _KINDS):
        found.append("MISMATCH")
    return ",".join(found) or "OK"


def _incomplete(outcome: Outcome, known: Names, one: _Communicator, head: str) -> list[str]:
    absent = [place for place, rank in enumerate(one.members) if rank not in one.counts]
    noun = "process" if len(absent) == 1 else "processes"
    ranks = "rank" if len(absent) == 1 else "ranks"
    listed = ",".join(map(str, absent))
    return [
        f"{head} INCOMPLETE",
        f"  Missing communicator data from {len(absent)} job {noun}",
        f"  The missing {ranks}: {listed}",
        "",
    ]


def _mismatch(outcome: Outcome, known: Names, one: _Communicator, head: str) -> list[str]:
    out = [f"{head} MISMATCH"]
    places = {rank: place for place, rank in enumerate(one.members)}
    for kind in _KINDS:
        by_count: dict[int, list[int]] = {}
        for rank, counts in one.counts.items():
            by_count.setdefault(counts[kind], []).append(rank)
        if len(by_count) < 2:
            continue
        out.append(f"  Communicator ranks have different {kind} operation counts")
        most = max(len(ranks) for ranks in by_count.values())
        for count, ranks in sorted(by_count.items(), key=lambda one: (-len(one[1]), -one[0])):
            launched = (
                f"launched up to operation {count}" if count else "not launched any operations"
            )
            few = len(ranks) < most and len(ranks) <= max(1, len(one.members) * _LISTED)
            if few and len(ranks) == 1:
                place = places[ranks[0]]
                out.append(f"  Rank {place} has {launched} -- {_where(outcome, known, ranks[0])}")
                continue
            noun = "rank has" if len(ranks) == 1 else "ranks have"
            out.append(f"  {len(ranks)} {noun} {launched}")
            if few:
                out += [f"  Rank {places[r]} -- {_where(outcome, known, r)}" for r in ranks]
    return [*out, ""]


def _where(outcome: Outcome, known: Names, rank: int) -> str:
    of_rank = outcome.ranks[rank]
    return (
        f"GPU {of_rank.local_rank} managed by process {known.pids[rank]} "
        f"on node {known.ips[of_rank.node]}"
    )
