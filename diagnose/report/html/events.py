"""The timeline made ready for drawing: every row at a place on one axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from diagnose.job.model import Job
from diagnose.report.html import clock

_TOLD = ("cause", "effect", "progress", "phase")


@dataclass(frozen=True, slots=True)
class Events:
    """Timeline rows with two more columns: `at` and `guessed`.

    `at` is milliseconds since 1970 in the job's clock or, in a job whose logs carry no time at
    all (`clocked` is False), the number of the line. A row without a time of its own (`guessed`)
    stands between its neighbours in the source; rows of a source without any time have no place
    (NA). `begin` and `end` are the first and last place of the attempt that was diagnosed, None if
    nothing has one. `unplaced` names the sources without a place.
    """

    frame: pd.DataFrame
    clocked: bool
    begin: int | None
    end: int | None
    unplaced: list[str]

    @property
    def last_attempt(self) -> pd.DataFrame:
        """The rows of the attempt that was diagnosed."""
        return _last_attempt(self.frame)


def prepare(job: Job, onset: str | None) -> Events:
    """Give every row of the job's timeline its place.

    `onset` is that of the diagnosis if the job then stood still: it bounds guesses.
    """
    frame = job.timeline
    clocked = bool(frame["time"].notna().any())
    stamp = clock.parse(onset)
    limit = None if stamp is None else clock.milliseconds(stamp)
    frame = frame.assign(at=_places(frame, limit) if clocked else frame["line"].astype("Int64"))
    frame["guessed"] = frame["time"].isna()
    placed = _last_attempt(frame)["at"].dropna()
    lost = frame.loc[frame["at"].isna(), "source"].dropna().unique()
    return Events(
        frame=frame,
        clocked=clocked,
        begin=None if placed.empty else int(placed.min()),
        end=None if placed.empty else int(placed.max()),
        unplaced=sorted(str(name) for name in lost),
    )


def _last_attempt(frame: pd.DataFrame) -> pd.DataFrame:
    """Inference diagnoses the last attempt that left anything but facts; so do the pictures."""
    telling = frame.loc[frame["role"].isin(_TOLD), "attempt"].dropna()
    if telling.empty:
        return frame
    return frame[(frame["attempt"] == telling.max()).fillna(True)]


def _places(frame: pd.DataFrame, onset: int | None) -> pd.Series:
    """Milliseconds of each row: its time, made to run forward inside a source, or a guess."""
    inside = frame.sort_values(["source", "line"], kind="stable")
    known = inside["time"].notna().to_numpy()
    times = inside["time"].groupby(inside["source"], observed=True).cummax()
    millis = times.astype("datetime64[ms]").astype("int64").to_numpy(copy=True)
    lines = inside["line"].to_numpy()
    codes = inside["source"].cat.codes.to_numpy()
    starts = np.flatnonzero(np.diff(codes, prepend=codes[:1] - 1))
    dated = np.zeros(len(inside), dtype=bool)
    for start, end in zip(starts, [*starts[1:], len(codes)], strict=True):
        mine = known[start:end]
        if mine.all() or not mine.any():
            dated[start:end] = mine
            continue
        at, stamps = lines[start:end][mine].astype(float), millis[start:end][mine]
        at, stamps = _with_onset(at, stamps, onset)
        millis[start:end][~mine] = np.interp(lines[start:end][~mine], at, stamps).astype("int64")
        dated[start:end] = True
    placed = pd.Series(millis, index=inside.index, dtype="Int64").where(dated)
    return _by_bar(inside, placed, onset).reindex(frame.index)


def _with_onset(
    lines: np.ndarray, stamps: np.ndarray, onset: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """Nothing new is printed while a job stands still: what has no time came before the onset."""
    if onset is None:
        return lines, stamps
    after = int(np.searchsorted(stamps, onset, side="right"))
    if after in (0, len(stamps)):
        return lines, stamps
    return (
        np.concatenate([lines[:after], [lines[after] - 0.5], lines[after:]]),
        np.concatenate([stamps[:after], [onset], stamps[after:]]),
    )


def _by_bar(rows: pd.DataFrame, placed: pd.Series, onset: int | None) -> pd.Series:
    """A progress bar tells how long it has run, and so where its lines without a time belong.

    Its first line stands where it was guessed, or so much earlier that the last one comes no later
    than the next time in the source, or the onset.
    """
    bars = rows["time"].isna() & rows["elapsed_ms"].notna() & (rows["kind"] == "progress")
    if not bars.any():
        return placed
    keys = [rows.loc[bars, name] for name in ("source", "signature")]
    ran = rows.loc[bars, "elapsed_ms"].astype("Int64")
    since = ran - ran.groupby(keys, observed=True).transform("first")
    begin = placed[bars].groupby(keys, observed=True).transform("first")
    stamps = rows["time"].groupby(rows["source"], observed=True).bfill()[bars]
    later = stamps.astype("datetime64[ms]").astype("int64").astype("Int64").mask(stamps.isna())
    if onset is not None:
        later = later.mask((begin <= onset) & (later.isna() | (later > onset)).fillna(True), onset)
    guess = begin + since.clip(lower=0)
    late = (guess - later).fillna(0).clip(lower=0).groupby(keys, observed=True).transform("max")
    return placed.where(~bars, (guess - late).reindex(placed.index))
