"""What launchers and schedulers print when processes end: torchrun, srun, mpirun, Kubernetes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

from benchmarks.hangbench.sim.evidence.endings import (
    SIGKILL,
    SIGTERM,
    Ending,
    Endings,
)
from benchmarks.hangbench.sim.evidence.names import Names, names, ranges, wall
from benchmarks.hangbench.sim.evidence.releases import Release
from benchmarks.hangbench.sim.outcome import Line, Outcome, Rank

# torchrun: an agent on each node. srun, mpirun: one task for each rank. kubernetes: torchrun in one
# pod for each node, and the events of the cluster. none: nothing watches.
Launcher = Literal["torchrun", "srun", "mpirun", "kubernetes", "none"]

_SIGNALS = {
    2: ("SIGINT", "Interrupt"),
    6: ("SIGABRT", "Aborted (core dumped)"),
    7: ("SIGBUS", "Bus error (core dumped)"),
    9: ("SIGKILL", "Killed"),
    11: ("SIGSEGV", "Segmentation fault (core dumped)"),
    15: ("SIGTERM", "Terminated"),
}
_ELASTIC = "torch/distributed/elastic/multiprocessing/api.py"
_LOGGER = "torch.distributed.elastic.multiprocessing.api"
_UNREACHED_S = 50.0  # until a cluster takes a silent node for dead


def launcher_lines(
    outcome: Outcome, release: Release, rng: random.Random, launcher: Launcher, ends: Endings
) -> Iterator[Line]:
    """What the launcher says of processes that ended badly; nothing of those that ended well."""
    known = names(outcome)
    if launcher in ("torchrun", "kubernetes"):
        by_node: list[list[Rank]] = [[] for _ in range(outcome.nodes)]
        for rank in outcome.ranks:
            by_node[rank.node].append(rank)
        for node, ranks in enumerate(by_node):
            yield from _agent(outcome, release, rng, known, ends, node, ranks)
    if launcher == "srun":
        yield from _srun(outcome, known, ends)
    if launcher == "mpirun":
        yield from _mpirun(outcome, known, ends)
    if launcher in ("srun", "kubernetes"):
        yield from _dead_nodes(outcome, known, launcher)


def _agent(
    outcome: Outcome,
    release: Release,
    rng: random.Random,
    known: Names,
    ends: Endings,
    node: int,
    ranks: Sequence[Rank],
) -> Iterator[Line]:
    """The agent of torchrun on one node: it ends the others once one has failed."""
    if any(rank.end == "lost" for rank in ranks):
        return
    died = [(ends.ends[rank.rank], rank) for rank in ranks if rank.rank in ends.ends]
    failed = sorted(
        ((end, rank) for end, rank in died if end.status and end.cause != "stopped"),
        key=lambda one: one[0].time,
    )
    stop = ends.stops[node]
    if not failed:
        if stop < math.inf and len(died) > sum(end.status == 0 for end, _ in died):
            yield from _told_to_stop(outcome, release, known, node, stop, died)
        return
    noticed = failed[0][0].time + release.poll_s * rng.uniform(0.3, 1.0)
    running = [
        rank for rank in ranks if rank.rank not in ends.ends or ends.ends[rank.rank].time > noticed
    ]
    if running and stop == math.inf:
        return  # nobody has ended the others, so the agent has not come to a table
    begin = stop if running else noticed
    time = begin
    for end, rank in died:
        if end.cause == "stopped":
            text = f"Sending process {known.pids[rank.rank]} closing signal SIGTERM"
            yield Line(time, None, node, _logged(outcome, release, known, node, time, "W", text))
            time += 0.001
    time = max([begin, *(end.time for end, _ in died)]) + 0.4
    # Of those that had failed when the agent looked, it takes the first by local rank.
    together = [one for one in failed if one[0].time <= noticed]
    root_end, root = min(together, key=lambda one: one[1].local_rank)
    text = (
        f"failed (exitcode: {root_end.status}) local_rank: {root.local_rank} "
        f"(pid: {known.pids[root.rank]}) of binary: /usr/bin/python{release.python}"
    )
    yield Line(
        time,
        None,
        node,
        _logged(outcome, release, known, node, time, "E", text),
        shows="exit",
        subject=root.rank,
        names_rank=outcome.nodes == 1,
    )
    listed = [
        one
        for one in sorted(died, key=lambda one: one[1].local_rank)
        if one[0].status and one[1] is not root
    ]
    yield from _table(outcome, release, known, node, time + 0.3, listed, (root_end, root), begin)


def _table(
    outcome: Outcome,
    release: Release,
    known: Names,
    node: int,
    time: float,
    others: Sequence[tuple[Ending, Rank]],
    root: tuple[Ending, Rank],
    noticed: float,
) -> Iterator[Line]:
    """The table of failures, an entry a line so that each has its subject."""
    packages = f"/usr/local/lib/python{release.python}/dist-packages/torch/distributed"
    head = (
        "Traceback (most recent call last):\n"
        f'  File "/usr/local/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        f'  File "{packages}/elastic/multiprocessing/errors/__init__.py", line 346, in wrapper\n'
        "    return f(*args, **kwargs)\n"
        f'  File "{packages}/run.py", line 794, in main\n    run(args)\n'
        f'  File "{packages}/launcher/api.py", line 245, in launch_agent\n'
        "    raise ChildFailedError(\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nFailures:"
    )
    if not others:
        head += "\n  <NO_OTHER_FAILURES>"
    yield Line(time, None, node, head)
    for number, (end, rank) in enumerate(others, 1):
        yield _entry(outcome, known, node, time, number, end, rank, noticed)
    yield Line(time, None, node, f"{'-' * 60}\nRoot Cause (first observed failure):")
    entry = _entry(outcome, known, node, time, 0, *root, noticed)
    entry.text += f"\n{'=' * 60}"
    yield entry


def _entry(
    outcome: Outcome,
    known: Names,
    node: int,
    time: float,
    number: int,
    end: Ending,
    rank: Rank,
    noticed: float,
) -> Line:
    pid = known.pids[rank.rank]
    signal = f" ({_signal(end.status)})" if end.status < 0 else ""
    trace = (
        f"Signal {-end.status} ({_signal(end.status)}) received by PID {pid}"
        if end.status < 0
        else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    )
    text = (
        f"[{number}]:\n"
        f"  time      : {wall(outcome, max(noticed, 0)):%Y-%m-%d_%H:%M:%S}\n"
        f"  host      : {known.hosts[node]}\n"
        f"  rank      : {rank.rank} (local_rank: {rank.local_rank})\n"
        f"  exitcode  : {end.status} (pid: {pid}) {signal}\n"
        "  error_file: <N/A>\n"
        f"  traceback : {trace}"
    )
    return Line(time, None, node, text, shows="exit", subject=rank.rank, names_rank=True)


def _told_to_stop(
    outcome: Outcome,
    release: Release,
    known: Names,
    node: int,
    stop: float,
    died: Sequence[tuple[Ending, Rank]],
) -> Iterator[Line]:
    """The agent is told to stop: it passes the signal on."""
    signal = "15" if release.torch in ("2.7", "2.13") else "SIGTERM"
    text = f"Received {signal} death signal, shutting down workers"
    yield Line(stop, None, node, _logged(outcome, release, known, node, stop, "W", text))
    for end, rank in died:
        if end.cause == "stopped":
            text = f"Sending process {known.pids[rank.rank]} closing signal SIGTERM"
            line = _logged(outcome, release, known, node, stop, "W", text)
            yield Line(stop + 0.001, None, node, line)
    text = f"{_LOGGER}.SignalException: Process {known.agents[node]} got signal: 15"
    yield Line(stop + 0.5, None, node, text)


def _logged(
    outcome: Outcome,
    release: Release,
    known: Names,
    node: int,
    time: float,
    severity: Literal["W", "E"],
    text: str,
) -> str:
    """A line of torchrun's logger in the form of a release."""
    when: datetime = wall(outcome, time)
    level = {"W": "WARNING", "E": "ERROR"}[severity]
    if release.torch == "1.13":
        return f"{level}:{_LOGGER}:{text}"
    if release.torch == "2.1":
        stamp = f"{when:%Y-%m-%d %H:%M:%S},{when.microsecond // 1000:03d}"
        return f"[{stamp}] {_LOGGER}: [{level}] {text}"
    process = known.agents[node] + (139_617_718_000_000 if release.torch == "2.4" else 0)
    source = {("2.4", "W"): 858, ("2.4", "E"): 833, ("2.7", "W"): 900, ("2.7", "E"): 874}
    line = source.get((release.torch, severity), 1012 if severity == "W" else 986)
    stamp = f"{when:%m%d %H:%M:%S}.{when.microsecond // 1000:03d}000"
    return f"{severity}{stamp} {process} {_ELASTIC}:{line}] {text}"


def _srun(outcome: Outcome, known: Names, ends: Endings) -> Iterator[Line]:
    """What srun prints with a task a rank: a message for each node, status and moment."""
    groups: dict[tuple[int, int, str], list[tuple[float, int]]] = {}
    for rank in outcome.ranks:
        end = ends.ends.get(rank.rank)
        if end is not None and end.status and rank.end != "lost":
            groups.setdefault((rank.node, end.status, end.cause), []).append((end.time, rank.rank))
    stop = min(ends.stops, default=math.inf)
    if stop < math.inf and groups:
        text = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."
        yield Line(stop - 0.01, None, None, text)
        text = (
            f"slurmstepd: error: *** STEP {known.job}.0 ON {known.hosts[0]} CANCELLED AT "
            f"{wall(outcome, stop):%Y-%m-%dT%H:%M:%S} ***"
        )
        yield Line(stop, None, None, text)
    for (node, status, _), members in groups.items():
        tasks = sorted(rank for _, rank in members)
        word = "task" if len(tasks) == 1 else "tasks"
        what = f"Exited with exit code {status}" if status > 0 else _SIGNALS[_number(status)][1]
        text = f"srun: error: {known.hosts[node]}: {word} {ranges(tasks)}: {what}"
        yield Line(
            max(time for time, _ in members) + 0.1,
            None,
            None,
            text,
            shows="exit",
            subject=tasks[0],
            subjects=tuple(tasks),
            names_rank=True,
        )


def _mpirun(outcome: Outcome, known: Names, ends: Endings) -> Iterator[Line]:
    """What mpirun prints: the first process that ended badly, and nothing of the others."""
    bad = [
        (ends.ends[rank.rank], rank)
        for rank in outcome.ranks
        if rank.rank in ends.ends and ends.ends[rank.rank].status and rank.end != "lost"
    ]
    stop = min(ends.stops, default=math.inf)
    if not bad or stop == math.inf:
        return
    end, rank = min(bad, key=lambda one: one[0].time)
    rule = "-" * 74
    if end.status < 0:
        number = _number(end.status)
        text = (
            f"{rule}\nmpirun noticed that process rank {rank.rank} with PID "
            f"{known.pids[rank.rank]} on node {known.hosts[rank.node]} exited on signal {number} "
            f"({_SIGNALS[number][1].removesuffix(' (core dumped)')}).\n{rule}"
        )
    else:
        text = (
            f"{rule}\nPrimary job  terminated normally, but 1 process returned\n"
            "a non-zero exit code. Per user-direction, the job has been aborted.\n"
            f"{rule}\n{rule}\nmpirun detected that one or more processes exited with non-zero "
            "status, thus causing\nthe job to be terminated. The first process to do so was:\n\n"
            f"  Process name: [[{known.job % 65536},1],{rank.rank}]\n"
            f"  Exit code:    {end.status}\n{rule}"
        )
    yield Line(stop + 0.5, None, None, text, shows="exit", subject=rank.rank, names_rank=True)


def _dead_nodes(outcome: Outcome, known: Names, launcher: Launcher) -> Iterator[Line]:
    """The cluster finds that nodes no longer answer."""
    lost: dict[int, list[Rank]] = {}
    for rank in outcome.ranks:
        if rank.end == "lost" and rank.ended is not None:
            lost.setdefault(rank.node, []).append(rank)
    for node, ranks in lost.items():
        time = (ranks[0].ended or 0.0) + _UNREACHED_S
        host = known.hosts[node]
        text = (
            f"srun: error: Node failure on {host}"
            if launcher == "srun"
            else f"Warning  NodeNotReady  pod/train-{known.job}-worker-{node}  "
            f"Node is not ready ({host})"
        )
        yield Line(
            time,
            None,
            None,
            text,
            shows="exit",
            subject=ranks[0].rank,
            subjects=tuple(rank.rank for rank in ranks),
        )


def _number(status: int) -> int:
    """The signal of a negative status, as far as it is known by name."""
    return -status if -status in _SIGNALS else SIGKILL


def _signal(status: int) -> str:
    return _SIGNALS.get(-status, _SIGNALS[SIGTERM])[0]
