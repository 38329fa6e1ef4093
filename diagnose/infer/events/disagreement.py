"""How the ranks of a group that stopped disagree: a mismatch, a shift, or somebody is missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from diagnose.infer.events.stalled import Calls, Named, Stall, Wait
from diagnose.text.ranks import ranks_phrase

# Operations whose sizes may differ between ranks of one correct call.
UNEVEN_OPS = frozenset(
    {"ALLTOALL", "ALLTOALL_BASE", "GATHER", "SCATTER", "SEND", "RECV", "UNKNOWN"}
)
_RANKS_LIMIT = 100_000
_KINDS = 64  # of calls, each compared with all others; so many are no cut lines
# The most collectives by which a rank runs ahead of its peers: a GPU's queue of launched kernels
# holds 1,024, and each waits for the one before it.
_AHEAD = 1_024
_OF_ALL = (None, "0", "default_pg")  # the group of all ranks
_MANY = 7  # times as many ranks wait as are missing: all of a node but one

# Sequence number, operation, elements in and out.
_Call = tuple[int | None, str | None, int | None, int | None]
# Rank → (last enqueued, last completed, index of the event)
Frontier = dict[int, tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class Others:
    """What is known of the ranks of a job besides who waits in a group.

    `seen` have a line of their own, `paired` wait for a partner in a send or receive, so that they
    are held up themselves; `named` some line calls missing.
    """

    world_size: int | None
    seen: set[int]
    paired: set[int]
    frontier: Frontier
    named: Named | None


def judge(calls: Calls, waits: dict[int, Wait], others: Others) -> Stall:
    """How the ranks of a group that wait disagree, and who of it is not among them."""
    stall = Stall(calls.group, "unclear", waits, rows=sorted(wait.row for wait in waits.values()))
    first = min(waits.values(), key=lambda w: (w.seq if w.seq is not None else 1 << 62, w.rank))
    stall.op, stall.seq = first.op, first.seq
    if calls.p2p:
        return stall
    if _compare(stall):
        return stall
    named = others.named
    if named:
        stall.shape, stall.proven = "missing", True
        stall.missing, stall.rows = sorted(named.ranks), [*named.rows, *stall.rows]
        stall.named, stall.why = (
            True,
            f"the log names {ranks_phrase(stall.missing)} as not having joined",
        )
        return stall
    _absent(stall, others)
    return stall


def _compare(stall: Stall) -> bool:
    """Judge ranks that wait for different things; True when they do."""
    waits = stall.waits
    known = {rank: wait for rank, wait in waits.items() if rank >= 0}
    calls = _completed({rank: _call(wait) for rank, wait in known.items()})
    kinds = Counter(calls.values())
    if len(kinds) < 2:
        return False
    seqs = {seq for seq, *_ in kinds}
    ops = {op for _, op, *_ in kinds}
    if stall.group is None and ((len(seqs) > 2 and len(ops) > 1) or _far_apart(seqs)):
        # Several groups mixed under no name: their numbers cannot be compared.
        return False
    majority, votes = kinds.most_common(1)[0]
    tie = list(kinds.values()).count(votes) > 1
    # Where more than two kinds meet, the most frequent one may be as odd as the others.
    split = tie or (len(kinds) > 2 and 2 * votes <= len(known))
    stall.odd = [] if split else sorted(r for r, call in calls.items() if call != majority)
    tiny = {rank for rank, wait in known.items() if wait.tiny}
    if len(ops) == 1 and len(seqs) > 1 and len({call[2:] for call in kinds}) == 1:
        stall.shape = "shifted"
        stall.why = "ranks wait for different sequence numbers of the same operation"
        if tie and len(kinds) == 2:  # who waits for the earlier one is behind
            earlier = min(seq for seq in seqs if seq is not None)
            stall.odd = sorted(r for r, (seq, *_) in calls.items() if seq == earlier)
    elif tiny and tiny != set(known) and stall.sized:
        stall.shape = "conditional"
        stall.why = "some ranks wait in a one-element barrier, others in a larger collective"
        alone = sorted(set(known) - tiny)
        if tie and alone == [0]:
            stall.odd = [0]
    else:
        stall.shape = "mismatch"
        stall.why = "ranks wait for different collectives: " + "; ".join(
            f"{ranks_phrase(sorted(r for r, c in calls.items() if c == call))} {_print(call)}"
            for call in sorted(kinds, key=lambda c: (-kinds[c], str(c)))[:3]
        )
    stall.proven = len(seqs) == 1 or stall.group is not None
    return True


def _far_apart(seqs: set[int | None]) -> bool:
    """Whether ranks of one group could not have come to wait for calls so far from each other."""
    known = [seq for seq in seqs if seq is not None]
    return len(known) > 1 and max(known) - min(known) > _AHEAD


def _completed(calls: dict[int, _Call]) -> dict[int, _Call]:
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


def _is_part(call: _Call, other: _Call) -> bool:
    return call != other and all(
        ours is None or ours == theirs for ours, theirs in zip(call, other, strict=True)
    )


def _call(wait: Wait) -> _Call:
    sizes = (None, None) if wait.op in UNEVEN_OPS else (wait.size_in, wait.size_out)
    return (wait.seq, wait.op, *sizes)


def _print(call: _Call) -> str:
    seq, op, size, _ = call
    parts = [op or "a collective"]
    parts += [f"of {size:,} elements"] if size is not None else []
    parts += [f"(SeqNum {seq})"] if seq is not None else []
    return " ".join(parts)


def _absent(stall: Stall, others: Others) -> None:
    """Judge ranks that all wait for the same call: who of the group is not among them?"""
    waiting = {rank for rank in stall.waits if rank >= 0}
    behind = _behind(stall, waiting, others.frontier)
    if behind:
        stall.shape, stall.missing, stall.proven = "missing", behind, True
        stall.rows += [others.frontier[rank][2] for rank in behind]
        who = ranks_phrase(behind)
        stall.why = f"{who} never launched collective {stall.seq}, which other ranks are waiting on"
        return
    expected = _expected(stall, waiting, others.world_size)
    if expected is not None and len(waiting) >= expected:
        stall.shape = "all_joined"
        stall.proven = True
        stall.why = f"all {expected} ranks of the group wait for the same collective"
        return
    _gap(stall, waiting, expected, others)


def _behind(stall: Stall, waiting: set[int], frontier: Frontier) -> list[int]:
    """Ranks that completed all they enqueued, and enqueued less than the others wait for."""
    return sorted(
        rank
        for rank, (enqueued, completed, _) in frontier.items()
        if rank not in waiting
        and stall.seq is not None
        and enqueued < stall.seq
        and enqueued == completed
    )


def _expected(stall: Stall, waiting: set[int], world_size: int | None) -> int | None:
    """How many ranks the group has, None where that, or which ones, is not known."""
    size = _group_size(stall)
    if size is not None and world_size is not None and size != world_size:
        return size if len(waiting) >= size else None  # of a sub-group the log names no members
    # No group has more members than the job has ranks.
    whole = stall.group in _OF_ALL or (world_size is not None and len(waiting) >= world_size)
    return size or (world_size if whole else None)


def _gap(stall: Stall, waiting: set[int], expected: int | None, others: Others) -> None:
    """Name who is missing by the numbers of those that wait."""
    seen = others.seen
    limit = expected or (max(waiting | seen, default=-1) + 1)
    waiting_or_paired = waiting | others.paired
    lacking = limit - sum(rank < limit for rank in waiting_or_paired)
    if limit <= _RANKS_LIMIT and 0 < lacking <= max(1, len(waiting) // 2):
        absent = [rank for rank in range(limit) if rank not in waiting_or_paired]
        stall.shape, stall.missing = "missing", absent
        heard = expected is not None or seen.issuperset(absent)
        # So many lines are no excerpt: nobody leaves out a single one of them.
        many = expected is None and len(waiting) >= _MANY * lacking
        stall.proven = many or (heard and (len(waiting) >= 2 or limit == 2))
        stall.why = (
            f"{ranks_phrase(absent)} of {limit} printed no timeout"
            if heard
            else f"the waiting ranks have a gap at {ranks_phrase(absent)}"
        )
    elif waiting and expected is None and not lacking and len(waiting) > 1:
        stall.why = "every rank seen is waiting for the same collective"


def folded_by_ray(groups: list[Stall]) -> None:
    """Ray prints equal lines of several workers once: who did not print it is not known."""
    for stall in groups:
        if stall.shape == "missing" and stall.waits and not stall.named:
            stall.shape, stall.missing, stall.proven = "unclear", [], False
            stall.why = "Ray merged equal lines of several ranks, so a missing rank means nothing"


def waits_nowhere(groups: list[Stall], world_size: int | None, seen: set[int]) -> None:
    """Over several groups, and for sends and receives: the ranks that wait nowhere hold up all.

    A rank stuck outside of any collective blocks its group, whose members are then missing in
    their other groups; only the stuck one waits nowhere.
    """
    waiting = {rank for stall in groups for rank in stall.waits if rank >= 0}
    limit = min(world_size or max(waiting | seen, default=-1) + 1, _RANKS_LIMIT)
    lacking = limit - sum(rank < limit for rank in waiting)
    if not 0 < lacking <= len(waiting) // 2:
        return
    absent = [rank for rank in range(limit) if rank not in waiting]
    first = max(groups, key=lambda stall: (len(stall.waits), str(stall.group)))
    heard = world_size is not None or seen.issuperset(absent)
    first.shape, first.missing = "missing", absent
    first.proven = heard and len(waiting) > 2
    first.why = f"{ranks_phrase(absent)} of {limit} waits in no group while all others do"


def _group_size(stall: Stall) -> int | None:
    for wait in stall.waits.values():
        small, large = wait.size_in, wait.size_out
        if wait.op in ("REDUCE_SCATTER", "_REDUCE_SCATTER_BASE"):
            small, large = large, small
        elif wait.op not in ("ALLGATHER", "_ALLGATHER_BASE"):
            continue
        if small and large and large % small == 0 and large > small:
            return large // small
    return None
