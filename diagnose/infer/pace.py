"""What times of steps add to the verdict on a job that works: a slow rank, a slowdown.

A slow job is no failed one: its verdict stays, and with it what a script reads off the exit status.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from diagnose.catalog.schema import HARMLESS, Held
from diagnose.diagnosis import (
    Confidence,
    Culprits,
    Diagnosis,
    Evidence,
    Reason,
    RootCause,
    SourceLine,
)
from diagnose.infer.advise import narrative, remedies
from diagnose.infer.events.facts import Facts
from diagnose.infer.judge.pace import find_slow, find_slowdown
from diagnose.infer.judge.slow import COMPUTE, Slow, Slowdown
from diagnose.infer.rules.base import Hypothesis, Tier
from diagnose.infer.rules.signatures import culprits_of
from diagnose.text.ranks import plural, ranks_phrase

if TYPE_CHECKING:
    from diagnose.job.model import Job
    from diagnose.timeline.event import Event

_RULE = "pace"
_WITNESSES = 3
_PLACES = 4
_REPORTS = 3  # of detectors that name the same ranks
# What a rank spends its time on, by the part of a step; a class lists `pace.PART` in `shown_by`.
PARTS = {
    "data": "to get its data",
    "forward": "for its forward pass",
    "backward": "for its backward pass",
    COMPUTE: "to compute",
    "checkpoint": "to save checkpoints",
    "exchange": "to send",
    "total": "for a step",
}
_HOW = {
    "own_work": "its own work, for which the others wait, takes longer than theirs",
    "reports": "a detector reports it as the slowest again and again",
    "arrives_last": "it enters collectives last",
    "waits_least": "it waits for the others for the shortest time",
    "clock": "hardware holds the clock of its GPU down",
}


# Why the confidence is so, by the predicate.
_SURE = {
    "witnesses_agree": "times of its own work and the time for which it waits show the same rank",
    "clock_agrees": "times of its own work and the clock of its GPU show the same rank",
    "began_amid_the_run": "it was as fast as its peers before",
    "from_the_first_step": "a rank that differs from the first step on may just have more to do",
    "one_witness": "one kind of times shows it",
}


def added(found: Diagnosis, job: Job, facts: Facts) -> Diagnosis:
    """The diagnosis of a job that works or worked, with who is slow, and since when steps take
    longer; mostly as it was.
    """
    if not job.events.kind("progress", "phase"):
        return found
    change = find_slowdown(job.pace, ended=found.verdict == "healthy")
    if change is not None and found.progress is not None:
        made = replace(
            found.progress,
            seconds_a_step=round(change.after_s, 3),
            earlier_seconds_a_step=round(change.before_s, 3),
        )
        found = replace(found, progress=made)
    if found.root_cause.cause != HARMLESS:  # its values are bad, say, which matters more
        return found
    slow = find_slow(job.pace, job.events.hosts_of_ranks) or _claimed(job, facts)
    if change is not None:
        found = _slower(found, change, job, facts)
    return found if slow is None else _named(found, slow, change, job, facts)


def _claimed(job: Job, facts: Facts) -> Slow | None:
    """Whom detectors report as slow: each of the last reports, of which there are several."""
    late = job.catalog.class_shown_by("pace.late")
    found: list[tuple[frozenset[int], Event]] = []
    for event in job.events.role("cause"):
        signature = job.catalog.by_id.get(event.signature or "")
        if event.cause == late and signature is not None and signature.culprit == "captured":
            blamed, _ = culprits_of(signature, [event], facts.world_size, job.events)
            found.append((frozenset(blamed), event))
    last = found[-_REPORTS:]
    named = {blamed for blamed, _ in last}
    if len({event.place for _, event in last}) < _REPORTS or len(named) != 1 or not last[0][0]:
        return None
    ranks = tuple(sorted(last[0][0]))
    places = tuple(event.place for _, event in last)
    return Slow("reports", ranks, None, 0.0, 0.0, 0.0, 0.0, places=places)


def _slower(found: Diagnosis, change: Slowdown, job: Job, facts: Facts) -> Diagnosis:
    """Say since when steps take longer, and how to find out why."""
    times = f"{change.after_s / change.before_s:.1f} x"
    title = f"Steps take {times} as long since step {change.since:,}"
    text = _changed(change)
    cause = replace(found.root_cause, title=title, summary=f"{found.root_cause.summary} {text}")
    reason = Reason("verdict", "won", cause.cause, "slower_since", text, rule=_RULE)
    nobody = Hypothesis(cause.cause, Tier.NONE, title, text)
    held: list[Held] = [*job.documents.held(), "slower"]
    steps = remedies.remedies(nobody, job.catalog, facts, held=held)
    return replace(
        found,
        root_cause=cause,
        remedies=[*steps, *found.remedies],
        reasons=[*found.reasons, reason],
    )


def _changed(change: Slowdown) -> str:
    return (
        f"Since step {change.since:,} a step takes {_took(change.after_s)}, "
        f"{change.after_s / change.before_s:.1f} x as long as the {_took(change.before_s)} before."
    )


def _named(
    found: Diagnosis, slow: Slow, change: Slowdown | None, job: Job, facts: Facts
) -> Diagnosis:
    """Name who is slow."""
    catalog = job.catalog
    hosts = sorted({host for rank in slow.ranks if (host := job.events.hosts_of_ranks.get(rank))})
    hosts = hosts or sorted({host for host, _ in slow.gpus if host is not None})
    if not slow.ranks and not hosts:
        return found
    seen = [*_witnesses(slow, hosts, job)]
    cause = catalog.class_shown_by(f"pace.{slow.phase or 'late'}")
    if slow.phase in (None, COMPUTE):
        cause = next((e.cause for e in seen if e.cause and _of_node(e, job)), cause)
    who = ranks_phrase(slow.ranks) if slow.ranks else ", ".join(hosts)
    many = max(len(slow.ranks), 1 if slow.ranks else len(hosts))
    title = f"{who} {plural(many, 'is', 'are')} slower than {plural(many, 'its', 'their')} peers"
    title = title[0].upper() + title[1:]
    text = " ".join([_summary(slow, who, many), *([_changed(change)] if change else [])])
    level, predicate = _confidence(slow)
    winner = Hypothesis(
        cause, Tier.LIKELY, title, text, ranks=[*slow.ranks], hosts=hosts, kind="slow",
        why=_HOW[slow.basis], inferred=True, rule=_RULE,
    )  # fmt: skip
    places = [SourceLine(*place) for place in slow.places[:_PLACES]]
    return replace(
        found,
        root_cause=RootCause(cause, title, text, level),
        culprits=Culprits([*slow.ranks], hosts, "slow", _HOW[slow.basis]),
        evidence=[*found.evidence, *_evidence(slow, job), *_reported(seen)],
        remedies=remedies.remedies(winner, catalog, facts, held=[*job.documents.held(), "pace"],
                                   longer="no"),
        reasons=[
            *[one for one in found.reasons if one.step != "confidence"],
            Reason("confidence", "reached", level, predicate, _SURE[predicate]),
            Reason("verdict", "won", cause, f"slow_{slow.basis}", text, rule=_RULE, places=places),
            Reason("culprits", "named", who, f"slow_{slow.basis}", _HOW[slow.basis], places=places),
        ],
    )  # fmt: skip


def _confidence(slow: Slow) -> tuple[Confidence, str]:
    """Medium where two witnesses agree, or where it began amid the run; else a lead."""
    if slow.agreed:
        return "medium", "witnesses_agree"
    if slow.clock is not None and slow.basis != "clock":
        return "medium", "clock_agrees"
    if slow.basis != "own_work":
        return "low", "one_witness"
    began = slow.since is not None
    return ("medium", "began_amid_the_run") if began else ("low", "from_the_first_step")


def _summary(slow: Slow, who: str, many: int) -> str:
    """Who needs how much longer for what, since when, and what that costs."""
    whose = who[0].upper() + who[1:]
    since = f" since step {slow.since:,}" if slow.since is not None else ""
    parts: list[str] = []
    if slow.basis == "reports" and not slow.seconds:
        parts.append(f"A detector reports {who} as slow, {len(slow.places)} times in a row.")
    elif slow.basis in ("own_work", "reports"):
        verb = plural(many, "needs", "need")
        parts.append(
            f"{whose} {verb} {slow.factor:.1f} x as long as {plural(many, 'its', 'their')} peers "
            f"{PARTS[slow.phase or 'total']}{since} ({_took(slow.seconds)}, {_took(slow.peers_s)})."
        )
    elif slow.basis == "arrives_last":
        parts.append(
            f"{whose} {plural(many, 'enters', 'enter')} collectives last{since}, "
            f"{_took(slow.lost_s)} after {plural(many, 'its', 'their')} peers."
        )
    elif slow.basis == "waits_least":
        parts.append(
            f"{whose} {plural(many, 'waits', 'wait')} least for the others{since}: "
            f"{_took(slow.lost_s)} less than {plural(many, 'its', 'their')} peers in each step."
        )
    if slow.clock is not None:
        parts.append(
            f"The hardware holds {_gpus(slow)} at {slow.clock[0]:,.0f} MHz; others run at "
            f"{slow.clock[1]:,.0f} MHz."
        )
    if slow.cost >= 1.05 and slow.phase != "total":
        parts.append(f"All wait for that: a step takes {slow.cost:.1f} x as long as without it.")
    return " ".join(parts)


def _gpus(slow: Slow) -> str:
    named = [f"GPU {index}" + (f" of {host}" if host else "") for host, index in slow.gpus[:4]]
    return ", ".join(named) + (" and more" if len(slow.gpus) > 4 else "")


def _took(seconds: float) -> str:
    """`12 ms`, `1.24 s`."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"


def _evidence(slow: Slow, job: Job) -> Iterator[Evidence]:
    """The last lines that show it."""
    places = [place for place in slow.places[:_PLACES] if place[1]]
    around = job.lines_around(places, 0, 0)
    for place in slow.places[:_PLACES]:
        text = around.get(place, {}).get(place[1], "")
        if text:
            yield Evidence(*place, narrative.clean(text), _HOW[slow.basis])
        elif place[0]:
            yield Evidence(place[0], 0, "times of steps", _HOW[slow.basis], quoted=False)


def _witnesses(slow: Slow, hosts: Sequence[str], job: Job) -> Iterator[Event]:
    """What else was reported of them alone, the last lines first."""
    others = {host for rank, host in job.events.hosts_of_ranks.items() if rank not in slow.ranks}
    count = 0
    for event in reversed(job.events.role("cause")):
        own = event.rank in slow.ranks if event.rank is not None else event.host in hosts
        if own and (event.rank is not None or event.host not in others) and count < _WITNESSES:
            count += 1
            yield event


def _of_node(event: Event, job: Job) -> bool:
    known = job.catalog.classes.get(event.cause or "")
    return known is not None and known.stays_with_node


def _reported(seen: Sequence[Event]) -> Iterator[Evidence]:
    for event in seen:
        yield Evidence(
            *event.place, narrative.clean(event.text), "reported of the same rank or node"
        )
