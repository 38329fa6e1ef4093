"""The timeline as DataFrames, for notebooks, charts and tables; the engine does without.

The columns of `Job.timeline`, `Job.progress` and `Job.ranks` are defined here, and docs/timeline.md
is made of them. Each is a field of `timeline.event.Event`; missing is NA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from diagnose.timeline.captures import integer
from diagnose.timeline.event import Event, Timeline, author_of

if TYPE_CHECKING:
    import pandas as pd

# Numbers from here on do not fit a column: they are not known.
_LIMITS = {"Int16": 2**15, "Int32": 2**31, "Int64": 2**63}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its pandas dtype and what it means."""

    name: str
    dtype: str
    meaning: str


COLUMNS = (
    Column("time", "datetime64[ns]", "when, by the job's clock: wall-clock time as printed"),
    Column("source", "category", "the file, stream or archive member"),
    Column("line", "int64", "number of the line in its source, from 1; 0 where there are no lines"),
    Column("offset", "int64", "byte offset of the line's start in its decompressed source"),
    Column("attempt", "Int16", "which start of the job, from 0"),
    Column("rank", "Int32", "the global rank that wrote the line, or of which it speaks"),
    Column("local_rank", "Int16", "the rank on its node"),
    Column("group_rank", "Int32", "the rank inside a process group"),
    Column("task", "Int32", "the launcher's task, as `srun --label` prints it"),
    Column("host", "category", "the node"),
    Column("pid", "Int64", "the process"),
    Column(
        "kind",
        "category",
        "collective, exit, exception, frame (of a stack), restart, phase, progress, fact, "
        "signature (any other match), edge (first and last lines), place (where a stack is), "
        "value (of a training that stays bad: the first bad value and the last good one)",
    ),
    Column("signature", "category", "the entry of the catalog that matched"),
    Column("role", "category", "of the entry: cause, effect, aftermath, context, phase, progress"),
    Column("severity", "category", "error, warning or info"),
    Column("cause", "category", "of the entry: the cause class"),
    Column("strength", "category", "of the entry: decisive, strong or weak"),
    Column("signal", "category", "of the entry: what inference learns from it (see the schema)"),
    Column("phase", "category", "of phase markers, progress and frames: init, training, …"),
    Column("group", "category", "the process group"),
    Column("op", "category", "the collective operation"),
    Column("seq", "Int64", "its sequence number"),
    Column("size_in", "Int64", "its elements per rank, input"),
    Column("size_out", "Int64", "its elements per rank, output"),
    Column("timeout_ms", "Int64", "how long it may take, in milliseconds"),
    Column("elapsed_ms", "Int64", "how long it had taken, or a progress bar has run"),
    Column("step", "Int64", "the step that progress counts"),
    Column("text", "str", "the line, at most 1,000 characters"),
    Column("fields", "object", "named captures, a dict of text"),
    Column("ends_phase", "bool", "the line says that its phase is over"),
    Column("repeated", "int64", "how many equal lines Ray folded into this one"),
    Column(
        "learned",
        "category",
        "how the rank became known: line, table, process, communicator, peers, file, host, "
        "local_rank, source, task, node, device, alone, group",
    ),
)  # fmt: skip

# Of Job.progress: some of the above, and who counted.
PROGRESS_COLUMNS = (
    *(one for one in COLUMNS if one.name in ("time", "source", "line", "attempt")),
    Column("author", "str", "who counted: rank 3, the pod or host, or the source"),
    *(one for one in COLUMNS if one.name in ("rank", "host", "signature", "phase", "step", "text")),
)

RANK_COLUMNS = (
    Column("host", "object", "the node"),
    Column("pid", "Int64", "the process"),
    Column("first_time", "datetime64[ns]", "its first line"),
    Column("last_time", "datetime64[ns]", "its last line"),
    Column("last_step", "Int64", "the last step it printed"),
    Column("last_phase", "object", "the last phase it was in"),
    Column("enqueued", "Int64", "the last collective it enqueued, by its status lines"),
    Column("completed", "Int64", "and of the last it completed"),
    Column("exit", "Int64", "exit code, or negative signal"),
    Column("log_present", "bool", "whether it has a line of its own"),
)  # fmt: skip


def frame_of(timeline: Timeline | Sequence[Event]) -> pd.DataFrame:
    """One row an event, in time order; the columns are those of `COLUMNS`."""
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
    """One row a step and author; the columns are those of `PROGRESS_COLUMNS`.

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
    """One row a rank (index `rank`); the columns are those of `RANK_COLUMNS`."""
    known = _with_ranks_of_hosts(timeline).dropna(subset=["rank"])
    grouped = known.groupby("rank")
    import pandas as pd  # noqa: PLC0415  only who asks for a frame pays for it

    table = pd.DataFrame(
        {
            "host": grouped["host"].first(),
            "pid": grouped["pid"].first(),
            "first_time": grouped["time"].min(),
            "last_time": grouped["time"].max(),
            "last_step": grouped["step"].last(),
            "last_phase": grouped["phase"].last(),
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
