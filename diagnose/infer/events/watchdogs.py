"""Where every rank stood in its collectives, worked out from log lines alone.

Watchdog lines say what a rank waited for and since when, status lines how far it got, desync
reports, monitored barriers and stall lists who did not come. Ranks are compared only inside one
process group; the result does not depend on the order of the lines.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from diagnose.infer.events.tracebacks import last_tracebacks
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.captures import captured_ranks
from diagnose.timeline.event import Fields, Timeline

# Operations whose sizes may differ between ranks of one correct call.
UNEVEN_OPS = frozenset(
    {"ALLTOALL", "ALLTOALL_BASE", "GATHER", "SCATTER", "SEND", "RECV", "UNKNOWN"}
)
P2P_OPS = frozenset({"SEND", "RECV", "RECVANYSOURCE"})

_RANKS_LIMIT = 100_000
# Ranks that different lines name as missing, one after the other, in one job.
_NAMED_LIMIT = 1_000_000

Shape = Literal["mismatch", "conditional", "shifted", "missing", "all_joined", "unclear"]


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank waits for a collective: its first pending one in this group."""

    rank: int
    seq: int | None
    op: str | None
    size_in: int | None
    size_out: int | None
    timeout_ms: int | None
    elapsed_ms: int | None
    row: int  # position in the timeline

    @property
    def tiny(self) -> bool:
        """A barrier, or the size exchange in front of a gather of objects."""
        return self.size_in == 1 or self.op == "BARRIER"


class _Calls(NamedTuple):
    """What is compared with each other: the collectives of a group, or its sends and receives."""

    group: str | None
    p2p: bool


@dataclass(slots=True)
class Stall:
    """One process group that stopped.

    `shape` says how its ranks disagree. `waits` is per rank; `missing` the ranks that did not
    join (as far as known), `odd` the minority of a mismatch (empty on a tie), `proven` whether a
    line names them or they follow by majority from a complete collection, `named` the former.
    `rows` are indices of the events that show it.
    """

    group: str | None
    shape: Shape
    waits: dict[int, Wait] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    odd: list[int] = field(default_factory=list)
    proven: bool = False
    named: bool = False
    why: str = ""
    rows: list[int] = field(default_factory=list)
    op: str | None = None
    seq: int | None = None

    @property
    def joined(self) -> list[int]:
        """Ranks known to wait in it."""
        return sorted(set(self.waits) - set(self.missing))

    @property
    def tiny(self) -> bool:
        """At least one rank waits in a barrier-like collective and none in a larger one."""
        return bool(self.waits) and all(wait.tiny for wait in self.waits.values())

    @property
    def sized(self) -> bool:
        """The log tells sizes at all (torch 2.1 and later)."""
        return any(wait.size_in is not None for wait in self.waits.values())


def stalled_groups(timeline: Timeline, world_size: int | None) -> list[Stall]:
    """Groups that stopped, by watchdog lines; by stacks that end in collectives without those."""
    found = stalls(timeline, world_size)
    if any(w.seq is not None or w.op is not None for stall in found for w in stall.waits.values()):
        return found
    stood = {r: s for r, s in last_tracebacks(timeline).items() if s.op is not None}
    # Who stands in a collective has come, though it printed another error than the others.
    named = [
        stall
        for stall in found
        if (stall.missing and stall.proven and not set(stall.missing) & set(stood)) or stall.odd
    ]
    waited = [event for event in timeline.telling("timeout") if event.rank is not None]
    if named or not stood or not waited:
        return found
    timeouts: dict[int | None, int] = {}
    for event in waited:
        if event.timeout_ms is not None:
            timeouts.setdefault(event.rank, event.timeout_ms)
    synthetic = {
        r: Wait(r, None, s.op, 1 if s.op == "BARRIER" else None, None, timeouts.get(r), None, s.row)
        for r, s in stood.items()
    }
    return stalls(timeline, world_size, synthetic)


def stalls(
    timeline: Timeline, world_size: int | None, stood: dict[int, Wait] | None = None
) -> list[Stall]:
    """Every stalled group, the one that says most first.

    `stood` replaces the watchdog's lines where there are none: waits worked out from stacks.
    """
    named = _named_missing(timeline)
    seen = set(timeline.ranks)
    told = _told_mismatches(timeline)
    waiting = _of_stacks(stood) if stood else _waits(timeline)
    paired = {rank for calls, waits in waiting.items() if calls.p2p for rank in waits}
    frontier = _frontier(timeline)
    groups = [
        _judge(calls, waits, world_size, frontier, named, seen, paired)
        for calls, waits in waiting.items()
    ]
    if named and not any(stall.shape == "missing" for stall in groups):
        groups.append(_from_names(named))
    if any(event.repeated > 1 for event in timeline):
        _folded_by_ray(groups)
    elif (len(groups) > 1 or paired) and all(
        stall.shape in ("unclear", "all_joined") for stall in groups
    ):
        _waits_nowhere(groups, world_size, seen)
    return sorted([*told, *groups], key=lambda s: (_RANK[s.shape], not s.proven, -len(s.waits)))


_RANK = {"mismatch": 0, "conditional": 0, "missing": 1, "shifted": 2, "all_joined": 3, "unclear": 4}


@dataclass(slots=True)
class _Named:
    """Ranks that some line names as missing, and the lines."""

    ranks: set[int] = field(default_factory=set)
    rows: list[int] = field(default_factory=list)
    lacking: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def crossed(self) -> bool:
        """Ranks lack different operations from each other: each waits in what another lacks."""
        kinds = [ops for ops in self.lacking.values() if ops]
        return any(ops != kinds[0] for ops in kinds)


def _waits(timeline: Timeline) -> dict[_Calls, dict[int, Wait]]:
    """First pending collective per group and rank, from the watchdog's lines."""
    groups_of = _groups_by_work(timeline)
    found: dict[_Calls, dict[int, Wait]] = defaultdict(dict)
    anonymous = -1
    for event in timeline.telling("timeout"):
        rank = event.rank
        if rank is None:
            rank, anonymous = anonymous, anonymous - 1
        wait = Wait(
            rank, event.seq, event.op, event.size_in, event.size_out, event.timeout_ms,
            event.elapsed_ms, event.index,
        )  # fmt: skip
        group = event.group or groups_of.get((rank, event.seq))
        waits = found[_Calls(group, wait.op in P2P_OPS)]
        known = waits.get(rank)
        if known is None or _earlier(wait, known):
            waits[rank] = wait
    return _fold_unnamed(found)


def _earlier(wait: Wait, known: Wait) -> bool:
    if wait.seq is not None and known.seq is not None:
        return wait.seq < known.seq
    return known.seq is None and wait.seq is not None


def _of_stacks(stood: dict[int, Wait]) -> dict[_Calls, dict[int, Wait]]:
    """Waits known from stacks: a send and a receive are two sides of one call, no collective."""
    found: dict[_Calls, dict[int, Wait]] = defaultdict(dict)
    for rank, wait in stood.items():
        found[_Calls(None, wait.op in P2P_OPS)][rank] = wait
    return found


def _fold_unnamed(found: dict[_Calls, dict[int, Wait]]) -> dict[_Calls, dict[int, Wait]]:
    """Ranks whose group is unknown join the only named group, if there is just one."""
    named = [calls for calls in found if calls.group is not None and not calls.p2p]
    unnamed = _Calls(None, p2p=False)
    if unnamed in found and len(named) == 1:
        for rank, wait in found.pop(unnamed).items():
            if rank not in found[named[0]]:
                found[named[0]][rank] = wait
    for waits in found.values():
        if any(rank >= 0 for rank in waits):
            for rank in [rank for rank in waits if rank < 0]:
                del waits[rank]
    return found


def _groups_by_work(timeline: Timeline) -> dict[tuple[int, int | None], str]:
    """(rank, seq) → group, from status lines that name both."""
    return {
        (event.rank, event.seq): event.group
        for event in timeline.telling("frontier")
        if event.rank is not None and event.group is not None
    }


def _frontier(timeline: Timeline) -> dict[int, tuple[int, int, int]]:
    """Rank → (last enqueued, last completed, row), the furthest seen."""
    found: dict[int, tuple[int, int, int]] = {}
    for event in timeline.telling("frontier"):
        enqueued = _int_text(event.fields.get("enqueued"))
        completed = _int_text(event.fields.get("completed"))
        if event.rank is None or enqueued is None or completed is None:
            continue
        if event.rank not in found or (enqueued, completed) > found[event.rank][:2]:
            found[event.rank] = (enqueued, completed, event.index)
    return found


def _judge(
    calls: _Calls,
    waits: dict[int, Wait],
    world_size: int | None,
    frontier: dict[int, tuple[int, int, int]],
    named: _Named | None,
    seen: set[int],
    paired: set[int],
) -> Stall:
    stall = Stall(calls.group, "unclear", waits, rows=sorted(wait.row for wait in waits.values()))
    first = min(waits.values(), key=lambda w: (w.seq if w.seq is not None else 1 << 62, w.rank))
    stall.op, stall.seq = first.op, first.seq
    if calls.p2p:
        return stall
    if _compare(stall):
        return stall
    if named:
        stall.shape, stall.proven = "missing", True
        stall.missing, stall.rows = sorted(named.ranks), [*named.rows, *stall.rows]
        stall.named, stall.why = True, f"the log names {_ranks(stall.missing)} as not having joined"
        return stall
    _absent(stall, world_size, frontier, seen, paired)
    return stall


def _compare(stall: Stall) -> bool:
    """Judge ranks that wait for different things; True when they do."""
    waits = stall.waits
    known = {rank: wait for rank, wait in waits.items() if rank >= 0}
    calls = {rank: _call(wait) for rank, wait in known.items()}
    kinds = Counter(calls.values())
    if len(kinds) < 2:
        return False
    seqs = {seq for seq, *_ in kinds}
    ops = {op for _, op, *_ in kinds}
    if len(seqs) > 2 and stall.group is None and len(ops) > 1:
        # Several groups mixed under no name: their numbers cannot be compared.
        return False
    majority, votes = kinds.most_common(1)[0]
    tie = list(kinds.values()).count(votes) > 1
    stall.odd = [] if tie else sorted(r for r, call in calls.items() if call != majority)
    tiny = {rank for rank, wait in known.items() if wait.tiny}
    if len(ops) == 1 and len(seqs) > 1 and len({call[2:] for call in kinds}) == 1:
        stall.shape = "shifted"
        stall.why = "ranks wait for different sequence numbers of the same operation"
    elif tiny and tiny != set(known) and stall.sized:
        stall.shape = "conditional"
        stall.why = "some ranks wait in a one-element barrier, others in a larger collective"
        alone = sorted(set(known) - tiny)
        if tie and alone == [0]:
            stall.odd = [0]
    else:
        stall.shape = "mismatch"
        stall.why = "ranks wait for different collectives: " + "; ".join(
            f"{_ranks(sorted(r for r, c in calls.items() if c == call))} {_print(call)}"
            for call in sorted(kinds, key=lambda c: (-kinds[c], str(c)))[:3]
        )
    stall.proven = len(seqs) == 1 or stall.group is not None
    return True


def _call(wait: Wait) -> tuple[int | None, str | None, int | None, int | None]:
    sizes = (None, None) if wait.op in UNEVEN_OPS else (wait.size_in, wait.size_out)
    return (wait.seq, wait.op, *sizes)


def _print(call: tuple[int | None, str | None, int | None, int | None]) -> str:
    seq, op, size, _ = call
    parts = [op or "a collective"]
    parts += [f"of {size:,} elements"] if size is not None else []
    parts += [f"(SeqNum {seq})"] if seq is not None else []
    return " ".join(parts)


def _absent(
    stall: Stall,
    world_size: int | None,
    frontier: dict[int, tuple[int, int, int]],
    seen: set[int],
    paired: set[int],
) -> None:
    """Judge ranks that all wait for the same call: who of the group is not among them?

    Ranks that wait for a partner (`paired`) are held up themselves.
    """
    waiting = {rank for rank in stall.waits if rank >= 0}
    behind = sorted(
        rank
        for rank, (enqueued, completed, _) in frontier.items()
        if rank not in waiting
        and stall.seq is not None
        and enqueued < stall.seq
        and enqueued == completed
    )
    if behind:
        stall.shape, stall.missing, stall.proven = "missing", behind, True
        stall.rows += [frontier[rank][2] for rank in behind]
        stall.why = f"{_ranks(behind)} never enqueued collective {stall.seq} that others wait for"
        return
    size = _group_size(stall)
    expected = size or (world_size if stall.group in (None, "0", "default_pg") else None)
    if size is not None and world_size is not None and size != world_size:
        expected = None  # a sub-group: its members are not known from the log
        if len(waiting) >= size:
            expected = size
    if expected is not None and len(waiting) >= expected:
        stall.shape = "all_joined"
        stall.proven = True
        stall.why = f"all {expected} ranks of the group wait for the same collective"
        return
    limit = expected or (max(waiting | seen, default=-1) + 1)
    waiting_or_paired = waiting | paired
    lacking = limit - sum(rank < limit for rank in waiting_or_paired)
    if limit <= _RANKS_LIMIT and 0 < lacking <= max(1, len(waiting) // 2):
        absent = [rank for rank in range(limit) if rank not in waiting_or_paired]
        stall.shape, stall.missing = "missing", absent
        heard = expected is not None or seen.issuperset(absent)
        stall.proven = heard and (len(waiting) >= 2 or limit == 2)
        stall.why = (
            f"{_ranks(absent)} of {limit} printed no timeout"
            if heard
            else f"the numbers of the waiting ranks leave a gap at {_ranks(absent)}"
        )
    elif waiting and expected is None and not lacking and len(waiting) > 1:
        stall.why = "every rank seen waits for the same collective"


def _folded_by_ray(groups: list[Stall]) -> None:
    """Ray prints equal lines of several workers once: who did not print it is not known."""
    for stall in groups:
        if stall.shape == "missing" and stall.waits and not stall.named:
            stall.shape, stall.missing, stall.proven = "unclear", [], False
            stall.why = "Ray folded equal lines of ranks into one, so absence means nothing"


def _waits_nowhere(groups: list[Stall], world_size: int | None, seen: set[int]) -> None:
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
    first.why = f"{_ranks(absent)} of {limit} waits in no group, all others do"


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


def _named_missing(timeline: Timeline) -> _Named | None:
    """Ranks that desync reports, monitored barriers, stall lists or elastic barriers name."""
    named, left = _Named(), _NAMED_LIMIT
    naming: dict[tuple[str | None, ...], bool] = {}  # what lines say, and whether it names ranks
    for event in timeline.telling("missing"):
        op = event.op
        said = (*(event.fields.get(key) for key in ("missing", "ranks", "rank")), op)
        if said not in naming and left > 0:
            ranks = [rank for text in said[:-1] for rank in captured_ranks(text)]
            naming[said], left = bool(ranks), left - len(ranks)
            named.ranks.update(ranks)
            for rank in ranks:
                named.lacking[rank].update([op.upper()] if op else [])
        if naming.get(said):
            named.rows.append(event.index)
    return named if named.ranks else None


def _from_names(named: _Named) -> Stall:
    ranks = sorted(named.ranks)
    stall = Stall(None, "missing", missing=ranks, proven=True, rows=named.rows)
    stall.why = f"the log names {_ranks(ranks)} as not having joined"
    if named.crossed:
        stall.shape, stall.missing = "conditional", []
        stall.why = f"{_ranks(ranks)} lack different operations from each other"
    return stall


def _told_mismatches(timeline: Timeline) -> list[Stall]:
    """Mismatches that a line states itself (ProcessGroupWrapper, Horovod, NCCL)."""
    told = timeline.telling("mismatch")
    if not told:
        return []
    stall = Stall(None, "mismatch", proven=True, rows=[event.index for event in told])
    pairs: set[frozenset[int]] = set()
    for fields in (event.fields for event in told):
        stall.op = stall.op or fields.get("op")
        stall.seq = stall.seq if stall.seq is not None else _int_text(fields.get("seq"))
        mine, other = _int_text(fields.get("rank")), _int_text(fields.get("other_rank"))
        if mine is not None and other is not None:
            pairs.add(frozenset((mine, other)))
            if _one_is_a_barrier(fields):
                stall.shape = "conditional"
    if len(pairs) > 1:
        # The one that every complaint names is the odd one out, if there is just one such rank.
        in_all = frozenset.intersection(*pairs)
        stall.odd = sorted(in_all) if len(in_all) == 1 else []
    stall.why = "a consistency check found ranks in different collectives"
    return [stall]


def _one_is_a_barrier(fields: Fields) -> bool:
    op, other = fields.get("op"), fields.get("other_op")
    return other is not None and op != other and "BARRIER" in (op, other)


def _ranks(ranks: list[int]) -> str:
    return ranks_phrase(ranks)


def _int_text(value: str | None) -> int | None:
    return int(value) if value is not None and value.lstrip("-").isdigit() else None
