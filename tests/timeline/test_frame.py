"""The timeline as DataFrames."""

from __future__ import annotations

import pandas as pd
import pytest

import diagnose
from diagnose.timeline.event import Timeline
from diagnose.timeline.frame import COLUMNS, RANK_COLUMNS, frame_of, rank_table

from .told import WATCHDOG, event

DTYPES = {
    "time": "datetime64[ns]", "source": "category", "line": "int64", "offset": "int64",
    "attempt": "Int16", "rank": "Int32", "local_rank": "Int16", "group_rank": "Int32",
    "task": "Int32", "host": "category", "pid": "Int64", "kind": "category",
    "signature": "category", "role": "category", "severity": "category", "cause": "category",
    "strength": "category", "signal": "category", "phase": "category", "group": "category",
    "op": "category", "seq": "Int64", "size_in": "Int64", "size_out": "Int64",
    "timeout_ms": "Int64", "elapsed_ms": "Int64", "step": "Int64", "text": "str",
    "fields": "object", "ends_phase": "bool", "repeated": "int64",
    "learned": "category",
}  # fmt: skip


def dtypes(frame: pd.DataFrame) -> dict[str, str]:
    return {name: str(dtype) for name, dtype in frame.dtypes.items()}


@pytest.mark.parametrize(
    "text",
    [
        f"2026-06-02 08:00:00 [rank3]: {WATCHDOG.format(seq=7)}",
        "nothing known",
    ],
    ids=["events", "edges"],
)
def test_columns_and_their_types(text: str) -> None:
    assert {column.name: column.dtype for column in COLUMNS} == DTYPES
    assert dtypes(frame_of(diagnose.load_text(text).events)) == DTYPES


def test_an_empty_timeline_has_all_columns() -> None:
    frame = frame_of(Timeline())
    assert (len(frame), dtypes(frame)) == (0, DTYPES)


def test_the_index_is_that_of_the_events() -> None:
    job = diagnose.load_text(f"2026-06-02 08:00:00 [rank3]: {WATCHDOG.format(seq=7)}\nquiet\n")
    frame = frame_of(job.events)
    assert frame.index.tolist() == [event.index for event in job.events]
    assert frame["text"].tolist() == [event.text for event in job.events]


TIME = pd.Timestamp("2026-06-02 08:00:00.123456789")
EVENTS = Timeline(
    [
        event(
            index=0, time=TIME.value, source="a.log", line=7, offset=2**40, rank=3, host="node1",
            pid=2**62, kind="exit", fields={"exitcode": "-9"}, step=5, repeated=4,
        ),
        event(index=1, source="b.log", ends_phase=True),
    ]
)  # fmt: skip


def test_values_and_what_is_not_known() -> None:
    known, bare = (row for _, row in frame_of(EVENTS).iterrows())
    assert (known["time"], known["offset"], known["pid"]) == (TIME, 2**40, 2**62)
    assert (known["fields"], known["repeated"], known["host"]) == ({"exitcode": "-9"}, 4, "node1")
    assert [pd.isna(bare[name]) for name in ("time", "rank", "host", "kind", "step")] == [True] * 5
    assert (bare["fields"], bare["text"], bare["ends_phase"]) == ({}, "", True)


@pytest.mark.parametrize(
    ("field", "largest"),
    [
        ("attempt", 2**15 - 1),
        ("rank", 2**31 - 1),
        ("local_rank", 2**15 - 1),
        ("group_rank", 2**31 - 1),
        ("task", 2**31 - 1),
        ("pid", 2**63 - 1),
    ],
)
def test_numbers_that_no_column_holds_are_not_told(field: str, largest: int) -> None:
    numbers = [largest, largest + 1, -largest, -largest - 1]
    column = frame_of(Timeline(event(**{field: number}) for number in numbers))[field]
    assert column.isna().tolist() == [False, True, False, True]
    assert column.dropna().tolist() == [largest, -largest]


def test_the_first_host_of_a_rank_counts() -> None:
    timeline = Timeline(
        event(index=index, rank=rank, host=host)
        for index, (rank, host) in enumerate([(1, None), (1, "a"), (1, "b"), (None, "c"), (0, "b")])
    )
    assert timeline.hosts_of_ranks == {1: "a", 0: "b"}


def test_one_row_per_rank() -> None:
    table = rank_table(frame_of(EVENTS))
    assert table.index.tolist() == [3]
    assert tuple(table.columns) == tuple(column.name for column in RANK_COLUMNS)
    assert table.loc[3, ["host", "pid", "last_step", "exit", "log_present"]].tolist() == [
        "node1", 2**62, 5, -9, True,
    ]  # fmt: skip


def test_without_ranks_there_is_no_row() -> None:
    assert rank_table(frame_of(Timeline())).empty
