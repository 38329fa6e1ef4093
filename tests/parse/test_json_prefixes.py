from __future__ import annotations

import pytest

from diagnose.parse.prefix import Prefix, peel


@pytest.mark.parametrize(
    "line",
    [
        '{"msg":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"msg": "x", "rank": ' + "9" * 10_000 + "}",
    ],
)
def test_hostile_records_are_left_alone(line: str) -> None:
    assert peel(line) == Prefix(line)


def test_a_prefix_may_stand_before_the_record() -> None:
    prefix = peel('[pod/w-0/c] {"msg": "x", "rank": 2}')

    assert (prefix.message, prefix.host, prefix.rank) == ("x", "w-0", 2)
