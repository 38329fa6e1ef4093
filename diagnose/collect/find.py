"""Finds the processes of a job on this node: its ranks by their environment, and their kin.

What a process put into its environment later cannot be seen from outside. Where no process says
its rank, those that have a library for collectives in memory are taken, without a rank.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from diagnose.collect import owners, proc
from diagnose.collect.children import TimedOut, bounded
from diagnose.collect.model import Process, Role
from diagnose.collect.seen import (
    JOBS,
    LOOK_S,
    Identity,
    Seen,
    is_launcher,
    is_python,
    look_at_all,
)

_LOADER = ("pt_data_worker", "multiprocessing.spawn", "multiprocessing.forkserver")
_LIBRARIES = (b"libtorch_cpu", b"libnccl", b"librccl", b"libjax", b"xla_extension", b"libhccl")
_MAX_PROCESSES = 512
_MAX_MAPS = 4 << 20
_IDS = JOBS.index("MASTER_ADDR")  # of those, the ones that people call a job by
_NAMED = 5


@dataclass(slots=True)
class Found:
    """The processes of a job, and what is known of each; `problems` are lines for people."""

    processes: list[Process] = field(default_factory=list)
    seen: dict[int, Seen] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def find(pids: Iterable[int] = (), job: str | None = None) -> Found:
    """The job's processes: those of `pids` and below, else those that a launcher gave a rank.

    What was asked for and is not here is a problem; nothing else is taken in its place.
    """
    found = Found()
    found.seen, closed = look_at_all(found.problems)
    seen = found.seen
    below = _children(seen)
    asked = tuple(pids)
    wanted = [pid for pid in asked if pid in seen and pid not in closed]
    found.problems += [f"no process {pid} is here" for pid in asked if pid not in seen]
    if asked:
        inside = {one for pid in wanted for one in (pid, *_descendants(pid, below))}
        ranks = _ranks(inside, seen, below) or dict.fromkeys(wanted)
    else:
        ours = {os.getpid(), *_ancestors(os.getpid(), seen)}
        inside = _of_job(job, set(seen) - ours, seen, found.problems)
        ranks = _ranks(inside, seen, below)
        if not ranks and job is None:
            ranks = dict.fromkeys(_with_library(set(seen) - ours, seen))
            if ranks:
                found.problems.append("no process says its rank: those with torch, NCCL or JAX")
    found.processes = _roles(ranks, seen, below)
    if wanted and not any(is_launcher(seen[pid]) for pid in wanted):
        for one in found.processes:
            one.local_world = None  # some of its neighbours were not asked for
    if refused := [pid for pid in asked if pid in closed]:
        found.problems += owners.refused(refused)
    if not found.processes and not asked:
        found.problems += [_nothing(job, seen), *owners.jobs(closed, seen)]
    return found


def _nothing(job: str | None, seen: Mapping[int, Seen]) -> str:
    if job is None:
        return "no process of a job was found (name one with --pid)"
    ids = sorted({one for each in seen.values() if each.identity for one in each.job[:_IDS] if one})
    here = f"; here are {', '.join(ids[:_NAMED])}" if ids else ""
    return f"no process of job {job} was found{here}"


def _children(seen: Mapping[int, Seen]) -> dict[int, list[int]]:
    below: dict[int, list[int]] = defaultdict(list)
    for one in seen.values():
        below[one.parent].append(one.pid)
    return below


def _descendants(pid: int, below: Mapping[int, list[int]]) -> list[int]:
    found: list[int] = []
    coming = list(below.get(pid, ()))
    while coming and len(found) < 100_000:
        one = coming.pop(0)
        found.append(one)
        coming += below.get(one, ())
    return found


def _ancestors(pid: int, seen: Mapping[int, Seen]) -> list[int]:
    found: list[int] = []
    while (one := seen.get(pid)) and one.parent in seen and one.parent not in found:
        found.append(pid := one.parent)
    return found


def _of_job(
    job: str | None, pids: set[int], seen: Mapping[int, Seen], problems: list[str]
) -> set[int]:
    """The processes of one job: the one asked for, else the one with most ranks here."""
    jobs: dict[tuple[str, ...], set[int]] = defaultdict(set)
    for pid in pids:
        if seen[pid].identity is not None and (job is None or job in seen[pid].job):
            jobs[seen[pid].job].add(pid)
    if job is not None or len(jobs) < 2:
        return {pid for members in jobs.values() for pid in members}
    ranks = {key: len({seen[pid].identity for pid in members}) for key, members in jobs.items()}
    newest = {key: max(seen[pid].started for pid in members) for key, members in jobs.items()}
    chosen = max(jobs, key=lambda key: (ranks[key], newest[key]))
    # A launcher and its ranks differ in what torchrun adds; they are of one job.
    kin = {pid for key, members in jobs.items() if _same(key, chosen) for pid in members}
    if others := sum(not _same(key, chosen) for key in jobs):
        problems.append(f"other jobs here that were left out (--job or --pid chooses): {others}")
    return kin


def _same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether what both say of their job agrees, and something does."""
    both = [(a, b) for a, b in zip(one, other, strict=True) if a and b]
    return bool(both) and all(a == b for a, b in both)


def _ranks(
    inside: set[int], seen: Mapping[int, Seen], below: Mapping[int, list[int]]
) -> dict[int, Identity | None]:
    """The process of each rank.

    It is the topmost of those with its identity, below shells and other wrappers; one with other
    identities below it is a launcher.
    """
    found: dict[int, Identity | None] = {}
    for pid in sorted(inside):
        one = seen[pid]
        if one.identity is None or is_launcher(one):
            continue
        over = seen.get(one.parent)
        if over is not None and over.who == one.who and not is_launcher(over):
            continue
        others = (seen[p].who for p in _descendants(pid, below))
        if all(who in (None, one.who) for who in others):
            found[_unwrapped(pid, seen, below)] = one.identity
    return found


def _unwrapped(pid: int, seen: Mapping[int, Seen], below: Mapping[int, list[int]]) -> int:
    """The first Python process at or below a wrapper; the process itself if there is none."""
    for one in (pid, *_descendants(pid, below)):
        if is_python(seen[one]):
            return one
    return pid


def _with_library(pids: set[int], seen: Mapping[int, Seen]) -> list[int]:
    """Processes that have a library for collectives in memory, without those they started."""
    python = [pid for pid in sorted(pids) if is_python(seen[pid]) and not is_launcher(seen[pid])]
    try:
        having = set(bounded(partial(_mapped, python[-_MAX_PROCESSES:]), 4 * LOOK_S))
    except (TimedOut, OSError):
        return []
    return [pid for pid in sorted(having) if not is_loader(seen[pid], having)]


def _mapped(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        with suppress(OSError):
            maps = proc.raw(proc.PROC / str(pid) / "maps", _MAX_MAPS)
            if any(name in maps for name in _LIBRARIES):
                found.append(pid)
    return found


def is_loader(one: Seen, ranks: Iterable[int]) -> bool:
    """Whether a process that a rank started prepares its data."""
    return one.parent in ranks and (
        one.name.startswith(_LOADER[0])
        or any(_LOADER[1] in word or _LOADER[2] in word for word in one.words)
    )


def _roles(
    ranks: Mapping[int, Identity | None],
    seen: Mapping[int, Seen],
    below: Mapping[int, list[int]],
) -> list[Process]:
    """The ranks, their launchers, and what they started."""
    found: dict[int, Process] = {}
    for pid, identity in ranks.items():
        found[pid] = _process(seen[pid], "rank")
        if identity is not None:
            found[pid] = replace(found[pid], **identity._asdict())
    for pid, identity in ranks.items():
        rank = identity[0] if identity else None
        for above in _ancestors(pid, seen):
            if above not in found and is_launcher(seen[above]):
                found[above] = _process(seen[above], "launcher")
        for one in _descendants(pid, below):
            if one not in found and len(found) < _MAX_PROCESSES:
                python = is_python(seen[one]) or _forked(seen[one], seen)
                role: Role = "loader" if python else "child"
                found[one] = _process(seen[one], role, rank)
    names: Counter[str] = Counter()
    for process in found.values():
        known = process.role == "rank" and process.rank is not None
        name = f"rank-{process.rank}" if known else f"pid-{process.pid}"
        names[name] += 1
        process.folder = name if names[name] == 1 else f"{name}-pid-{process.pid}"
    order = {"launcher": 0, "rank": 1, "loader": 2, "child": 3}
    return sorted(
        found.values(), key=lambda p: (order[p.role], -1 if p.rank is None else p.rank, p.pid)
    )


def _forked(one: Seen, seen: Mapping[int, Seen]) -> bool:
    """A copy of its parent, as workers of a DataLoader are where they are forked."""
    over = seen.get(one.parent)
    return one.name.startswith(_LOADER[0]) or (over is not None and over.words == one.words)


def _process(one: Seen, role: Role, rank: int | None = None) -> Process:
    command = " ".join(one.words) or f"[{one.name}]"
    return Process(one.pid, role, rank, parent=one.parent, command=command)
