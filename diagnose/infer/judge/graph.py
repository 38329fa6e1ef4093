"""Who waits for whom as a graph: its ends, and the ranks without which it has no circle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

Edges = Mapping[int, Set[int]]

_CIRCLE = 512  # ranks of a circle that is looked into


def components(nodes: Iterable[int], edges: Edges) -> list[list[int]]:
    """Strongly connected components (Tarjan, without recursion), the ends of paths first."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on: set[int] = set()
    stack: list[int] = []
    found: list[list[int]] = []
    for root in nodes:
        if root in index:
            continue
        work = [(root, iter(sorted(edges.get(root, ()))))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            node, rest = work[-1]
            for target in rest:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on.add(target)
                    work.append((target, iter(sorted(edges.get(target, ())))))
                    break
                if target in on:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part: list[int] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        on.discard(part[-1])
                    found.append(sorted(part))
    return found


def ends(nodes: Iterable[int], edges: Edges) -> list[list[int]]:
    """Where the waits end: components nobody in which waits for anybody outside."""
    return [
        part
        for part in components(sorted({*nodes, *awaited(edges)}), edges)
        if all(edges.get(node, frozenset()) <= set(part) for node in part)
    ]


def awaited(edges: Edges) -> set[int]:
    """The ranks that somebody waits for."""
    return {target for targets in edges.values() for target in targets}


def keystones(circle: Iterable[int], edges: Edges) -> list[int]:
    """The ranks of a circle that every way around leads through: without one of them it is none."""
    inside = set(circle)
    if len(inside) > _CIRCLE:
        return []
    own = {node: edges.get(node, frozenset()) & inside for node in inside}
    return [node for node in _way_around(own) if not _has_circle(own, inside - {node})]


def _way_around(edges: Edges) -> list[int]:
    """The ranks of one way around, which all candidates are on."""
    node = min(edges)
    seen: dict[int, int] = {}
    path: list[int] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        node = min(edges[node])
    return sorted(path[seen[node] :])


def _has_circle(edges: Edges, nodes: Set[int]) -> bool:
    inner = {node: edges[node] & nodes for node in nodes}
    return any(len(part) > 1 for part in components(sorted(nodes), inner))
