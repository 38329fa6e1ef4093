"""Rows of the timeline from the table of collectives: what every rank waited in at the end.

A dump holds thousands of operations of which the timeline needs few: of each rank the first
pending ones (`tells` is `pending`), or, where it has none, the last one it finished (`idle`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from diagnose.parse.clock import offset_between

if TYPE_CHECKING:
    from diagnose.infer.collectives.table import Table

# What rows of documents tell: operations of the table, and where a rank's stack stands.
PENDING, IDLE, STANDS = "pending", "idle", "stands"
DOCUMENT_TELLS = (PENDING, IDLE, STANDS)

PENDING_SHOWN = 4  # pending operations of one rank
# Times of dumps are believed without proof where they lie about the printed ones.
_NEAR = pd.Timedelta(hours=2)


def table_rows(table: Table, hosts: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """One row per operation that a rank stood in, in the form of the timeline's other rows.

    `hosts` are those that the names of the dumps tell, by name.
    """
    frame = table.rows
    if frame.empty:
        return []
    state = frame["state"].cat.codes.to_numpy()
    batch = frame["p2p"].to_numpy() & (frame["op"] == "coalesced").to_numpy()
    pending = frame[(state < 2) & ~batch]
    shown = pending.groupby("rank", sort=False).head(PENDING_SHOWN)
    idle = frame[~frame["rank"].isin(pending["rank"].unique())]
    last = idle.groupby("rank", sort=False).tail(1)
    return [
        *(_row(table, hosts, row, PENDING) for row in shown.to_dict("records")),
        *(_row(table, hosts, row, IDLE) for row in last.to_dict("records")),
    ]


def document_row(
    source: str, line: int, rank: int, tells: str, text: str, site: str | None, **more: Any
) -> dict[str, Any]:
    """A row of the timeline that a document tells and no line of a log; `more` are its columns."""
    return {
        "source": source,
        "line": line,
        "offset": 0,
        "rank": rank,
        "severity": "info",
        "tells": tells,
        "text": text,
        "fields": {"site": site} if site else {},
        "ns": None,
        "has_date": True,
        "has_year": True,
        "utc_offset_s": None,
        "boot": False,
        "of_table": True,
    } | more


def _row(
    table: Table, hosts: Mapping[str, str | None], op: Mapping[Any, Any], tells: str
) -> dict[str, Any]:
    rank, created = int(op["rank"]), int(op["time_created"])
    file = table.files[rank]
    return document_row(
        file,
        int(op["line"]),
        rank,
        tells,
        _text(table, op, tells),
        str(op["site"]),
        offset=int(op["record"]),
        host=hosts.get(file),
        kind="collective",
        group=table.groups[str(op["group"])].label,
        op=str(op["op"]),
        seq=int(op["seq"]),
        timeout_ms=int(op["timeout_ms"]) if op["timeout_ms"] >= 0 else None,
        ns=created if created > 0 else None,
        utc_offset_s=0,
    )


def _text(table: Table, op: Mapping[Any, Any], tells: str) -> str:
    from diagnose.infer.collectives.table import shown  # noqa: PLC0415  seldom needed

    call = shown(table.calls[int(op["call"])])
    text = table.told(call, op["group"], op["seq"], op["op"], int(op["peer"]), op["site"])
    if tells == IDLE:
        return f"nothing pending; the last was {text}"
    begun = "started" if op["state"] == "started" else "enqueued"
    return f"{text}: {begun}, not finished"


def shift_to_log(frame: pd.DataFrame) -> pd.Series:
    """Times of all rows, those of the table moved into the zone in which the logs print theirs.

    A watchdog line that "ran for D ms" tells when its operation was enqueued, and the table tells
    the same in UTC: that proves the zone. Without proof, times far from the printed ones are left
    out (NaT): nothing can be put in order by them.
    """
    own = frame["of_table"].eq(True)
    times = frame["time"].copy()
    printed = times[~own].dropna()
    if not own.any() or printed.empty:
        return times
    shift = offset_between(_pairs(frame, own))
    if shift is not None:
        times[own] = times[own] + shift
    else:
        near = times.between(printed.min() - _NEAR, printed.max() + _NEAR)
        times[own & ~near] = pd.NaT
    return times


def _pairs(frame: pd.DataFrame, own: pd.Series) -> Sequence[tuple[pd.Timestamp, pd.Timestamp]]:
    """When an operation was enqueued, by the table and by the watchdog of the same rank."""
    begun = frame["time"] - pd.to_timedelta(pd.to_numeric(frame["elapsed_ms"]), unit="ms")
    said = frame[~own & (frame["tells"] == "timeout") & begun.notna()].assign(begun=begun)
    told = frame[own & (frame["tells"] == PENDING) & frame["time"].notna()]
    by_place = {
        (int(row.rank), int(row.seq)): row.time
        for row in told.drop_duplicates(["rank", "seq"]).itertuples()
    }
    return [
        (by_place[int(row.rank), int(row.seq)], row.begun)
        for row in said.dropna(subset=["rank", "seq"]).itertuples()
        if (int(row.rank), int(row.seq)) in by_place
    ]
