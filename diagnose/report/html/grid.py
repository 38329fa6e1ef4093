"""The map of the ranks: by topology, by host, or in rows, coloured by what each was doing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from diagnose.report.html.scrub import Scrub
from diagnose.report.html.states import STATES
from diagnose.text.ranks import fold_ranks, ranks_phrase

if TYPE_CHECKING:
    from diagnose.diagnosis import Axis, Topology

WIDE = 64  # cells of a row at most
MANY = 2048  # ranks; more of them have rows of twice as many cells


@dataclass(frozen=True, slots=True)
class Cell:
    """A rank in the grid."""

    column: int
    row: int
    rank: int


@dataclass(frozen=True, slots=True)
class Grid:
    """The ranks as a map: what a row and a column is, the names of the rows, and the cells."""

    across: str
    down: str
    columns: int
    rows: list[str] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)


def grid(
    topology: Topology | None, states: dict[int, str], hosts: dict[int, str], scrub: Scrub
) -> Grid | None:
    """The map of the ranks; None for one rank, which needs none."""
    if len(states) < 2:
        return None
    axis = _across(topology) if topology else None
    if topology and axis:
        return _by_topology(topology, axis, states, scrub)
    by_host: dict[str, list[int]] = defaultdict(list)
    for rank in states:
        by_host[hosts.get(rank, "")].append(rank)
    widest = max(len(ranks) for ranks in by_host.values())
    if 1 < len(by_host) <= WIDE and "" not in by_host and widest <= WIDE:
        names = sorted(by_host)
        cells = [
            Cell(column, row, rank)
            for row, host in enumerate(names)
            for column, rank in enumerate(sorted(by_host[host]))
        ]
        return Grid("GPU", "host", widest, [scrub.text(host, 60) for host in names], cells)
    columns = 8 if len(states) <= WIDE else WIDE if len(states) <= MANY else 2 * WIDE
    return Grid(
        "rank",
        "rank",
        columns,
        [str(rank) for rank in range(0, max(states) + 1, columns)],
        [Cell(rank % columns, rank // columns, rank) for rank in states],
    )


def grid_json(found: Grid, states: dict[int, str], hosts: dict[int, str]) -> dict[str, Any]:
    """What the script draws of the grid."""
    names = list(STATES)
    known = sorted({hosts[cell.rank] for cell in found.cells if cell.rank in hosts})
    number = {host: index for index, host in enumerate(known)}
    return {
        "across": found.across,
        "down": found.down,
        "columns": found.columns,
        "rows": found.rows,
        "hosts": known,
        "cells": [
            [
                cell.column,
                cell.row,
                cell.rank,
                names.index(states.get(cell.rank, "no log")),
                number.get(hosts.get(cell.rank, ""), -1),
            ]
            for cell in found.cells
        ],
    }


def by_state(states: dict[int, str]) -> list[tuple[str, str, int]]:
    """State, its ranks in words, and their number, in the order of importance."""
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, state in states.items():
        ranks[state].append(rank)
    return [
        (state, ranks_phrase(ranks[state]), len(ranks[state])) for state in STATES if ranks[state]
    ]


def _across(topology: Topology) -> Axis | None:
    """The axis whose groups make the rows: that which gives the map the best shape."""
    axes = [axis for axis in topology.axes if 1 < axis.size <= WIDE and axis.groups]
    return min(axes, key=lambda axis: abs(axis.size - 2 * len(axis.groups)), default=None)


def _by_topology(topology: Topology, axis: Axis, states: dict[int, str], scrub: Scrub) -> Grid:
    """A row for each group of `axis`, called by the places that its ranks share."""
    others = [other.name for other in topology.axes if other.name != axis.name]
    found = Grid(
        scrub.text(axis.name, 40), scrub.text(" × ".join(others) or "group", 80), axis.size
    )
    for row, group in enumerate(sorted(axis.groups)):
        shared = []
        for name in others:
            places = {topology.coordinates.get(rank, {}).get(name) for rank in group}
            place = places.pop()
            if not places and place is not None:
                shared.append(f"{name}{place}" if name.isalpha() else f"{name}: {place}")
        found.rows.append(scrub.text(" ".join(shared) or fold_ranks(group), 60))
        found.cells.extend(
            Cell(column, row, rank) for column, rank in enumerate(group) if rank in states
        )
    return found
