"""What a real run is made of: a program, what goes wrong in it, how it ends, what is kept of it.

A `Scenario` draws a `Job` from a seeded random generator; `jobs.run` runs it. Names, faults and
truths stay on this side; nothing of them reaches the files that a tool sees.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal

# How the processes are started: `processes` is a shell script that starts one a rank, `single` one
# process that starts the others itself, `forks` the dump lab's process that forks all ranks.
Launcher = Literal["torchrun", "accelerate", "mpirun", "processes", "single", "forks"]

# How a run ends.
#   itself    by its own errors, time limits or success
#   term, int SIGTERM or SIGINT to the launcher some seconds after nothing moves any more
#   limit     `timeout SECONDS` around the launcher (mpirun: its own --timeout)
#   alive     it still stands when its files are copied
End = Literal["itself", "term", "int", "limit", "alive"]

# What is kept of a run: the console; a file a rank; torchrun's log folder; Flight Recorder dumps;
# stacks of all ranks by py-spy or by faulthandler (SIGUSR1, into their stderr); a bundle of
# `diagnose collect`.
Kept = Literal["console", "ranks", "dumps", "stacks", "faulthandler", "bundle"]

# What goes wrong, as far as the truth depends on it (truth.py).
Kind = Literal[
    "none", "stall", "killed", "native", "exception", "exit", "uneven", "mismatch", "conditional",
    "never_joins", "port", "stopped_from_outside",
]  # fmt: skip

VARIANTS = 100  # seeds a scenario


@dataclass(frozen=True, slots=True)
class Event:
    """Something done to a rank from outside once it has come to a step.

    action: `SIGKILL`, `SIGSTOP`, `SIGSEGV`, `SIGBUS`, `SIGTERM`; `kill-worker` for a process of its
    data loader; `limit-memory`, which leaves it 300 MiB more than it has; `launcher-SIGTERM` and
    `launcher-SIGINT`, which end the whole job; `look`, which copies the files of a job that works.
    """

    rank: int
    step: int
    action: str


@dataclass(frozen=True, slots=True)
class Wrong:
    """What goes wrong. classes: those that are right where the evidence shows it well."""

    kind: Kind = "none"
    ranks: tuple[int, ...] = ()
    classes: tuple[str, ...] = ("none",)


@dataclass(frozen=True, slots=True)
class Job:
    """One run.

    program: file of programs/, which becomes train.py. callbacks: file of programs/callbacks/.
    shards: rank → what is odd about its shard (`jobs.write_shard`). steps, pace_s, timeout_s: of
    the program; settings are added to its settings.json. tracking: `silent` for a server of metrics
    that never answers; without it nobody listens there.
    fifos: named pipes that nobody writes to or reads from; files, sources: written as they are, the
    latter instead of files of programs/. options: of the launcher; python_options: of the ranks'
    Python. tee: a file a rank (torchrun's --log-dir with --tee, or the launching script's).
    busy_port: somebody else listens on the rendezvous port. look_early: it stands still before its
    first step. before_training: what goes wrong may do so before the first step. limit_s: after
    which the run is given up.
    """

    program: str
    world: int
    launcher: Launcher
    wrong: Wrong
    callbacks: str = "callbacks"
    shards: Mapping[int, str] = field(default_factory=dict)
    steps: int = 12
    pace_s: float = 0.15
    timeout_s: float = 8.0
    settings: Mapping[str, object] = field(default_factory=dict)
    tracking: str | None = None
    events: tuple[Event, ...] = ()
    fifos: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    python_options: tuple[str, ...] = ()
    end: End = "itself"
    kept: tuple[Kept, ...] = ("console",)
    tee: bool = False
    busy_port: bool = False
    look_early: bool = False
    before_training: bool = False
    limit_s: float = 75.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A kind of run.

    needs: Python modules, and commands as `!name`, without which it is skipped.
    """

    name: str
    framework: str
    needs: tuple[str, ...]
    draw: Callable[[Random], Job]

    @property
    def first_seed(self) -> int:
        """Seeds of a scenario follow each other, and stay when others are added."""
        return zlib.crc32(self.name.encode()) % 10**8 * VARIANTS


def job_of(scenario: Scenario, seed: int) -> Job:
    """The run that a seed stands for."""
    return scenario.draw(Random(seed))
