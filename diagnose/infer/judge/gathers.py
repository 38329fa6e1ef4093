"""Who is missing from a gather whose group nobody names: its sizes tell how many take part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from diagnose.infer.judge.groups import gathered_size
from diagnose.infer.judge.stall import Call, Stall, Wait
from diagnose.infer.judge.standing import Standing
from diagnose.text.ranks import ranks_phrase

_PAIR = 2  # ranks of which nobody knows which is odd


def lacks_one(standing: Standing, stall: Stall) -> Stall | None:
    """The one rank that calls something of its own at the number of a gather that lacks one.

    All groups of a kind call alike at a number, so that those who wait in it are as many as all
    members of some of these groups, but for the one who is elsewhere. Only where nobody is silent,
    who may be the one that it lacks.
    """
    if standing.silent or standing.silent is None or standing.groups_named:
        return None
    heads = {rank: own[0] for rank, own in standing.heads.items() if not own[0].p2p}
    calls: dict[Call, dict[int, Wait]] = defaultdict(dict)
    for rank, wait in heads.items():
        calls[wait.call][rank] = wait
    found = {rank for call, own in calls.items() for rank in _elsewhere(call, own, calls)}
    if len(found) != 1:
        return None
    odd = sorted(found)
    stall.shape, stall.odd = "mismatch", odd
    stall.why = (
        f"{ranks_phrase(odd)} alone waits in {heads[odd[0]].op} where a group lacks one of its "
        f"members in another call of SeqNum {heads[odd[0]].seq}"
    )
    return stall


def _elsewhere(
    call: Call, own: Mapping[int, Wait], calls: Mapping[Call, Mapping[int, Wait]]
) -> list[int]:
    """Who waits alone in another call of the number of this gather, where that lacks one."""
    size = gathered_size(own.values())
    if size is None or size <= _PAIR or len(own) % size != size - 1:
        return []
    alone = [next(iter(others)) for other, others in calls.items()
             if other[0] == call[0] and other != call and len(others) == 1]  # fmt: skip
    return alone if len(alone) == 1 else []
