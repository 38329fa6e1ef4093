"""Whole jobs, changed at random, never break what must hold of any input.

The same inputs at each run. `python -m tests.fuzz` goes further, with other seeds.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz import corpus
from tests.fuzz.driver import Recipe, Tally, check, note, recipe, total
from tests.fuzz.mutations import Grade, Mutation, of_grade

# Recipes are short: hypothesis would shrink them for minutes, and gain little.
FIXED = settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
    print_blob=False,
)
SLOW_SEED, SLOW_INPUTS = 10, 2500  # two or three minutes of CPU time
PARTS = 5  # so that several workers share them


def chains(*grades: Grade, longest: int) -> st.SearchStrategy[tuple[tuple[str, str], ...]]:
    one = st.tuples(
        st.sampled_from(of_grade(*grades)), st.integers(0, 999).map(lambda seed: f"seed {seed}")
    )
    return st.lists(one, min_size=1, max_size=longest).map(_in_order)


def _in_order(chosen: list[tuple[Mutation, str]]) -> tuple[tuple[str, str], ...]:
    grades = [Grade.HARMFUL, Grade.HARMLESS, Grade.SAME]
    ordered = sorted(chosen, key=lambda one: grades.index(one[0].grade))
    return tuple((mutation.name, seed) for mutation, seed in ordered)


def recipes(*grades: Grade, longest: int) -> st.SearchStrategy[Recipe]:
    return st.builds(Recipe, st.sampled_from(corpus.names()), chains(*grades, longest=longest))


def violations(what: Recipe) -> list[tuple[str, str]]:
    return [one for one in check(what, reports=False)[1] if one[0] != "drift"]


@FIXED
@given(recipes(Grade.SAME, longest=4))
@pytest.mark.slow
def test_the_same_files_stored_and_read_otherwise_give_the_same_verdict(what: Recipe) -> None:
    assert violations(what) == []


@FIXED
@given(recipes(Grade.SAME, Grade.HARMLESS, longest=3))
@pytest.mark.slow
def test_lines_without_news_do_not_change_a_sure_verdict(what: Recipe) -> None:
    assert violations(what) == []


@FIXED
@given(recipes(*Grade, longest=3))
@pytest.mark.slow
def test_damaged_jobs_are_never_called_healthy_and_never_break_the_engine(what: Recipe) -> None:
    assert violations(what) == []


@pytest.mark.parametrize("number", range(4))
def test_reports_of_damaged_jobs_can_be_made(number: int) -> None:
    found = check(recipe(seed=77, number=number), reports=True)[1]
    assert [one for one in found if one[0] == "reported"] == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_thousands_of_inputs(part: int) -> None:
    tally = Tally()
    for number in range(part, SLOW_INPUTS, PARTS):
        note(tally, number, recipe(SLOW_SEED, number))
    grave = [one for one in tally.violations if one.oracle != "slow"]  # a busy machine is no fault
    assert grave == [], "\n".join(total(tally))
