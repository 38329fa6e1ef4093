"""What processes did or left out, where no line states a cause: one table of predicates.

Each predicate is a rule of its own name; a cause class names in `shown_by` those that show it. What
ranks did that wait for each other in a collective is compared in `rules.stalls`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from diagnose.diagnosis import CulpritKind
from diagnose.infer.events.onset import doing
from diagnose.infer.rules import lost_peers
from diagnose.infer.rules.base import Basis, Context, Hypothesis, Rule, explains, inferred
from diagnose.infer.rules.seen import Seen
from diagnose.infer.tiers import Tier
from diagnose.stories.silence import own_way
from diagnose.text.ranks import ranks_phrase

# NCCL's own connections take seconds; frameworks set minutes.
_NO_JOB_KEEPS_MS = 5_000
_LEAST_STOPPED = 2  # ranks, since one alone proves little
_STOPS = ("SIGTERM", "15")


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
    stories = context.stories.all.values() if context.stalls else ()
    pairs = (story.two_steps for story in stories)
    apart = min(filter(None, pairs), key=lambda pair: pair[0].index, default=None)
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
    """
    catalog = context.catalog
    end = catalog.classes[catalog.class_shown_by("killed_before_a_step")].ends_as
    killed = next((one for one in context.proposed if one.cause == end), None)
    signal_seen = killed is not None and killed.basis == "exit" and killed.tier > Tier.GUESS
    if killed is None or not signal_seen or context.stories.deeds.progress:
        return None
    others = (one for one in context.proposed if one.cause != killed.cause)
    if any(one.tier >= Tier.WEAK and not explains(killed, one) for one in others):
        return None
    activity = context.activity
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
    "listed_gone": Predicate(lost_peers.list_of_gone, Tier.CIRCUMSTANTIAL, "crashed"),
    "lost_each_other": Predicate(lost_peers.lost_each_other, Tier.WEAK),
    "left_peers": Predicate(
        lost_peers.left_peers, Tier.CIRCUMSTANTIAL, "missing", unnamed=Tier.WEAK
    ),
}
RULES: Mapping[str, Rule] = {
    name: partial(_propose, name, predicate) for name, predicate in PREDICATES.items()
}
