"""The verdict told with its lines: evidence, causal chain, alternatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import Alternative, ChainLink, Confidence, Evidence
from diagnose.infer.events.onset import Activity
from diagnose.infer.events.watchdogs import Stall, fold_ranks
from diagnose.infer.rules.base import Candidate

if TYPE_CHECKING:
    from diagnose.infer.collectives.clock_skew import ClockFit

_CHAIN_LIMIT = 10
_TEXT_LIMIT = 400
# Lines that back the verdict up but tell no event of their own.
_NO_EVENT = ("rank_map", "frontier", "frame")
_CHAIN_ROLES = ("cause", "effect", "aftermath")


def evidence(
    winner: Candidate, frame: pd.DataFrame, catalog: Catalog, stalls: list[Stall]
) -> list[Evidence]:
    """The lines that carry the verdict, one per place, each with why it matters."""
    titles = {signature.id: signature.title for signature in catalog.signatures}
    whys = {row: stall.why for stall in stalls for row in stall.rows if stall.why}
    found: dict[tuple[str, int], Evidence] = {}
    for position in winner.rows:
        row = frame.loc[position]
        why = titles.get(str(row["signature"]), "")
        if winner.inferred and position in whys:
            why = f"{why}; {whys[position]}" if why else whys[position]
        place = (str(row["source"]), int(row["line"]))
        found.setdefault(place, Evidence(*place, clean(row["text"]), why))
    return list(found.values())[:6]


def chain(
    winner: Candidate,
    frame: pd.DataFrame,
    catalog: Catalog,
    activity: Activity,
    clocks: ClockFit | None = None,
) -> list[ChainLink]:
    """What happened in time order, the same message of several ranks told once.

    Where `clocks` cannot tell which of two hosts' lines came first, the later one says so.
    """
    titles = {signature.id: signature.title for signature in catalog.signatures}
    rows = frame[frame["role"].isin(_CHAIN_ROLES) | (frame["kind"] == "exit")]
    rows = rows[~rows["tells"].isin(_NO_EVENT)]
    first = rows.groupby("signature", observed=True, sort=False).head(1)
    keep = set(first.index[:_CHAIN_LIMIT]) | set(winner.rows[:2])
    if activity.row is not None:
        keep.add(activity.row)
    links = []
    ranks_of = rows.groupby("signature", observed=True)["rank"]
    everyone = {str(name): sorted({int(r) for r in ranks.dropna()}) for name, ranks in ranks_of}
    seen: set[str] = set()
    before: pd.Series | None = None
    for position in sorted(keep):
        row = frame.loc[position]
        name = "" if pd.isna(row["signature"]) else str(row["signature"])
        if name and name in seen:
            continue
        seen.add(name)
        ranks = everyone.get(name, [])
        event = titles.get(name) or clean(row["text"])[:120]
        if len(ranks) > 1:
            event += f" ({fold_ranks(ranks, prefix=True)})"
        event += _unordered(before, row, clocks)
        before = row
        links.append(
            ChainLink(
                event=event,
                time=iso(row["time"]),
                rank=None if pd.isna(row["rank"]) else int(row["rank"]),
                source=str(row["source"]),
                line=int(row["line"]),
            )
        )
    return links[:_CHAIN_LIMIT]


def _unordered(before: pd.Series | None, row: pd.Series, clocks: ClockFit | None) -> str:
    """A remark where the clocks of two hosts do not tell whose line came first."""
    if clocks is None or before is None or pd.isna(before["host"]) or pd.isna(row["host"]):
        return ""
    first, second = str(before["host"]), str(row["host"])
    if first == second or pd.isna(before["time"]) or pd.isna(row["time"]):
        return ""
    unsure = clocks.uncertain(first, second)
    if unsure is not None and (row["time"] - before["time"]).value > unsure:
        return ""
    return " [or before the line above: the hosts' clocks do not tell]"


def alternatives(ranked: list[Candidate]) -> list[Alternative]:
    """The runners-up and why each lost."""
    found = []
    for candidate in ranked[1:]:
        level: Confidence = "medium" if candidate.score >= 3.5 else "low"
        if candidate.lost.startswith("it follows"):
            level = "low"
        found.append(Alternative(candidate.cause, level, candidate.lost or "less speaks for it"))
    return found[:4]


def iso(time: Any) -> str | None:
    """A time as ISO 8601 with milliseconds where it has them, or None."""
    if time is None or pd.isna(time):
        return None
    stamp = pd.Timestamp(time)
    return str(stamp.isoformat(timespec="milliseconds" if stamp.microsecond else "seconds"))


def clean(text: str) -> str:
    """A line on one line with single spaces, bounded."""
    words = " ".join(str(text).split())
    return words if len(words) <= _TEXT_LIMIT else words[:_TEXT_LIMIT] + " …"
