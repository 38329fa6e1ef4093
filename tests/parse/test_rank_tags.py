"""Tags with which programs say who prints."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.parse.prefix import peel

from .said import said


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Rank 3: batch 7", {"rank": 3}),
        ("rank 3 - batch 7", {"rank": 3}),
        ("rank3 | batch 7", {"rank": 3}),
        ("RANK 3/8: batch 7", {"rank": 3}),
        ("(rank 3) batch 7", {"rank": 3}),
        ("<rank 3> batch 7", {"rank": 3}),
        ("[rank_3] batch 7", {"rank": 3}),
        ("[Rank-3]: batch 7", {"rank": 3}),
        ("[Rank 3/8] batch 7", {"rank": 3}),
        ("[global_rank 3] batch 7", {"rank": 3}),
        ("[LOCAL_RANK 3] batch 7", {"local_rank": 3}),
        ("ERROR:root:Rank 3: batch 7", {"rank": 3, "level": "ERROR"}),
    ],
)
def test_who_prints(line: str, expected: dict[str, Any]) -> None:
    prefix = peel(line)
    assert prefix.message == "batch 7"
    found = said(prefix)
    assert found.pop("names")[-1] == "rank-tag"
    assert found == expected


@pytest.mark.parametrize(
    "line",
    [
        "rank 3 of 8 waits",  # a sentence
        "Rank 0 using GPU 0 to perform barrier",
        "rank=3 #wrong=7",
        "rank      : 3 (local_rank: 3)",  # torchrun's table
        "(rank=8, size=16, local=[127.0.0.1])",
        "ranking 3: first",
        "Global batch 7: done",
    ],
)
def test_a_number_amid_a_sentence_is_no_tag(line: str) -> None:
    assert peel(line).rank is None


def test_the_rank_inside_a_group_stays() -> None:
    prefix = peel("[Rank 3] Watchdog caught")
    assert (prefix.rank, prefix.group_rank, prefix.message) == (None, 3, "[Rank 3] Watchdog caught")
