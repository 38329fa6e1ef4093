"""A job → its diagnosis: the steps in order, each a function of what the ones before found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from diagnose import plugins
from diagnose.diagnosis import (
    Culprits,
    Diagnosis,
    Evidence,
    JobFacts,
    Onset,
    RestartAdvice,
    RootCause,
    Topology,
)
from diagnose.infer import scoring
from diagnose.infer.advise import capture, narrative, remedies
from diagnose.infer.decide import fusion, ranking, silent, verdict
from diagnose.infer.decide.culprits import name_culprits
from diagnose.infer.events.afterlife import afterlife
from diagnose.infer.events.attempts import earlier_attempts, last_attempt
from diagnose.infer.events.facts import Facts, gather
from diagnose.infer.events.failures import closed, done, failures, unexplained, went_on
from diagnose.infer.events.heartbeat import progress_of
from diagnose.infer.events.onset import Start, find_onset
from diagnose.infer.events.phases import find_activity, last_phase
from diagnose.infer.events.watchdogs import stalled_groups
from diagnose.infer.rules import (
    INFERRED,
    KNOWN,
    STATED,
    collectives,
    proposals,
    resembles,
)
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.busy import busy_class, unstated
from diagnose.text.times import iso
from diagnose.timeline.event import Event, Fields

if TYPE_CHECKING:
    from diagnose.infer.collectives.verdict import DumpVerdict
    from diagnose.job.model import Job

# Unknown error lines that are shown, and how much of one stands in the verdict.
_TROUBLE_SHOWN, _QUOTED = 4, 200
_BUSY = "Nothing says what went wrong; the log ends amid this work, which was not finished."


def diagnose(job: Job) -> Diagnosis:
    """The verdict on a job. Deterministic: the same events in any order give the same verdict."""
    result = _diagnose(job)
    if job.checkpoints is None:
        return result
    from diagnose.infer.advise import checkpoints  # noqa: PLC0415  most jobs come without

    return checkpoints.added(result, job.checkpoints, job.events, job.catalog)


def _diagnose(job: Job) -> Diagnosis:
    timeline, attempts = last_attempt(job.events)
    facts = gather(job.events, job.catalog.by_id)
    life = afterlife(timeline, job.catalog.classes)
    context = Context(
        timeline,
        job.catalog,
        facts,
        life,
        failing=failures(timeline, life),
        alive=bool(job.documents.dumps),
        stacks=job.places,
        lone=job.lone_stacks,
        signs=job.documents.signs,
        stood=job.documents.stood,
        checkpoints=job.checkpoints,
    )
    judged = _judged(job, context)
    read = job.documents
    blocked = fusion.believed(judged, context, passing=read.passing, stood=read.stood)
    if not context.failing and blocked is None and not silent.hangs(context):
        return _quiet(context, verdict.facts_told(facts, attempts), job)
    context, notes = _with_stalls(replace(context, blocked=blocked))
    context = replace(context, proposed=[*proposals(STATED, context)])
    first = _first_failure(context)
    start = find_onset(timeline, first)
    if blocked is not None and start.time is None:
        start = collectives.onset(blocked, timeline)
    waiting = {rank for stall in context.stalls for rank in stall.joined if rank >= 0}
    context = replace(context, activity=find_activity(timeline, first, waiting))
    follows = fusion.fused(proposals(INFERRED, context), context)
    context = replace(context, proposed=[*context.proposed, *follows])
    hypotheses = [*context.proposed, *proposals(KNOWN, context)]
    likely = [one for one in hypotheses if one.score >= scoring.THRESHOLD]
    likely = likely or _leads(hypotheses, context)
    ranked = ranking.rank(ranking.merge(likely))
    ranked = ranked or [verdict.inconclusive(context.failing, job.catalog)]
    name_culprits(ranked, timeline, job.catalog.classes, facts.world_size)
    about = verdict.facts_told(facts, attempts)
    told = [*job.notes, *notes, *fusion.overruled(judged, context), *_notes(job, attempts)]
    told += [note for note in plugins.notes() if note not in told]  # of rules that just failed
    return _told(ranked, context, start, job, about, told)


def _told(
    ranked: list[Hypothesis],
    context: Context,
    start: Start,
    job: Job,
    about: JobFacts,
    notes: list[str],
) -> Diagnosis:
    """The decision as a diagnosis."""
    winner, blocked = ranked[0], context.blocked
    grid = _grid(job, context.facts)
    level = ranking.confidence(ranked)
    silent = not context.failing or blocked is not None
    undumped = collectives.undumped(blocked) if blocked else None
    by_dumps = collectives.collective(blocked) if blocked else None
    return Diagnosis(
        verdict=verdict.verdict_of(winner, context, silent=silent),
        root_cause=RootCause(winner.cause, winner.title, winner.summary, level, winner.signature),
        culprits=Culprits(winner.ranks, winner.hosts, winner.kind, _why(winner, grid, context)),
        phase=verdict.phase_of(winner, context, start),
        onset=Onset(iso(start.time), start.why),
        collective=by_dumps if blocked else verdict.collective_of(context.stalls, winner.ranks),
        longer_timeout_helps=remedies.longer_timeout(winner, job.catalog, context.activity),
        causal_chain=narrative.chain(winner, context, job.clocks),
        evidence=narrative.evidence(winner, context),
        alternatives=narrative.alternatives(ranked),
        remedies=remedies.remedies(winner, job.catalog, context.facts, _captured(context, winner)),
        restart=remedies.restart(winner, job.catalog),
        missing_evidence=capture.capture_next(
            winner, level, job.catalog, context.facts, bool(context.stalls), undumped
        ),
        job=about,
        progress=progress_of(context.timeline),
        graph=collectives.graph(blocked) if blocked else None,
        topology=grid,
        places=job.places,
        notes=notes,
    )


def _judged(job: Job, context: Context) -> DumpVerdict | None:
    """What dumps and counters say of who is waited for."""
    if job.collectives is None or not fusion.worth_analysis(context):
        return None
    from diagnose.infer.collectives.analyze import judge  # noqa: PLC0415  few jobs have dumps

    return judge(job.collectives)


def _with_stalls(context: Context) -> tuple[Context, list[str]]:
    """The context with the groups that stopped, and what dumps and logs disagree on."""
    found = stalled_groups(context.timeline, context.facts.world_size)
    blocked = context.blocked
    if blocked is None:
        return replace(context, stalls=found), []
    same = [stall for stall in found if collectives.agrees(blocked, stall)]
    notes = [*blocked.notes, *filter(None, [collectives.conflict(blocked, found)])]
    stall = collectives.stall_of(blocked, context.timeline)
    return replace(context, stalls=[stall], agreeing=same), notes


def _leads(hypotheses: Sequence[Hypothesis], context: Context) -> list[Hypothesis]:
    """What is better than nothing where nothing is likely: low confidence, and no culprits."""
    lines = [event for event in context.timeline if event.signature is None or _vague(event)]
    found = list(resembles.propose(context, lines))
    phase = context.activity.phase if context.activity.moving else None
    if phase == "inference" and all(event.role == "aftermath" for event in context.failing):
        phase = None  # a server that was stopped kept nobody waiting
    busy = busy_class(phase, context.catalog) if phase else None
    if busy and not _peer_went(context.failing):
        found.insert(0, unstated(busy, scoring.THRESHOLD, context.catalog, _BUSY))
    return found[:1] or [h for h in hypotheses if h.score > 0 and h.cause != "unknown"]


def _peer_went(failing: Sequence[Event]) -> bool:
    """Whether the lines say only that a peer went away, whose own log knows why."""
    told = [event.role == "effect" and _of_a_peer(event) for event in failing]
    return bool(told) and all(told)


def _of_a_peer(event: Event) -> bool:
    return event.tells == "peer_gone" or "peer" in event.fields


def _vague(event: Event) -> bool:
    return event.tells == "trouble" or event.role == "aftermath"


def _first_failure(context: Context) -> Event | None:
    rows = [h.rows[0] for h in context.proposed if h.rows and h.score >= scoring.STRONG]
    # What a user says stands above the log or below it, and tells no time.
    rows += [event.index for event in context.failing[:1] if event.tells != "stuck"]
    return context.timeline.at(min(rows)) if rows else None


def _quiet(context: Context, about: JobFacts, job: Job) -> Diagnosis:
    """No failure in the log: healthy if it says that it ended well, running if it was at work.

    Only if it was read to its end; else nobody knows.
    """
    timeline, catalog = context.timeline, context.catalog
    working = (
        verdict.at_work(context) or went_on(timeline, context.life) or silent.seen_at_work(context)
    )
    trouble = unexplained(timeline, context.life)
    ended, said = _calm(context)
    quiet = Diagnosis(
        verdict="healthy" if ended else "running",
        root_cause=RootCause(
            "none",
            catalog.classes["none"].title,
            said,
            "low" if job.pasted and not ended else "medium",
        ),
        phase=last_phase(timeline.kind("phase", "progress")),
        onset=Onset(None, "no failure in the log"),
        restart=RestartAdvice("none", [], "no restart needed"),
        job=about,
        progress=progress_of(timeline),
        notes=list(job.notes),
    )
    if working and not trouble and not job.unread:
        return quiet
    summary = "No known failure or progress message in this input."
    if trouble:
        said = narrative.clean(trouble[:_TROUBLE_SHOWN][-1].text)[:_QUOTED]
        summary = f"The log contains an error that the catalog does not recognise: {said}"
    elif working:
        summary = f"No failure found, but the input was not read to its end: {job.unread[0]}."
    unknown = Hypothesis("unknown", 0.0, catalog.classes["unknown"].title, summary)
    lead = next(resembles.propose(context, trouble), None)
    if lead is not None:
        unknown = replace(lead, summary=f"{lead.summary} {summary}")
    facts = Facts(world_size=about.world_size, ranks_seen=about.ranks_seen)
    return replace(
        quiet,
        verdict="unknown",
        root_cause=RootCause(unknown.cause, unknown.title, unknown.summary, "low"),
        evidence=[
            Evidence(*event.place, narrative.clean(event.text), "")
            for event in trouble[:_TROUBLE_SHOWN]
        ],
        remedies=remedies.remedies(unknown, catalog, facts),
        missing_evidence=capture.capture_next(unknown, "low", catalog, facts, waits=False),
    )


def _calm(context: Context) -> tuple[bool, str]:
    """Whether a job without a failure has ended, and how it is told."""
    if done(context.timeline):
        return True, "The job says that it ended well, and no failure was found."
    if closed(context.timeline):
        return True, "The server shut down in order, and no failure was found."
    if silent.seen_at_work(context):
        return False, "All ranks were at work when they were looked at; no failure was found."
    return False, "The job was at work where the log ends; no failure was found."


def _captured(context: Context, winner: Hypothesis) -> list[Fields]:
    """What the line that is the first sign of a cause captured."""
    return [context.timeline.at(index).fields for index in winner.rows[:1]]


def _why(winner: Hypothesis, grid: Topology | None, context: Context) -> str:
    """Why they are the culprits, and the part of the job that they all are in."""
    if len(winner.ranks) < 2:
        return winner.why
    from diagnose.infer.collectives.parallelism import smallest_unit  # noqa: PLC0415

    unit = smallest_unit(winner.ranks, grid or Topology(), context.timeline.hosts_of_ranks)
    return "; ".join(part for part in (winner.why, unit.text if unit else "") if part)


def _grid(job: Job, facts: Facts) -> Topology | None:
    """The grid that the groups of the job make, if they make one."""
    groups, world = job.groups
    if not groups:
        return None
    from diagnose.infer.collectives.parallelism import topology  # noqa: PLC0415

    grid = topology(groups, facts.world_size or world)
    return grid if grid.axes else None


def _notes(job: Job, attempts: int) -> list[str]:
    """Hosts whose clock is surely off, and what earlier attempts died of."""
    clocks = job.clocks.notes() if job.clocks else []
    return [*clocks, *earlier_attempts(job.events, job.catalog, attempts)]


__all__ = ["diagnose"]
