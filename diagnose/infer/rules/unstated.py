"""What processes did or left out, where no line states a cause: one table of predicates.

Each predicate is a rule of its own name; a cause class names in `shown_by` those that show it. What
ranks did that wait for each other in a collective is compared in `rules.stalls`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import Answer, CulpritKind
from diagnose.infer.events.failures import unfinished_gathering
from diagnose.infer.events.onset import MAIN_ONLY, Activity, doing
from diagnose.infer.judge.lines import listed_gone
from diagnose.infer.rules.base import (
    Basis,
    Context,
    Hypothesis,
    Rule,
    Tier,
    explains,
    inferred,
    most,
)
from diagnose.stories.silence import own_way
from diagnose.stories.story import only_lost_peers
from diagnose.stories.work import two_steps
from diagnose.text.ranks import fold_ranks, ranks_phrase
from diagnose.timeline.captures import captured_ranks
from diagnose.timeline.event import Event, Timeline

_LEAST_COMPLAIN = 2  # ranks, where nothing tells whether the log shows all of the job
_LISTED = 4096  # ranks of a job whose missing ones are listed
# NCCL's own connections take seconds; frameworks set minutes.
_NO_JOB_KEEPS_MS = 5_000
_LEAST_STOPPED = 2  # ranks, since one alone proves little
_STOPS = ("SIGTERM", "15")


class Seen(NamedTuple):
    """What shows that a predicate holds.

    `summary` says it; `events` show it, the first sign first. `ranks` and `hosts` are who is to
    blame, `why` says for what. `cause` is a class that says more than that of the predicate.
    `vague`, `explains`, `longer_timeout`: as in `Hypothesis`.
    """

    summary: str
    events: Sequence[Event]
    ranks: Sequence[int] = ()
    hosts: Sequence[str] = ()
    why: str = ""
    cause: str | None = None
    vague: bool = False
    explains: Sequence[str] = ()
    longer_timeout: Answer | None = None


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


def propose_gathering(context: Context) -> Iterator[Hypothesis]:
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


class Predicate(NamedTuple):
    """A predicate: what looks for it, how far it reaches, and as what it names whom it names.

    `unnamed` is the tier where it names nobody, if that is another one.
    """

    find: Callable[[Context], Seen | None]
    tier: Tier
    kind: CulpritKind | None = None
    basis: Basis = "inference"
    unnamed: Tier | None = None


def _propose(name: str, predicate: Predicate, context: Context) -> Iterator[Hypothesis]:
    """The hypothesis of a predicate, where it holds."""
    seen = predicate.find(context)
    if seen is None:
        return
    cause = seen.cause or context.catalog.class_shown_by(name)
    names = bool(seen.ranks or seen.hosts)
    tier = predicate.tier if names else predicate.unnamed or predicate.tier
    rows = list(dict.fromkeys(event.index for event in seen.events))
    found = inferred(cause, tier, context.catalog, seen.summary, rows)
    found.basis, found.explains, found.vague = predicate.basis, [*seen.explains], seen.vague
    found.longer_timeout = seen.longer_timeout
    if names:
        found.ranks, found.hosts = [*seen.ranks], [*seen.hosts]
        found.kind, found.why = predicate.kind, seen.why
    yield found


def _unequal_steps(context: Context) -> Seen | None:
    """Ranks wait whose bars, before that, were some steps apart."""
    deeds = context.stories.deeds
    apart = two_steps(deeds.progress, deeds.author) if context.stalls else None
    if apart is None:
        return None
    steps = " and ".join(str(bar.step) for bar in apart)
    return Seen(
        f"Progress bars of different ranks stood at steps {steps} at the same time: the ranks do "
        "not make the same steps.",
        apart,
    )


def _short_timeout(context: Context) -> Seen | None:
    """Every wait that ended had a timeout of a few seconds at most: a wrong unit, or a test."""
    waits = [one for one in context.timeline.signalling("timeout") if one.timeout_ms is not None]
    longest = max((one.timeout_ms or 0 for one in waits), default=None)
    if longest is None or longest > _NO_JOB_KEEPS_MS:
        return None
    return Seen(
        f"The timeout of the process group is {longest:,} ms, which no job can keep; it may be "
        "given in the wrong unit.",
        waits,
        explains=("desync.*", "unknown", "slow.*"),
        longer_timeout="yes",
    )


def _host_blocked(context: Context) -> Seen | None:
    """Watchdog monitors and GIL checks of ranks report that a thread of their own is stuck.

    The one rank that the log shows may be the messenger: its peers would report the same.
    """
    reports = context.timeline.signalling("host_blocked")
    ranks = sorted({event.rank for event in reports if event.rank is not None})
    alone = len(ranks) == 1 and len(context.timeline.ranks) > 1
    summary = (
        "The watchdog made no progress: a host thread is blocked, usually on the GIL or in a CUDA "
        "call."
    )
    why = "reported by its own watchdog or GIL check"
    return Seen(summary, reports, ranks if alone else (), why=why) if reports else None


def _killed_before_a_step(context: Context) -> Seen | None:
    """A process was killed before its first step, and nothing else says why.

    While weights and data are read each process takes what it will ever take, and copies beside it:
    then the usual sender of SIGKILL is the kernel, for want of memory. Later, anybody may be it.
    So may it be of several at once: the kernel picks one. How far a job was shows neither where its
    log begins with the failure, nor above a stack of its training.
    """
    catalog = context.catalog
    end = catalog.classes[catalog.class_shown_by("killed_before_a_step")].ends_as
    killed = next((one for one in context.proposed if one.cause == end), None)
    signal_seen = killed is not None and killed.basis == "exit" and killed.tier > Tier.GUESS
    if killed is None or not signal_seen or context.stories.deeds.progress:
        return None
    if len(killed.ranks) > 1:
        return None
    others = (one for one in context.proposed if one.cause != killed.cause)
    if any(one.tier >= Tier.WEAK and not explains(killed, one) for one in others):
        return None
    activity = context.activity
    if activity.phase == "training" or all(one.line == 1 for one in context.failing[:1]):
        return None
    when = f"while it was {doing(activity.phase)}" if activity.moving else "before the first step"
    summary = (
        f"{killed.summary.removesuffix('.')} {when}; nothing says by whom. Most often it is the "
        "kernel, because the host ran out of memory."
    )
    ends = [context.timeline.at(row) for row in killed.rows]
    return Seen(summary, ends, killed.ranks, killed.hosts, killed.why)


def _not_stopped(context: Context) -> Seen | None:
    """One rank printed no error, and the launcher that stopped all others had none to stop there.

    A launcher that sees one of its processes end stops all others. Only where each of them reports
    it, or the launcher of each, and nothing else says what happened.
    """
    timeline = context.timeline
    if context.stalls or any(h.tier > Tier.GUESS for h in context.proposed):
        return None
    stops = [e for e in timeline.signalling("teardown") if e.fields.get("signal") in _STOPS]
    stopped = {event.rank for event in stops} - {None}
    left = {*range(context.facts.world_size or 0), *timeline.ranks} - stopped
    if len(left) != 1 or len(stopped) < _LEAST_STOPPED or not left <= {*timeline.ranks}:
        return None
    if any(one.rank in left for one in timeline.role("cause", "effect", "aftermath")):
        return None
    summary = (
        f"All ranks but one were stopped by SIGTERM; {ranks_phrase([*left])} had ended before, "
        "without a word. Nothing says why."
    )
    why = "it alone was not stopped by SIGTERM, and it printed no error"
    return Seen(summary, stops, [*left], why=why)


def _silence(context: Context) -> Seen | None:
    """Regular lines of the job, or of one process, stopped long before somebody ended it.

    What was begun and not finished then is a lead to its cause. Without it, where a rank of a
    silent job stood apart says more. Who ended it, a limit, a signal or a person, saw what it
    shows too, and is no cause.
    """
    silence, activity, catalog = context.silence, context.activity, context.catalog
    if silence is None or context.stalls:
        return None
    cause = catalog.busy_class(activity.phase) if activity.moving else None
    lone = silence.lone
    way = own_way(context.timeline) if lone is None else None
    events = filter(None, (way, silence.began, silence.last, silence.ended))
    ranks = [way.rank] if way else [lone.rank] if lone else []
    why = "it alone wrote something else last than all others"
    return Seen(
        silence.summary(doing(activity.phase) if cause else None),
        [*events],
        [rank for rank in ranks if rank is not None],
        [lone.host] if lone and lone.host else [],
        why if way else "it wrote no more progress, and the others went on",
        cause,
        vague=silence.whole and cause is None,
        explains=sorted(catalog.endings),
    )


PREDICATES: Mapping[str, Predicate] = {
    "unequal_steps": Predicate(_unequal_steps, Tier.WEAK),
    "short_timeout": Predicate(_short_timeout, Tier.STRONG),
    "host_blocked": Predicate(
        _host_blocked, Tier.LIKELY, "stuck_host", "monitor", unnamed=Tier.CIRCUMSTANTIAL
    ),
    "killed_before_a_step": Predicate(_killed_before_a_step, Tier.STRONG, "crashed", "exit"),
    "not_stopped": Predicate(_not_stopped, Tier.CIRCUMSTANTIAL, "crashed"),
    "silence": Predicate(_silence, Tier.STRONG, "missing", "silence"),
    "listed_gone": Predicate(list_of_gone, Tier.CIRCUMSTANTIAL, "crashed"),
    "lost_each_other": Predicate(lost_each_other, Tier.WEAK),
    "left_peers": Predicate(left_peers, Tier.CIRCUMSTANTIAL, "missing", unnamed=Tier.WEAK),
}
RULES: Mapping[str, Rule] = {
    name: partial(_propose, name, predicate) for name, predicate in PREDICATES.items()
}
