"""All findings: what the catalog recognised, alike lines of many ranks folded into one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from diagnose.catalog.entries import entry_of
from diagnose.catalog.schema import Catalog
from diagnose.report import words
from diagnose.report.html import clock
from diagnose.report.html.events import Events
from diagnose.report.html.scrub import Scrub
from diagnose.text.ranks import ranks_phrase

MAX_VARIANTS = 8  # of one finding
MAX_TEXT = 600  # characters of a quoted line
# Rows of one finding whose texts are told apart; the rest counts as the last variant.
_COMPARED = 20_000
# The order of importance, and what readers call it.
ROLES = {
    "cause": "cause",
    "effect": "effect",
    "aftermath": "aftermath",
    "context": "context",
    "phase": "phase",
    "progress": "progress",
}
# Roles whose lines differ from step to step: one of them is enough.
_ONE = ("phase", "progress")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_DIGITS = str.maketrans("", "", "0123456789")
# Captured values that make two lines different even if only their digits differ.
_TELLING = ("op", "seq", "size_in", "group")


@dataclass(frozen=True, slots=True)
class Variant:
    """Lines of one finding that say the same; `who` said it, `count` times, first at `place`."""

    who: str
    count: int
    text: str
    place: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One signature that was seen. `at` is its first place on the axis, for sorting."""

    anchor: str
    signature: str
    title: str
    role: str
    cause: str
    at: int | None
    time: str
    who: str
    count: int
    variants: list[Variant] = field(default_factory=list)
    more: int = 0


@dataclass(frozen=True, slots=True)
class Findings:
    """The findings in order of time; `of_row` maps timeline rows to (finding, variant) numbers.

    A variant that is not kept has the number -1.
    """

    items: list[Finding]
    of_row: pd.DataFrame


def findings(events: Events, catalog: Catalog, scrub: Scrub) -> Findings:
    """Fold the timeline into findings."""
    rows = events.frame
    rows = rows[rows["signature"].notna()]
    items: list[Finding] = []
    begin = rows["time"].min()
    places = pd.DataFrame({"finding": -1, "variant": -1}, index=rows.index)
    order = rows["signature"].astype(object)
    for id_, mine in rows.groupby(order, sort=False):
        entry = entry_of(catalog, str(id_))
        role = str(mine["role"].iloc[0])
        codes = np.zeros(len(mine), dtype=np.int64) if role in _ONE else _codes(mine)
        number = len(items)
        kept = np.where(codes < MAX_VARIANTS, codes, -1)
        places.loc[mine.index, "finding"] = number
        places.loc[mine.index, "variant"] = kept
        total = int(codes.max()) + 1
        at = mine["at"].dropna()
        items.append(
            Finding(
                anchor=f"finding-{number + 1}",
                signature=scrub.text(id_),
                title=scrub.text(entry.title if entry else id_),
                role=ROLES.get(role, role),
                cause=scrub.text(entry.cause) if entry else "",
                at=None if at.empty else int(at.min()),
                time=_time(mine, begin),
                who=scrub.text(who(mine)),
                count=len(mine),
                variants=[
                    _variant(mine[codes == code], scrub) for code in range(min(total, MAX_VARIANTS))
                ],
                more=max(0, total - MAX_VARIANTS),
            )
        )
    return Findings(items, places)


def who(rows: pd.DataFrame) -> str:
    """Who printed rows: ranks, else hosts, else nobody that is named."""
    ranks = rows["rank"].dropna().unique()
    if len(ranks):
        return ranks_phrase([int(rank) for rank in ranks])
    named = sorted(str(host) for host in rows["host"].dropna().unique())
    return words.names(named, 4)


def _codes(rows: pd.DataFrame) -> np.ndarray:
    """For each row the number of its variant, counted in order of appearance."""
    texts = rows["text"].astype(object).to_numpy()
    telling = rows.groupby(list(_TELLING), dropna=False, observed=True, sort=False).ngroup()
    seen: dict[tuple[str, int], int] = {}
    codes = np.empty(len(rows), dtype=np.int64)
    for index, (text, values) in enumerate(zip(texts, telling.tolist(), strict=True)):
        if index >= _COMPARED:
            codes[index:] = len(seen) - 1
            break
        start = text[:MAX_TEXT]
        shape = _ADDRESS.sub("", start) if "0x" in start else start
        codes[index] = seen.setdefault((shape.translate(_DIGITS), values), len(seen))
    return codes


def _variant(rows: pd.DataFrame, scrub: Scrub) -> Variant:
    first = rows.iloc[0]
    return Variant(
        who=scrub.text(who(rows)),
        count=len(rows),
        text=scrub.text(first["text"], MAX_TEXT),
        place=scrub.text(words.place(str(first["source"]), int(first["line"]))),
    )


def _time(rows: pd.DataFrame, begin: pd.Timestamp) -> str:
    """When it was said first; the date only if it is not that of the job's begin."""
    return clock.moment(rows["time"].min(), begin)


def counts(items: Iterable[Finding]) -> list[tuple[str, int]]:
    """How many findings there are of each role, in the order of importance."""
    found = [item.role for item in items]
    return [(role, found.count(role)) for role in ROLES.values() if role in found]
