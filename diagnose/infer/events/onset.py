"""When the trouble began, and what the job was doing then.

A watchdog line at T that "ran for D ms" puts the onset at T − D. What explains a stall was there
at its onset: the last marker, bar or stack frame before it, not the crash at its end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

# A bar whose own clock says about the wait's length was moving while the others waited.
_NEAR_TIMEOUT = 0.5
_BUSY = ("preprocessing", "model_load", "checkpoint", "evaluation", "inference")


@dataclass(frozen=True, slots=True)
class Activity:
    """What was going on at the onset: a phase, the row that shows it, and how surely.

    `moving`: an unfinished bar or begun phase of work that one rank does while others wait.
    `spans_wait`: its own clock covers at least half of the wait, which ties the two together.
    `bar`: it is a progress bar that had begun to move; `frame`: a stack shows it.
    """

    phase: str | None = None
    row: int | None = None
    moving: bool = False
    spans_wait: bool = False
    rank: int | None = None
    what: str | None = None
    frame: bool = False
    bar: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """The onset: its time (NaT if unknown), the position of the first sign, and why."""

    time: pd.Timestamp | None
    row: int | None
    why: str


def find_onset(frame: pd.DataFrame, first_failure: int | None) -> Start:
    """Back-date the first wait, or take the first failure's own time."""
    waits = frame[(frame["tells"] == "timeout").fillna(False) & frame["elapsed_ms"].notna()]
    dated = waits[waits["time"].notna()]
    if len(dated):
        begun = dated["time"] - pd.to_timedelta(dated["elapsed_ms"].astype("int64"), unit="ms")
        row = int(begun.idxmin())
        seconds = int(dated.loc[row, "elapsed_ms"]) / 1000
        wait = pd.Timestamp(begun.loc[row])
        failure = frame.loc[first_failure, "time"] if first_failure is not None else pd.NaT
        if pd.notna(failure) and failure < wait:
            return Start(pd.Timestamp(failure), first_failure, "the first failure, before the wait")
        return Start(wait, row, f"the first watchdog line, minus the {seconds:,.0f} s it waited")
    if first_failure is None:
        return Start(None, None, "no line shows a failure; the log ends in this phase")
    time = frame.loc[first_failure, "time"]
    if pd.notna(time):
        return Start(pd.Timestamp(time), first_failure, "the first failure in the log")
    if len(waits):
        seconds = int(waits["elapsed_ms"].iloc[0]) / 1000
        why = f"{seconds:,.0f} s before the first watchdog line, which carries no time"
        return Start(None, int(waits.index[0]), why)
    return Start(None, first_failure, "the lines carry no time")


def find_activity(
    frame: pd.DataFrame, start: Start, end: int | None, waiting: set[int]
) -> Activity:
    """The phase at the onset.

    `end` is the position of the first failure line: markers after it are aftermath, except that a
    progress bar glued to that very line counts. Frames of tracebacks lie after the failure and
    speak of it all the same.
    """
    marks = frame[frame["kind"].isin(["phase", "progress"])]
    if end is not None:
        marks = marks[
            (marks.index <= end) | _same_line(marks, frame, end) | _untimed(marks, frame, end)
        ]
    marks = _latest_bars(marks)
    wait_ms = frame.loc[(frame["tells"] == "timeout").fillna(False), "elapsed_ms"].max()
    bars = _unfinished(marks)
    if pd.notna(wait_ms) and len(bars):
        spans = bars[bars["elapsed_ms"].fillna(0).astype("int64") >= _NEAR_TIMEOUT * int(wait_ms)]
        spans = spans[spans["phase"].isin(_BUSY)]
        if len(spans):
            return _not_loading(_activity(spans.iloc[-1], moving=True, spans_wait=True), marks)
    stacks = frame[(frame["kind"] == "frame") & frame["phase"].notna()]
    others = marks[~marks["rank"].isin(sorted(waiting))] if waiting else marks
    last = _last_marker(others if len(others) else marks)
    if last is not None and last.phase in _BUSY and not last.ends_phase and _open(marks, last):
        return _activity(last, moving=True)
    if len(stacks):
        return _activity(_deepest(stacks), frame=True)
    if last is None:
        return Activity()
    if last.ends_phase:
        return Activity("training" if last.phase != "shutdown" else "shutdown", int(last.name))
    return _activity(last)


def _not_loading(activity: Activity, marks: pd.DataFrame) -> Activity:
    """Weight files that move after a save began are written or uploaded, not loaded."""
    if activity.phase != "model_load" or activity.row is None:
        return activity
    before = marks.loc[marks.index < activity.row, "phase"]
    return replace(activity, phase="checkpoint") if (before == "checkpoint").any() else activity


def _untimed(marks: pd.DataFrame, frame: pd.DataFrame, end: int) -> pd.Series:
    """Markers of other sources without any time: nothing says that they came after the failure."""
    timed = frame.loc[frame["time"].notna(), "source"].unique()
    return ~marks["source"].isin([*timed, frame.loc[end, "source"]])


def _latest_bars(marks: pd.DataFrame) -> pd.DataFrame:
    """Of each progress bar only its last state."""
    bars = marks[marks["elapsed_ms"].notna()]
    what = bars["fields"].map(lambda fields: fields.get("what", ""))
    author = [bars["source"], bars["rank"].astype(object).fillna(-1), bars["signature"], what]
    last = bars.groupby(author, observed=True, sort=False).tail(1)
    return marks[marks["elapsed_ms"].isna() | marks.index.isin(last.index)]


def _same_line(marks: pd.DataFrame, frame: pd.DataFrame, end: int) -> pd.Series:
    row = frame.loc[end]
    return (marks["source"] == row["source"]) & (marks["line"] == row["line"])


def _unfinished(marks: pd.DataFrame) -> pd.DataFrame:
    bars = marks[marks["elapsed_ms"].notna()]
    percent = bars["fields"].map(_percent)
    return bars[percent < 100]


def _percent(fields: dict[str, str]) -> float:
    try:
        if "percent" in fields:
            return float(fields["percent"])
        step, total = float(fields["step"]), float(fields["total"])
    except (KeyError, ValueError):
        return 0.0
    return 100.0 * step / total if total else 0.0


def _last_marker(marks: pd.DataFrame) -> pd.Series | None:
    """The last marker; plain step lines only count where no phase began after them."""
    phased = marks[marks["phase"].notna() & ~finished_bars(marks)]
    if len(phased):
        return phased.iloc[-1]
    steps = marks[marks["phase"].isna()]
    return steps.iloc[-1] if len(steps) else None


def finished_bars(marks: pd.DataFrame) -> pd.Series:
    """Bars of set-up work that reached 100 %: their phase is over.

    Evaluation is not: what it found is gathered from all ranks after its last batch.
    """
    done = marks["elapsed_ms"].notna() & (marks["fields"].map(_percent) >= 100)
    return done & ~marks["phase"].isin(["training", "evaluation"])


def _open(marks: pd.DataFrame, mark: pd.Series) -> bool:
    """Whether the phase a marker began was still open: no finished bar, no training step after."""
    if _percent(mark["fields"]) >= 100:
        return False
    after = marks[marks.index > mark.name]
    steps = after[
        (after["kind"] == "progress") & (after["phase"].isna() | (after["phase"] == "training"))
    ]
    return bool(steps["step"].dropna().nunique() < 2)


def _deepest(stacks: pd.DataFrame) -> pd.Series:
    """The frame that speaks: busy phases before training, training before init, ending last."""
    order = {"shutdown": 3, "init": 2, "training": 1}
    weight = stacks["phase"].astype(object).map(lambda phase: order.get(phase, 0))
    return stacks.loc[weight.sort_values(kind="stable").index[0]]


def _activity(
    row: pd.Series, *, moving: bool = False, spans_wait: bool = False, frame: bool = False
) -> Activity:
    rank = row["rank"]
    return Activity(
        phase=None if pd.isna(row["phase"]) else str(row["phase"]),
        row=int(row.name),
        moving=moving,
        spans_wait=spans_wait,
        rank=None if pd.isna(rank) else int(rank),
        what=row["fields"].get("what"),
        frame=frame,
        bar=bool(pd.notna(row["elapsed_ms"]) and _percent(row["fields"]) < 100),
    )
