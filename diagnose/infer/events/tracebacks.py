"""Where each rank stood when it stopped, from the stack frames it printed.

A traceback that ends in a collective says what its rank waited for even where no watchdog line
does (gloo, blocking waits). Ranks that stand in different calls disagree.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pandas as pd

# Python entry points of torch.distributed and the operation they issue.
OP_OF_CALL = {
    "all_reduce": "ALLREDUCE", "all_reduce_coalesced": "ALLREDUCE_COALESCED",
    "broadcast": "BROADCAST", "broadcast_object_list": "BROADCAST", "reduce": "REDUCE",
    "all_gather": "ALLGATHER", "all_gather_object": "ALLGATHER",
    "all_gather_into_tensor": "_ALLGATHER_BASE", "_all_gather_base": "_ALLGATHER_BASE",
    "gather": "GATHER", "gather_object": "GATHER", "scatter": "SCATTER",
    "scatter_object_list": "SCATTER", "reduce_scatter": "REDUCE_SCATTER",
    "reduce_scatter_tensor": "_REDUCE_SCATTER_BASE",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE", "all_to_all": "ALLTOALL",
    "all_to_all_single": "ALLTOALL_BASE", "barrier": "BARRIER", "monitored_barrier": "BARRIER",
    "send": "SEND", "recv": "RECV", "isend": "SEND", "irecv": "RECV",
    "send_object_list": "SEND", "recv_object_list": "RECV", "batch_isend_irecv": "SEND",
    "_engine_run_backward": "ALLREDUCE",
}  # fmt: skip


_GAP_LINES = 40
DUMP_FRAME = r'", line \d+ in |\.py:\d+\)\s*$'


@dataclass(frozen=True, slots=True)
class Stance:
    """A rank's last stack: the collective call, the user's call site, the phase it shows."""

    rank: int
    op: str | None
    site: str | None
    phase: str | None
    row: int


def stances(frame: pd.DataFrame) -> dict[int, Stance]:
    """Rank → where its last traceback ended."""
    rows = frame[(frame["kind"] == "frame") & frame["rank"].notna()]
    sources: dict[int, str] = {}
    stacks: dict[int, list[Any]] = {}
    for row in rows[["rank", "source", "line", "fields", "phase", "text"]].itertuples():
        rank = int(row.rank)
        if sources.setdefault(rank, row.source) == row.source:
            stacks.setdefault(rank, []).append(row)
    return {rank: _stance(rank, _last_stack(stacks[rank])) for rank in sorted(stacks)}


def _stance(rank: int, stack: list[Any]) -> Stance:
    calls = [row for row in stack if row.fields.get("func") in OP_OF_CALL]
    sites = [site for row in stack if (site := _site(row.fields)) is not None]
    phases = [str(row.phase) for row in stack if not pd.isna(row.phase)]
    return Stance(
        rank,
        OP_OF_CALL[calls[-1].fields["func"]] if calls else None,
        sites[-1] if sites else None,
        phases[-1] if phases else None,
        int((calls or stack)[-1].Index),
    )


def dumped(frame: pd.DataFrame) -> pd.DataFrame:
    """Frames of stack dumps (faulthandler, py-spy): taken of a process that still ran."""
    rows = frame[frame["kind"] == "frame"]
    return rows[rows["text"].str.contains(DUMP_FRAME, regex=True)]


def _last_stack(rows: list[Any]) -> list[Any]:
    """The last unbroken run of frames in a source (a gap of lines ends one), outermost first."""
    run: list[Any] = []
    for row in sorted(rows, key=lambda row: row.line):
        if run and row.line > run[-1].line + _GAP_LINES:
            run = []
        run.append(row)
    # Tracebacks ("line 3, in f") end with the innermost frame, dumps ("line 3 in f") begin with it.
    dump = any(re.search(DUMP_FRAME, row.text) for row in run)
    return run[::-1] if dump else run


def _site(fields: dict[str, str]) -> str | None:
    path, line = fields.get("file"), fields.get("line")
    if not path or "-packages/" in path or "/lib/python" in path or path.startswith("<"):
        return None
    return f"{path.rsplit('/', 1)[-1]}:{line}" if line else None
