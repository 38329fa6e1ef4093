"""Finds the processes of a job on this node: its ranks by their environment, and their kin.

One look at each process shows its command, its environment, its rank; of those that may not be
looked at it is said whose they are, and which command may.

What a process put into its environment later cannot be seen from outside. Where no process says
its rank, those that have a library for collectives in memory are taken, without a rank.
"""

from __future__ import annotations

import os
import pwd
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from diagnose.collect import proc
from diagnose.collect.bundle import Process, Role
from diagnose.formats import data
from diagnose.runtime.children import TimedOut, bounded
from diagnose.text.ranks import counted, plural

# How launchers tell a process its rank, and the number of ranks, in the job and on its node.
# Torch's own come first: a task of Slurm or MPI may be a launcher with ranks below it.
IDENTITY: list[list[str]] = data("nodes")["identity"]
JOBS: list[str] = data("nodes")["jobs"]
_LAUNCHERS, _MODULES = (
    frozenset(data("nodes")["launchers"]),
    tuple(data("nodes")["launching_modules"]),
)
LOOK_S = 2.0  # that one look at a process may take


class Identity(NamedTuple):
    """Which rank a process is, by its environment."""

    rank: int
    local_rank: int | None
    world: int | None
    local_world: int | None


@dataclass(slots=True)
class Seen:
    """What one look at a process shows."""

    pid: int
    parent: int
    name: str
    started: int
    words: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    identity: Identity | None = None
    job: tuple[str, ...] = ()

    @property
    def who(self) -> tuple[int, int | None] | None:
        """What of its identity tells it from other ranks."""
        return self.identity and (self.identity.rank, self.identity.local_rank)


def look_at_all(problems: list[str]) -> tuple[dict[int, Seen], list[int]]:
    """Every process, and those that may not be looked at; one that is stuck costs a moment."""
    seen: dict[int, Seen] = {}
    for pid in proc.pids():
        stat = proc.stat(pid)
        if stat is not None:
            seen[pid] = Seen(pid, stat.parent, stat.name, stat.started)
    rest, closed = list(seen), []
    while rest:
        looked, stuck = _halves(rest)
        for pid, (words, environment) in looked.items():
            seen[pid].words = words
            if environment is None:
                closed.append(pid)
            else:
                seen[pid].environment = environment
                seen[pid].identity = _identity(environment)
                seen[pid].job = tuple(environment.get(name, "") for name in JOBS)
        if stuck is None:
            break
        problems.append(f"process {stuck} is stuck: /proc/{stuck}/environ gives no answer")
        rest = rest[rest.index(stuck) + 1 :]
    return seen, closed


def _halves(pids: list[int]) -> tuple[dict[int, Any], int | None]:
    """Command lines and environments; and the process at which there was no answer, if any."""
    with suppress(TimedOut):
        found = bounded(partial(_read, pids), LOOK_S + 0.005 * len(pids))
        return {int(pid): tuple(value) for pid, value in found.items()}, None
    if len(pids) == 1:
        return {}, pids[0]
    middle = len(pids) // 2
    first, stuck = _halves(pids[:middle])
    if stuck is not None:
        return first, stuck
    second, stuck = _halves(pids[middle:])
    return first | second, stuck


def _read(pids: list[int]) -> dict[int, tuple[list[str], dict[str, str] | None]]:
    found: dict[int, tuple[list[str], dict[str, str] | None]] = {}
    for pid in pids:
        try:
            words = proc.command(pid)
        except OSError:
            continue
        try:
            found[pid] = (words, proc.environment(pid))
        except PermissionError:
            found[pid] = (words, None) if words else ([], {})
        except OSError:
            continue
    return found


def _identity(environment: Mapping[str, str]) -> Identity | None:
    for rank, *others in IDENTITY:
        number = _number(environment.get(rank))
        if number is not None:
            return Identity(number, *(_number(environment.get(name)) for name in others))
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 9 else None


def is_python(one: Seen) -> bool:
    """Whether a process is an interpreter of Python, by its name or its command."""
    words = [_base(word) for word in one.words[:1]]
    return any(word.startswith(("python", "pt_main")) for word in [one.name, *words])


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def is_launcher(one: Seen) -> bool:
    """Whether a process only starts and watches ranks."""
    words = [_base(word) for word in one.words[:3]]
    return bool(_LAUNCHERS & {one.name, *words}) or any(
        word.startswith(_MODULES) for word in one.words[1:4]
    )


_SHOWN = 4
# As a shell finds it: sudo has a PATH of its own.
_COMMAND = 'sudo "$(command -v diagnose)" collect'
_LOADER = ("pt_data_worker", "multiprocessing.spawn", "multiprocessing.forkserver")
_LIBRARIES = [name.encode() for name in data("nodes")["libraries"]]
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
        found.problems += [
            f"process {pid} is of {owner(pid)}: {_COMMAND} --pid {pid}" for pid in refused
        ]
    if not found.processes and not asked:
        found.problems += [_nothing(job, seen), *_closed_jobs(closed, seen)]
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


def _closed_jobs(closed: Sequence[int], seen: Mapping[int, Seen]) -> list[str]:
    """A line for each user with processes that look like ranks, else how many there are at all.

    Ranks are Python below a launcher, or several with one command.
    """
    alike = Counter((seen[pid].parent, *seen[pid].words) for pid in closed)
    found: dict[str, list[int]] = defaultdict(list)
    for pid in closed:
        one, over = seen[pid], seen.get(seen[pid].parent)
        together = alike[(one.parent, *one.words)] > 1 or (over is not None and is_launcher(over))
        if together and is_python(one) and not is_launcher(one):
            found[owner(pid)].append(pid)
    if closed and not found:
        return [f"processes of other users that may not be looked at: {len(closed)}"]
    return [
        f"{counted(len(pids), 'Python process', 'Python processes')} of {whose} "
        f"{plural(len(pids), 'looks', 'look')} like a job "
        f"(pid {', '.join(map(str, pids[:_SHOWN]))}{', …' * (len(pids) > _SHOWN)}): {_COMMAND}"
        for whose, pids in found.items()
    ]


def owner(pid: int) -> str:
    """`user alice`, as well as this machine knows it."""
    number = uid(pid)
    with suppress(KeyError):
        return f"user {pwd.getpwuid(number).pw_name}" if number is not None else "another user"
    return f"user {number}"


def uid(pid: int) -> int | None:
    """The user that a process runs as; None if it has ended."""
    with suppress(OSError, ValueError, LookupError):
        return int(proc.keyed(proc.PROC / str(pid) / "status")["Uid"].split()[0])
    with suppress(OSError):
        return os.stat(proc.PROC / str(pid)).st_uid  # noqa: PTH116
    return None
