"""One damaged file at a time: it has to be seen and named, whatever wrote the checkpoint."""

from __future__ import annotations

import pytest

from tests.checkpoint import mutate
from tests.checkpoint.mutate import KINDS, STEPS, Tally, makers, measure

# What follows from names and structure alone. A stale file is known by its time, its checksum or
# the step it says, which a model's single file of weights need not have.
CERTAIN = ("removed", "emptied", "cut", "marker")


@pytest.mark.parametrize("maker", sorted(makers()))
def test_a_sample_of_damages_is_seen(maker: str) -> None:
    result = measure(maker, offsets=1, steps=(STEPS[-1],), most=12)
    certain = sum((result.tallies.get(kind, Tally()) for kind in CERTAIN), Tally())
    assert certain.n > 0
    assert (certain.seen, certain.named) == (certain.n, certain.n), result.misses


@pytest.mark.slow
def test_nearly_all_damages_are_seen() -> None:
    results = [measure(maker, offsets=50) for maker in sorted(makers())]
    sums = {
        kind: sum((result.tallies.get(kind, Tally()) for result in results), Tally())
        for kind in KINDS
    }
    told = mutate.table(results)
    for kind in KINDS:
        assert sums[kind].seen >= 0.99 * sums[kind].n, told
        assert sums[kind].named >= 0.99 * sums[kind].n, told


@pytest.mark.parametrize(
    ("data", "count", "some"),
    [
        (b"", 50, []),
        (b"x", 50, []),
        (b"abc", 50, [1, 2]),
        (bytes(1000), 4, [1, 2, 999]),
    ],
)
def test_cuts(data: bytes, count: int, some: list[int]) -> None:
    cuts = mutate.cuts(data, count, "seed")
    assert set(some) <= set(cuts)
    assert len(cuts) <= count
    assert all(0 < at < len(data) for at in cuts)
