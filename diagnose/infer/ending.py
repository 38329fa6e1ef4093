"""What interpreters print while they end: ignored exceptions, and ends that are no success.

Python reports what fails in a finaliser, an exit handler or a helper thread and goes on ("Exception
ignored in: …"). The traceback below such a line is nobody's death. The other way round a rank that
died of an exception leaves its script, too, and its libraries say so in the words of a clean end.
"""

from __future__ import annotations

import pandas as pd

# The traceback below "Exception ignored in" is short; further on it is another one.
_BLOCK_LINES = 60
_TRACEBACK = "Traceback (most recent call last)"


def settled(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame without exceptions that Python ignored, and without ends that a crash brought."""
    tells = frame["tells"]
    marks = frame[(tells == "ignored").fillna(False)]
    drop = [row for position in marks.index for row in _block(frame, int(position))]
    if drop:
        frame = frame.drop(index=drop).reset_index(drop=True)
    left = [position for position in _implied_ends(frame) if _of_a_crash(frame, position)]
    if left:
        frame = frame.copy()
        frame.loc[left, "tells"] = None
    return frame


def _block(frame: pd.DataFrame, position: int) -> list[int]:
    """Rows of the traceback that belongs to an "ignored" line: up to its exception's own line."""
    mark = frame.loc[position]
    own = frame["rank"].isna() if pd.isna(mark["rank"]) else (frame["rank"] == mark["rank"])
    near = frame["line"].between(mark["line"] + 1, mark["line"] + _BLOCK_LINES)
    here = (frame["source"] == mark["source"]) & (frame["kind"] != "edge").fillna(True)
    rows = frame[own.fillna(False) & near & here]
    found: list[int] = []
    begun, end = False, None
    for row in rows.sort_values("line", kind="stable").itertuples():
        if end is not None and row.line > end + 1:  # the code line above an error may quote it
            break
        if row.tells in ("ignored", "teardown", "exit") or row.kind in ("progress", "phase"):
            break
        if row.role == "cause" and row.strength != "weak":
            break  # what it names is true, wherever it was noticed
        if _TRACEBACK in str(row.text):
            if begun:
                break
            begun = True
        elif row.role in ("cause", "effect", "aftermath"):
            end = row.line
        found.append(int(row.Index))
    return found


def _implied_ends(frame: pd.DataFrame) -> pd.Index:
    """Ranks' own words at exit which do not claim success (those are markers of a phase)."""
    ends = (frame["tells"] == "finished").fillna(False) & (frame["role"] == "context")
    return frame.index[ends & frame["rank"].notna()]


def _of_a_crash(frame: pd.DataFrame, position: int) -> bool:
    """Whether the same rank (or one that is not named) raised, and did nothing between."""
    end = frame.loc[position]
    own = (frame["rank"] == end["rank"]).fillna(False) | frame["rank"].isna()
    before = frame[own & (frame["source"] == end["source"]) & (frame.index < position)]
    raised = before.index[(before["kind"] == "exception") & (before["role"] == "cause")]
    worked = before.index[before["kind"].isin(["progress", "phase"])]
    return bool(len(raised) and (not len(worked) or worked[-1] < raised[-1]))
