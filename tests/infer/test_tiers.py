"""What a line of an entry is worth, by all that holds of it."""

import itertools
from typing import get_args

import pytest

from diagnose.catalog.schema import Strength
from diagnose.infer.rules.base import _STATED, Tier, stated

GROUNDS = sorted({*_STATED} - {"timely"})


def test_the_words_are_the_names() -> None:
    assert [tier.word for tier in Tier] == [tier.name.lower() for tier in Tier]


@pytest.mark.parametrize(
    ("strength", "grounds", "tier"),
    [
        ("decisive", [], Tier.PROVEN),
        ("decisive", ["generic"], Tier.PROVEN),
        ("decisive", ["late", "doubted"], Tier.STRONG),
        ("strong", ["generic", "late"], Tier.CIRCUMSTANTIAL),
        ("strong", ["late_ending"], Tier.NONE),
        ("weak", ["generic"], Tier.GUESS),
        ("weak", ["recovered"], Tier.NONE),
    ],
)
def test_the_lowest_that_holds_counts(strength: Strength, grounds: list[str], tier: Tier) -> None:
    assert {stated(strength, order) for order in itertools.permutations(grounds)} == {tier}


@pytest.mark.parametrize("ground", GROUNDS)
def test_what_speaks_against_a_line_never_raises_it_nor_turns_the_strengths(ground: str) -> None:
    without = [stated(strength, []) for strength in get_args(Strength)]
    lowered = [stated(strength, [ground]) for strength in get_args(Strength)]
    assert all(low <= high for low, high in zip(lowered, without, strict=True))
    assert lowered == sorted(lowered, reverse=True)
