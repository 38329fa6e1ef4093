"""Where the ranks of a job stand by its lines: who waits in which group, and who is silent."""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from diagnose.infer.judge.groups import members_of
from diagnose.infer.judge.ops import Op, gathered_size
from diagnose.infer.judge.standing import Standing, no_chance, whole_node
from diagnose.infer.judge.witnesses import Frontier, Witnessed, heads_of, witnessed
from diagnose.timeline.ends import endings, exit_code, exits_named
from diagnose.timeline.event import Timeline

RANKS_LIMIT = 100_000
_OF_VICTIMS = (None, 0, -signal.SIGTERM, -signal.SIGABRT)


@dataclass
class ByLines(Standing):
    """Where the ranks stand by the lines of `found`, and what their silence may tell.

    `silent` are the ranks of the job that wait nowhere as far as is known; None where silence means
    nothing, since some lines name no rank or stand for several. The `size` is `stated` where it
    follows from the log: a line prints it, or (`printed` is False) a gather has as many members.
    `with_lines` have a line of any kind; `aborted` are others that ended as a watchdog ends what
    waits, so that the log only lost their wait. `ended` are silent ranks that ended by themselves,
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
            for rank, own in self.pending.items():
                self.pending[rank] = [wait._replace(group=only) for wait in own]
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
        return frozenset(range(self.size)) - self.heads.keys() - self.aborted

    @cached_property
    def few_silent(self) -> frozenset[int]:
        """The silent ranks where they are few beside those that wait, or a node; else none."""
        silent = self.silent or frozenset()
        few = len(silent) <= max(1, len(self.heads) // 2)
        return silent if few or self.is_node(silent) else frozenset()

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
    ended = (rank for rank, code in codes if code not in _OF_VICTIMS)
    aborted = (rank for rank, code in codes if code == -signal.SIGABRT)
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
        ended=leavers | frozenset(ended) - found.waits.keys(),
        left=leavers,
        per_source=per_source,
        uncollected=len(files) > 1 and there * (per_source or 1) < size,
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
    for source, rank in dict.fromkeys(
        zip(timeline.column("source"), timeline.column("rank"), strict=True)
    ):
        if rank is not None:
            ranks[source].add(rank)
    counts = Counter(map(len, ranks.values()))
    size, files = max(counts.items(), key=lambda one: (one[1], one[0]), default=(0, 0))
    return size if size > 1 and files > 1 and 2 * files > len(ranks) else None
