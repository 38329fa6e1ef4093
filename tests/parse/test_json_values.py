from __future__ import annotations

import pytest

from diagnose.parse.probes import items, listed, text


@pytest.mark.parametrize("told", [None, 5, [], {}, {"a": None}, {"a": {"b": 1}}, {"a": "xy"}])
def test_what_is_of_another_type_is_absent(told: object) -> None:
    assert (listed(told, "a"), [*items(told, "a")]) == ([], [])


def test_objects_in_a_list_and_texts_so_far() -> None:
    told = {"a": [{"b": 1}, 5, None, {}]}
    assert (len(listed(told, "a")), [*items(told, "a")]) == (4, [{"b": 1}, {}])
    assert len(listed({"a": [0] * 20_001}, "a")) == 20_000
    assert [text(value, 2) for value in ("abc", "", None, 5)] == ["ab", "", "", ""]
