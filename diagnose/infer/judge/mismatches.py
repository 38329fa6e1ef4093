"""Mismatches that a line states itself, and which of the ranks it names is the odd one.

ProcessGroupWrapper, Horovod and NCCL compare what ranks are about to run and print two of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from diagnose.infer.judge.stall import Stall
from diagnose.timeline.captures import integer
from diagnose.timeline.event import Event, Fields

# What gradients run through; who runs something else meanwhile has left the training step.
_OF_GRADIENTS = ("ALLREDUCE", "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE")
_RANKS_TO_VOTE = 3


_Call = tuple[int | None, str | None, str | None]


def stated_mismatches(stated: Iterable[Event]) -> list[Stall]:
    """One stall for all lines that tell of a mismatch, none where there are no such lines."""
    events = list(stated)
    if not events:
        return []
    stall = Stall(None, "mismatch", proven=True, rows=[event.index for event in events])
    calls: dict[int, _Call] = {}
    pairs: set[frozenset[int]] = set()
    for fields in (event.fields for event in events):
        stall.op = stall.op or fields.get("op")
        stall.seq = stall.seq if stall.seq is not None else integer(fields.get("seq"))
        mine, other = integer(fields.get("rank")), integer(fields.get("other_rank"))
        if mine is None or other is None:
            continue
        pairs.add(frozenset((mine, other)))
        calls[mine], calls[other] = _call(fields, ""), _call(fields, "other_")
        if _one_is_a_barrier(fields):
            stall.shape = "conditional"
    stall.odd = _odd(calls, pairs)
    stall.why = "a consistency check found ranks in different collectives"
    return [stall]


def _odd(calls: Mapping[int, _Call], pairs: set[frozenset[int]]) -> list[int]:
    """The one that every complaint names, else the minority; of two, see `_odd_of_two`."""
    in_all = frozenset.intersection(*pairs) if pairs else frozenset()
    if len(pairs) > 1 and len(in_all) == 1:
        return sorted(in_all)
    if len(calls) < _RANKS_TO_VOTE:
        return _odd_of_two(calls)
    votes = Counter(calls.values()).most_common(2)
    if len(votes) < 2 or votes[0][1] == votes[1][1]:
        return []
    return sorted(rank for rank, call in calls.items() if call != votes[0][0])


def _odd_of_two(calls: Mapping[int, _Call]) -> list[int]:
    """The one that has no call of this sequence at all, or rank 0 if only it left the gradients."""
    unnumbered = [rank for rank, (seq, *_) in calls.items() if seq == 0]
    if len(unnumbered) == 1:
        return unnumbered
    ops = {rank: op for rank, (_, op, _) in calls.items()}
    others = [op for rank, op in ops.items() if rank != 0]
    if others and 0 in ops and ops[0] not in _OF_GRADIENTS:
        return [0] * all(op in _OF_GRADIENTS for op in others)
    return []


def _call(fields: Fields, whose: str) -> _Call:
    return (
        integer(fields.get(f"{whose}seq")),
        fields.get(f"{whose}op"),
        fields.get(f"{whose}shape"),
    )


def _one_is_a_barrier(fields: Fields) -> bool:
    op, other = fields.get("op"), fields.get("other_op")
    return other is not None and op != other and "BARRIER" in (op, other)
