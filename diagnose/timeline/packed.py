"""Drafts on their way between two processes: a column for each of their fields.

Objects cost several times as much to send as the plain values in them; most columns of the drafts
of a few sources hold one value only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import repeat, starmap
from operator import attrgetter
from typing import Any

from diagnose.parse.who import Stamp
from diagnose.timeline.draft import Draft
from diagnose.timeline.event import Meaning, Work

# One value for all rows, or that of each row.
_Column = tuple[Any] | list[Any]

# What drafts share or do without, by the name under which they have it.
_SHARED: dict[str, type[Any]] = {"meaning": Meaning, "work": Work, "stamp": Stamp}
_OF_DRAFT = [field.name for field in fields(Draft)]
_OF_SHARED = {name: [field.name for field in fields(kind)] for name, kind in _SHARED.items()}


@dataclass(frozen=True, slots=True)
class Packed:
    """So many drafts; of what they share there is its number among the columns of `shared`."""

    size: int
    drafts: dict[str, _Column]
    shared: dict[str, tuple[int, list[_Column]]]


def pack(drafts: Sequence[Draft]) -> Packed:
    """Drafts as columns."""
    columns, shared = {}, {}
    for name in _OF_DRAFT:
        values = list(map(attrgetter(name), drafts))
        if name in _SHARED:
            different = {id(value): value for value in values if value is not None}
            numbers = {of: number for number, of in enumerate(different)}
            values = [numbers.get(id(value)) for value in values]
            shared[name] = (
                len(different),
                [
                    _column(list(map(attrgetter(inside), different.values())))
                    for inside in _OF_SHARED[name]
                ],
            )
        columns[name] = _column(values)
    return Packed(len(drafts), columns, shared)


def unpack(packed: Packed) -> list[Draft]:
    """The drafts that were packed."""
    given = {name: _values(column, packed.size) for name, column in packed.drafts.items()}
    for name, (size, inside) in packed.shared.items():
        found: dict[int | None, object] = dict(
            enumerate(starmap(_SHARED[name], _rows(inside, size)))
        )
        given[name] = map(found.get, given[name])
    return list(starmap(Draft, zip(*given.values(), strict=True)))


def _column(values: list[Any]) -> _Column:
    """One value where all are the same."""
    first = values[0] if values else None
    return (first,) if values.count(first) == len(values) else values


def _values(column: _Column, size: int) -> Iterable[Any]:
    return repeat(column[0], size) if isinstance(column, tuple) else column


def _rows(columns: Sequence[_Column], size: int) -> Iterable[tuple[Any, ...]]:
    return zip(*(_values(column, size) for column in columns), strict=True)
