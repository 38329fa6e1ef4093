"""Is there a failure at all? Rows that show one, unless the job survived it or was done before."""

from __future__ import annotations

import pandas as pd

from diagnose.infer.events.recovery import afterlife, left, survived
from diagnose.infer.rules.signatures import after_line
from diagnose.infer.rules.stalls import unfinished_gathering

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
    """Errors that every rank which printed one caught and went on from, to the end of the log."""
    return bool((rows["role"] == "cause").all()) and survived(afterlife(frame), rows)


def unexplained(frame: pd.DataFrame) -> pd.DataFrame:
    """Error lines that no other entry knows and whose authors were not seen to go on.

    Those in words of their own (`tells: trouble`), and last lines that a logger wrote at error
    level. What is only of error level passes as soon as anybody works on below it.
    """
    told = frame["tells"] == "trouble"
    last = (frame["kind"] == "edge") & (frame["severity"] == "error")
    rows = frame[(told | last).fillna(False)]
    if rows.empty:
        return rows
    matched = frame[frame["signature"].notna() & (frame["tells"] != "trouble").fillna(True)]
    known = set(zip(matched["source"], matched["line"], strict=True))
    places = zip(rows["source"], rows["line"], strict=True)
    rows = rows[[place not in known for place in places]]
    grave = (rows["strength"] == "strong").fillna(False)
    lasting = left(afterlife(frame), rows[grave])
    work = frame[(frame["kind"] == "progress") | _end(frame)]
    worked = dict(zip(work["source"], work["line"], strict=True))  # its last line in each source
    lasting += [
        row.Index for row in rows[~grave].itertuples() if worked.get(row.source, -1) <= row.line
    ]
    return frame.loc[sorted(set(lasting))].drop_duplicates(["source", "line"])


def went_on(frame: pd.DataFrame) -> bool:
    """The job finished, or made steps after everything that looks like trouble.

    What ran before the user's complaint does not speak against it, nor does a server that answers.
    """
    said = frame.index[(frame["tells"] == "complaint").fillna(False)]
    if len(said):
        later = after_line(frame, int(said[-1]))
        steps = (later["kind"] == "progress") & (later["phase"] != "inference").fillna(True)
        return bool(steps.any() or _end(later).any())
    if done(frame):
        return True
    trouble = frame[frame["role"].isin(["cause", "effect", "aftermath"])]
    if trouble.empty:
        return bool((frame["kind"] == "progress").any())
    life = afterlife(frame)
    rows = frame.loc[left(life, trouble)]
    if rows["rank"].isin([*life.by_rank]).any():
        return False
    # Of authors that print no steps of their own, those of the others count.
    return rows.empty or bool(
        (after_line(frame, int(rows.index.max()))["kind"] == "progress").any()
    )


def done(frame: pd.DataFrame) -> bool:
    """The job said that it finished, and raised nothing after its last such word.

    A rank speaks for itself: the others that tell of their own steps have to finish as well.
    """
    ending = _end(frame)
    ends = frame.index[ending]
    if not len(ends):
        return False
    raised = frame.index[(frame["kind"] == "exception") & (frame["role"] == "cause").fillna(False)]
    if len(raised) and raised[-1] > ends[-1]:
        return False
    finished = frame.loc[ending, "rank"]
    at_work = set(frame.loc[frame["kind"] == "progress", "rank"].dropna())
    return bool(finished.isna().any() or at_work <= set(finished))


def _end(frame: pd.DataFrame) -> pd.Series:
    """Which rows say that the job finished."""
    finished = (frame["tells"] == "finished").fillna(False)
    return finished | (frame["kind"] == "phase") & (frame["phase"] == "shutdown")
