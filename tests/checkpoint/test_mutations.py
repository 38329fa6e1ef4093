"""One damaged file at a time: it has to be seen and named, whatever wrote the checkpoint."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.checkpoint import mutate
from tests.checkpoint.leaves import look
from tests.checkpoint.mutate import BEGIN, KINDS, STEPS, WORLD, Tally, makers, measure
from tests.sizes import few

# What follows from names and structure alone. A stale file is known by its time, its checksum or
# the step it says, which a model's single file of weights need not have.
CERTAIN = ("removed", "emptied", "cut", "marker")
# Formats that say themselves where a file ends. Of others the layout knows it: not told here.
ENDED = ("torch", "legacy", "safetensors", "pickle", "json")
MAGIC = 4  # bytes of the longest; what has fewer may be a text under names that say nothing


@pytest.mark.parametrize("maker", few(sorted(makers()), 16))
def test_a_sample_of_damages_is_seen(maker: str) -> None:
    result = measure(maker, offsets=1, steps=(STEPS[-1],), most=12)
    certain = sum((result.tallies.get(kind, Tally()) for kind in CERTAIN), Tally())
    assert certain.n > 0
    assert (certain.seen, certain.named) == (certain.n, certain.n), result.misses


@pytest.mark.parametrize("maker", sorted(makers()))
def test_a_file_cut_anywhere_is_seen_by_looking_at_it(maker: str, tmp_path: Path) -> None:
    """Of each kind of file one: at its ends, around its structure and in many other places."""
    top = tmp_path / mutate.name_of(maker, STEPS[0])
    makers()[maker](top, step=STEPS[0], world=WORLD, start=BEGIN)
    files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
    kinds = {re.sub(r"\d+", "0", path.name): path for path in files}
    ended = 0
    for path in kinds.values():
        data = path.read_bytes()
        if look(path.name, data).kind not in ENDED:
            continue
        ended += 1
        unseen = [
            at
            for at in mutate.cuts(data.rstrip(b"\r\n "), 100, path.name)
            if at >= MAGIC and look(path.name, data[:at]).flaw is None
        ]
        assert not unseen, f"{path.name} of {len(data)} bytes"
    assert ended > 0


@pytest.mark.slow
def test_nearly_all_damages_are_seen() -> None:
    """Whole runs are judged for each; `python -m tests.checkpoint.mutate` tries many more cuts."""
    results = [measure(maker, offsets=2) for maker in sorted(makers())]
    sums = {
        kind: sum((result.tallies.get(kind, Tally()) for result in results), Tally())
        for kind in KINDS
    }
    told = mutate.table(results)
    for kind in KINDS:
        assert sums[kind].n >= 50, told
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
