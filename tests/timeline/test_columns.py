"""Columns are fields of events."""

from __future__ import annotations

from dataclasses import fields

from diagnose.timeline.event import Event, Meaning, Work
from diagnose.timeline.frame import COLUMNS, RANK_COLUMNS


def test_every_field_of_an_event_but_its_index_is_a_column() -> None:
    names = ["index", *(column.name for column in COLUMNS)]
    told = [one.name for kind in (Event, Meaning, Work) for one in fields(kind) if one.repr]
    assert sorted([*names, "captures", "meaning", "work"]) == sorted(told)


def test_every_column_says_what_it_means() -> None:
    assert all(column.meaning for column in (*COLUMNS, *RANK_COLUMNS))
