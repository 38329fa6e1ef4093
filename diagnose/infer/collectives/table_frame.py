"""The frame of the table of collectives, made of the columns of dumps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from diagnose.infer.collectives.group import Group
from diagnose.parse.flight_recorder import STATES, Call, Dump

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "rank", "group", "call", "site", "peer", "seq", "p2p", "state", "retired", "time_created",
    "record", "timeout_ms", "line",
)  # fmt: skip


def peer_ranks(dump: Dump, groups: list[Group]) -> npt.NDArray[np.int32]:
    """Global rank of the other side of a send or receive; -1 for a collective."""
    peers = np.array([-1 if c.peer is None else c.peer for c in dump.calls], np.int32)[dump.call]
    if (peers < 0).all():
        return peers
    for code, group in enumerate(groups):
        inside = (dump.pg == code) & (peers >= 0) & (peers < len(group.members))
        if group.listed and inside.any():
            peers[inside] = np.array(group.members, np.int32)[peers[inside]]
    return peers


def frame(
    whole: dict[str, npt.NDArray[Any]],
    groups: list[Group],
    calls: list[Call],
    sites: list[str],
) -> pd.DataFrame:
    """The columns of all dumps as one frame; `groups` and `calls` are by their numbers there."""
    import pandas as pd  # noqa: PLC0415  only who asks for the frame pays for it

    group, call = whole["group"].astype(np.intp), whole["call"].astype(np.intp)
    return pd.DataFrame(
        {
            "rank": whole["rank"],
            "group": pd.Categorical.from_codes(group, [g.key for g in groups]),
            "group_desc": _texts(group, [g.desc for g in groups]),
            "members": _objects([g.members for g in groups])[group],
            "seq": whole["seq"],
            "p2p": whole["p2p"].astype(bool),
            "op": _texts(call, [c.op for c in calls]),
            "peer": whole["peer"],
            "size_in": _objects([c.size_in for c in calls])[call],
            "size_out": _objects([c.size_out for c in calls])[call],
            "dtype": _texts(call, [c.dtype for c in calls]),
            "state": pd.Categorical.from_codes(whole["state"], [*STATES], ordered=True),
            "retired": whole["retired"].astype(bool),
            "time_created": whole["time_created"],
            "site": pd.Categorical.from_codes(whole["site"], sites),
            "record": whole["record"],
            "timeout_ms": whole["timeout_ms"],
            "call": whole["call"],
            "line": whole["line"],
        },
        copy=False,
    )


def _texts(codes: npt.NDArray[np.intp], texts: list[str]) -> pd.Categorical:
    """A column of texts of which several codes may share one."""
    import pandas as pd  # noqa: PLC0415  as above

    index: dict[str, int] = {}
    mapped = np.array([index.setdefault(text, len(index)) for text in texts], np.int32)
    return pd.Categorical.from_codes(mapped[codes] if len(texts) else codes, [*index])


def _objects(
    values: list[tuple[int, ...]] | list[tuple[tuple[int, ...], ...]],
) -> npt.NDArray[np.object_]:
    column = np.empty(len(values), object)
    for place, value in enumerate(values):
        column[place] = value
    return column
