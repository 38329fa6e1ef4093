"""Drafts on their way between two processes: a column for each of their fields.

Objects cost several times as much to send as the plain values in them; most columns of the drafts
of a few sources hold one value only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import repeat
from operator import attrgetter
from typing import Any

from diagnose.timeline.draft import Draft
from diagnose.timeline.event import Meaning

# One value for all rows, or that of each row.
_Column = tuple[Any] | list[Any]

_OF_DRAFT = [field.name for field in fields(Draft)]
_OF_MEANING = [field.name for field in fields(Meaning)]


@dataclass(frozen=True, slots=True)
class Packed:
    """So many drafts; where their `meaning` would be, its number in the columns of `meanings`."""

    size: int
    drafts: list[_Column]
    meanings: list[_Column]
    kinds: int  # how many meanings there are


def pack(drafts: Sequence[Draft]) -> Packed:
    """Drafts as columns."""
    numbers: dict[int, int] = {}
    meanings: list[Meaning] = []
    column = []
    for draft in drafts:
        number = numbers.setdefault(id(draft.meaning), len(meanings))
        if number == len(meanings):
            meanings.append(draft.meaning)
        column.append(number)
    given = [column if name == "meaning" else _column(drafts, name) for name in _OF_DRAFT]
    said = [_column(meanings, name) for name in _OF_MEANING]
    return Packed(len(drafts), given, said, len(meanings))


def unpack(packed: Packed) -> list[Draft]:
    """The drafts that were packed."""
    meanings = [Meaning(*row) for row in _rows(packed.meanings, packed.kinds)]
    columns = packed.drafts.copy()
    at = _OF_DRAFT.index("meaning")
    columns[at] = list(map(meanings.__getitem__, columns[at]))
    return [Draft(*row) for row in _rows(columns, packed.size)]


def _column(rows: Iterable[object], name: str) -> _Column:
    """What rows have under a name."""
    values = list(map(attrgetter(name), rows))
    first = values[0] if values else None
    return (first,) if values.count(first) == len(values) else values


def _rows(columns: Sequence[_Column], size: int) -> Iterable[tuple[Any, ...]]:
    each = (repeat(one[0], size) if isinstance(one, tuple) else one for one in columns)
    return zip(*each, strict=True)
