"""How far one rank got in one communicator, told by something else than a Flight Recorder dump.

NCCL's own call lines (`parse/nccl_calls.py`), RAS reports (`parse/ras.py`) and Inspector files
(`parse/inspector.py`) all come down to this; `infer/collectives/from_counters.py` makes of it what
dumps give.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

MAX_SEQ = 1 << 44  # of calls; a counter that tells more is damaged
MAX_COMM = 1 << 18  # ranks of a communicator; a line that tells more is damaged


class CollCall(NamedTuple):
    """One call of a rank: `seq` counts the calls of its communicator on that rank.

    `op` is torch's word (`all_reduce`), `size` the number of elements (-1: not told), `line` the
    1-based line that says so.
    """

    seq: int
    op: str
    size: int
    dtype: str
    line: int


@dataclass(slots=True)
class CommRank:
    """One rank in one communicator, as one source tells it.

    `comm` names the communicator alike on all its ranks ("" where the source does not tell) and
    `comm_rank` is the rank INSIDE it; `rank` is the global one where known. `calls` are the last
    few, oldest first. `launched` and `completed` are the last sequence numbers told (None: not
    told). `gone` says that the process is dead or unreachable, `dead` that it is the former.
    `truncated`: its source ends inside a line or lost its end, so that what it counts is the least.
    `world`: how many ranks the job has at least, where the source tells more than a communicator.
    """

    source: str
    line: int
    comm: str
    comm_rank: int | None
    size: int | None
    rank: int | None = None
    host: str | None = None
    pid: int | None = None
    device: int | None = None
    bus_id: str | None = None
    calls: list[CollCall] = field(default_factory=list)
    launched: int | None = None
    completed: int | None = None
    gone: bool = False
    dead: bool = False
    truncated: bool = False
    world: int | None = None
