"""How the lines of a job reach a reader: one console or many files, with or without an author."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from benchmarks.hangbench.case import Determines, Files
from benchmarks.hangbench.words.job import Job, Line
from benchmarks.hangbench.words.programs import Family, Program

# What the layout tells of the author of a line: its rank, its pod or container (whose number need
# not be the rank), its host, or nothing.
Author = Literal["rank", "pod", "host", "none"]
Launcher = Literal["torchrun", "slurm", "kubernetes", "compose", "ray", "mpirun", "shell"]
Prefix = Callable[[Job, Line], str]


@dataclass(frozen=True, slots=True)
class Layout:
    """A kind of evidence.

    form: the word for it in figures. author: see `Author`. launcher: who started the ranks and
    prints how the job ends. families: programs that are run so. stamps: it puts a date and a time
    before each line. prefix: what stands before a line; None: each author has a file of its own,
    named by `files`. loose: the file of everything else. one_host: its numbers are global ranks
    only on one host.
    """

    name: str
    form: str
    author: Author
    launcher: Launcher
    families: tuple[Family, ...]
    prefix: Prefix | None
    stamps: bool = False
    one_host: bool = False
    files: Callable[[Job, int], str] | None = None
    loose: str = ""


_LAUNCHERS: dict[Launcher, int] = {
    "torchrun": 5, "slurm": 4, "kubernetes": 3, "mpirun": 2, "compose": 1, "ray": 2, "shell": 1,
}  # fmt: skip


def draw(rng: random.Random) -> Layout:
    """A layout; Slurm and torchrun are the most frequent launchers."""
    launcher = rng.choices(list(_LAUNCHERS), list(_LAUNCHERS.values()))[0]
    return rng.choice([one for one in LAYOUTS if one.launcher == launcher])


def shows(layout: Layout, program: Program) -> bool:
    """Whether a program can be run and seen this way.

    A bar redrawn in place is one line to whoever puts a prefix before lines, and comes at its end;
    only torchrun takes a carriage return for the end of a line.
    """
    whole = layout.prefix in (None, _nothing, _template, _tee)
    return program.family in layout.families and (whole or not program.bar)


def blame(
    job: Job, layout: Layout, rank: int, *, rank_known: bool
) -> tuple[Determines, tuple[int, ...], tuple[str, ...]]:
    """What the evidence determines of a culprit, whom it cannot tell from it, and the hosts.

    Pods and containers are numbered, but where a master is counted apart the rank is one more.

    rank_known: the lines themselves tell the rank of their author.
    """
    hosts = _author_hosts(job, layout, rank)
    if rank_known or layout.author == "rank":
        return "rank", (rank,), hosts
    if layout.author == "pod":
        near = tuple(other for other in (rank - 1, rank, rank + 1) if 0 <= other < job.world)
        return "nothing", near, hosts
    if layout.author == "host":
        return "group", job.neighbours(rank), hosts
    return "nothing", tuple(range(job.world)), ()


def _author_hosts(job: Job, layout: Layout, rank: int) -> tuple[str, ...]:
    if layout.author == "pod":
        return (pod(job, rank) if layout.launcher == "kubernetes" else container(rank),)
    return (job.host(rank),) if layout.author == "host" else ()


def pod(job: Job, rank: int) -> str:
    return f"{job.name}-worker-{rank}"


def container(rank: int) -> str:
    return f"worker-{rank}"


# ---------------------------------------------------------------- prefixes


def _nothing(job: Job, line: Line) -> str:
    return ""


def _template(job: Job, line: Line) -> str:
    return f"[rank{line.rank}]: "


def _tee(job: Job, line: Line) -> str:
    return f"[default{line.rank}]:"


def _label(job: Job, line: Line) -> str:
    return f"{line.rank:{len(str(job.world - 1))}d}: "


def _pod(job: Job, line: Line) -> str:
    return f"[pod/{pod(job, line.rank or 0)}/pytorch] "


def _pod_stamped(job: Job, line: Line) -> str:
    now = job.clock(line.at)
    return f"{_pod(job, line)}{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond:06d}{line.rank or 0:03d}Z "


def _compose(job: Job, line: Line) -> str:
    return f"{container(line.rank or 0):<{len(container(job.world - 1))}}  | "


def _compose_stamped(job: Job, line: Line) -> str:
    now = job.clock(line.at)
    return f"{_compose(job, line)}{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond:06d}412Z "


def _ray(job: Job, line: Line) -> str:
    rank = line.rank or 0
    ip = "" if rank < job.per_host else f", ip={ray_ip(job, rank)}"
    return f"(RayTrainWorker pid={job.pids[rank]}{ip}) "


def ray_ip(job: Job, rank: int) -> str:
    return f"10.0.{job.number % 200}.{20 + rank // job.per_host}"


def _mpi_tag(job: Job, line: Line) -> str:
    return f"[1,{line.rank}]<{'stderr' if line.err else 'stdout'}>:"


def _hydra(job: Job, line: Line) -> str:
    return f"[{line.rank}] "


def _pdsh(job: Job, line: Line) -> str:
    return f"{job.host(line.rank or 0)}: "


# ---------------------------------------------------------------- files of authors


def _by_rank(form: str) -> Callable[[Job, int], str]:
    return lambda job, rank: form.format(
        rank=rank, job=job.number, name=job.name, wide=f"{rank:03d}", host=job.host(rank)
    )


def _by_host(job: Job, rank: int) -> str:
    return f"{job.host(rank)}.log"


def _elastic(job: Job, rank: int) -> str:
    return f"logs/none_{job.number:08x}/attempt_0/{rank}/std"


TORCH: tuple[Family, ...] = ("torch",)
ANY: tuple[Family, ...] = ("torch", "jax", "keras", "mpi")

LAYOUTS: tuple[Layout, ...] = (
    Layout("console", "console", "none", "torchrun", TORCH, _nothing, loose="train.log"),
    Layout("python", "console", "none", "shell", ("jax", "keras"), _nothing, loose="out.log"),
    Layout("slurm", "slurm", "none", "slurm", ANY, _nothing, loose="slurm-{job}.out"),
    Layout("mpirun", "console", "none", "mpirun", ("mpi",), _nothing, loose="run.log"),
    Layout("template", "torchrun", "rank", "torchrun", TORCH, _template, loose="train.log"),
    Layout("tee", "torchrun", "rank", "torchrun", TORCH, _tee, one_host=True, loose="console.log"),
    Layout("label", "slurm", "rank", "slurm", ANY, _label, loose="slurm-{job}.out"),
    Layout("kubectl", "kubectl", "pod", "kubernetes", ("torch", "jax"), _pod, loose="pods.log"),
    Layout("kubectl-stamps", "kubectl", "pod", "kubernetes", ("torch", "jax"), _pod_stamped,
           stamps=True, loose="pods.log"),
    Layout("compose", "compose", "pod", "compose", TORCH, _compose, loose="compose.log"),
    Layout("compose-stamps", "compose", "pod", "compose", TORCH, _compose_stamped, stamps=True,
           loose="compose.log"),
    Layout("ray", "ray", "rank", "ray", ("ray", "torch"), _ray, loose="driver.log"),
    Layout("mpi-tag", "mpirun", "rank", "mpirun", ("mpi",), _mpi_tag, loose="mpirun.log"),
    Layout("hydra", "mpirun", "rank", "mpirun", ("mpi",), _hydra, loose="mpiexec.log"),
    Layout("pdsh", "pdsh", "host", "torchrun", TORCH, _pdsh, loose="deepspeed.log"),
    Layout("rank-files", "files", "rank", "torchrun", TORCH, None,
           files=_by_rank("rank_{rank}.log"), loose="torchrun.log"),
    Layout("rank-files-wide", "files", "rank", "torchrun", TORCH, None,
           files=_by_rank("logs/rank{wide}.txt"), loose="launch.log"),
    Layout("slurm-files", "files", "rank", "slurm", ANY, None,
           files=_by_rank("{name}-{job}-{rank}.out"), loose="slurm-{job}.out"),
    Layout("mpi-files", "files", "rank", "mpirun", ("mpi",), None,
           files=_by_rank("out/1/rank.{rank}/stdout"), loose="mpirun.log"),
    Layout("elastic-files", "files", "rank", "torchrun", TORCH, None, one_host=True,
           files=_elastic, loose="torchrun.log"),
    Layout("host-files", "node files", "host", "torchrun", TORCH, None, files=_by_host,
           loose="launcher.log"),
    Layout("cat-headers", "cat", "rank", "torchrun", TORCH, None,
           files=_by_rank("rank_{rank}.log"), loose="all.log"),
)  # fmt: skip


# ---------------------------------------------------------------- from lines to files


def write(job: Job, layout: Layout, lines: Iterable[Line]) -> Files:
    """The files that this layout leaves of the lines; they are printed in the order of time."""
    ordered = sorted(lines, key=lambda line: line.at)
    loose = layout.loose.format(job=job.number)
    if layout.launcher == "kubernetes":
        assert layout.prefix is not None
        files = {}
        for name, prefix in (
            (loose, layout.prefix),
            ("kubectl.txt", _nothing),
            ("dmesg.txt", _nothing),
        ):
            part = [line for line in ordered if _kubernetes_file(line, loose) == name]
            if part:
                files[name] = _stream(job, part, prefix)
        return files
    if layout.prefix is not None:
        return {loose: _stream(job, ordered, layout.prefix)}
    assert layout.files is not None
    parts: dict[str, list[Line]] = {}
    for line in ordered:
        if line.rank is None:
            name = loose
        else:
            name = layout.files(job, line.rank)
            if layout.files is _elastic:
                name += "err.log" if line.err else "out.log"
        parts.setdefault(name, []).append(line)
    texts = {name: _stream(job, part, _nothing) for name, part in parts.items()}
    if layout.name != "cat-headers":
        return texts
    tail = texts.pop(loose, b"")
    # as `tail -n +1 rank_*.log` prints them
    heads = (b"==> %s <==\n%s" % (name.encode(), text) for name, text in sorted(texts.items()))
    return {loose: b"\n".join(heads) + tail}


def _kubernetes_file(line: Line, pods: str) -> str:
    """The logs of the pods hold no lines of the cluster or of a node's kernel."""
    if line.rank is not None:
        return pods
    return "dmesg.txt" if line.text.startswith("[") else "kubectl.txt"


def _stream(job: Job, lines: list[Line], prefix: Prefix) -> bytes:
    """Lines as one stream shows them.

    A bar is redrawn in place where nothing stands before the lines; what others print after it
    stands on its line, as in a shared file.
    """
    out: list[str] = []
    in_bar = False
    for line in lines:
        before = "" if line.rank is None else prefix(job, line)
        if line.bar and prefix is _nothing:
            out.append("\r" + line.text)
            in_bar = True
            continue
        if in_bar and line.mark in ("start", "step", "note", "finish"):
            out.append("\n")
        in_bar = False
        out += [before + part + "\n" for part in line.text.split("\n")]
    if in_bar:
        out.append("\n")
    return "".join(out).encode()
