"""How ranks that wait in one process group disagree: in what they call, or in its number.

Watchdog lines are compared here. ProcessGroupWrapper, Horovod and NCCL compare what ranks are about
to run themselves, and print two of them. Where nobody names the group, the sizes of a gather tell
how many take part, and so that one of them is elsewhere.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from diagnose.infer.judge.by_lines import ByLines
from diagnose.infer.judge.ops import Call, Op, gathered_size, in_words, majority_of
from diagnose.infer.judge.verdict import Kind, Verdict
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.captures import integer
from diagnose.timeline.event import Event, Fields

_KINDS = 64  # of calls, each compared with all others; so many are no cut lines
# The most collectives by which a rank runs ahead of its peers: a GPU's queue of launched kernels
# holds 1,024, and each waits for the one before it.
_AHEAD = 1_024
# What gradients run through; who runs something else meanwhile has left the training step.
_OF_GRADIENTS = ("ALLREDUCE", "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE")
_RANKS_TO_VOTE = 3
_Call = tuple[int | None, str | None, str | None]
_PAIR = 2  # ranks of which nobody knows which is odd


def disagreement(group: str | None, waits: Mapping[int, Op]) -> Verdict | None:
    """The ranks of one group that wait in different calls; None where they do not.

    `sure` where the group or the number says that it should be the same call.
    """
    calls = _completed({rank: wait.call for rank, wait in waits.items()})
    kinds = Counter(calls.values())
    seqs, ops = {seq for seq, *_ in kinds}, {op for _, op, *_ in kinds}
    if len(kinds) < 2:
        return None
    if group is None and ((len(seqs) > 2 and len(ops) > 1) or _far_apart(seqs)):
        return None  # several groups mixed under no name: their numbers cannot be compared
    majority = majority_of(kinds)
    odd = sorted(r for r, call in calls.items() if call != majority) if majority else []
    first = min(waits.values(), key=lambda w: (w.seq if w.seq is not None else 1 << 62, w.rank))
    tiny = {rank for rank, wait in waits.items() if wait.tiny}
    sized = any(wait.size_in is not None for wait in waits.values())
    kind: Kind = "mismatched"
    if len(ops) == 1 and len(seqs) > 1 and len({call[2:] for call in kinds}) == 1:
        kind, why = "shifted", "ranks wait for different sequence numbers of the same operation"
        if majority is None and len(kinds) == 2:  # who waits for the earlier one is behind
            earlier = min(seq for seq in seqs if seq is not None)
            odd = sorted(r for r, (seq, *_) in calls.items() if seq == earlier)
    elif tiny and tiny != set(waits) and sized:
        kind = "conditional"
        why = "some ranks wait in a one-element barrier, others in a larger collective"
        if majority is None and sorted(set(waits) - tiny) == [0]:
            odd = [0]
    else:
        why = "ranks wait for different collectives: " + "; ".join(
            f"{ranks_phrase(sorted(r for r, c in calls.items() if c == call))} {in_words(call)}"
            for call in sorted(kinds, key=lambda c: (-kinds[c], str(c)))[:3]
        )
    found = waiting_in(waits, group, first.seq, first.op)
    sure = len(seqs) == 1 or group is not None
    return replace(found, kind=kind, ranks=tuple(odd), why=why, sure=sure)


def waiting_in(
    waits: Mapping[int, Op], group: str | None, seq: int | None, op: str | None
) -> Verdict:
    """What is known of those that wait, and of the call that it is about, before any verdict."""
    same = (r for r, w in waits.items() if (w.seq, w.op) == (seq, op) and group in (None, w.group))
    return Verdict(
        "unclear",
        group=group,
        op=op,
        seq=seq,
        joined=tuple(sorted(rank for rank in same if rank >= 0)),
        waits=waits,
        rows=tuple(sorted(wait.row for wait in waits.values())),
    )


def _far_apart(seqs: set[int | None]) -> bool:
    """Whether ranks of one group could not have come to wait for calls so far from each other."""
    known = [seq for seq in seqs if seq is not None]
    return len(known) > 1 and max(known) - min(known) > _AHEAD


def _completed(calls: dict[int, Call]) -> dict[int, Call]:
    """The calls of the ranks, where a line was cut with what another rank says of the same call."""
    kinds = Counter(calls.values())
    if len(kinds) > _KINDS:
        return calls
    fuller = {
        call: max(others, key=lambda other: (kinds[other], str(other)))
        for call in kinds
        if None in call and (others := [other for other in kinds if _is_part(call, other)])
    }
    return {rank: fuller.get(call, call) for rank, call in calls.items()}


def _is_part(call: Call, other: Call) -> bool:
    return call != other and all(
        ours is None or ours == theirs for ours, theirs in zip(call, other, strict=True)
    )


def stated_mismatches(stated: Iterable[Event]) -> list[Verdict]:
    """One verdict for all lines that tell of a mismatch, none where there are no such lines."""
    events = list(stated)
    calls: dict[int, _Call] = {}
    pairs: set[frozenset[int]] = set()
    kind: Kind = "mismatched"
    for fields in (event.fields for event in events):
        mine, other = integer(fields.get("rank")), integer(fields.get("other_rank"))
        if mine is None or other is None:
            continue
        pairs.add(frozenset((mine, other)))
        calls[mine], calls[other] = _call(fields, ""), _call(fields, "other_")
        if _one_is_a_barrier(fields):
            kind = "conditional"
    seqs = (integer(event.fields.get("seq")) for event in events)
    found = Verdict(
        kind,
        tuple(_odd(calls, pairs)),
        op=next(filter(None, (event.fields.get("op") for event in events)), None),
        seq=next((seq for seq in seqs if seq is not None), None),
        why="a consistency check found ranks in different collectives",
        rows=tuple(event.index for event in events),
        sure=True,
    )
    return [found] if events else []


def _odd(calls: Mapping[int, _Call], pairs: set[frozenset[int]]) -> list[int]:
    """The one that every complaint names, else the minority; of two, see `_odd_of_two`."""
    in_all = frozenset.intersection(*pairs) if pairs else frozenset()
    if len(pairs) > 1 and len(in_all) == 1:
        return sorted(in_all)
    if len(calls) < _RANKS_TO_VOTE:
        return _odd_of_two(calls)
    majority = majority_of(Counter(calls.values()))
    return sorted(rank for rank, call in calls.items() if majority not in (None, call))


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


def lacks_one(standing: ByLines, waiting: Verdict) -> Verdict | None:
    """The one rank that calls something of its own at the number of a gather that lacks one.

    All groups of a kind call alike at a number, so that those who wait in it are as many as all
    members of some of these groups, but for the one who is elsewhere. Only where nobody is silent,
    who may be the one that it lacks.
    """
    if standing.silent or standing.silent is None or standing.groups_named:
        return None
    heads = {rank: own[0] for rank, own in standing.heads.items() if not own[0].p2p}
    calls: dict[Call, dict[int, Op]] = defaultdict(dict)
    for rank, wait in heads.items():
        calls[wait.call][rank] = wait
    found = {rank for call, own in calls.items() for rank in _elsewhere(call, own, calls)}
    if len(found) != 1:
        return None
    odd = sorted(found)
    why = (
        f"{ranks_phrase(odd)} alone waits in {heads[odd[0]].op} where a group lacks one of its "
        f"members in another call of SeqNum {heads[odd[0]].seq}"
    )
    return replace(waiting, kind="mismatched", ranks=tuple(odd), why=why)


def _elsewhere(
    call: Call, own: Mapping[int, Op], calls: Mapping[Call, Mapping[int, Op]]
) -> list[int]:
    """Who waits alone in another call of the number of this gather, where that lacks one."""
    size = gathered_size(wait.kind for wait in own.values())
    if size is None or size <= _PAIR or len(own) % size != size - 1:
        return []
    alone = [next(iter(others)) for other, others in calls.items()
             if other[0] == call[0] and other != call and len(others) == 1]  # fmt: skip
    return alone if len(alone) == 1 else []
