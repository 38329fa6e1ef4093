"""Positions in the columns of a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import TypeVar

Item = TypeVar("Item")


def merged(parts: Sequence[list[int]]) -> list[int]:
    """Positions that are in order in each of these parts."""
    if len(parts) == 1:
        return parts[0]
    return sorted(chain.from_iterable(parts))


def taken(column: Sequence[Item], positions: Sequence[int]) -> list[Item]:
    """What a column has at these positions."""
    if len(positions) < 2:
        return [column[position] for position in positions]
    return [*itemgetter(*positions)(column)]
