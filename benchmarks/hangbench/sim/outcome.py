"""What a simulated job has come to, and the lines it printed: the words of this track.

Times are seconds since the start of the job. Ranks are global unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

# How a rank's process stands when nothing moves any more.
#   waiting    its host waits for its device, or has run ahead as far as it may
#   stuck      its host is held up outside of any collective
#   slow       the same, but it is at work and says so (a long preparation of data, a slow loader)
#   raised     an uncaught exception ended it
#   killed     a signal ended it
#   left       it ended with exit status 0
#   lost       its node went down with it
End = Literal["waiting", "stuck", "slow", "raised", "killed", "left", "lost"]


@dataclass(frozen=True, slots=True)
class Group:
    """A process group. name: its GUID (`0`: the default group); desc: as torch prints it."""

    name: str
    desc: str
    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """A Python frame of the user's program."""

    function: str
    file: str
    line: int


@dataclass(eq=False, slots=True)
class Work:
    """What one rank enqueued by one call: a collective, a send, a receive or a batch of these.

    group: name of the process group. seq: number of this collective, or of this send or receive,
    in its group on this rank, from 1; the two are counted apart (`p2p`). op: as in the recorder's
    profiling name (`all_reduce`, `_allgather_base`, `_reduce_scatter_base`, `all_to_all`,
    `broadcast`, `all_gather`, `reduce_scatter`, `barrier`, `send`, `recv`, `coalesced`).
    peers: (`send` or `recv`, global rank) of each part; empty for a collective.
    numel_in, numel_out: elements of its tensors. dtype: as torch's scalar types (`Float`,
    `BFloat16`). site: where the program calls it, outermost frame first.
    created: when the host enqueued it; started: when the device came to it, None if it has not;
    finished: when it was through, None if it is pending.
    """

    rank: int
    group: str
    seq: int
    op: str
    numel_in: int
    numel_out: int
    dtype: str
    created: float
    p2p: bool = False
    peers: tuple[tuple[str, int], ...] = ()
    site: tuple[Frame, ...] = ()
    started: float | None = None
    finished: float | None = None


@dataclass(eq=False, slots=True)
class Rank:
    """One rank's process: what it enqueued (in order), the steps it printed, how it stands now.

    place: the stack of its main thread now (outermost frame first), within the user's program;
    where `end` is `waiting` it ends in the call that waits, where `stuck` in what holds it up.
    stuck_in: for `stuck` and `slow`, what the host is doing: `loader`, `lock`, `file`,
    `preparation`, `save`, `evaluation`, `compile`, `sleep`; for `raised` the exception as
    Python prints it (`KeyError: 'labels'`); for `killed` the signal's number.
    ended: when it died or left; None if it has not.
    """

    rank: int
    node: int
    local_rank: int
    works: list[Work] = field(default_factory=list)
    steps: list[tuple[float, int]] = field(default_factory=list)  # (time, number of the step)
    end: End = "waiting"
    place: tuple[Frame, ...] = ()
    stuck_in: str = ""
    ended: float | None = None

    @property
    def pending(self) -> list[Work]:
        """What it enqueued and is not through, oldest first."""
        return [work for work in self.works if work.finished is None]


@dataclass(eq=False, slots=True)
class Outcome:
    """A job that stands still, or one that ended well (no rank has anything pending).

    program: `ddp`, `fsdp`, `hsdp`, `tp_pp_dp`, `expert`, `context`; fault: see faults.py, empty
    for none. culprits: ranks that the fault struck. link: the two nodes of a dead link or rail.
    crossed: ranks that enter two groups, some in one order and some in the other.
    fault_at: when the fault struck. onset: when the first rank began to wait for what never came.
    start: wall clock at time 0. timeout_s: of every process group. timing: whether the devices'
    starts are recorded (TORCH_NCCL_ENABLE_TIMING).
    ids: for each rank the names of its groups in the order in which it created them, from which
    torch's `PG ID` is counted (a group that a rank is no member of counts as well).
    """

    program: str
    fault: str
    groups: Mapping[str, Group]
    ranks: list[Rank]
    ranks_per_node: int
    start: datetime
    timeout_s: float
    fault_at: float | None = None
    onset: float | None = None
    culprits: tuple[int, ...] = ()
    link: tuple[int, int] | None = None
    crossed: tuple[int, ...] = ()
    timing: bool = False
    ids: list[list[str]] = field(default_factory=list)

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return -(-self.world // self.ranks_per_node)


# What a line shows to whoever reads it; the oracle counts these.
#   world    how many ranks the job has
#   step     that `rank` made a step
#   busy     what a slow or stuck rank is at
#   waits    that `rank` waits in `work` (a watchdog's timeout line)
#   call     that `rank` enqueued `work` (NCCL's lines of calls)
#   status   how far `rank` has enqueued and finished (torch's status lines, dump signals)
#   raised   the exception that ended `rank`
#   exit     how `rank` ended, by its launcher, scheduler or node
#   left     that `rank` came to the end of its program
#   link     that the link of `rank` failed (NCCL's own warning)
#   noise    nothing of the fault: start-up, teardown, aborts of victims
Shows = Literal[
    "world", "step", "busy", "waits", "call", "status", "raised", "exit", "left", "link", "noise"
]


@dataclass(eq=False, slots=True)
class Line:
    """Lines that one process prints at once, such as a message or a whole traceback.

    rank: whose process prints it; None for a launcher or scheduler on `node` (None: of the job).
    text: without the prefix of a launcher, with those of torch and Python (`[rank3]:[E…`); several
    lines are separated by line feeds. shows: see `Shows`. subject: the rank that it is about,
    where that is not `rank`; subjects: all of them, where it is about several (the tasks of a
    node). names_rank: whether the text itself states the global rank of its subject. names_group:
    whether it states the group of `work`.
    """

    time: float
    rank: int | None
    node: int | None
    text: str
    stream: Literal["stdout", "stderr"] = "stderr"
    shows: Shows = "noise"
    subject: int | None = None
    work: Work | None = None
    names_rank: bool = False
    names_group: bool = False
    subjects: tuple[int, ...] = ()
