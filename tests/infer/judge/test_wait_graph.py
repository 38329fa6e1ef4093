"""The graph of waits: its components, of ranks that share what they wait for."""

from __future__ import annotations

import random
import time

from diagnose.infer.judge.wait_graph import components, ends


def reached(start: int, edges: dict[int, frozenset[int]]) -> set[int]:
    found, left = {start}, [start]
    while left:
        new = edges.get(left.pop(), frozenset()) - found
        found |= new
        left += new
    return found


def test_components_are_the_ranks_that_reach_each_other_the_ends_first() -> None:
    seed = random.Random(5)
    for _ in range(400):
        count = seed.randrange(1, 12)
        sets = [frozenset(seed.sample(range(count), seed.randrange(min(count, 4)))) for _ in "ab"]
        edges = {
            rank: seed.choice([*sets, frozenset(seed.sample(range(count), min(count, 2)))])
            for rank in range(count)
            if seed.random() < 0.9
        }
        reach = {rank: reached(rank, edges) for rank in range(count)}
        parts = components(range(count), edges)
        alike = {frozenset(r for r in reach[rank] if rank in reach[r]) for rank in range(count)}
        assert {frozenset(part) for part in parts} == alike
        assert sum(map(len, parts)) == count
        place = {rank: at for at, part in enumerate(parts) for rank in part}
        assert all(place[there] <= place[rank] for rank in reach for there in reach[rank])
        last = [part for part in parts if reach[part[0]] == {*part}]
        assert ends(range(count), edges) == sorted(last)


def test_half_of_many_ranks_may_wait_for_the_other_half() -> None:
    missing = frozenset(range(10_000, 20_000))
    started = time.process_time()
    found = ends(range(10_000), dict.fromkeys(range(10_000), missing))
    assert found == [[rank] for rank in range(10_000, 20_000)]
    assert time.process_time() - started < 10  # each wait by itself: minutes
