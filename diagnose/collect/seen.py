"""What one look at each process of this node shows: its command, its environment, its rank."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from diagnose.collect import proc
from diagnose.collect.children import TimedOut, bounded

# How launchers tell a process its rank, and the number of ranks, in the job and on its node.
# Torch's own come first: a task of Slurm or MPI may be a launcher with ranks below it.
IDENTITY = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMIX_RANK", "PMIX_LOCAL_RANK", "PMIX_SIZE", "PMIX_LOCAL_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"),
)  # fmt: skip
JOBS = (
    "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PBS_JOBID", "LSB_JOBID", "RAY_JOB_ID", "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid", "MASTER_ADDR", "MASTER_PORT",
)  # fmt: skip
_LAUNCHERS = frozenset(
    {"srun", "slurmstepd", "slurmd", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun",
     "orted", "prted", "hydra_pmi_proxy", "torchrun", "accelerate", "deepspeed", "raylet",
     "horovodrun", "hydra_bstrap_proxy", "colossalai", "composer", "fabric", "lightning"}
)  # fmt: skip
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch",
            "deepspeed.launcher", "torch.distributed.elastic")  # fmt: skip
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
