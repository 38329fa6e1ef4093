"""Who waits for whom: the wait-for graph, folded and laid out."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from diagnose.diagnosis import Diagnosis
from diagnose.report import words
from diagnose.report.html.scrub import Scrub
from diagnose.report.html.states import STATES
from diagnose.text.ranks import ranks_phrase

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
        f"{_start(nodes[a].label)} wait{'s' if len(nodes[a].ranks) == 1 else ''} for "
        f"{nodes[b].label}" + (f" in {operation}" if operation else "") + "."
        for a, b, operation in folded
    ]
    return Waiting(nodes, folded, sentences[:MAX_SENTENCES], max(0, len(sentences) - MAX_SENTENCES))


def graph_json(found: Waiting) -> dict[str, Any]:
    """What the script draws of the graph."""
    return {
        "nodes": [
            {
                "label": node.label,
                "state": node.state,
                "count": len(node.ranks),
                "level": node.level,
                "row": node.row,
            }
            for node in found.nodes
        ],
        "edges": [list(edge) for edge in found.edges],
    }


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
        home = _numbered(
            {
                rank: (states.get(rank, "seen"), frozenset(operation for _, operation in some))
                for rank, some in targets.items()
            }
        )
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


def _start(text: str) -> str:
    return text[:1].upper() + text[1:]


def joined_and_missing(diagnosis: Diagnosis) -> tuple[str, list[tuple[str, str]]] | None:
    """The collective the job stopped at: its name, and who joined and who did not."""
    found = diagnosis.collective
    if found is None:
        return None
    rows: Iterable[tuple[str, list[int]]] = (("Joined", found.joined), ("Missing", found.missing))
    sides = [(name, ranks_phrase(ranks)) for name, ranks in rows if ranks]
    bare = type(found)(found.group, found.op, found.seq)
    return words.collective(bare), sides
