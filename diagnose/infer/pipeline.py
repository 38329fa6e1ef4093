"""A job → its diagnosis: the steps in order, each a function of what the ones before found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from diagnose import plugins
from diagnose.diagnosis import (
    WELL,
    Confidence,
    Culprits,
    Diagnosis,
    JobFacts,
    Onset,
    Topology,
    Verdict,
    WaitGraph,
)
from diagnose.infer.advise import narrative, remedies, shared
from diagnose.infer.advise.remedies import capture_next
from diagnose.infer.decide import ranking
from diagnose.infer.decide.culprits import name_culprits, put_on_nodes
from diagnose.infer.decide.ranking import Dropped
from diagnose.infer.events.facts import Facts, earlier_attempts, gather, last_attempt
from diagnose.infer.events.failures import failures
from diagnose.infer.events.onset import (
    Start,
    before_end,
    find_activity,
    find_onset,
    last_written,
    pending_since,
    silent_since,
)
from diagnose.infer.judge.lines import stalls
from diagnose.infer.judge.values import bad_values
from diagnose.infer.judge.verdict import Verdict as Stopped
from diagnose.infer.outcome import (
    collective_of,
    hang_shown_by,
    inconclusive,
    job_facts,
    phase_of,
    quiet,
    verdict_of,
)
from diagnose.infer.rules import INFERRED, KNOWN, STATED, proposals, with_claims
from diagnose.infer.rules.base import Context, Hypothesis, Tier
from diagnose.infer.rules.learned import leads_of, with_import, with_kind
from diagnose.infer.why.decision import (
    confidence_reasons,
    culprit_reasons,
    disbelieved_reason,
    proposal_reasons,
    rival_reasons,
    verdict_reasons,
)
from diagnose.infer.why.events import attempt_reasons, event_reasons
from diagnose.stories.silence import Silence, find_silence
from diagnose.stories.story import Stories
from diagnose.stories.work import progress_of
from diagnose.text.times import iso
from diagnose.timeline.event import Event

if TYPE_CHECKING:
    from diagnose.infer.stacks.classify import Place
    from diagnose.job.model import Job


def diagnose(job: Job) -> Diagnosis:
    """The verdict on a job. Deterministic: the same events in any order give the same verdict."""
    result = shared.added(_diagnose(job), job.topology, job.events)
    if job.checkpoints is None:
        return result
    from diagnose.infer.advise import checkpoints  # noqa: PLC0415  most jobs come without

    return checkpoints.added(result, job.checkpoints, job.events, job.catalog)


def _diagnose(job: Job) -> Diagnosis:
    job.complete_claims()
    attempt = last_attempt(job.events, job.catalog.classes)
    timeline = attempt.timeline
    facts = gather(job.events, job.catalog.by_id)
    stories = Stories(timeline, job.catalog.classes)
    shown = failures(stories)
    context = Context(
        timeline,
        job.catalog,
        facts,
        stories,
        failing=shown.counted,
        alive=bool(job.documents.dumps),
        signs=job.documents.signs,
        halted=job.documents.halted,
        checkpoints=job.checkpoints,
        silence=find_silence(stories.deeds, job.catalog.endings),
        values=bad_values(timeline),
    )
    context = _with_places(context, job)
    context = replace(context, stalls=stalls(timeline, facts.world_size))
    about = job_facts(facts, attempt.attempts)
    judged = _judged(job, context)
    stopped = ranking.believed(
        judged, context, passing=job.documents.passing, halted=context.halted
    )
    hang = None if context.failing or stopped is not None else hang_shown_by(context)
    spoilt = context.values is not None and context.values.lasting
    if not context.failing and stopped is None and hang is None and not spoilt:
        result = quiet(context, about, job)
    else:
        context = replace(context, stalls=[stopped]) if stopped is not None else context
        result = _failure(context, about, job, judged, hang)
    if result.verdict in WELL:
        from diagnose.infer import pace  # noqa: PLC0415  jobs that failed have none

        result = pace.added(result, job, facts)
    looked_at = event_reasons([*shown.sifted, *attempt.sifted], job.catalog)
    attempts = attempt_reasons(attempt, job.events, job.catalog)
    return replace(result, reasons=[*result.reasons, *looked_at, *attempts])


def _failure(
    context: Context, about: JobFacts, job: Job, judged: Stopped | None, hang: str | None
) -> Diagnosis:
    """The diagnosis of a job that hung or failed.

    `judged` is what dumps and counters say, believed or not; `hang` the predicate by which it hangs
    though no line shows a failure.
    """
    timeline = context.timeline
    context = replace(context, proposed=[*proposals(STATED, context)])
    first = _first_failure(context)
    start = find_onset(timeline, first)
    if context.by_dumps is not None and start.time is None:
        start = pending_since(timeline, context.by_dumps.group, context.by_dumps.seq)
    waiting = {rank for stall in context.stalls for rank in stall.waiting if rank >= 0}
    context = replace(context, activity=find_activity(timeline, first, waiting))
    context, weighed = _weighed(context, job)
    ranked = weighed.ranked
    if context.silence is not None and _is_of_silence(ranked[0], context.silence):
        start = silent_since(context.silence)
    elif first is not None and ranked[0].hung and first.cause in job.catalog.endings:
        start = before_end(timeline, first)
    if ranked[0].basis == "values" and context.values is not None:
        first = context.values.first
        start = Start(first.time, first.index, "the first bad value of those that stay bad")
    if start.time is None and job.documents.looks:
        written = {source.name: source.mtime for source in job.sources}
        start = last_written(timeline, written) or start
    naming = name_culprits(ranked, context.stories, job.catalog.classes, context.facts.world_size)
    put_on_nodes(ranked[0], timeline)
    notes = [*job.notes, *_notes(job, context, about.attempts)]
    notes += [note for note in plugins.notes() if note not in notes]  # of rules that just failed
    decided = verdict_of(ranked[0], context)
    asked = ranking.conditions(ranked, known=decided[0] != "unknown")
    level = ranking.confidence(asked)
    result = _result(ranked, decided[0], level, context, start, job, about, notes)
    disbelieved = ranking.disbelieved(judged, context) if judged else None
    reasons = [
        *verdict_reasons(ranked[0], decided, result.evidence, timeline, hang),
        *culprit_reasons(ranked, naming, context),
        *confidence_reasons(level, asked),
        *rival_reasons(ranked, timeline),
        *proposal_reasons(weighed.proposed, ranked, weighed.dropped, timeline),
        *([disbelieved_reason(disbelieved)] if disbelieved else []),
    ]
    return replace(result, reasons=reasons)


def _is_of_silence(winner: Hypothesis, silence: Silence) -> bool:
    """Whether the verdict is on those that fell silent: by that, or by where they stood then."""
    seen = winner.basis == "stack" and silence.whole and winner.hung
    return winner.basis == "silence" or seen


class _Weighed(NamedTuple):
    """Hypotheses by plausibility, all that were proposed, and those that were not weighed."""

    ranked: list[Hypothesis]
    proposed: list[Hypothesis]
    dropped: list[Dropped]


def _weighed(context: Context, job: Job) -> tuple[Context, _Weighed]:
    """What the rules propose, against each other; and the context with what is proposed."""
    stated, inferred = context.proposed, [*proposals(INFERRED, context)]
    follows, dropped = ranking.fused(inferred, context)
    context = replace(context, proposed=[*stated, *follows])
    known = [*proposals(KNOWN, context)]
    hypotheses = [*context.proposed, *known]
    likely = [one for one in hypotheses if one.tier >= Tier.GUESS]
    leads = [] if likely else leads_of(context)
    ranked = ranking.rank(ranking.merge(likely or leads))
    ranked = ranked or [inconclusive(context.failing, context.catalog, _waiting(context.lone))]
    ranked = with_import(ranked, context, lambda one: narrative.exception(one, context, job))
    ranked = with_claims(with_kind(ranked, context), context)
    kept = {id(one) for one in likely or leads}
    weak = [Dropped(one, "below_threshold") for one in hypotheses if id(one) not in kept]
    proposed = {id(one): one for one in (*stated, *inferred, *known, *leads)}
    return context, _Weighed(ranked, [*proposed.values()], [*dropped, *weak])


def _waiting(lone: Sequence[Place]) -> str:
    """What a process of unknown rank, such as a launcher, waits in, "" where none does."""
    waiting = next((place for place in lone if place.waits), None)
    if waiting is None:
        return ""
    from diagnose.infer.stacks.groups import described  # noqa: PLC0415  few jobs have stacks

    return f"A process is {described(waiting)}"


def _result(
    ranked: list[Hypothesis],
    decided: Verdict,
    level: Confidence,
    context: Context,
    start: Start,
    job: Job,
    about: JobFacts,
    notes: list[str],
) -> Diagnosis:
    """The decision as a diagnosis."""
    winner, by_dumps = ranked[0], context.by_dumps
    grid = _grid(job, context.facts)
    raised = narrative.exception(winner, context, job)
    held = [*job.documents.held(), *remedies.held_of(winner, context)]
    longer = remedies.longer_timeout(winner, job.catalog, context.activity)
    captured = remedies.captured(context, winner, raised)
    steps = remedies.remedies(winner, job.catalog, context.facts, captured, held, longer)
    return Diagnosis(
        verdict=decided,
        root_cause=narrative.root_cause(winner, raised, level),
        culprits=Culprits(
            winner.ranks, winner.hosts, winner.kind, _why(winner, grid, context), winner.devices
        ),
        phase=phase_of(winner, context, start),
        onset=Onset(iso(start.time), start.why),
        collective=collective_of(context.stalls, winner.ranks),
        longer_timeout_helps=longer,
        causal_chain=narrative.chain(winner, context, job.clocks),
        evidence=narrative.evidence(winner, context),
        exception=raised,
        alternatives=narrative.alternatives(ranked),
        remedies=[
            *remedies.look_first(winner, context, raised),
            *remedies.find_nodes(winner, steps),
            *steps,
        ],
        restart=remedies.restart(winner, job.catalog),
        missing_evidence=capture_next(
            winner,
            level,
            job.catalog,
            context.facts,
            bool(context.stalls),
            _undumped(by_dumps),
            held,
        ),
        job=about,
        progress=progress_of(context.timeline),
        graph=WaitGraph({**by_dumps.roles}, [*by_dumps.edges]) if by_dumps else None,
        topology=grid,
        places=[*context.stacks],
        notes=notes,
    )


def _with_places(context: Context, job: Job) -> Context:
    """The context with where processes are, by documents and by what they printed themselves."""
    if not context.timeline.kind("frame"):
        return replace(context, stacks=job.places, lone=job.lone_stacks)
    from diagnose.infer.stacks.processes import with_printed  # noqa: PLC0415  few jobs have stacks

    classes, lone = with_printed(job.places, job.lone_stacks, context.timeline, context.catalog)
    return replace(context, stacks=classes, lone=lone)


def _undumped(by_dumps: Stopped | None) -> list[int] | None:
    """The ranks of the job that left no dump, where others did."""
    if by_dumps is None:
        return None
    return sorted(rank for rank, role in by_dumps.roles.items() if role == "no dump")


def _judged(job: Job, context: Context) -> Stopped | None:
    """Who is waited for by dumps and counters, with what lines tell beside them."""
    if job.collectives is None or not ranking.worth_analysis(context):
        return None
    from diagnose.infer.collectives import analyze, from_counters  # noqa: PLC0415  few have dumps

    lines = analyze.lines_beside(context.timeline, context.stalls)
    found = analyze.judge(job.collectives, lines, alive=context.alive)
    if found is None or context.alive:
        return found
    ends = {edge.source: edge.line for edge in context.timeline.kind("edge")}
    amid = from_counters.ends_amid_round(job.collectives, ends, context.timeline.truncated)
    return replace(found, amid_round=amid)


def _first_failure(context: Context) -> Event | None:
    rows = [h.rows[0] for h in context.proposed if h.rows and h.tier >= Tier.LIKELY]
    # What a user says stands above the log or below it, and tells no time.
    rows += [event.index for event in context.failing[:1] if event.signal != "stuck"]
    return context.timeline.at(min(rows)) if rows else None


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


def _notes(job: Job, context: Context, attempts: int) -> list[str]:
    """What dumps lack, hosts whose clock is surely off, and what earlier attempts died of."""
    clocks = job.clocks.notes() if job.clocks else []
    lacking = [note for stall in context.stalls for note in stall.notes]
    return [*lacking, *clocks, *earlier_attempts(job.events, job.catalog, attempts)]


__all__ = ["diagnose"]
