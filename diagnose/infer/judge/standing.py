"""Where the ranks of a job stand by its lines: who waits in which group, and who is silent."""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import comb

from diagnose.infer.judge.groups import WORLD, Members, gathered_size, members_of
from diagnose.infer.judge.stall import Wait
from diagnose.infer.judge.witnesses import Frontier, Witnessed, witnessed
from diagnose.timeline.ends import endings, exit_code, exits_named
from diagnose.timeline.event import Timeline

RANKS_LIMIT = 100_000
_OF_VICTIMS = (None, 0, -signal.SIGTERM, -signal.SIGABRT)
USUAL_NODE = 8  # ranks
_CHANCE = 0.1  # at most, that ranks left out at random are those of one node


@dataclass
class Standing:
    """The ranks of a job.

    `heads` are the waits in which a rank may really stand, `silent` the ranks of the job that wait
    nowhere as far as is known; None where silence means nothing, since some lines name no rank or
    stand for several. `size` is the number of ranks, `stated` that it follows from the log: a line
    prints it, or (`printed` is False) a gather has as many members. `heard` have a line of any
    kind. `ended` are silent ranks that ended by themselves, `left` those of them that say so
    themselves. `per_source` is the number of ranks in most files, `uncollected` whether those who
    wait write into several of which there are fewer than the ranks of the job need.
    """

    found: Witnessed
    size: int
    stated: bool
    heard: frozenset[int]
    hosts: Mapping[int, str] = field(default_factory=dict)
    printed: bool = True
    ended: frozenset[int] = frozenset()
    left: frozenset[int] = frozenset()
    per_source: int | None = None
    uncollected: bool = False

    @cached_property
    def heads(self) -> dict[int, list[Wait]]:
        """By rank the waits that it may stand in."""
        return self.found.heads()

    @cached_property
    def silent(self) -> frozenset[int] | None:
        """The ranks that wait nowhere."""
        if self.found.unnamed or self.found.folded or self.size > RANKS_LIMIT:
            return None
        return frozenset(range(self.size)) - self.heads.keys()

    @cached_property
    def few_silent(self) -> frozenset[int]:
        """The silent ranks where they are few beside those that wait, or a node; else none."""
        silent = self.silent or frozenset()
        few = len(silent) <= max(1, len(self.heads) // 2)
        return silent if few or self.is_node(silent) else frozenset()

    @cached_property
    def by_group(self) -> dict[str, dict[int, Wait]]:
        """Group → the waits in it by rank, sends and receives left out."""
        groups: dict[str, dict[int, Wait]] = defaultdict(dict)
        named = {wait.group for waits in self.found.waits.values() for wait in waits} - {None}
        only = next(iter(named)) if self.one_group and len(named) == 1 else None
        for rank, waits in self.found.waits.items():
            for wait in waits:
                group = wait.group or only
                if group is not None and not wait.p2p:
                    groups[group].setdefault(rank, wait)
        return dict(groups)

    @cached_property
    def members(self) -> dict[str, Members]:
        """Group → its members, as far as they can be worked out."""
        waits: dict[str, list[Wait]] = defaultdict(list)
        for own in self.found.waits.values():
            for wait in own:
                if wait.group is not None:
                    waits[wait.group].append(wait)
        return members_of(waits, self.size if self.stated else None)

    @cached_property
    def groups_named(self) -> bool:
        """Whether of every wait that may be the real one the group is known."""
        return all(wait.group is not None for waits in self.heads.values() for wait in waits)

    @cached_property
    def one_group(self) -> bool:
        """Whether all that is seen may be of one process group."""
        waits = [wait for own in self.found.waits.values() for wait in own if not wait.p2p]
        if len({wait.group for wait in waits} - {None}) > 1:
            return False
        if any(len({w.call for w in own if not w.p2p}) > 1 for own in self.found.waits.values()):
            return False  # a watchdog tells one call of its group
        if any(wait.place not in (None, wait.rank) for wait in waits):
            return False  # its number there is another than in the job
        size = gathered_size(waits)
        if size is not None and size < (self.size if self.stated else len(self.heads)):
            return False  # it has no room for all
        used = {group for (_, group), one in self.found.frontiers.items() if one.enqueued > 0}
        return len(used - {None}) < 2

    def joined(self, wait: Wait) -> set[int]:
        """The ranks that wait in the same call, or are known to have made it.

        Whose device stands in something before it has not joined those whose devices have begun.
        """
        group, begun = wait.group or "", not self.found.unstarted(wait)
        same = {
            rank
            for rank, other in self.by_group.get(group, {}).items()
            if other.seq == wait.seq and other.kind == wait.kind
            if not (begun and self.found.unstarted(other))
        }
        return same | self._passed(wait)

    def _passed(self, wait: Wait) -> set[int]:
        """Ranks that wait nowhere and have made this call, by the status of the group."""
        return {
            rank
            for (rank, group), status in self.found.frontiers.items()
            if group == wait.group and rank not in self.heads
            if wait.seq is not None and status.enqueued >= wait.seq
        }

    def idle_before(self, wait: Wait) -> dict[int, Frontier]:
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
        was_there = not self.heard.isdisjoint(ranks)
        if self.uncollected and not was_there:
            return False
        unlikely = self.stated and no_chance(ranks, self.size)
        hosts = self.hosts if 2 * len(self.hosts) > len(self.heads) else {}
        each = Counter(Counter(hosts.values()).values())
        told = max(each, key=lambda count: (each[count], count), default=self.per_source)
        others = (2 if was_there and unlikely else 1) * len(self.heads)
        if told is not None:
            return whole_node(ranks, others, told)
        return whole_node(ranks, others) or (unlikely and whole_node(ranks, others, len(ranks)))


def whole_node(ranks: Collection[int], others: int, per_node: int = USUAL_NODE) -> bool:
    """Whether these are the ranks of one node, and no half of a job whose other half was lost."""
    if per_node < 2 or len(ranks) != per_node or 2 * len(ranks) > others:
        return False
    return max(ranks) - min(ranks) + 1 == per_node and min(ranks) % per_node == 0


def no_chance(ranks: Collection[int], world: int) -> bool:
    """Whether as many ranks left out at random are hardly ever all of one node of their number."""
    size = len(ranks)
    return world % size == 0 and world / size / comb(world, size) < _CHANCE


def is_world(group: str | None) -> bool:
    """Whether this is the group of all ranks, by its name."""
    return group in WORLD


def standing_of(timeline: Timeline, world_size: int | None) -> Standing | None:
    """Where the ranks stand; None where no line says that anybody waits."""
    found = witnessed(timeline)
    if not found.waits and not found.unnamed:
        return None
    heard = frozenset(_authors(timeline))
    seen = max([*timeline.ranks, *found.waits], default=-1) + 1
    hosts = timeline.hosts_of_ranks
    standing = Standing(found, world_size or seen, world_size is not None, heard, hosts)
    left = (event.rank for event in endings(timeline))
    standing.left = frozenset(rank for rank in left if rank is not None) - found.waits.keys()
    standing.ended = standing.left | frozenset(_ended(timeline)) - found.waits.keys()
    standing.per_source = _per_source(timeline)
    files = {timeline.at(wait.row).source for waits in found.waits.values() for wait in waits}
    there = len(files) + len(timeline.silent)
    each = standing.per_source or 1
    standing.uncollected = len(files) > 1 and there * each < standing.size
    gathered = gathered_size(wait for waits in found.waits.values() for wait in waits)
    if world_size is None and gathered is not None and standing.one_group and gathered >= seen:
        standing = replace(standing, size=gathered, stated=True, printed=False)
    return standing


def _authors(timeline: Timeline) -> set[int]:
    """The ranks with a line of their own; what a launcher says of them is none."""
    of_others = timeline.where(lambda one: one.kind == "exit" or one.tells == "rank_map")
    theirs = Counter(event.rank for event in of_others)
    every = Counter(timeline.column("rank"))
    return {rank for rank, count in every.items() if rank is not None and count > theirs[rank]}


def _ended(timeline: Timeline) -> Iterator[int]:
    """Ranks that ended by themselves: not by a launcher's signal, nor by their own watchdog."""
    for event in exits_named(timeline.kind("exit")):
        code = exit_code(event.fields)
        if event.rank is not None and event.role != "aftermath" and code not in _OF_VICTIMS:
            yield event.rank


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
