"""Who left where its peers lost their connections, and nobody says why: predicates of a table."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from diagnose.infer.judge.arrivals import listed_gone
from diagnose.infer.rules.base import Context
from diagnose.infer.rules.seen import Seen
from diagnose.infer.tiers import Tier
from diagnose.stories.story import only_lost_peers
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.captures import captured_ranks
from diagnose.timeline.event import Event

_LEAST_COMPLAIN = 2  # ranks, where nothing tells whether the log shows all of the job


def list_of_gone(context: Context) -> Seen | None:
    """Who keeps the list of all ranks lists some that stopped answering or crashed."""
    items = listed_gone(context.timeline)
    if not items or _complaining(context) is None:
        return None
    ranks = sorted({rank for item in items for rank in captured_ranks(item.fields.get("missing"))})
    summary = f"{ranks_phrase(ranks).capitalize()} stopped answering or crashed. Nothing says why."
    return Seen(summary, items, ranks, why="listed as gone")


def left_peers(context: Context) -> Seen | None:
    """Ranks ended well too early, or one printed no error, while their peers lost them.

    Who is gone is named where it is known. Where not, who ended by an error as it lost a peer is
    a victim all the same.
    """
    complain = _complaining(context)
    if not complain or listed_gone(context.timeline):
        return None
    world, stories = context.facts.world_size, context.stories.of_ranks
    ranks = set(range(world)) if world else set(context.timeline.ranks)
    finished = {rank: one.finished.index for rank, one in stories.items() if one.finished}
    lost = [one.lost_peer for one in stories.values() if one.lost_peer]
    lost.sort(key=attrgetter("index"))
    first = next((event.index for event in lost if event.rank not in finished), 0)
    gone, how = {rank for rank, row in finished.items() if row < first}, "had finished"
    if not gone or not ranks - gone <= complain:
        gone, how = ranks - complain, "printed no error"
        if not lost:
            return None
        if not _is_quiet(gone, complain, context):
            return _lost_an_unknown_peer(lost, context)
    summary = (
        f"{ranks_phrase(sorted(complain - gone)).capitalize()} lost a peer, and "
        f"{ranks_phrase(sorted(gone))} {how}: it ended while they were still in a collective. "
        "Nothing says why."
    )
    return Seen(summary, lost, sorted(gone), why=f"{how} when its peers lost a connection")


def _lost_an_unknown_peer(lost: Sequence[Event], context: Context) -> Seen | None:
    """Ranks ended by an error, of which all that is known is that they had lost a peer before."""
    ends = [one for one in context.proposed if one.basis == "exit"]
    if not ends:
        return None
    ranks = sorted({rank for one in ends for rank in one.ranks})
    summary = (
        f"{ranks_phrase(ranks).capitalize()} lost the connection to a peer, and ended for it. "
        "Nothing shows which process had ended before, or why."
    )
    return Seen(summary, lost)


def lost_each_other(context: Context) -> Seen | None:
    """Processes of several hosts lost their connections, and nothing says that any had ended."""
    if context.proposed or context.stalls or len(context.failing) < _LEAST_COMPLAIN:
        return None
    hosts = {event.host for event in context.failing} - {None}
    if len(hosts) < _LEAST_COMPLAIN or not only_lost_peers(context.failing):
        return None
    what = f"Processes of {len(hosts)} hosts lost their connections"
    return Seen(f"{what}; nothing says that one had ended.", context.failing)


def _complaining(context: Context) -> set[int] | None:
    """The ranks that lost a peer or were notified; None where anything says more of what happened.

    These say no more: that a process is missing or stuck, that somebody ended the job, and with
    what status those ended that had lost a peer.
    """
    more = [one for one in context.proposed if not context.catalog.classes[one.cause].vague]
    more = [one for one in more if not one.outside or one.tier >= Tier.LIKELY]
    ends = [one for one in more if one.basis == "exit" and one.tier is Tier.GUESS and one.ranks]
    if context.stalls or len(ends) < len(more):
        return None
    stories = context.stories.of_ranks
    found = {rank for rank, one in stories.items() if one.lost_peer or one.notified}
    return found if all(found.issuperset(end.ranks) for end in ends) else None


def _is_quiet(gone: set[int], complain: set[int], context: Context) -> bool:
    """Whether one rank alone printed no error, and not because the log is an excerpt without it.

    Where few complain, the log has to be whole, and the rank to print where they do.
    """
    stories, writers = context.stories.of_ranks, context.stories.deeds.writers
    if len(gone) != 1 or any(rank in stories and stories[rank].failed for rank in gone):
        return False
    if len(complain) >= _LEAST_COMPLAIN:
        return True
    if not context.facts.world_size and all(one.basis != "exit" for one in context.proposed):
        return False
    places = {story.lost_peer.source for story in stories.values() if story.lost_peer}
    return any(author.rank in gone for place in places for author in writers[place])
