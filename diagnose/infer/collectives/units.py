"""The processes that are told of, or the GPUs of a process that is several ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from diagnose.parse.comm_rank import CommRank


@dataclass(slots=True)
class Unit:
    """One rank: a process, or one GPU of a process with several, and all that is told of it."""

    entries: list[CommRank]
    rank: int | None = None
    open_end: bool = False  # its last call is in a communicator that cannot be judged

    @property
    def gone(self) -> bool:
        """Whether the process is dead or does not answer."""
        return any(one.gone for one in self.entries)

    @property
    def dead(self) -> bool:
        """Whether the process is known to have ended."""
        return any(one.dead for one in self.entries)

    @property
    def nameless(self) -> bool:
        """Whether nothing says which process it is: a number inside a communicator is all."""
        return all(one.pid is None and one.rank is None for one in self.entries)

    @property
    def prefix(self) -> int | None:
        """The rank that lines or files tell."""
        return next((one.rank for one in self.entries if one.rank is not None), None)

    @property
    def span(self) -> tuple[str, int, int]:
        """Source, first and last line."""
        lines = [n for one in self.entries for n in (one.line, *(c.line for c in one.calls))]
        return self.entries[0].source, min(lines), max(lines)


def units_of(ranks: Sequence[CommRank]) -> list[Unit]:
    """One for each process; for each device where a process is several ranks of a communicator."""
    places: dict[tuple[object, ...], set[int | None]] = defaultdict(set)
    for one in ranks:
        if one.comm:
            places[one.host, one.pid, one.comm].add(one.comm_rank)
    several = {key[:2] for key, numbers in places.items() if len(numbers) > 1}
    found: dict[tuple[object, ...], Unit] = {}
    for one in ranks:
        key: tuple[object, ...] = (one.host, one.pid)
        if one.pid is None:
            key = (one.source, one.comm, one.comm_rank)
        elif key in several:
            key = (*key, one.device)
        found.setdefault(key, Unit([])).entries.append(one)
    return [*found.values()]


def merged(units: list[Unit]) -> list[Unit]:
    """Nameless entries of a rank, with what is told of its process.

    Without a rank they are some rank of a group that others tell of, and no process of their own.
    """
    kept = [unit for unit in units if not unit.nameless]
    by_rank = {unit.rank: unit for unit in kept}
    for unit in units:
        if unit.nameless and unit.rank is not None:
            whole = by_rank.setdefault(unit.rank, unit)
            if whole is unit:
                kept.append(unit)
            else:
                whole.entries += unit.entries
    return kept
