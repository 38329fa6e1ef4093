"""Peeling lines that differ from one before in their digits."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from diagnose.parse import repeated
from diagnose.parse.prefix import Prefix, peel
from diagnose.parse.repeated import peel_repeated, way_of

LINES = [
    "[default3]:[rank11]:[E820 11:47:24.069865760 ProcessGroupNCCL.cpp:607] [Rank 3] text",
    "[default3]:node-01:4000:4901 [3] NCCL INFO Connected all rings",
    "[rank7]:2024-05-01 10:00:00,123 INFO trainer: step 3",
    "[2024-05-01 10:00:00,123] [INFO] [a.py:3:run] [Rank 5] text",
    "E0517 08:24:03.805000 1406 torch/distributed/api.py:826] text",
    "[1,3]<stderr>:text", " 3: [PG ID 0 PG GUID 0 Rank 8] text", "[12] text", "no prefix 4",
]  # fmt: skip


def _prefixes(line: str) -> Prefix:
    """What peeling gives, but the message."""
    return replace(peel(line), message="")


@pytest.mark.parametrize("line", LINES)
def test_the_same_as_peeling(line: str) -> None:
    way, seed = way_of(line), random.Random(3)
    assert way is not None
    assert peel_repeated(line, way) == _prefixes(line)
    peeled_repeated = 0
    for _ in range(300):
        other = re.sub("[0-9]", lambda old: seed.choice("0123456789" + 40 * old[0]), line)
        peeled = peel_repeated(other, way)
        peeled_repeated += peeled is not None
        assert peeled in (None, _prefixes(other))
    assert peeled_repeated


def test_what_stands_behind_the_same_tag_tells_which_rank_it_is() -> None:
    global_one, local_one = "[default3]:[rank3]:text", "[default3]:[rank3]:2024-05-01 10:00:00 text"
    first, second = way_of(global_one), way_of(local_one)
    assert first is not None
    assert second is not None
    for line, way in ((global_one, first), (local_one, second)) * 2:
        assert peel_repeated(line, way) == _prefixes(line)


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("[E820 11:47:24.069865760 a.cpp:6] text", "[E820 11:47:24.111111111 a.cpp:6] other"),
        ("node-01:4000:4901 [3] NCCL INFO text", "node-01:4000:4902 [3] NCCL INFO text"),
    ],
)
def test_lines_whose_prefixes_tell_the_same_share_them(line: str, other: str) -> None:
    way = way_of(line)
    assert way is not None
    assert peel_repeated(line, way) is peel_repeated(other, way)


def test_so_many_processes_are_remembered() -> None:
    for number in range(1000, 9999, 3):
        line = f"[default3]:[rank{number}]:text"
        way = way_of(line)
        assert way is not None
        assert peel_repeated(line, way) == _prefixes(line)
        assert 0 < len(way.known) <= repeated._REMEMBERED


@pytest.mark.parametrize(
    "line",
    [
        "[2024-13-01 10:00:00] text",
        "12:61:00 INFO text",
        '{"rank": 3, "msg": "text"}',
        "<999>text",
        "[default3]:  [1024-05-01 10:00:00] text",
        "(Worker pid=3) text [repeated 3x across cluster]",
        "[rank3]: text [repeated 3x across cluster]",
    ],
)
def test_where_other_numbers_may_be_another_prefix(line: str) -> None:
    assert way_of(line) is None
