"""Events of the timeline from the table of collectives: what every rank waited in at the end.

A dump holds thousands of operations of which the timeline needs few: of each rank the first
pending ones (`signal` is `pending`), or, where it has none, the last one it finished (`idle`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.infer.collectives.group import Group
from diagnose.infer.collectives.table import Table, shown
from diagnose.parse.flight_recorder import COMPLETED, STARTED
from diagnose.parse.who import Stamp
from diagnose.timeline.event import Event, Meaning, Work
from diagnose.timeline.readings import IDLE, PENDING, document

PENDING_SHOWN = 4  # pending operations of one rank
_SAYS = {
    tells: Meaning(kind="collective", severity="info", signal=tells) for tells in (PENDING, IDLE)
}


def table_rows(table: Table, hosts: Mapping[str, str | None]) -> list[Event]:
    """One event per operation that a rank stood in.

    `hosts` are those that the names of the dumps tell, by name.
    """
    if table.empty:
        return []
    columns, calls, groups = table.columns, table.calls, [*table.groups.values()]
    of_batch = np.array([call.op == "coalesced" for call in calls], bool)[columns["call"]]
    pending = (columns["state"] < COMPLETED) & ~(columns["p2p"].astype(bool) & of_batch)
    waiting = np.flatnonzero(pending)
    idle = np.flatnonzero(~np.isin(columns["rank"], columns["rank"][waiting]))
    shown = waiting[_ordinal(columns["rank"][waiting]) < PENDING_SHOWN]
    last = idle[np.append(np.diff(columns["rank"][idle]) != 0, True)[: len(idle)]]
    return [
        *(_row(table, groups, hosts, place, PENDING) for place in shown.tolist()),
        *(_row(table, groups, hosts, place, IDLE) for place in last.tolist()),
    ]


def _ordinal(ranks: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """The how manyth of its rank each is; ranks follow each other."""
    begins = np.flatnonzero(np.append(True, np.diff(ranks) != 0)[: len(ranks)])
    return np.arange(len(ranks)) - np.repeat(begins, np.diff(np.append(begins, len(ranks))))


def _row(
    table: Table, groups: Sequence[Group], hosts: Mapping[str, str | None], place: int, tells: str
) -> Event:
    op = {name: int(column[place]) for name, column in table.columns.items()}
    rank, created, site = op["rank"], op["time_created"], table.sites[op["site"]]
    group, file = groups[op["group"]], table.files[rank]
    work = Work(
        group=group.label,
        op=table.calls[op["call"]].op,
        seq=op["seq"],
        timeout_ms=op["timeout_ms"] if op["timeout_ms"] >= 0 else None,
    )
    text = _text(table, op, group.key, tells)
    draft = document(file, op["line"], rank, text, _SAYS[tells], work, site)
    draft.offset, draft.host = op["record"], hosts.get(file)
    draft.stamp = Stamp(created, utc_offset_s=0) if created > 0 else None
    return draft


def _text(table: Table, op: Mapping[str, int], group: str, tells: str) -> str:
    call = table.calls[op["call"]]
    site = table.sites[op["site"]]
    text = table.described(shown(call), group, op["seq"], call.op, op["peer"], site)
    if tells == IDLE:
        return f"idle; the last operation was {text}"
    begun = "started" if op["state"] == STARTED else "enqueued"
    return f"{text}: {begun}, not finished"
