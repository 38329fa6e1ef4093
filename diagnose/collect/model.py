"""What is collected, and how: the plain data of a node (`nodes/HOST/node.json`) and of a bundle."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA = "diagnose-bundle/1"
NODE_SCHEMA = "node/1"
MANIFEST = "manifest.json"

Status = Literal["ok", "failed", "timed out", "not available"]
Role = Literal["rank", "launcher", "loader", "child"]


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What one node is asked for.

    pids: The job's processes, with all that they started; empty: they are found by their
        environment.
    job: A job's id in its environment (SLURM_JOB_ID, TORCHELASTIC_RUN_ID …), where several run
        here; None: the one with most ranks.
    host: The name of the node in the bundle; None: what it calls itself.
    apart_s: Seconds between the two samples of CPU time, context switches and I/O.
    pause_s: How long at most a process may be paused for its native stacks; 0: none is paused, and
        there are only Python stacks.
    dump: Ask torch for dumps of its Flight Recorder where it listens for that.
    probe_s: Seconds that one probe may take.
    probe_bytes: What one probe may write.
    """

    pids: tuple[int, ...] = ()
    job: str | None = None
    host: str | None = None
    apart_s: float = 5.0
    pause_s: float = 0.8
    dump: bool = True
    probe_s: float = 8.0
    probe_bytes: int = 64 << 20


@dataclass(slots=True)
class Probe:
    """What one probe came to; `problem` is one line, and says why where it did not do well."""

    name: str
    status: Status = "ok"
    seconds: float = 0.0
    bytes: int = 0
    problem: str = ""


@dataclass(slots=True)
class Process:
    """A process of the job; `folder` is where its files are, below the folder of the node.

    `rank` is None where it is unknown, as of processes that are none; `loader` is a worker process
    of a DataLoader, `child` anything else that a rank started. `world` is the number of ranks,
    `local_world` that of its node.
    """

    pid: int
    role: Role
    rank: int | None = None
    local_rank: int | None = None
    world: int | None = None
    local_world: int | None = None
    parent: int | None = None
    command: str = ""
    folder: str = ""


@dataclass(slots=True)
class Node:
    """One node of a bundle. Times are ISO 8601 in UTC; `clock` says what is known of its error."""

    host: str
    tool: str
    started: str = ""
    ended: str = ""
    clock: dict[str, Any] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """Where it is in a bundle."""
        return f"nodes/{self.host}"

    def to_dict(self) -> dict[str, Any]:
        """The document `node.json`, and an entry of the manifest."""
        return {"diagnose": NODE_SCHEMA, **asdict(self)}


@dataclass(slots=True)
class Manifest:
    """The document `manifest.json`.

    `via` says how the nodes were reached: `here`, `slurm`, `kubernetes`, `ssh`, or the launcher's
    command. A node that could not be reached is a line of `problems` and has no entry in `nodes`.
    """

    tool: str
    started: str
    ended: str
    via: str = "here"
    nodes: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    schema: str = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """In the order in which people read it."""
        found = asdict(self)
        for node in found["nodes"]:
            node.pop("diagnose", None)
        return {"schema": found.pop("schema"), **found}
