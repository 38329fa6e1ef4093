"""Processes that did not come: to the rendezvous, or to a key of the store."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from diagnose.catalog.schema import Catalog
from diagnose.infer.events.failures import unfinished_gathering
from diagnose.infer.events.onset import MAIN_ONLY, Activity, doing
from diagnose.infer.rules.base import Context, Hypothesis, inferred, most
from diagnose.infer.tiers import Tier
from diagnose.text.ranks import fold_ranks
from diagnose.timeline.captures import captured_ranks
from diagnose.timeline.event import Event, Timeline

_LISTED = 4096  # ranks of a job whose missing ones are listed


def propose(context: Context) -> Iterator[Hypothesis]:
    """Hypotheses for an incomplete rendezvous, and for waits on a store without any collective."""
    waits = [wait for stall in context.stalls for wait in stall.waits.values()]
    if all(wait.seq is None for wait in waits):  # whoever waits in a collective has gathered
        yield from _gathering(context.timeline, context.catalog)
    store = context.timeline.signalling("store_wait")
    if store and not any(stall.waits for stall in context.stalls):
        yield _store(store, context.activity, context.catalog)


def _store(waits: Sequence[Event], activity: Activity, catalog: Catalog) -> Hypothesis:
    positions = [event.index for event in waits[:6]]
    busy = catalog.busy_class(activity.phase)
    if busy and (activity.moving or activity.frame):
        summary = f"Ranks waited in the store for a rank that was still {doing(activity.phase)}."
        found = inferred(busy, Tier.LIKELY, catalog, summary)
        found.rows = [*([activity.row] if activity.row is not None else []), *positions]
        waiting = {event.rank for event in waits if event.rank is not None}
        if waiting and 0 not in waiting and activity.phase in MAIN_ONLY:
            found.ranks, found.kind = [0], "slow"
            found.why = "the main rank does this work while the others wait"
        return found
    summary = "Ranks timed out in the store waiting for ranks that never arrived."
    cause = catalog.class_shown_by("store.wait")
    found = inferred(cause, Tier.CIRCUMSTANTIAL, catalog, summary)
    found.rows = positions
    asked = {rank for event in waits for rank in captured_ranks(event.fields.get("from_rank"))}
    if len(asked) == 1:
        found.ranks, found.kind = sorted(asked), "missing"
        found.why = "the others wait for what it puts into the store"
    return found


def _gathering(timeline: Timeline, catalog: Catalog) -> Iterator[Hypothesis]:
    """Processes that did not all come to the rendezvous, by the line that counts them."""
    last = unfinished_gathering(timeline)
    steps = timeline.kind("progress")
    if last is None or (steps and steps[0].index < last.index):
        return  # none, or a barrier of a job that had gathered before
    joined, world = int(last.fields["joined"]), int(last.fields["world_size"])
    finding = "incomplete"
    if twins := _twins(timeline, world):
        finding = "equal_ranks"
        ranks = fold_ranks(sorted(set(twins.values())))
        summary = (
            f"{world} processes of a job of {world} have only the ranks {ranks}: each node counts "
            "from the first one."
        )
    elif joined < world:
        summary = f"Only {joined} of {world} processes joined the rendezvous."
    else:
        summary = (
            f"{joined} processes registered for a job of {world}: leftovers of an earlier "
            "attempt, or started more than once."
        )
    beyond = sorted(rank for rank in _counted(timeline, world) if rank >= world)
    if beyond and not twins:
        finding = "beyond"
    found = inferred(catalog.class_shown_by(f"rendezvous.{finding}"), Tier.STRONG, catalog, summary)
    found.rows = [*twins, last.index]
    if twins:
        yield found
        return
    if beyond:
        found.ranks, found.why = beyond, f"in a job of {world}, whose last rank is {world - 1}"
    elif absent := _absent(timeline, joined, world):
        found.ranks, found.kind = absent, "missing"
        found.why = f"the other {joined} say that they wait"
    yield found


def _twins(timeline: Timeline, world: int) -> dict[int, int]:
    """Ranks that several processes have, by the rows that state them.

    As many processes as there should be ranks state one. Each does so once, as it begins; a line
    that counts who came may be repeated.
    """
    stated: dict[object, dict[int, int]] = defaultdict(dict)
    for event in timeline.capturing("world_size", "rank"):
        begins = event.role == "phase" and event.phase == "init" and "joined" not in event.fields
        if begins and event.fields["world_size"] == str(world):
            for rank in captured_ranks(event.fields["rank"]):
                stated[event.signature, event.attempt][event.index] = rank
    for ranks in stated.values():
        times = Counter(ranks.values())
        if len(times) < world == len(ranks) and min(times.values()) > 1:
            return ranks
    return {}


def _absent(timeline: Timeline, joined: int, world: int) -> list[int]:
    """The ranks that do not say that they wait, where as many others do as were counted."""
    came = _counted(timeline, world)
    missing = sorted(set(range(world)) - came) if world <= _LISTED else []
    known = joined == len(came) == world - len(missing)
    return missing if known and not most(missing, world) else []


def _counted(timeline: Timeline, world: int) -> set[int]:
    """Ranks that lines name which count a job of this size."""
    sizes = timeline.capturing("world_size", "rank")
    counted = {event.fields["rank"] for event in sizes if event.fields["world_size"] == str(world)}
    return {rank for text in counted for rank in captured_ranks(text)}
