"""One Flight Recorder dump as it was read: in columns, with its calls, groups and states."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

STATES = ("enqueued", "started", "completed")
ENQUEUED, STARTED, COMPLETED = range(3)
MAX_RANKS = 1_000_000
MAX_ELEMENTS = 8_000_000  # sizes, types, members: a pickle can name one list a million times

Sizes = tuple[tuple[int, ...], ...]


class DumpError(ValueError):
    """The file is no dump that can be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class Call:
    """What was called: one value per distinct call of a dump.

    `op` is without the backend's prefix and the ranks of a send or recv; `peer` is the other side
    of those, as rank IN the group.
    """

    op: str
    backend: str
    size_in: Sizes
    size_out: Sizes
    dtype: str
    peer: int | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A group as the dump's pg_config tells it; `ranks` are global."""

    name: str
    desc: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """How far a group got on this rank, -1 for not at all. Sends and receives count as well."""

    enqueued: int
    started: int
    completed: int


@dataclass(slots=True)
class Dump:
    """One dump in columns of equal length, entries in the order of the ring (oldest first).

    `pg`, `call` and `site` index `pgs` (name, desc), `calls` and `sites`. `rank` is None when
    neither the name nor the groups tell it. `partial`: cut off, the last entries are missing.
    `lines` has the 1-based line of every entry where the source is a log, None for a dump.
    """

    name: str
    rank: int | None
    version: tuple[int, int] | None
    record: npt.NDArray[np.int64]
    pg: npt.NDArray[np.int32]
    seq: npt.NDArray[np.int64]
    p2p: npt.NDArray[np.bool_]
    call: npt.NDArray[np.int32]
    state: npt.NDArray[np.int8]
    retired: npt.NDArray[np.bool_]
    created: npt.NDArray[np.int64]
    site: npt.NDArray[np.int32]
    timeout_ms: npt.NDArray[np.int64]
    pgs: list[tuple[str, str]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    config: list[Config] = field(default_factory=list)
    status: dict[str, Status] = field(default_factory=dict)  # by name of the group
    partial: bool = False
    lines: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.record)
