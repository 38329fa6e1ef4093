"""Who wrote a line that names no rank itself: worked out from the other lines of the job.

In this order: host:pid or pid seen with a rank, a local rank seen with one rank in its source, the
only rank that a source names, the task of a launcher that starts one task a rank, the local rank
where the whole job is on one node. The rank inside a process group stands in for the global one
only where nothing else names ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from diagnose.timeline.captures import rank_of
from diagnose.timeline.draft import Draft

# Lines between `rank :` and the last line about it in torch elastic's failure table.
_TABLE_REACH = 3

_Key = tuple[Hashable | None, ...]


def name_authors(found: Sequence[Draft]) -> None:
    """Fill `rank` of the drafts of a job's logs, as far as it can be known."""
    _join_tables(found)
    _of_the_world(found)
    _fill_by(found, lambda draft: (draft.attempt, draft.host, draft.pid))
    _fill_by(found, lambda draft: (draft.attempt, draft.pid))
    _fill_by(found, lambda draft: (draft.source, draft.local_rank))
    _name_sources(found)
    tasks = _tasks_are_ranks(found)
    if tasks:
        _fill(found, lambda draft: draft.task)
    if _single_node(found):
        _fill(found, lambda draft: draft.local_rank)
    if all(draft.rank is None for draft in found if draft.group_rank is not None):
        _fill(found, lambda draft: draft.group_rank)


def _join_tables(found: Sequence[Draft]) -> None:
    """Give exits the rank printed a line or two above them (torch elastic's failure table)."""
    rows = [draft for draft in found if draft.meaning.tells in ("exit", "rank_map")]
    rows.sort(key=lambda draft: (draft.source, draft.line))
    named: Draft | None = None
    for draft in rows:
        if draft.meaning.tells == "rank_map":
            named = draft
        elif named is not None and draft.rank is None and _in_table(named, draft):
            draft.rank = rank_of(named.meaning.fields.get("rank"))
            draft.local_rank = named.local_rank


def _in_table(named: Draft, draft: Draft) -> bool:
    return named.source == draft.source and 0 < draft.line - named.line <= _TABLE_REACH


def _of_the_world(found: Sequence[Draft]) -> None:
    """NCCL prints the rank inside a communicator: the global one where that is the world."""
    world = max((d.mapped_of for d in found if d.mapped_of is not None), default=None)
    if world is not None:
        _fill(found, lambda draft: draft.mapped_rank if draft.mapped_of == world else None)


def _fill(found: Sequence[Draft], rank: Callable[[Draft], int | None]) -> None:
    for draft in found:
        if draft.rank is None:
            draft.rank = rank(draft)


def _fill_by(found: Sequence[Draft], key: Callable[[Draft], _Key]) -> None:
    """Drafts of one key are of one rank, where those that name one agree."""
    known: dict[_Key, set[int]] = defaultdict(set)
    for draft in found:
        if draft.rank is not None:
            known[key(draft)].add(draft.rank)
    certain = {
        of: next(iter(ranks)) for of, ranks in known.items() if len(ranks) == 1 and None not in of
    }
    if certain:
        _fill(found, lambda draft: certain.get(key(draft)))


def _name_sources(found: Sequence[Draft]) -> None:
    """Give all lines of a source to the one rank it names, where each source names another."""
    named: dict[str, set[int]] = defaultdict(set)
    for draft in found:
        if draft.rank is not None:
            named[draft.source].add(draft.rank)
    single = {source: next(iter(ranks)) for source, ranks in named.items() if len(ranks) == 1}
    if len(single) > 1 and len(single) == len(named) == len(set(single.values())):
        _fill(found, lambda draft: single.get(draft.source))


def _tasks_are_ranks(found: Sequence[Draft]) -> bool:
    """One task a rank: no task prints several local ranks or is on another host than its rank."""
    host_of: dict[int, str] = {}
    local_ranks: dict[int, set[int]] = defaultdict(set)
    for draft in found:
        if draft.rank is not None and draft.host is not None:
            host_of.setdefault(draft.rank, draft.host)
        if draft.task is not None and draft.local_rank is not None:
            local_ranks[draft.task].add(draft.local_rank)
    return all(len(ranks) <= 1 for ranks in local_ranks.values()) and not any(
        host_of.get(draft.task, draft.host) != draft.host
        for draft in found
        if draft.task is not None and draft.host is not None
    )


def _single_node(found: Sequence[Draft]) -> bool:
    hosts = {draft.host for draft in found} - {None}
    nodes = {draft.node for draft in found} - {None}
    tasks = set() if _tasks_are_ranks(found) else {draft.task for draft in found} - {None}
    rank = max((draft.rank for draft in found if draft.rank is not None), default=-1)
    local = max((draft.local_rank for draft in found if draft.local_rank is not None), default=rank)
    return max(len(hosts), len(nodes), len(tasks)) <= 1 and rank <= local
