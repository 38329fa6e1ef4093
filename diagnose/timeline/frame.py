"""The timeline as DataFrames, for notebooks, charts and tables; the engine does without."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from diagnose.timeline.captures import integer
from diagnose.timeline.columns import COLUMNS, PROGRESS_COLUMNS
from diagnose.timeline.event import Event, Timeline, author_of

if TYPE_CHECKING:
    import pandas as pd

# Numbers from here on do not fit a column: they are not known.
_LIMITS = {"Int16": 2**15, "Int32": 2**31, "Int64": 2**63}


def frame_of(timeline: Timeline | Sequence[Event]) -> pd.DataFrame:
    """One row an event, in time order; the columns are those of `timeline.columns.COLUMNS`."""
    import pandas as pd  # noqa: PLC0415  only who asks for a frame pays for it

    names = [column.name for column in COLUMNS]
    rows = zip(*map(attrgetter(*names), timeline), strict=True)
    values = dict(zip(names, rows, strict=True)) if len(timeline) else dict.fromkeys(names, ())
    index = pd.RangeIndex(len(timeline))
    columns: dict[str, Any] = {}
    for column in COLUMNS:
        given = list(values[column.name])
        if column.dtype == "datetime64[ns]":
            columns[column.name] = pd.to_datetime(pd.array(given, dtype="Int64"), unit="ns").astype(
                column.dtype
            )
        elif column.dtype == "object":
            columns[column.name] = pd.Series(given, index=index, dtype=object)
        else:
            limit = _LIMITS.get(column.dtype)
            if limit is not None:
                given = [None if n is None or not -limit < n < limit else n for n in given]
            columns[column.name] = pd.array(given, dtype=column.dtype)
    return pd.DataFrame(columns, index=index)


def progress_table(timeline: Timeline) -> pd.DataFrame:
    """One row a step and author; the columns are those of `timeline.columns.PROGRESS_COLUMNS`.

    A line that several signatures read alike is one row, of that which reads most of the lines.
    """
    counted = [event for event in timeline.kind("progress") if event.step is not None]
    frame = frame_of(counted)
    frame["author"] = [author_of(event).shown for event in counted]
    names = [column.name for column in PROGRESS_COLUMNS]
    frame = frame.astype({"author": "str"})[names]
    often = frame["signature"].map(frame["signature"].value_counts()).astype(int)
    best = frame.assign(often=often).sort_values(["often", "signature"], ascending=[False, True])
    several = best.duplicated(["source", "line", "author", "step"]) & (best["line"] > 0)
    return frame.drop(index=best.index[several]).drop_duplicates(
        ["source", "attempt", "author", "signature", "step"], keep="last", ignore_index=True
    )


def rank_table(timeline: pd.DataFrame) -> pd.DataFrame:
    """One row a rank (index `rank`); the columns are those of `timeline.columns.RANK_COLUMNS`."""
    known = _with_ranks_of_hosts(timeline).dropna(subset=["rank"])
    grouped = known.groupby("rank")
    import pandas as pd  # noqa: PLC0415  only who asks for a frame pays for it

    table = pd.DataFrame(
        {
            "host": grouped["host"].agg(_first),
            "pid": grouped["pid"].agg(_first),
            "first_time": grouped["time"].min(),
            "last_time": grouped["time"].max(),
            "last_step": grouped["step"].agg(_last),
            "last_phase": grouped["phase"].agg(_last),
        }
    )
    for name in ("enqueued", "completed"):
        values = known["fields"].map(lambda fields, key=name: integer(fields.get(key)))
        table[name] = values.groupby(known["rank"]).max().astype("Int64")
    exits = known[known["kind"] == "exit"]
    codes = exits["fields"].map(lambda fields: integer(fields.get("exitcode")))
    table["exit"] = codes.groupby(exits["rank"]).first().astype("Int64")
    table["log_present"] = True
    return table


def _with_ranks_of_hosts(timeline: pd.DataFrame) -> pd.DataFrame:
    """Steps that a pod or host counted are of its rank, where all its lines are of one."""
    known = timeline.dropna(subset=["rank", "host"])
    ranks = known.groupby("host", observed=True)["rank"].agg(["nunique", "first"])
    alone = ranks[ranks["nunique"] == 1]["first"]
    counted = timeline["kind"].eq("progress") & timeline["rank"].isna()
    filled = timeline["host"].astype(object).map(alone.to_dict()).where(counted)
    return timeline.assign(rank=timeline["rank"].fillna(filled.astype(timeline["rank"].dtype)))


def _first(values: pd.Series[Any]) -> Any:
    present = values.dropna()
    return present.iloc[0] if len(present) else None


def _last(values: pd.Series[Any]) -> Any:
    present = values.dropna()
    return present.iloc[-1] if len(present) else None
