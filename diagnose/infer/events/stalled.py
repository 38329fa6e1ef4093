"""Process groups that stopped: who waits in them for what, and how their ranks disagree."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

P2P_OPS = frozenset({"SEND", "RECV", "RECVANYSOURCE"})

_SEVERAL = 3  # ranks that wait, so that the gap below them tells something

Shape = Literal["mismatch", "conditional", "shifted", "missing", "all_joined", "unclear"]


class Wait(NamedTuple):
    """A rank waits for a collective: its first pending one in this group."""

    rank: int
    seq: int | None
    op: str | None
    size_in: int | None
    size_out: int | None
    timeout_ms: int | None
    elapsed_ms: int | None
    row: int  # position in the timeline

    @property
    def tiny(self) -> bool:
        """A barrier, or the size exchange in front of a gather of objects."""
        return self.size_in == 1 or self.op == "BARRIER"


class Calls(NamedTuple):
    """What is compared with each other: the collectives of a group, or its sends and receives."""

    group: str | None
    p2p: bool


@dataclass(slots=True)
class Stall:
    """One process group that stopped.

    `shape` says how its ranks disagree. `waits` is per rank; `missing` the ranks that did not
    join (as far as known), `odd` the minority of a mismatch (empty on a tie), `proven` whether a
    line names them or they follow by majority from a complete collection, `named` the former.
    `rows` are indices of the events that show it.
    """

    group: str | None
    shape: Shape
    waits: dict[int, Wait] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    odd: list[int] = field(default_factory=list)
    proven: bool = False
    named: bool = False
    why: str = ""
    rows: list[int] = field(default_factory=list)
    op: str | None = None
    seq: int | None = None

    @property
    def accused(self) -> list[int]:
        """Whom the others wait for, if they wait for work that one rank does for all.

        That is rank 0, which always exists: its gap below several others tells more than another.
        """
        main_alone = self.missing == [0] and len(self.joined) >= _SEVERAL
        return self.missing if self.proven or main_alone else []

    @property
    def joined(self) -> list[int]:
        """Ranks known to wait in it."""
        return sorted(set(self.waits) - set(self.missing))

    @property
    def tiny(self) -> bool:
        """At least one rank waits in a barrier-like collective and none in a larger one."""
        return bool(self.waits) and all(wait.tiny for wait in self.waits.values())

    @property
    def sized(self) -> bool:
        """The log tells sizes at all (torch 2.1 and later)."""
        return any(wait.size_in is not None for wait in self.waits.values())


@dataclass(slots=True)
class Named:
    """Ranks that some line names as missing, and the lines."""

    ranks: set[int] = field(default_factory=set)
    rows: list[int] = field(default_factory=list)
    lacking: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def crossed(self) -> bool:
        """Ranks lack different operations from each other: each waits in what another lacks."""
        kinds = [ops for ops in self.lacking.values() if ops]
        return any(ops != kinds[0] for ops in kinds)
