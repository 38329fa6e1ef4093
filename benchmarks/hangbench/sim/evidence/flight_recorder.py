"""Flight Recorder dumps of a simulated job, with the keys of each version of torch.

torch 2.2 pickles a list of entries; later ones a dict of version 1.4 (2.3), 2.1 (2.4), 2.4 (2.5 to
2.7), 2.9 (2.8) or 2.10 (2.9 on). JSON is offered from 2.5 on. Dumps do not hold the rank: it is in
the name of the file.
"""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Collection, Mapping
from datetime import UTC
from typing import Any, Literal

from benchmarks.hangbench.case import Files
from benchmarks.hangbench.sim.evidence.c10d import group_id, statuses_of
from benchmarks.hangbench.sim.outcome import Frame, Outcome, Rank, Work

Container = Literal["pickle", "json"]

# Versions of the dumps by release of torch; 2.2 has none.
VERSIONS: Mapping[str, str] = {
    "2.2": "",
    "2.3": "1.4",
    "2.4": "2.1",
    "2.5": "2.4",
    "2.6": "2.4",
    "2.7": "2.4",
    "2.8": "2.9",
    "2.9": "2.10",
    "2.10": "2.10",
    "2.11": "2.10",
    "2.12": "2.10",
    "2.13": "2.10",
}
_NCCL: Mapping[str, str] = {"2.8": "2.27.3"}
_NCCL_OTHERS = "2.27.5"

_NAMES: Mapping[str, str] = {
    "_allgather_base": "_all_gather_base",
    "barrier": "all_reduce_barrier",
}
_LIBRARY = "/usr/local/lib/python3.11/site-packages/torch/distributed"
_CALLED: Mapping[str, tuple[str, int]] = {  # the function of torch that the program calls
    "all_reduce": ("all_reduce", 2806),
    "barrier": ("barrier", 4551),
    "broadcast": ("broadcast", 2421),
    "_allgather_base": ("all_gather_into_tensor", 3709),
    "_reduce_scatter_base": ("reduce_scatter_tensor", 4233),
    "all_gather": ("all_gather", 3620),
    "reduce_scatter": ("reduce_scatter", 4125),
    "all_to_all": ("all_to_all_single", 4425),
    "send": ("send", 2165),
    "recv": ("recv", 2197),
    "coalesced": ("batch_isend_irecv", 2345),
}


# What several dumps share: frames, stacks (by operation and site) and lists of members.
_Cache = dict[Frame | tuple[str, int] | str, Any]


def dumps(
    outcome: Outcome,
    torch: str,
    rng: random.Random,
    *,
    container: Container = "pickle",
    ring: int | None = None,
    only_pending: bool = False,
    frames: bool = True,
    ranks: Collection[int] | None = None,
) -> Files:
    """The dump of each rank whose process is there to write one.

    torch: a release of `VERSIONS`. ring: how many entries the recorder keeps. only_pending: leave
    out what has completed. frames: with stacks (pickle only). ranks: of which dumps were collected;
    None: of all that could write one. Ranks that have ended never can. Raises ValueError for a
    release that has no such dump.
    """
    if torch not in VERSIONS or (container == "json" and _older(torch, 5)):
        raise ValueError(f"torch {torch} writes no {container} dump")
    style = rng.choice(_styles(torch))
    cache: _Cache = {}
    files: Files = {}
    for rank in outcome.ranks:
        if rank.ended is not None or (ranks is not None and rank.rank not in ranks):
            continue
        entries = _entries(outcome, rank, torch, frames and container == "pickle", ring, cache)
        if only_pending:
            entries = [entry for entry in entries if entry["state"] != "completed"]
        content = _content(outcome, rank, torch, entries, cache)
        name = style.format(rank.rank)
        if container == "json":
            files[f"{name}.json"] = _json(content)
        else:
            files[name] = pickle.dumps(content, protocol=2)
    return files


def _older(torch: str, minor: int) -> bool:
    return int(torch.split(".")[1]) < minor


def _styles(torch: str) -> tuple[str, ...]:
    """Names of files: torch's default of the release, or a prefix that the job gave."""
    folder = "tmp/" if _older(torch, 7) else ".cache/torch/"
    return (f"{folder}nccl_trace_rank_{{}}", "nccl_trace_rank_{}", "fr/rank_{}", "_dump_{}")


def _content(
    outcome: Outcome,
    rank: Rank,
    torch: str,
    entries: list[dict[str, Any]],
    cache: _Cache,
) -> dict[str, Any] | list[dict[str, Any]]:
    """What the file holds, in the order of torch's keys."""
    if torch == "2.2":
        return entries
    used = dict.fromkeys(work.group for work in rank.works)
    config = {
        name: {
            "name": name,
            "desc": outcome.groups[name].desc,
            "ranks": _members(cache, outcome, name),
        }
        for name in used  # torch fills it when a group's communicator is created
    }
    content: dict[str, Any] = {"version": VERSIONS[torch], "pg_config": config}
    if VERSIONS[torch] == "2.9":
        content["nccl_version"] = _NCCL.get(torch, _NCCL_OTHERS)
    if VERSIONS[torch] == "2.10":
        content["comm_lib_version"] = _NCCL.get(torch, _NCCL_OTHERS)
    if not _older(torch, 5):
        status = statuses_of(outcome, rank)
        content["pg_status"] = {
            str(group_id(outcome, rank.rank, name)): {
                "last_enqueued_collective": status[name].enqueued,
                "last_started_collective": status[name].started,
                "last_completed_collective": status[name].completed,
            }
            for name in used
        }
    content["entries"] = entries
    return content


def _members(cache: _Cache, outcome: Outcome, group: str) -> str:
    key = f"members {group}"
    if key not in cache:
        cache[key] = str(list(outcome.groups[group].members))
    return str(cache[key])


def _json(content: dict[str, Any] | list[dict[str, Any]]) -> bytes:
    """The JSON form: sorted keys, numbers of the status as strings, 0 for a missing time."""
    assert isinstance(content, dict)
    content = dict(content)
    content["nccl_comm_state"] = {}
    content["pg_status"] = {
        group: {key: str(value) for key, value in status.items()}
        for group, status in content["pg_status"].items()
    }
    for entry in content["entries"]:
        for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            entry[key] = entry[key] or 0
    if not content["entries"]:
        del content["entries"]
    return json.dumps(content, sort_keys=True).encode()


def _entries(
    outcome: Outcome,
    rank: Rank,
    torch: str,
    frames: bool,
    ring: int | None,
    cache: _Cache,
) -> list[dict[str, Any]]:
    """The ring of one rank. A batch has an entry for each part and one for its end."""
    own = sorted(rank.works, key=lambda work: work.created)
    # The simulated works are the last of a longer job: numbers of records continue from there.
    firsts: dict[tuple[str, bool], int] = {}
    for work in own:
        firsts.setdefault((work.group, work.p2p), work.seq)
    before = sum(first - 1 for first in firsts.values())
    seqs = {key: first - 1 for key, first in firsts.items()}
    epoch_ns = round(outcome.start.replace(tzinfo=UTC).timestamp() * 1e9)
    thread = str(139_000_000_000_000 + rank.rank * 4096)
    entries: list[dict[str, Any]] = []
    slots: list[tuple[Work, str, int | None, int, int]] = []
    for work in own:
        seqs[work.group, work.p2p] = work.seq
        numbers = seqs.get((work.group, False), 0), seqs.get((work.group, True), 0)
        slots += [(work, op, peer, *numbers) for op, peer in work.peers]
        if len(work.peers) != 1 or work.op == "coalesced":
            slots.append((work, work.op, None, *numbers))
    first = max(len(slots) - ring, 0) if ring else 0
    dropped, old = _dropped(torch), _older(torch, 4)
    ids = {group: group_id(outcome, rank.rank, group) for group, _ in firsts}
    for record, (work, op, peer, collective, p2p) in enumerate(slots[first:], before + first):
        entry = {
            "record_id": record,
            "pg_id": ids[work.group],
            "process_group": (work.group, outcome.groups[work.group].desc),
            "thread_name": "pt_main_thread",
            "thread_id": thread,
            "collective_seq_id": collective,
            "p2p_seq_id": p2p,
            "op_id": record + 1,
            "profiling_name": _profiling_name(outcome, rank.rank, work, op, peer),
            **_tensors(work, op, peer is not None or op != "coalesced"),
            **_times(outcome, work, epoch_ns, last=op == work.op),
            "timeout_ms": round(outcome.timeout_s * 1000),
            "is_p2p": work.p2p,
        }
        if frames:
            entry["frames"] = _frames(work, cache)
        if old:
            entry["seq_id"] = work.seq
        if torch == "2.2":
            entry["time_created_us"] = entry["time_created_ns"] // 1000
        for key in dropped:
            entry.pop(key, None)
        entries.append(entry)
    return entries


def _profiling_name(outcome: Outcome, rank: int, work: Work, op: str, peer: int | None) -> str:
    if peer is None:
        return f"nccl:{_NAMES.get(op, op)}"
    members = outcome.groups[work.group].members
    arrow = "->" if op == "send" else "<-"
    return f"nccl:{op} {members.index(rank)}{arrow}{members.index(peer)}"


def _tensors(work: Work, op: str, present: bool) -> dict[str, Any]:
    """Sizes and types of its tensors; the end of a batch has none, a barrier one element."""
    if not present:
        return {"input_sizes": [], "input_dtypes": [], "output_sizes": [], "output_dtypes": []}
    numel_in, numel_out = (1, 1) if op == "barrier" else (work.numel_in, work.numel_out)
    return {
        "input_sizes": [[numel_in]],
        "input_dtypes": [work.dtype],
        "output_sizes": [[numel_out]],
        "output_dtypes": [work.dtype],
    }


def _times(outcome: Outcome, work: Work, epoch_ns: int, *, last: bool) -> dict[str, Any]:
    """Times and state. torch leaves the state of the parts of a batch as it was at first."""
    started = outcome.timing and work.started is not None
    finished = work.finished
    seen_ns = None if finished is None else epoch_ns + round((finished + 0.05) * 1e9)
    times: dict[str, Any] = {
        "time_created_ns": epoch_ns + round(work.created * 1e9),
        "state": "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": finished is not None,
    }
    if not last:
        return times
    if started and work.started is not None:
        times["state"] = "started"
        times["time_discovered_started_ns"] = epoch_ns + round((work.started + 0.05) * 1e9)
    if finished is not None:
        times["state"] = "completed"
        times["time_discovered_completed_ns"] = seen_ns
        if not started:
            times["time_discovered_started_ns"] = seen_ns if outcome.timing else None
        elif work.started is not None:
            times["duration_ms"] = (finished - work.started) * 1000
    return times


def _frames(work: Work, cache: _Cache) -> list[dict[str, Any]]:
    """The stack of the call, innermost frame first; equal frames are one object, as torch's are."""
    key = (work.op, id(work.site))  # looked up for each entry, and a site is one object
    stack: list[dict[str, Any]] | None = cache.get(key)
    if stack is None:
        name, line = _CALLED.get(work.op, (work.op, 2806))
        called = {"name": name, "filename": f"{_LIBRARY}/distributed_c10d.py", "line": line}
        frames = [
            cache.setdefault(
                frame, {"name": frame.function, "filename": frame.file, "line": frame.line}
            )
            for frame in reversed(work.site)
        ]
        stack = cache[key] = [called, *frames]
    return stack


def _dropped(torch: str) -> tuple[str, ...]:
    """Keys of the newest entries that a release does not have yet."""
    keys: tuple[str, ...] = ()
    if _older(torch, 8):
        keys += ("thread_name", "thread_id")
    if _older(torch, 5):
        keys += ("timeout_ms",)
    if _older(torch, 4):
        keys += ("collective_seq_id", "p2p_seq_id", "is_p2p", "process_group")
        keys += ("input_dtypes", "output_dtypes")
    if torch == "2.2":
        keys += ("record_id", "op_id", "time_created_ns", "duration_ms")
        keys += ("time_discovered_started_ns", "time_discovered_completed_ns")
    return keys
