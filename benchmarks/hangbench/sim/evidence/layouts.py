"""Where the lines of a job end up: one console, files by rank or node, the forms of clusters."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from benchmarks.hangbench.case import Files
from benchmarks.hangbench.sim.evidence.names import Names, names, wall
from benchmarks.hangbench.sim.outcome import Line, Outcome

# console       one file, as the processes print
# tee           one file of torchrun --tee: `[default3]:` with the local rank
# torchrun_dir  torchrun's log directory: a folder a local rank, on each node
# rank_files    a file a rank; its name has the global rank
# node_files    the console of each node in a file
# srun          slurm-JOB.out of `srun -l`: the number of the task before each line
# slurm         slurm-JOB.out without labels
# kubectl       one file of `kubectl logs --prefix`, a pod a node
# cri           a CRI file a pod, as the kubelet writes them
# ray           one file of Ray's driver: process ids, and addresses of other nodes
# mpirun        one file of `mpirun --tag-output`
Kind = Literal[
    "console",
    "tee",
    "torchrun_dir",
    "rank_files",
    "node_files",
    "srun",
    "slurm",
    "kubectl",
    "cri",
    "ray",
    "mpirun",
]
KINDS: tuple[Kind, ...] = get_args(Kind)


_NO_NODE = "launcher.log"  # what the launcher of the whole job prints


@dataclass(frozen=True, slots=True)
class Printed:
    """Files, and what they tell of the authors of lines whose text does not.

    authors: `global`: the rank of every line of a rank; `local`: its local rank (and its node if
    `nodes`); `node`: only the node; `process`: lines of one process belong together, but not to
    which rank; `none`. `global` is said only of what a reader knows for certain, so a local rank
    is one where the job has one node. world: whether the files by themselves show how many ranks
    there are (a file for every rank).
    """

    files: Files
    authors: Literal["global", "local", "node", "process", "none"]
    nodes: bool
    world: bool


def layout(
    lines: Sequence[Line],
    outcome: Outcome,
    kind: Kind,
    rng: random.Random,
    *,
    missing: Collection[int] = (),
) -> Printed:
    """Write lines in the order given. missing: ranks that have no file.

    `srun` labels by task: by rank where each rank is a task; where launchers speak for nodes
    (`Line.node` without a rank), the tasks are these launchers.
    """
    known = names(outcome)
    gone = frozenset(missing)
    if kind == "rank_files":
        return _rank_files(lines, outcome, known, rng, gone)
    if kind == "torchrun_dir":
        return _torchrun_dir(lines, outcome, known, rng, gone)
    if kind == "node_files":
        return _node_files(lines, outcome, known, rng, gone)
    if kind == "cri":
        return _cri(lines, outcome, known, rng, gone)
    return _ONE_FILE[kind](lines, outcome, known, rng)


def _console(lines: Sequence[Line], outcome: Outcome, known: Names, rng: random.Random) -> Printed:
    name = rng.choice(("console.log", "job.log", "train.log", "nohup.out"))
    return Printed({name: _joined(one.text for one in lines)}, "none", False, False)


def _slurm(lines: Sequence[Line], outcome: Outcome, known: Names, rng: random.Random) -> Printed:
    name = f"slurm-{known.job}.out"
    return Printed({name: _joined(one.text for one in lines)}, "none", False, False)


def _tee(lines: Sequence[Line], outcome: Outcome, known: Names, rng: random.Random) -> Printed:
    locals_ = {rank.rank: rank.local_rank for rank in outcome.ranks}
    text = _tagged(lines, lambda one: "" if one.rank is None else f"[default{locals_[one.rank]}]:")
    name = rng.choice(("console.log", "torchrun.log"))
    return Printed({name: text}, "global" if outcome.nodes == 1 else "local", False, False)


def _srun(lines: Sequence[Line], outcome: Outcome, known: Names, rng: random.Random) -> Printed:
    by_node = any(one.rank is None and one.node is not None for one in lines)
    width = len(str((outcome.nodes if by_node else outcome.world) - 1))
    nodes = [rank.node for rank in outcome.ranks]

    def tag(one: Line) -> str:
        task = one.node if one.rank is None else nodes[one.rank] if by_node else one.rank
        return "" if task is None else f"{task:{width}d}: "

    return Printed(
        {f"slurm-{known.job}.out": _tagged(lines, tag)},
        "node" if by_node else "global",
        by_node,
        False,
    )


def _kubectl(lines: Sequence[Line], outcome: Outcome, known: Names, rng: random.Random) -> Printed:
    nodes = [rank.node for rank in outcome.ranks]
    tags = [f"[pod/train-{known.job}-worker-{node}/pytorch] " for node in range(outcome.nodes)]

    def tag(one: Line) -> str:
        node = one.node if one.rank is None else nodes[one.rank]
        return "" if node is None else tags[node]

    return Printed({"kubectl.log": _tagged(lines, tag)}, "node", True, False)


def _ray(lines: Sequence[Line], outcome: Outcome, known: Names, rng: random.Random) -> Printed:
    actor = rng.choice(("RayTrainWorker", "WorkerDict", "TrainWorker"))
    tags = []
    for rank in outcome.ranks:
        ip = f", ip={known.ips[rank.node]}" if rank.node else ""
        tags.append(f"({actor} pid={known.pids[rank.rank]}{ip}) ")
    text = _tagged(lines, lambda one: "" if one.rank is None else tags[one.rank])
    return Printed({"driver.log": text}, "process", False, False)


def _mpirun(lines: Sequence[Line], outcome: Outcome, known: Names, rng: random.Random) -> Printed:
    text = _tagged(lines, lambda one: "" if one.rank is None else f"[1,{one.rank}]<{one.stream}>:")
    return Printed({"mpirun.log": text}, "global", False, False)


_ONE_FILE: dict[str, Callable[[Sequence[Line], Outcome, Names, random.Random], Printed]] = {
    "console": _console,
    "slurm": _slurm,
    "tee": _tee,
    "srun": _srun,
    "kubectl": _kubectl,
    "ray": _ray,
    "mpirun": _mpirun,
}


def _rank_files(
    lines: Sequence[Line],
    outcome: Outcome,
    known: Names,
    rng: random.Random,
    missing: frozenset[int],
) -> Printed:
    width = len(str(outcome.world - 1))
    style = rng.choice(
        (
            "rank_{0}.log",
            "logs/rank{1}.log",
            "train.{0}.out",
            f"slurm-{known.job}-{{1}}.out",
            "worker_rank_{1}.err",
            "rank_{0}/stdout.log rank_{0}/stderr.log",
        )
    )
    streams = style.split()
    files: dict[str, list[str]] = {}
    paths = []
    for rank in range(outcome.world):
        out, *err = [name.format(rank, f"{rank:0{width}d}") for name in streams]
        paths.append({"stdout": out, "stderr": err[0] if err else out})
        if rank not in missing:
            for name in (out, *err):
                files[name] = []
    for one in lines:
        if one.rank is None:
            name = _NO_NODE if one.node is None else f"{known.hosts[one.node]}.log"
            files.setdefault(name, []).append(one.text)
        elif one.rank not in missing:
            files[paths[one.rank][one.stream]].append(one.text)
    written = {name: _joined(texts) for name, texts in files.items()}
    return Printed(written, "global", False, not missing)


def _torchrun_dir(
    lines: Sequence[Line],
    outcome: Outcome,
    known: Names,
    rng: random.Random,
    missing: frozenset[int],
) -> Printed:
    """`<run id>_<random>/attempt_0/<local rank>/{stdout,stderr}.log`, below a folder a node."""
    letters = string.ascii_lowercase + string.digits + "_"
    folders = []
    for node in range(outcome.nodes):
        run = f"none_{''.join(rng.choices(letters, k=8))}/attempt_0"
        folders.append(run if outcome.nodes == 1 else f"{known.hosts[node]}/{run}")
    files: dict[str, list[str]] = {}
    paths = [f"{folders[rank.node]}/{rank.local_rank}" for rank in outcome.ranks]
    for rank in outcome.ranks:
        if rank.rank not in missing:
            for stream in ("stdout", "stderr"):
                files[f"{paths[rank.rank]}/{stream}.log"] = []
    for one in lines:
        if one.rank is None:
            host = "" if one.node is None or outcome.nodes == 1 else f"{known.hosts[one.node]}/"
            files.setdefault(f"{host}torchrun.log", []).append(one.text)
        elif one.rank not in missing:
            files[f"{paths[one.rank]}/{one.stream}.log"].append(one.text)
    written = {name: _joined(texts) for name, texts in files.items()}
    one_node = outcome.nodes == 1
    return Printed(written, "global" if one_node else "local", not one_node, not missing)


def _node_files(
    lines: Sequence[Line],
    outcome: Outcome,
    known: Names,
    rng: random.Random,
    missing: frozenset[int],
) -> Printed:
    style = rng.choice(("{host}.log", "node_{node}.log", "train_{host}.out"))
    paths = [style.format(host=known.hosts[node], node=node) for node in range(outcome.nodes)]
    files = _by_node(lines, outcome, paths, missing)
    written = {name: _joined(one.text for one in ones) for name, ones in files.items()}
    return Printed(written, "node", True, False)


def _cri(
    lines: Sequence[Line],
    outcome: Outcome,
    known: Names,
    rng: random.Random,
    missing: frozenset[int],
) -> Printed:
    """`<time> <stream> F <line>` in a folder a pod."""
    paths = []
    for node in range(outcome.nodes):
        uid = f"{rng.getrandbits(32):08x}-4a1c-9b2e-{rng.getrandbits(48):012x}"
        paths.append(f"default_train-{known.job}-worker-{node}_{uid}/pytorch/0.log")
    written: Files = {}
    for name, ones in _by_node(lines, outcome, paths, missing).items():
        if name == _NO_NODE:
            written["events.log"] = _joined(one.text for one in ones)
            continue
        written[name] = _joined(
            f"{_utc(wall(outcome, one.time))} {one.stream} F {line}"
            for one in ones
            for line in one.text.split("\n")
        )
    return Printed(written, "node", True, False)


def _by_node(
    lines: Sequence[Line], outcome: Outcome, paths: Sequence[str], missing: frozenset[int]
) -> dict[str, list[Line]]:
    """Lines by file of their node; a node none of whose ranks is left has no file."""
    nodes = [rank.node for rank in outcome.ranks]
    kept = {nodes[rank] for rank in range(outcome.world) if rank not in missing}
    files: dict[str, list[Line]] = {paths[node]: [] for node in sorted(kept)}
    for one in lines:
        node = one.node if one.rank is None else nodes[one.rank]
        if node is None:
            files.setdefault(_NO_NODE, []).append(one)
        elif node in kept and one.rank not in missing:
            files[paths[node]].append(one)
    return files


def _utc(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%S.%f}000Z"


def _tagged(lines: Sequence[Line], tag: Callable[[Line], str]) -> bytes:
    """Every line of each text with its tag before it."""
    parts: list[str] = []
    for one in lines:
        mark = tag(one)
        parts.append(mark + one.text.replace("\n", "\n" + mark) if mark else one.text)
    return _joined(parts)


def _joined(texts: Iterable[str]) -> bytes:
    parts = list(texts)
    return ("\n".join(parts) + "\n").encode() if parts else b""
