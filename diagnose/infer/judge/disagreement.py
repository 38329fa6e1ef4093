"""How ranks that wait in one process group disagree: in what they call, or in its number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from diagnose.infer.judge.stall import Call, Stall, Wait
from diagnose.text.ranks import ranks_phrase

_KINDS = 64  # of calls, each compared with all others; so many are no cut lines
# The most collectives by which a rank runs ahead of its peers: a GPU's queue of launched kernels
# holds 1,024, and each waits for the one before it.
_AHEAD = 1_024


def disagreement(group: str | None, waits: Mapping[int, Wait]) -> Stall | None:
    """The ranks of one group that wait in different calls; None where they do not.

    `proven` where the group or the number says that it should be the same call.
    """
    calls = _completed({rank: wait.call for rank, wait in waits.items()})
    kinds = Counter(calls.values())
    seqs, ops = {seq for seq, *_ in kinds}, {op for _, op, *_ in kinds}
    if len(kinds) < 2:
        return None
    if group is None and ((len(seqs) > 2 and len(ops) > 1) or _far_apart(seqs)):
        return None  # several groups mixed under no name: their numbers cannot be compared
    majority, votes = kinds.most_common(1)[0]
    tie = list(kinds.values()).count(votes) > 1
    # Where more than two kinds meet, the most frequent one may be as odd as the others.
    split = tie or (len(kinds) > 2 and 2 * votes <= len(waits))
    stall = Stall(group, "mismatch", dict(waits), rows=sorted(w.row for w in waits.values()))
    stall.odd = [] if split else sorted(r for r, call in calls.items() if call != majority)
    first = min(waits.values(), key=lambda w: (w.seq if w.seq is not None else 1 << 62, w.rank))
    stall.op, stall.seq = first.op, first.seq
    stall.proven = len(seqs) == 1 or group is not None
    tiny = {rank for rank, wait in waits.items() if wait.tiny}
    if len(ops) == 1 and len(seqs) > 1 and len({call[2:] for call in kinds}) == 1:
        stall.shape = "shifted"
        stall.why = "ranks wait for different sequence numbers of the same operation"
        if tie and len(kinds) == 2:  # who waits for the earlier one is behind
            earlier = min(seq for seq in seqs if seq is not None)
            stall.odd = sorted(r for r, (seq, *_) in calls.items() if seq == earlier)
    elif tiny and tiny != set(waits) and stall.sized:
        stall.shape = "conditional"
        stall.why = "some ranks wait in a one-element barrier, others in a larger collective"
        if tie and sorted(set(waits) - tiny) == [0]:
            stall.odd = [0]
    else:
        stall.why = "ranks wait for different collectives: " + "; ".join(
            f"{ranks_phrase(sorted(r for r, c in calls.items() if c == call))} {in_words(call)}"
            for call in sorted(kinds, key=lambda c: (-kinds[c], str(c)))[:3]
        )
    return stall


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


def in_words(call: Call) -> str:
    """A call for people: `ALLREDUCE of 1,024 elements (SeqNum 7)`."""
    seq, op, size, _ = call
    parts = [op or "a collective"]
    parts += [f"of {size:,} elements"] if size is not None else []
    parts += [f"(SeqNum {seq})"] if seq is not None else []
    return " ".join(parts)
