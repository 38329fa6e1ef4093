"""Who did not come, by the lists of those that did."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.infer.judge.lines import not_come


def came(ranks: str) -> dict[str, Any]:
    return {"signal": "joined", "kind": "collective", "role": "effect", "fields": {"ranks": ranks}}


@pytest.mark.parametrize(
    ("lists", "world", "missing"),
    [
        (["5, 6, 3, 1, 4, 0"], None, (2,)),
        (["5, 6, 3, 1, 4, 0"] * 2, None, (2,)),
        (["0, 1, 2"], None, ()),
        (["0, 1, 2"], 4, (3,)),
        (["0, 2, 4, 6"], None, ()),
        (["0, 1, 3", "0, 2, 3"], None, ()),
        (["0, 1"], 8, ()),
        (["0, 99999999"], None, ()),
    ],
    ids=[
        "a gap", "the same twice", "no gap", "below the world", "a group with gaps",
        "different gaps", "too few", "hostile",
    ],
)  # fmt: skip
def test_the_gaps_of_a_whole_list_did_not_come(
    make: Any, lists: list[str], world: int | None, missing: tuple[int, ...]
) -> None:
    found = not_come(make(*map(came, lists)), world)
    assert [stall.missing for stall in found] == [missing] * bool(missing)
    assert all((stall.kind, stall.sure) == ("missing", True) for stall in found)
