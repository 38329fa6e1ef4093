"""Whoever dies of whatever: the progress of others is no recovery."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.parse.prefix import peel
from tests.fuzz import corpus
from tests.fuzz.case import job, run
from tests.fuzz.synthetic import LAYOUTS, Run, files_of
from tests.fuzz.test_fuzz import FIXED

# Words of a death: (signature, lines), of each example of each grave signature.
DEATHS = [
    (signature.id, tuple(example.line.splitlines()))
    for signature in corpus.grave_signatures().values()
    for example in signature.examples
]
GENERIC = [
    ("Killed",),
    ("Segmentation fault (core dumped)",),
    ("torch.OutOfMemoryError: CUDA out of memory.",),
    ("Traceback (most recent call last):", '  File "t.py", line 1, in <module>'),
    ("Traceback (most recent call last):", '  File "t.py", line 1, in <module>', "KeyError: 'a'"),
    ("slurmstepd: error: *** JOB 7 ON g12 CANCELLED AT 2024-08-08T13:01:55 DUE TO PREE",),
    ("ERROR: job failed with exit code 137",),
    ("[worker] process died unexpectedly, exit code: -11",),
]
DEATHS += [(death[-1], death) for death in GENERIC]


def verdict(
    death: tuple[str, ...], layout: str, *, world: int, culprit: int, further: int, seed: int,
    clock: bool,
) -> str:  # fmt: skip
    """What is said of a job whose rank `culprit` dies while the others make `further` steps."""
    rng = Random(seed)
    named = _named(death)
    what = Run(
        "error", world, min(named, default=culprit) % world, at=6, further=further, summary=False,
        clock=clock, silent=frozenset(named),
    )  # fmt: skip
    files = files_of(what, layout, rng, death)
    shuffled = dict(rng.sample(list(files.items()), len(files)))
    outcome = run(job(f"{layout} {seed}", shuffled))
    assert outcome.diagnosis is not None, outcome
    return outcome.diagnosis.verdict


def _named(death: tuple[str, ...]) -> set[int]:
    """Ranks that the example itself names as who printed it."""
    ranks = {peel(line).rank for line in death}
    return {rank for rank in ranks if rank is not None}


@FIXED
@given(
    death=st.sampled_from(DEATHS),
    layout=st.sampled_from(sorted(LAYOUTS)),
    world=st.sampled_from([2, 4, 8, 32]),
    culprit=st.integers(0, 31),
    further=st.sampled_from([0, 1, 2, 5, 40]),
    seed=st.integers(0, 99),
    clock=st.booleans(),
)
def test_a_dead_rank_is_never_healthy(
    death: tuple[str, tuple[str, ...]], layout: str, world: int, culprit: int, further: int,
    seed: int, clock: bool,
) -> None:  # fmt: skip
    found = verdict(
        death[1], layout, world=world, culprit=culprit, further=further, seed=seed, clock=clock
    )
    assert found not in ("healthy", "running")


@pytest.mark.slow
@pytest.mark.parametrize("further", [1, 12])
def test_no_death_is_ever_healthy(further: int) -> None:
    layouts = sorted(LAYOUTS)
    well = []
    for number, (name, death) in enumerate(DEATHS):
        layout = layouts[number % len(layouts)]
        found = verdict(
            death, layout, world=4, culprit=number // 4 % 4, further=further, seed=number,
            clock=number % 3 == 0,
        )  # fmt: skip
        if found in ("healthy", "running"):
            well.append((name, layout))
    assert well == []
