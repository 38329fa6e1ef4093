"""The judge of dumps on random worlds with one fault; see simulate.py."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from diagnose.infer.collectives.analyze import judge
from diagnose.infer.collectives.table import table
from diagnose.parse.flight_recorder import read_dump
from tests.infer.simulate import FAULTS, World, marked, world

FINE = {"right", "tie", "open", "likely"}


def worlds(fault: str, first: int, count: int) -> list[World]:
    """The next worlds with a fault that does harm."""
    found: list[World] = []
    seed = first
    while len(found) < count:
        drawn = world(seed, fault)
        found += [drawn] if drawn is not None else []
        seed += 1
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_no_rank_is_blamed_that_did_no_wrong(fault: str) -> None:
    for drawn in worlds(fault, 100, 3):
        found = judge(drawn.table())
        assert marked(drawn, found) in FINE, f"{drawn}: {found}"


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_how_often_the_culprit_is_found(fault: str) -> None:
    """With all dumps the culprit is named, or is one of a tie, in nearly all worlds."""
    marks: Counter[str] = Counter()
    for drawn in worlds(fault, 20_000, 40):
        mark = marked(drawn, judge(drawn.table()))
        marks["lost" if drawn.lost and mark != "wrong" else mark] += 1
    assert marks["wrong"] == 0
    assert marks["missed"] + marks["kind"] <= 1, marks


@pytest.mark.parametrize("seed", range(6))
def test_order_names_and_folders_of_files_do_not_matter(seed: int) -> None:
    drawn = next(w for w in map(world, range(300 + 50 * seed, 999)) if w is not None)
    rng = random.Random(seed)
    files = [*drawn.dumps.items()]
    expected = judge(drawn.table())
    assert expected is not None
    rng.shuffle(files)
    moved = [(f"host{rng.randrange(3)}/run/nccl_trace_rank_{n[6:]}", d) for n, d in files]
    found = judge(table([read_dump(d, n) for n, d in moved], len(drawn.job.ranks)))
    assert found is not None

    names = {f"_dump_{n.rsplit('_', 1)[1]}": n for n, _ in moved}
    for field in ("kind", "ranks", "suspects", "group", "op", "seq", "joined", "why", "edges"):
        assert getattr(found, field) == getattr(expected, field), field
    assert found.roles == expected.roles
    assert [(s.file, s.rank, s.text) for s in found.evidence] == [
        (names[s.file], s.rank, s.text) for s in expected.evidence
    ]
