"""What one RAS report says, as `ras_text` and `ras_json` read it and `ras` weighs it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MAX_RANKS = 1 << 18  # of one report
MAX_SNAPSHOTS = 10_000
MAX_NOTED = 1000
MAX_DEVICES = 64
MAX_TEXT = 256


class RasError(ValueError):
    """The file is no RAS report that can be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class RasProcess:
    """A process of the job; RAS tells the host by its address. `devices` as CUDA counts them."""

    host: str
    pid: int
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RasComm:
    """A communicator as summed up: `hash` as 0x…, "" where text leaves out a healthy one.

    `errors` as RAS writes them: OK, or INCOMPLETE, ERROR and MISMATCH joined by commas.
    """

    hash: str
    size: int | None
    status: str
    errors: str


@dataclass(slots=True)
class Rank:
    """One rank of a communicator; `counts` by NCCL's operation, None where they are not told."""

    line: int
    process: RasProcess | None = None
    counts: dict[str, int] | None = None
    missing: bool = False
    gone: bool = False


@dataclass(slots=True)
class Op:
    """Text: the counts of one operation. `some`: [count, ranks that have it, ranks listed]."""

    op: str
    line: int
    some: list[list[int]] = field(default_factory=list)
    ranks: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Comm:
    """One communicator. Only in text: `ops`, `missing` (line, ranks as written), and `nodes`.

    `unnamed`: operation, count and how many ranks of it are not named.
    """

    hash: str
    size: int | None
    line: int
    status: str = ""
    errors: set[str] = field(default_factory=set)
    ranks: dict[int, Rank] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    missing: list[tuple[int, str]] = field(default_factory=list)
    nodes: int = 0
    unnamed: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Snapshot:
    """One report. `healthy`: communicators that text only sums up; `cut`: the end is missing.

    `nodes`, and GPUs `per_node`, as the summary of text says (0: it does not).
    """

    line: int
    version: str = ""
    stamp: str | None = None
    comms: dict[str, Comm] = field(default_factory=dict)
    healthy: list[RasComm] = field(default_factory=list)
    dead: list[RasProcess] = field(default_factory=list)
    missing: list[RasProcess] = field(default_factory=list)
    errors: list[tuple[int, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cut: bool = False
    nodes: int = 0
    per_node: int = 0


@dataclass(slots=True)
class Found:
    """All that a file holds: reports, and what monitor mode says (`dead`: process → line)."""

    snapshots: deque[Snapshot] = field(default_factory=lambda: deque(maxlen=MAX_SNAPSHOTS))
    dead: dict[RasProcess, int] = field(default_factory=dict)
    events: int = 0
    errors: list[tuple[int, str]] = field(default_factory=list)

    def event(self, name: str, process: RasProcess | None, line: int) -> None:
        """Take in one event of monitor mode."""
        self.events += 1
        if process is not None and name == "PEER_DEAD":
            self.dead.setdefault(process, line)
        elif process is not None and name == "PEER_RECOVERED":
            self.dead.pop(process, None)


def hash_name(hexadecimal: str) -> str:
    """How a communicator is named: as `commId` in NCCL's own lines, without leading zeros."""
    return f"0x{int(hexadecimal, 16):x}"
