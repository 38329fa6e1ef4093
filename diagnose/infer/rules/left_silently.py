"""A rank that went away without a word while its peers lost their connections to it.

It ended well too early, or it printed no error, where no launcher says that it was killed. Only
where every other rank complains, or who keeps the list of all lists it, and nothing else says what
happened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from diagnose.infer.judge.arrivals import listed_gone
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.busy import unstated
from diagnose.infer.tiers import Tier
from diagnose.stories.deeds import endings
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.captures import captured_ranks
from diagnose.timeline.event import Event, Timeline

_CAUSE = "desync.missing_rank"
_LEAST = 2  # ranks that complain
_ROWS = 4


def propose(context: Context) -> Iterator[Hypothesis]:
    """The ranks that are listed as gone, that finished first, or the one that printed no error."""
    timeline = context.timeline
    lost = [event for event in timeline if _lost_a_peer(event)]
    told = [*lost, *timeline.telling("notified")]
    said = {event.rank for event in told if event.rank is not None}
    if context.stalls or context.blocked or not all(_follows(h, said) for h in context.proposed):
        return
    if listed := listed_gone(timeline):
        yield _listed(listed, context)
        return
    world = context.facts.world_size
    ranks = set(range(world)) if world else set(timeline.ranks)
    left = _finished_first(lost, context)
    if left and ranks - left <= said:
        yield _left(left, said, lost, context, "had finished")
        return
    quiet = ranks - said
    if len(quiet) != 1 or not lost or len(said) + 1 != len(ranks):
        return
    whole = world or any(one.basis == "exit" for one in context.proposed)
    if len(said) < _LEAST and not (whole and _heard(quiet, lost, timeline)):
        return
    if not any(event.rank in quiet and event.role in ("cause", "effect") for event in timeline):
        yield _left(quiet, said, lost, context, "printed no error")


def _finished_first(lost: Sequence[Event], context: Context) -> set[int]:
    """The ranks that said that they finished before any other one lost a peer."""
    first = {e.rank: e.index for e in endings(context.timeline) if e.rank is not None}
    others = [event.index for event in lost if event.rank not in first]
    return {rank for rank, index in first.items() if others and index < min(others)}


def _heard(ranks: set[int], lost: Sequence[Event], timeline: Timeline) -> bool:
    """Whether what these ranks print is where the others complain, so that silence tells."""
    sources = {event.source for event in lost}
    return any(event.rank in ranks and event.source in sources for event in timeline)


def _left(
    ranks: set[int], said: set[int], lost: Sequence[Event], context: Context, how: str
) -> Hypothesis:
    summary = (
        f"{ranks_phrase(sorted(said - ranks)).capitalize()} lost a peer, and "
        f"{ranks_phrase(sorted(ranks))} {how}: it ended while they were still in a collective. "
        "Nothing says why."
    )
    found = unstated(_CAUSE, Tier.CIRCUMSTANTIAL, context.catalog, summary)
    found.rows = [event.index for event in lost[:_ROWS]]
    found.ranks, found.kind = sorted(ranks), "missing"
    found.why = f"{how} when its peers lost a connection"
    return found


def _listed(items: Sequence[Event], context: Context) -> Hypothesis:
    ranks = sorted({rank for item in items for rank in captured_ranks(item.fields.get("missing"))})
    summary = f"{ranks_phrase(ranks).capitalize()} stopped answering or crashed. Nothing says why."
    found = unstated("hw.node", Tier.CIRCUMSTANTIAL, context.catalog, summary)
    found.rows = [item.index for item in items[:_ROWS]]
    found.ranks, found.kind = ranks, "crashed"
    found.why = "listed as gone"
    return found


def _follows(one: Hypothesis, said: Collection[int]) -> bool:
    """Whether it only says how what its ranks complain of went on.

    Somebody ended the job, those that had lost a peer ended with a status, or a barrier lacks some.
    """
    if one.cause == _CAUSE:
        return True
    if one.basis == "exit":
        return one.cause == "crash.exception" and bool(one.ranks) and {*one.ranks} <= {*said}
    return one.outside and one.tier < Tier.LIKELY


def _lost_a_peer(event: Event) -> bool:
    told = "peer" in event.fields or event.tells == "peer_gone"
    return event.role == "effect" and event.rank is not None and told
