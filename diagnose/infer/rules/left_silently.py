"""A rank that went away without a word while its peers lost their connections to it.

It printed no error and no exit code is known: it ended well too early, or was killed where no
launcher says so. Only where every other rank complains, or who keeps the list of all lists it, and
nothing else says what happened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.infer.judge.arrivals import listed_gone
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.busy import unstated
from diagnose.infer.tiers import Tier
from diagnose.stories.deeds import endings
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.captures import captured_ranks
from diagnose.timeline.event import Event

_LEAST = 2  # ranks that complain
_ROWS = 4


def propose(context: Context) -> Iterator[Hypothesis]:
    """The ranks that are listed as gone, or the one that printed no error when all others did."""
    if context.stalls or context.blocked or not all(_of_signal(h) for h in context.proposed):
        return
    timeline = context.timeline
    if listed := listed_gone(timeline):
        yield _listed(listed, context)
        return
    lost = [event for event in timeline if _lost_a_peer(event)]
    said = {event.rank for event in [*lost, *timeline.telling("notified")]} - {None}
    seen = set(timeline.ranks)
    ranks = set(range(context.facts.world_size)) if context.facts.world_size else seen
    quiet = ranks - said
    left = {event.rank for event in endings(timeline)}
    if len(quiet) != 1 or not lost or len(said) + 1 != len(ranks):
        return
    if len(said) < _LEAST and not quiet <= left:
        return
    if any(event.rank in quiet and event.role in ("cause", "effect") for event in timeline):
        return
    (rank,) = quiet
    others = ranks_phrase(sorted(one for one in said if one is not None))
    summary = (
        f"{others[:1].upper()}{others[1:]} lost a peer, and rank {rank} printed no error: it ended "
        "while they were still in a collective. Nothing says why."
    )
    found = unstated("desync.missing_rank", Tier.CIRCUMSTANTIAL, context.catalog, summary)
    found.rows = [event.index for event in lost[:_ROWS]]
    found.ranks, found.kind = [rank], "missing"
    found.why = "it alone printed no error when its peers lost a connection"
    yield found


def _listed(items: Sequence[Event], context: Context) -> Hypothesis:
    ranks = sorted({rank for item in items for rank in captured_ranks(item.fields.get("missing"))})
    summary = f"{ranks_phrase(ranks).capitalize()} stopped answering or crashed. Nothing says why."
    found = unstated("hw.node", Tier.CIRCUMSTANTIAL, context.catalog, summary)
    found.rows = [item.index for item in items[:_ROWS]]
    found.ranks, found.kind = ranks, "crashed"
    found.why = "listed as gone"
    return found


def _of_signal(one: Hypothesis) -> bool:
    """Whether somebody ended the job, which is later than what its ranks complain of."""
    return one.cause.startswith(("scheduler.", "user.")) and one.tier < Tier.LIKELY


def _lost_a_peer(event: Event) -> bool:
    return event.role == "effect" and event.rank is not None and "peer" in event.fields
