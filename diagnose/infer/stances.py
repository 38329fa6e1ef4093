"""Where each rank stood when it stopped, from the stack frames it printed.

A traceback that ends in a collective says what its rank waited for even where no watchdog line
does (gloo, blocking waits). Ranks that stand in different calls disagree.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    found: dict[int, Stance] = {}
    for rank, stack in rows.groupby("rank"):
        last = _last_stack(stack)
        calls = last["fields"].map(lambda f: f.get("func") if f.get("func") in OP_OF_CALL else None)
        sites = last["fields"].map(_site)
        phases = last["phase"].dropna()
        call = calls.dropna()
        site = sites.dropna()
        op = OP_OF_CALL[call.iloc[-1]] if len(call) else None
        found[int(rank)] = Stance(
            int(rank),
            op,
            site.iloc[-1] if len(site) else None,
            str(phases.iloc[-1]) if len(phases) else None,
            int(call.index[-1]) if len(call) else int(last.index[-1]),
        )
    return found


def dumped(frame: pd.DataFrame) -> pd.DataFrame:
    """Frames of stack dumps (faulthandler, py-spy): taken of a process that still ran."""
    rows = frame[frame["kind"] == "frame"]
    return rows[rows["text"].str.contains(DUMP_FRAME, regex=True)]


def _last_stack(stack: pd.DataFrame) -> pd.DataFrame:
    """The frames of the first source's last unbroken run of frames (a gap of lines ends one)."""
    first = stack[stack["source"] == stack["source"].iloc[0]].sort_values("line")
    gap = first["line"].diff().fillna(0) > 40
    last = first[gap.cumsum() == gap.cumsum().max()]
    # Tracebacks ("line 3, in f") end with the innermost frame, dumps ("line 3 in f") begin with it.
    dump = last["text"].str.contains(DUMP_FRAME, regex=True).any()
    return last.iloc[::-1] if dump else last


def _site(fields: dict[str, str]) -> str | None:
    path, line = fields.get("file"), fields.get("line")
    if not path or "-packages/" in path or "/lib/python" in path or path.startswith("<"):
        return None
    return f"{path.rsplit('/', 1)[-1]}:{line}" if line else None
