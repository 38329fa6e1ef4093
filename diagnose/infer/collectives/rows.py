"""Events of the timeline from the table of collectives: what every rank waited in at the end.

A dump holds thousands of operations of which the timeline needs few: of each rank the first
pending ones (`tells` is `pending`), or, where it has none, the last one it finished (`idle`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from diagnose.infer.collectives.table import Table, shown
from diagnose.timeline.documents import IDLE, PENDING, document, fields
from diagnose.timeline.draft import Draft
from diagnose.timeline.event import Meaning

PENDING_SHOWN = 4  # pending operations of one rank


def table_rows(table: Table, hosts: Mapping[str, str | None]) -> list[Draft]:
    """One event per operation that a rank stood in.

    `hosts` are those that the names of the dumps tell, by name.
    """
    if table.empty:
        return []
    frame = table.rows
    state = frame["state"].cat.codes.to_numpy()
    batch = frame["p2p"].to_numpy() & (frame["op"] == "coalesced").to_numpy()
    pending = frame[(state < 2) & ~batch]
    pending_shown = pending.groupby("rank", sort=False).head(PENDING_SHOWN)
    idle = frame[~frame["rank"].isin(pending["rank"].unique())]
    last = idle.groupby("rank", sort=False).tail(1)
    return [
        *(_row(table, hosts, row, PENDING) for row in pending_shown.to_dict("records")),
        *(_row(table, hosts, row, IDLE) for row in last.to_dict("records")),
    ]


def _row(table: Table, hosts: Mapping[str, str | None], op: Mapping[Any, Any], tells: str) -> Draft:
    rank, created = int(op["rank"]), int(op["time_created"])
    file = table.files[rank]
    meaning = Meaning(
        kind="collective",
        severity="info",
        tells=tells,
        group=table.groups[str(op["group"])].label,
        op=str(op["op"]),
        seq=int(op["seq"]),
        timeout_ms=int(op["timeout_ms"]) if op["timeout_ms"] >= 0 else None,
        fields=fields(str(op["site"])),
    )
    draft = document(file, int(op["line"]), rank, _text(table, op, tells), meaning)
    draft.offset, draft.host = int(op["record"]), hosts.get(file)
    draft.ns, draft.utc_offset_s = created if created > 0 else None, 0
    return draft


def _text(table: Table, op: Mapping[Any, Any], tells: str) -> str:
    call = shown(table.calls[int(op["call"])])
    text = table.told(call, op["group"], op["seq"], op["op"], int(op["peer"]), op["site"])
    if tells == IDLE:
        return f"idle; the last operation was {text}"
    begun = "started" if op["state"] == "started" else "enqueued"
    return f"{text}: {begun}, not finished"
