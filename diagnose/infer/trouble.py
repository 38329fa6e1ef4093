"""Is there a failure at all? Rows that show one, unless the job survived it or was done before."""

from __future__ import annotations

import pandas as pd

from diagnose.infer.said import after_line, recovered
from diagnose.infer.stalled import unfinished_gathering

WAITED = ("timeout", "store_wait", "missing", "host_blocked")
_EFFECTS = ("timeout", "notified", "missing", "mismatch", "store_wait", "teardown", "joined")


def failures(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows that show a failure: causes, effects, exits with a code, waits."""
    exit_rows = frame["kind"] == "exit"
    clean = frame["fields"].map(lambda f: f.get("exitcode") in ("0", "+0") and "signal" not in f)
    weak = (frame["role"] == "cause") & (frame["strength"] == "weak")
    serious = (frame["role"].isin(["cause", "effect"]) & ~weak) | frame["tells"].isin(_EFFECTS)
    serious = (serious | exit_rows) & ~(exit_rows & clean)
    gathering = unfinished_gathering(frame)
    if gathering is not None:
        serious.loc[gathering.name] = True
    rows = frame[serious.fillna(False)]
    if len(rows) and (_only_after_the_end(frame, rows) or _survived(frame, rows)):
        return frame.head(0)
    if not serious.any() and not went_on(frame):
        # A weak hint, or what follows an abort, counts only in a log that ends with it.
        said = (frame["tells"] == "complaint").fillna(False)
        serious = said if said.any() else weak | (frame["role"] == "aftermath")
    return frame[serious.fillna(False)]


def _only_after_the_end(frame: pd.DataFrame, rows: pd.DataFrame) -> bool:
    """Symptoms alone, all after the job said that it was done: sockets that close at exit."""
    grave = (rows["role"] == "cause") | (rows["kind"] == "exit")
    if (grave | rows["tells"].isin(WAITED)).any():
        return False
    end = _end(frame)
    return bool(end.any() and frame.index[end][0] < rows.index[0])


def _survived(frame: pd.DataFrame, rows: pd.DataFrame) -> bool:
    """Errors that the job caught and went on from: training continued to the end of the log."""
    return bool((rows["role"] == "cause").all()) and recovered(frame, rows)


def went_on(frame: pd.DataFrame) -> bool:
    """The job finished, or made steps after everything that looks like trouble.

    What ran before the user's complaint does not speak against it, nor does a server that answers.
    """
    said = frame.index[(frame["tells"] == "complaint").fillna(False)]
    if len(said):
        later = after_line(frame, int(said[-1]))
        steps = (later["kind"] == "progress") & (later["phase"] != "inference").fillna(True)
        return bool(steps.any() or _end(later).any())
    trouble = frame.index[frame["role"].isin(["cause", "effect", "aftermath"])]
    later = after_line(frame, int(trouble[-1])) if len(trouble) else frame
    steps = later[later["kind"] == "progress"]
    return done(frame) or bool(len(steps))


def done(frame: pd.DataFrame) -> bool:
    """The job said that it finished, and raised nothing after its last such word."""
    ends = frame.index[_end(frame)]
    raised = frame.index[(frame["kind"] == "exception") & (frame["role"] == "cause").fillna(False)]
    return bool(len(ends)) and not (len(raised) and raised[-1] > ends[-1])


def _end(frame: pd.DataFrame) -> pd.Series:
    """Which rows say that the job finished."""
    finished = (frame["tells"] == "finished").fillna(False)
    return finished | (frame["kind"] == "phase") & (frame["phase"] == "shutdown")
