"""Coalesced batches of sends and receives in a Flight Recorder dump, and when they ended."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from diagnose.parse.flight_recorder_dump import COMPLETED, Dump, Status


def close_batches(dump: Dump) -> None:
    """Members of a coalesced batch get the state of the batch: torch never updates their own.

    The batch is recorded last, as `coalesced`, with the group and number of its members.
    """
    keys = _units(dump)
    rows = np.flatnonzero(_is_batch(dump))
    if len(rows):
        order = np.argsort(keys[rows], kind="stable")
        ordered = keys[rows][order]
        place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
        member = ordered[place] == keys
        last = rows[order][place[member]]
        dump.state[member] = dump.state[last]
        dump.retired[member] = dump.retired[last]


def batched(dump: Dump) -> set[str]:
    """Descriptions of the groups that send and receive in batches, as far as one dump tells."""
    if not dump.p2p.any():
        return set()
    _, first, number = np.unique(_units(dump), return_index=True, return_counts=True)
    several = dump.pg[first[(number > 1) & dump.p2p[first]]]
    ended = dump.pg[_is_batch(dump) & dump.p2p]
    return {dump.pgs[pg][1] for pg in {*several.tolist(), *ended.tolist()}}


def close_lone_members(dump: Dump, descs: set[str]) -> None:
    """Members of batches whose end is not listed count as completed, in groups of `descs`.

    A dump of pending operations leaves out batches that completed, but not their members; one that
    was cut off may end inside a batch.
    """
    if not descs or not dump.p2p.any():
        return
    if (dump.state == COMPLETED).any() and not dump.partial:
        return
    keys = _units(dump)
    lone = dump.p2p & ~np.isin(keys, keys[_is_batch(dump)])
    for pg, (name, desc) in enumerate(dump.pgs):
        if desc in descs:
            status = dump.status.get(name, Status(-1, -1, -1))
            going_on = (dump.seq > status.completed) & (dump.seq <= status.enqueued)
            dump.state[lone & (dump.pg == pg) & ~going_on] = COMPLETED


def _is_batch(dump: Dump) -> npt.NDArray[np.bool_]:
    return np.array([call.op == "coalesced" for call in dump.calls], bool)[dump.call]


def _units(dump: Dump) -> npt.NDArray[np.int64]:
    """A number for every group, kind (send and receive or not) and sequence number."""
    return ((dump.pg.astype(np.int64) << 1 | dump.p2p) << 44) + dump.seq
