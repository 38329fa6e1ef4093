"""Where the ranks of a job stand by its lines, and how those that wait in one group disagree.

Watchdog lines are compared here. ProcessGroupWrapper, Horovod and NCCL compare what ranks are about
to run themselves, and print two of them. Where nobody names the group, the sizes of a gather tell
how many take part, and so that one of them is elsewhere.
"""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from diagnose.infer.judge.lost import RANKS_LIMIT, authors_of_sources, cut_ranks
from diagnose.infer.judge.standing import AHEAD, Standing, members_of, no_chance, whole_node
from diagnose.infer.judge.verdict import (
    Call,
    Kind,
    Op,
    Verdict,
    gathered_size,
    in_words,
    majority_of,
)
from diagnose.infer.judge.witnesses import Frontier, Witnessed, heads_of, witnessed
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.captures import integer
from diagnose.timeline.ends import endings, exit_code, exits_named
from diagnose.timeline.event import Event, Fields, Timeline

_OF_VICTIMS = (None, 0, -signal.SIGTERM, -signal.SIGABRT)
_KINDS = 64  # of calls, each compared with all others; so many are no cut lines
# What gradients run through; who runs something else meanwhile has left the training step.
_OF_GRADIENTS = ("ALLREDUCE", "REDUCE_SCATTER", "_REDUCE_SCATTER_BASE")
_RANKS_TO_VOTE = 3
_Call = tuple[int | None, str | None, str | None]
_PAIR = 2  # ranks of which nobody knows which is odd


@dataclass
class ByLines(Standing):
    """Where the ranks stand by the lines of `found`, and what their silence may tell.

    `silent` are the ranks of the job that wait nowhere as far as is known; None where silence means
    nothing, since some lines name no rank or stand for several. The `size` is `stated` where it
    follows from the log: a line prints it, or (`printed` is False) a gather has as many members.
    `with_lines` have a line of any kind; `aborted` are others that ended as a watchdog ends what
    waits, so that the log only lost their wait, `cut` those whose log may have lost it because it
    ends inside a line. `ended` are silent ranks that ended by themselves,
    `left` those of them that say so themselves. `per_source` is the number of ranks in most files,
    `uncollected` whether those who wait write into several of which there are fewer than the ranks
    of the job need.
    """

    found: Witnessed = field(default_factory=Witnessed)
    stated: bool = False
    with_lines: frozenset[int] = frozenset()
    hosts: Mapping[int, str] = field(default_factory=dict)
    printed: bool = True
    aborted: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()
    left: frozenset[int] = frozenset()
    per_source: int | None = None
    uncollected: bool = False

    def __post_init__(self) -> None:
        """Enter what the lines tell of calls."""
        self.pending = {rank: self.found.started(own) for rank, own in self.found.waits.items()}
        named = {wait.group for own in self.pending.values() for wait in own} - {None}
        if self.one_group and len(named) == 1:
            only = named.pop()
            # Who waits in another call may do so in a group that no line names.
            calls = {w.call for own in self.pending.values() for w in own if w.group == only}
            for rank, own in self.pending.items():
                alike = (wait.call in calls for wait in own)
                self.pending[rank] = [
                    wait._replace(group=only) if same else wait
                    for wait, same in zip(own, alike, strict=True)
                ]
        self.pending = _completed(self.pending)
        self.heads = {rank: heads_of(own) for rank, own in self.pending.items()}
        if self.silent is None:
            return
        waits = [wait for own in self.pending.values() for wait in own]
        self.groups = members_of(waits, self.size if self.stated else None)
        for (rank, group), status in self.found.frontiers.items():
            if group is not None:
                self.enqueued[rank, group, False] = status.enqueued
                self.last_completed[rank, group] = status.completed
        for wait in waits:
            self.enqueue(wait)
        # A watchdog prints no timeout for a group in which nothing is pending.
        self.known = set(range(self.size)) | self.pending.keys()
        self.recorded, self.unplaced = self.known - self.aborted, set(self.few_silent)
        self.elsewhere = set(self.aborted) | {
            rank for rank, own in self.heads.items() if all(wait.group is None for wait in own)
        }

    @cached_property
    def silent(self) -> frozenset[int] | None:
        """The ranks that wait nowhere."""
        if self.found.unnamed or self.found.folded or self.size > RANKS_LIMIT:
            return None
        return frozenset(range(self.size)) - self.heads.keys() - self.aborted - {*self.cut}

    @property
    def all_wait(self) -> bool:
        """Whether every rank of the job is known to wait."""
        return self.silent == frozenset() and not self.cut

    @cached_property
    def few_silent(self) -> frozenset[int]:
        """The silent ranks where they are few beside those that wait, or a node; else none."""
        silent = self.silent or frozenset()
        return silent if self.few_beside(()) or self.is_node(silent) else frozenset()

    def few_beside(self, ranks: Iterable[int]) -> bool:
        """Whether the silent ranks but for these are few beside those that wait."""
        silent = (self.silent or frozenset()).difference(ranks)
        return len(silent) <= max(1, len(self.heads) // 2)

    @cached_property
    def by_group(self) -> dict[str, dict[int, Op]]:
        """Group → the waits in it by rank, sends and receives left out."""
        groups: dict[str, dict[int, Op]] = defaultdict(dict)
        for rank, waits in self.pending.items():
            for wait in waits:
                if wait.group is not None and not wait.p2p:
                    groups[wait.group].setdefault(rank, wait)
        return dict(groups)

    @cached_property
    def groups_named(self) -> bool:
        """Whether of every wait that may be the real one the group is known."""
        return all(wait.group is not None for waits in self.heads.values() for wait in waits)

    @cached_property
    def one_group(self) -> bool:
        """Whether all that is seen may be of one process group."""
        waits = [wait for own in self.pending.values() for wait in own if not wait.p2p]
        if len({wait.group for wait in waits} - {None}) > 1:
            return False
        if any(len({w.call for w in own if not w.p2p}) > 1 for own in self.pending.values()):
            return False  # a watchdog tells one call of its group
        if any(wait.place not in (None, wait.rank) for wait in waits):
            return False  # its number there is another than in the job
        size = gathered_size(wait.kind for wait in waits)
        if size is not None and size < (self.size if self.stated else len(self.pending)):
            return False  # it has no room for all
        used = {group for (_, group), one in self.found.frontiers.items() if one.enqueued > 0}
        return len(used - {None}) < 2

    def idle_before(self, wait: Op) -> dict[int, Frontier]:
        """Ranks that completed all they enqueued in the group, and enqueued less than this call."""
        return {
            rank: status
            for (rank, group), status in self.found.frontiers.items()
            if group in (wait.group, None) or (wait.group is None and self.one_group)
            if rank not in self.heads and wait.seq is not None
            if status.enqueued < wait.seq and status.enqueued == status.completed
        }

    def is_node(self, ranks: frozenset[int]) -> bool:
        """Whether these are all the ranks of one node, and all other ranks wait.

        By the hosts of the others, else by their files; where nothing tells these, by an aligned
        block that ranks left out at random would hardly make. A node whose ranks have a line was
        there, so that it may be half of the job; where everybody writes files of his own, those of
        a node without any were not collected, or lost with it: nobody knows.
        """
        was_there = not self.with_lines.isdisjoint(ranks)
        if self.uncollected and not was_there:
            return False
        unlikely = self.stated and no_chance(ranks, self.size)
        hosts = self.hosts if 2 * len(self.hosts) > len(self.heads) else {}
        each = Counter(Counter(hosts.values()).values())
        per_node = max(each, key=lambda count: (each[count], count), default=self.per_source)
        others = (2 if was_there and unlikely else 1) * len(self.heads)
        if per_node is not None:
            return whole_node(ranks, others, per_node)
        return whole_node(ranks, others) or (unlikely and whole_node(ranks, others, len(ranks)))


def standing_of(timeline: Timeline, world_size: int | None) -> ByLines | None:
    """Where the ranks stand; None where no line says that anybody waits."""
    found = witnessed(timeline)
    if not found.waits and not found.unnamed:
        return None
    with_lines = frozenset(authors(timeline))
    seen = max([*timeline.ranks, *found.waits], default=-1) + 1
    left = (event.rank for event in endings(timeline))
    leavers = frozenset(rank for rank in left if rank is not None) - found.waits.keys()
    codes = [*_codes(timeline)]
    ended = {rank for rank, code in codes if code not in _OF_VICTIMS}
    aborted = (rank for rank, code in codes if code == -signal.SIGABRT)
    cut = cut_ranks(timeline, world_size or seen) - found.waits.keys() - leavers
    per_source = _per_source(timeline)
    files = {timeline.at(wait.row).source for waits in found.waits.values() for wait in waits}
    there = len(files) + len(timeline.silent)
    size = world_size or seen
    standing = ByLines(
        size,
        found=found,
        stated=world_size is not None,
        with_lines=with_lines,
        hosts=timeline.hosts_of_ranks,
        aborted=frozenset(aborted) - with_lines,
        ended=leavers | ended - found.waits.keys(),
        left=leavers,
        per_source=per_source,
        uncollected=len(files) > 1 and there * (per_source or 1) < size,
        cut=cut - ended,
    )
    gathered = gathered_size(wait.kind for waits in found.waits.values() for wait in waits)
    if world_size is None and gathered is not None and standing.one_group and gathered >= seen:
        standing = replace(standing, size=gathered, stated=True, printed=False)
    return standing


def authors(timeline: Timeline) -> set[int]:
    """The ranks with a line of their own; what a launcher says of them is none."""
    of_others = timeline.where(lambda one: one.kind == "exit" or one.signal == "rank_map")
    theirs = Counter(event.rank for event in of_others)
    every = Counter(timeline.column("rank"))
    return {rank for rank, count in every.items() if rank is not None and count > theirs[rank]}


def _codes(timeline: Timeline) -> Iterator[tuple[int, int | None]]:
    """The ranks that ended of themselves, as far as a launcher says, each with its status."""
    for event in exits_named(timeline.kind("exit")):
        if event.rank is not None and event.role != "aftermath":
            yield event.rank, exit_code(event.fields)


def _per_source(timeline: Timeline) -> int | None:
    """How many ranks each file has lines of, where that is one number for most of them."""
    ranks: dict[str, set[int]] = defaultdict(set)
    for source, rank in authors_of_sources(timeline):
        ranks[source].add(rank)
    counts = Counter(map(len, ranks.values()))
    size, files = max(counts.items(), key=lambda one: (one[1], one[0]), default=(0, 0))
    return size if size > 1 and files > 1 and 2 * files > len(ranks) else None


def disagreement(group: str | None, waits: Mapping[int, Op]) -> Verdict | None:
    """The ranks of one group that wait in different calls; None where they do not.

    `sure` where the group or the number says that it should be the same call.
    """
    calls = {rank: wait.call for rank, wait in waits.items()}
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
    return len(known) > 1 and max(known) - min(known) > AHEAD


def _completed(pending: Mapping[int, list[Op]]) -> dict[int, list[Op]]:
    """The waits, where a line was cut with what another rank says of the same call."""
    kinds = Counter((wait.group, wait.call) for own in pending.values() for wait in own)
    if len(kinds) > _KINDS:
        return {**pending}
    fuller = {
        (group, call): max(others, key=lambda other: (kinds[group, other], str(other)))
        for group, call in kinds
        if None in call
        and (others := [one for of, one in kinds if of == group and _is_part(call, one)])
    }

    def completed(wait: Op) -> Op:
        seq, op, size_in, size_out = fuller.get((wait.group, wait.call)) or (None,) * 4
        if op is None:
            return wait
        return wait._replace(seq=seq, op=op, size_in=size_in, size_out=size_out)

    return {rank: [*map(completed, own)] for rank, own in pending.items()}


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
    if not standing.all_wait or standing.groups_named:
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
