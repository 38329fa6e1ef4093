"""What each rank was doing when the job stood still, from whatever the diagnosis tells."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from diagnose.diagnosis import Diagnosis
from diagnose.report import words
from diagnose.report.safe import Scrub
from diagnose.text.ranks import fold_ranks, plural, ranks_phrase
from diagnose.timeline.event import Timeline

if TYPE_CHECKING:
    from diagnose.diagnosis import Axis, Topology
    from diagnose.infer.stacks.groups import PlaceClass


MAX_RANKS = 100_000

# State → what the legend says. The order is that of importance.
STATES = {
    "culprit": "to blame",
    "missing": "never joined",
    "waiting": "waiting",
    "ended": "ended with an error",
    "idle": "idle",
    "done": "finished",
    "seen": "seen in the logs",
    "no dump": "no dump",
    "no log": "no output",
}


def states(timeline: Timeline, diagnosis: Diagnosis) -> dict[int, str]:
    """The state of every rank that exists as far as anybody says, by rank.

    `timeline` is that of the attempt that was diagnosed.
    """
    found = dict.fromkeys({*timeline.ranks, *diagnosis.job.ranks_seen}, "seen")
    if found and diagnosis.job.world_size:
        for rank in range(min(diagnosis.job.world_size, MAX_RANKS)):
            found.setdefault(rank, "no log")
    for event in timeline.kind("exit"):
        if event.rank is not None:
            code = event.fields.get("exitcode", "").lstrip("+")
            clean = code == "0" and "signal" not in event.fields
            found[event.rank] = "done" if clean else "ended"
    waited = (event.rank for event in timeline.signalling("timeout"))
    _set(found, (rank for rank in waited if rank is not None), "waiting")
    for place in diagnosis.places:
        if place.waits:
            _set(found, place.ranks, "waiting")
    if diagnosis.collective:
        _set(found, diagnosis.collective.joined, "waiting")
        _set(found, diagnosis.collective.missing, "missing")
    if diagnosis.graph is not None:
        stated = diagnosis.graph.state.items()
        found |= {rank: state for rank, state in stated if state in STATES and rank >= 0}
    _set(found, diagnosis.culprits.ranks, "culprit")
    return dict(sorted(found.items())[:MAX_RANKS])


def _set(found: dict[int, str], ranks: Iterable[int], state: str) -> None:
    for rank in ranks:
        if rank >= 0:
            found[rank] = state


# --- who waits for whom: the wait-for graph, folded and laid out ----------------------------------

MAX_NODES = 80
MAX_AWAITED = 32  # of the ranks that did not join a collective
MAX_SENTENCES = 60  # sentences about who waits for whom

_DIGITS = re.compile(r"\d+")
_ROUNDS = 6  # of folding; each one may make more ranks alike

Edge = tuple[int, int, str]


@dataclass(slots=True)
class Node:
    """Ranks that wait alike; `level` is the distance to those nobody of whom waits."""

    ranks: list[int]
    state: str
    level: int = 0
    row: float = 0.0

    @property
    def label(self) -> str:
        """`rank 3` or `ranks 0-6`."""
        return ranks_phrase(self.ranks)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The folded graph; edges are (waiter, awaited) node numbers with the operation."""

    nodes: list[Node]
    edges: list[tuple[int, int, str]]
    sentences: list[str]
    more: int = 0


def waiting(diagnosis: Diagnosis, states: dict[int, str], scrub: Scrub) -> Waiting | None:
    """The graph of the diagnosis, else that of the one collective it names; None if neither."""
    edges = _edges(diagnosis, scrub)
    if not edges:
        return None
    nodes, folded = _fold(edges, states)
    _place(nodes, folded)
    sentences = [
        f"{words.capital(nodes[a].label)} {plural(len(nodes[a].ranks), 'waits', 'wait')} for "
        f"{nodes[b].label}{f' in {operation}' if operation else ''}."
        for a, b, operation in folded
    ]
    return Waiting(nodes, folded, sentences[:MAX_SENTENCES], max(0, len(sentences) - MAX_SENTENCES))


def graph_json(found: Waiting) -> dict[str, Any]:
    """What the script draws of the graph."""
    return {
        "nodes": [
            {"label": node.label, "state": node.state, "count": len(node.ranks),
             "level": node.level, "row": node.row}
            for node in found.nodes
        ],
        "edges": [list(edge) for edge in found.edges],
    }  # fmt: skip


def _edges(diagnosis: Diagnosis, scrub: Scrub) -> list[Edge]:
    if diagnosis.graph is not None and diagnosis.graph.edges:
        operations = {operation for _, _, operation in diagnosis.graph.edges}
        shown = {operation: scrub.text(operation, 200) for operation in operations}
        return [(a, b, shown[operation]) for a, b, operation in diagnosis.graph.edges]
    found = diagnosis.collective
    if found is None or not found.missing or not found.joined:
        return []
    operation = scrub.text(found.op or "a collective")
    if found.seq is not None:
        operation += f", sequence number {found.seq}"
    # Ranks that nobody tells apart are folded at once: the product would be large.
    return [(a, b, operation) for a in found.joined for b in found.missing[:MAX_AWAITED]]


def _fold(edges: list[Edge], states: dict[int, str]) -> tuple[list[Node], list[Edge]]:
    """Ranks of the same state that wait alike, in alike operations for the same node, are one."""
    waits: dict[int, set[tuple[int, str]]] = defaultdict(set)
    alike = {text: _DIGITS.sub("#", text) for text in {operation for _, _, operation in edges}}
    for a, b, operation in edges:
        waits[a].add((b, alike[operation]))
        waits[b] |= set()
    targets = {rank: frozenset(found) for rank, found in waits.items()}
    home = {rank: rank for rank in waits}
    for _ in range(_ROUNDS):
        homes = {
            some: frozenset((home[b], operation) for b, operation in some)
            for some in {*targets.values()}
        }
        keys = {rank: (states.get(rank, "seen"), homes[some]) for rank, some in targets.items()}
        found = _numbered(keys)
        if len(set(found.values())) == len(set(home.values())):
            break
        home = found
    if len(set(home.values())) > MAX_NODES:  # what they wait in counts, not for whom
        operations = {some: frozenset(what for _, what in some) for some in {*targets.values()}}
        of_each = targets.items()
        home = _numbered({r: (states.get(r, "seen"), operations[some]) for r, some in of_each})
    return _nodes(edges, states, home)


def _numbered(keys: dict[int, Any]) -> dict[int, int]:
    """Each rank with the lowest rank that has the same key."""
    first: dict[Any, int] = {}
    return {rank: first.setdefault(keys[rank], rank) for rank in sorted(keys)}


def _nodes(
    edges: list[Edge], states: dict[int, str], home: dict[int, int]
) -> tuple[list[Node], list[Edge]]:
    """The nodes, the most important first, and the edges between them."""
    members: dict[int, list[int]] = defaultdict(list)
    for rank, part in sorted(home.items()):
        members[part].append(rank)
    importance = {state: index for index, state in enumerate(STATES)}
    nodes = [Node(ranks, states.get(part, "seen")) for part, ranks in members.items()]
    nodes = sorted(nodes, key=lambda node: (importance[node.state], node.ranks))[:MAX_NODES]
    number = {rank: index for index, node in enumerate(nodes) for rank in node.ranks}
    folded: dict[tuple[int, int], set[str]] = defaultdict(set)
    for a, b, operation in edges:
        if a in number and b in number and number[a] != number[b]:
            folded[number[a], number[b]].add(operation)
    return nodes, [
        (a, b, words.names(sorted(operations), 3)) for (a, b), operations in sorted(folded.items())
    ]


def _place(nodes: list[Node], edges: list[Edge]) -> None:
    """Columns by the distance to the ranks that wait for nobody, the awaited on the right."""
    back: dict[int, list[int]] = defaultdict(list)
    waiters = set()
    for a, b, _ in edges:
        back[b].append(a)
        waiters.add(a)
    ends = [n for n, node in enumerate(nodes) if node.state == "culprit"]
    ends = ends or [n for n in range(len(nodes)) if n not in waiters] or [0]
    level = dict.fromkeys(ends, 0)
    queue = deque(ends)
    while queue:
        number = queue.popleft()
        for waiter in back[number]:
            if waiter not in level:
                level[waiter] = level[number] + 1
                queue.append(waiter)
    columns: dict[int, list[int]] = defaultdict(list)
    for number, node in enumerate(nodes):
        node.level = level.get(number, 0)
        columns[node.level].append(number)
    for members in columns.values():
        for index, number in enumerate(members):
            nodes[number].row = index - (len(members) - 1) / 2


def joined_and_missing(diagnosis: Diagnosis) -> tuple[str, list[tuple[str, str]]] | None:
    """The collective the job stopped at: its name, and who joined and who did not."""
    found = diagnosis.collective
    if found is None:
        return None
    rows: Iterable[tuple[str, list[int]]] = (("Joined", found.joined), ("Missing", found.missing))
    sides = [(name, ranks_phrase(ranks)) for name, ranks in rows if ranks]
    bare = type(found)(found.group, found.op, found.seq)
    return words.collective(bare), sides


# --- the map of the ranks, coloured by what each was doing ----------------------------------------

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
            [cell.column, cell.row, cell.rank, names.index(states.get(cell.rank, "no log")),
             number.get(hosts.get(cell.rank, ""), -1)]
            for cell in found.cells
        ],
    }  # fmt: skip


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


# --- where each rank is by its stacks, ranks that are alike once ----------------------------------

MAX_PLACES = 100
MAX_FRAMES = 60


@dataclass(frozen=True, slots=True)
class Stand:
    """Ranks at one place; `site` is the line of their own code, `frames` the innermost first."""

    ranks: str
    state: str
    detail: str
    site: str
    frames: list[str]


def places(classes: Sequence[PlaceClass], scrub: Scrub) -> list[Stand]:
    """The classes in their order: the odd ones come first."""
    found = []
    for group in classes[:MAX_PLACES]:
        frames = group.places[0].stack.frames[:MAX_FRAMES] if group.places else ()
        found.append(
            Stand(
                ranks_phrase(group.ranks),
                scrub.text(group.state.replace("_", " ")),
                scrub.text(group.detail),
                scrub.text(group.site or ""),
                [scrub.text(f"{one.func}  {words.place(one.file, one.line)}", 300)
                 for one in frames],
            )
        )  # fmt: skip
    return found
