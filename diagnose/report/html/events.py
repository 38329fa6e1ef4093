"""The timeline made ready for drawing: every row at a place on one axis."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from diagnose.job import Job


@dataclass(frozen=True, slots=True)
class Events:
    """Timeline rows with two more columns: `at` and `guessed`.

    `at` is milliseconds since 1970 in the job's clock or, in a job whose logs carry no time at
    all (`clocked` is False), the number of the line. Rows that have no time of their own stand at
    that of the line before them (`guessed`); rows of a source without any time have no place (NA).
    `begin` and `end` are the first and last place, None if nothing has one.
    """

    frame: pd.DataFrame
    clocked: bool
    begin: int | None
    end: int | None
    unplaced: list[str]


def prepare(job: Job) -> Events:
    """Give every row of the job's timeline its place."""
    frame = job.timeline
    clocked = bool(frame["time"].notna().any())
    frame = frame.assign(at=_running(frame) if clocked else frame["line"].astype("Int64"))
    frame["guessed"] = frame["time"].isna()
    placed = frame["at"].dropna()
    lost = frame.loc[frame["at"].isna(), "source"].dropna().unique()
    return Events(
        frame=frame,
        clocked=clocked,
        begin=None if placed.empty else int(placed.min()),
        end=None if placed.empty else int(placed.max()),
        unplaced=sorted(str(name) for name in lost),
    )


def _by_bar(rows: pd.DataFrame, times: pd.Series) -> pd.Series:
    """Times of the bars without one: so much after their first line as the bar has run since."""
    bars = rows["time"].isna() & rows["elapsed_ms"].notna() & (rows["kind"] == "progress")
    if not bars.any():
        return times
    keys = [rows.loc[bars, name] for name in ("source", "signature")]
    ran = rows.loc[bars, "elapsed_ms"].astype("int64")
    since = ran - ran.groupby(keys, observed=True).transform("first")
    begin = times[bars].groupby(keys, observed=True).transform("first")
    later = rows["time"].groupby(rows["source"], observed=True).bfill()[bars]
    placed = begin + pd.to_timedelta(since.clip(lower=0), unit="ms")
    placed = placed.where(later.isna() | (placed <= later), later)
    return times.where(~bars, placed.reindex(times.index))


def _running(frame: pd.DataFrame) -> pd.Series:
    """The clock of each source, made to run forward and never to pause.

    A progress bar tells how long it has run: where its lines have no time, that tells their place.
    """
    inside = frame.sort_values(["source", "line"], kind="stable")
    source = inside["source"]
    times = inside["time"].groupby(source, observed=True).cummax()
    times = times.groupby(source, observed=True).ffill()
    times = times.groupby(source, observed=True).bfill()
    times = _by_bar(inside, times)
    whole = times.astype("datetime64[ms]").astype("int64").astype("Int64")
    return whole.mask(times.isna()).reindex(frame.index)
