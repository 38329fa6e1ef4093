"""The verdict: hung, failed, healthy, running or unknown, and in which phase.

Of a job in which no line shows a failure: whether it hangs all the same, and else its diagnosis.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import (
    Collective,
    Culprits,
    Diagnosis,
    Evidence,
    JobFacts,
    Onset,
    Progress,
    Reason,
    RemedyStep,
    RestartAdvice,
    RootCause,
    Verdict,
)
from diagnose.infer.advise import narrative, remedies
from diagnose.infer.advise.remedies import capture_next
from diagnose.infer.decide.culprits import WROTE_NOTHING_MORE
from diagnose.infer.events.facts import Facts, earlier_attempts
from diagnose.infer.events.failures import (
    closed,
    done,
    not_ended,
    reported_hang,
    shut_down,
    unexplained,
    went_on,
)
from diagnose.infer.events.onset import Start, find_activity, last_phase
from diagnose.infer.judge.verdict import DIFFER
from diagnose.infer.judge.verdict import Verdict as Stopped
from diagnose.infer.rules import claims_beside_work, known_issues, plugged_rules
from diagnose.infer.rules.base import Context, Hypothesis, Tier
from diagnose.infer.rules.learned import suggested, unknown_lines
from diagnose.infer.why.decision import author_reasons, proposal_reasons, quiet_reasons
from diagnose.infer.why.events import event_reasons
from diagnose.stories.passing import WAITED
from diagnose.stories.silence import fell_silent_with, own_way
from diagnose.stories.work import progress_of
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Event, Timeline

if TYPE_CHECKING:
    from diagnose.catalog.schema import Held
    from diagnose.job.model import Job


_ROWS = 4
# Evidence whose phase is that of the trouble; other events tell what went on beside it.
_OF_ITS_OWN = ("cause", "aftermath")
# What a job does again and again between training steps.
_WITHIN_TRAINING = ("evaluation", "checkpoint", "inference")
# Unknown error lines that are shown, and how much of one stands in the verdict.
_TROUBLE_SHOWN, _QUOTED = 4, 200
# Why nothing is called healthy or running, and how the reader learns of it.
_UNKNOWN = {
    "unexplained_error": "an error line that no entry explains and no work answered",
    "not_at_work": "no line shows progress, an ending, or a phase beyond the start",
    "only_glanced": "somebody looked into the job after the last line of work, and the counters of "
    "NCCL, which tell what was launched and not what ended, do not show whether any rank moved",
    "one_look": "all ranks were at one line when their stacks were taken, as in a step or a wait",
    "seen_in_its_work": "the log says that the job ended, and a stack shows a rank amid its work: "
    "nobody knows which of the two is later",
    "shut_down": "processes were ended after the last line of work, and no line says why",
    "others_not_ended": "ranks say that they finished, and others of the job do not",
    "not_read_to_end": "the input was not read to its end: {0}",
}
_DOUBTED = {
    "shut_down": "The processes were shut down at the end, and no line says whether anything had "
    "failed.",
    "not_at_work": "No known failure or progress message in this input.",
    "only_glanced": "No failure found, but nothing shows that the job still moved when RAS was "
    "asked.",
    "one_look": "No failure found, but all ranks stood at one line when their stacks were taken: "
    "take them again, and if nobody has moved, the job hangs.",
    "seen_in_its_work": "No failure found, and the log says that the job ended, but a stack shows "
    "a rank amid its work: if that stack is the later one, the rank hangs.",
    "not_read_to_end": "No failure found, but the input was not read to its end: {0}.",
}
_READ = ("unexplained_error", "not_at_work")  # where lines that no entry knows may say why
_CALM = {
    "done": "The job says that it ended well, and no failure was found.",
    "closed": "The server shut down in order, and no failure was found.",
    "seen_at_work": "All ranks were at work when they were looked at; no failure was found.",
    "at_work_at_end": "The job was at work where the log ends; no failure was found.",
}
_ENDED = ("done", "closed")
_LAST = "That is so of the last of its {:,} attempts only."


def inconclusive(failing: Sequence[Event], catalog: Catalog, waiting: str = "") -> Hypothesis:
    """What is left where no rule proposes anything; the one pod that is told to have failed."""
    summary = "The job failed, but these lines do not show why."
    if not failing:
        seen = waiting or "The job had not ended when somebody looked into it"
        summary = f"{seen}; nothing shows why it hangs."
    elif all(event.signal == "stuck" for event in failing):
        summary = "The user says that the job hangs; these lines do not show why."
    rows = [event.index for event in failing[:_ROWS]]
    title = catalog.classes["unknown"].title
    found = Hypothesis(
        "unknown", Tier.GUESS, title, summary, rows, inferred=True, rule="inconclusive"
    )
    died = [event for event in failing if event.signal == "dies" and event.rank is None]
    ended = {host for event in died if (host := event.fields.get("host"))}  # of a pod
    if len(ended) == 1:
        found.hosts, found.kind, found.why = sorted(ended), "crashed", "it alone ended in an error"
    return found


def verdict_of(winner: Hypothesis, context: Context) -> tuple[Verdict, str]:
    """Hung: ranks waited in vain and nobody died of it first; failed: everything else.

    With the name of the predicate that decided it.
    """
    if winner.basis == "silence" and context.silence is not None and not context.silence.whole:
        return "unknown", "one_fell_silent"
    if winner.basis == "values" and context.values is not None and not context.failing:
        return context.values.verdict(ended=_calm(context) in _ENDED)
    hang = context.catalog.classes[winner.cause].hang
    if hang == "fails" and winner.tier <= Tier.GUESS:
        hang = "either"  # a guess at the cause takes back no hang that is shown
    silent = _silent_by(winner, context)
    if silent is not None and winner.inferred and hang != "fails":
        return "hung", silent
    waited = silent is not None or bool(context.timeline.signalling(*WAITED))
    if not waited and not reported_hang(context.stories):
        return "failed", "nobody_waited"
    if hang == "hangs":
        return "hung", "waited" if waited else "user_reports_hang"
    return "failed", "class_fails" if hang == "fails" else "class_may_fail"


def _silent_by(winner: Hypothesis, context: Context) -> str | None:
    """The predicate by which a job stopped without a line that shows a failure; None if not so."""
    if winner.basis == "silence":
        return "fell_silent"
    if winner.hung:
        return "seen_to_hang"
    if context.by_dumps is not None:
        return "stopped_by_dumps"
    return None if context.failing else "no_failure_line"


def phase_of(winner: Hypothesis, context: Context, start: Start) -> str | None:
    """The phase in which the trouble began."""
    timeline, activity = context.timeline, context.activity
    of_class = context.catalog.classes[winner.cause]
    if of_class.phase:
        return of_class.phase
    events = [timeline.at(index) for index in winner.rows]
    own = [event.phase for event in events if event.role in _OF_ITS_OWN and event.phase]
    within = "training" in own and activity.phase in _WITHIN_TRAINING
    if own and not within:
        return own[0]
    if activity.phase:
        return activity.phase
    marks = timeline.kind("phase", "progress")
    if start.row is not None:
        marks = [mark for mark in marks if mark.index <= start.row]
    if any(mark.kind == "progress" for mark in marks):
        return "training"
    phase = last_phase(marks) or next((event.phase for event in events if event.phase), None)
    return phase or of_class.usual_phase


def collective_of(found: Sequence[Stopped], culprits: Collection[int] = ()) -> Collective | None:
    """The operation in which most ranks of the first verdict wait for the culprits.

    Who made another call there has not joined it, unless only such ranks are known. A guess who did
    not join gives way to culprits who all did.
    """
    one = found[0] if found else Stopped("unclear")
    if not (one.group or one.op or one.joined or one.missing):
        return None
    others = [rank for rank in one.joined if rank not in one.ranks]
    joined = others if one.kind in DIFFER and others else [*one.joined]
    guess = not one.ranks and bool(culprits) and set(culprits) <= set(one.waiting)
    missing = [] if guess else [*one.missing]
    return Collective(one.group, one.op, one.seq, joined, missing, one.site)


def job_facts(facts: Facts, attempts: int) -> JobFacts:
    """What the log says about the job itself, as the diagnosis has it."""
    return JobFacts(
        world_size=facts.world_size,
        hosts=facts.hosts,
        attempts=attempts,
        frameworks=facts.get("framework"),
        versions=facts.versions,
        ranks_seen=facts.ranks_seen,
    )


def at_work(context: Context) -> bool:
    """Whether the log shows work at all: a phase beyond the start, or progress."""
    begun = any(mark.phase not in (None, "init") for mark in context.timeline.kind("phase"))
    return begun or bool(context.timeline.kind("progress"))


def hang_shown_by(context: Context) -> str | None:
    """What shows a freeze without any failure line; None where nothing does.

    A known issue whose every condition the log shows, or stacks that somebody took of a process
    that did not end: steps above them, or in files that no order ties to them, do not speak against
    it unless all ranks were at one line that may be a step. Rules of other packages may know
    failures in words that nobody else knows.
    """
    if any(one.tier >= Tier.STRONG for one in plugged_rules(context)):
        return "plugged_rule"
    if context.stacks:
        from diagnose.infer.stacks.groups import by_itself, hang  # noqa: PLC0415  few have stacks

        way = own_way(context.timeline)
        if way is not None and by_itself(context.stacks, way.rank):
            return "own_way"
        stepped = context.timeline.kind("progress") and seen_together(context)
        if not stepped and hang(context.stacks, context.world):
            return "stacks"
    if context.halted:
        return "reports"
    if context.signs:
        from diagnose.infer.rules import node_signs  # noqa: PLC0415  only bundles have them

        if node_signs.hang(context.signs, context.stacks, ended=done(context.stories)):
            return "node_signs"
    if context.silence is not None:
        return "silence"
    if _printed_last(context):
        return "printed_stacks"
    if went_on(context.stories) or seen_at_work(context):
        return None
    if context.lone:
        return "lone_stacks"
    context = replace(context, activity=find_activity(context.timeline, None, set()))
    known = any(h.tier >= Tier.STRONG for h in known_issues.propose(context))
    return "known_issue" if known else None


def _printed_last(context: Context) -> bool:
    """Whether processes of unknown rank printed where they stand, and no step is printed below.

    Of stacks in files of their own nobody knows whether steps came after them.
    """
    logs = {event.source for event in context.timeline.kind("frame")}
    return any(place.running and place.stack.source in logs for place in context.lone)


def seen_at_work(context: Context) -> bool:
    """Whether every rank made steps between two looks at it."""
    if not context.stacks or context.halted:
        return False  # a process that waits for its GPU is as busy as one at work
    from diagnose.infer.stacks.groups import at_work  # noqa: PLC0415  few jobs have stacks

    return at_work(context.stacks)


def seen_in_its_work(context: Context) -> bool:
    """Whether a rank was amid its work, and not at its end, when somebody took its stack."""
    return any(
        place.running and place.state != "exited" and place.phase != "shutdown"
        for group in context.stacks
        for place in group.places
    )


def seen_together(context: Context) -> bool:
    """Whether all ranks were at one line, in no call that is known to wait, when looked at once."""
    if not context.stacks or seen_at_work(context):
        return False
    from diagnose.infer.stacks.groups import together  # noqa: PLC0415  few jobs have stacks

    return together(context.stacks, context.world)


def quiet(context: Context, about: JobFacts, job: Job) -> Diagnosis:
    """Healthy if the job says that it ended well, running if it was at work.

    Only if the log was read to its end; else nobody knows.
    """
    timeline, catalog = context.timeline, context.catalog
    calm = _calm(context)
    ended = calm in _ENDED
    named: Verdict = "healthy" if ended else "running"
    pasted = job.pasted and not ended
    made = progress_of(timeline)
    earlier = earlier_attempts(job.events, catalog, about.attempts)
    summary = _CALM[calm]
    if about.attempts > 1:
        summary += f" {_LAST.format(about.attempts)}"
    found = Diagnosis(
        verdict=named,
        root_cause=RootCause(
            "none", catalog.classes["none"].title, summary, "low" if pasted else "medium"
        ),
        phase=last_phase(timeline.kind("phase", "progress")),
        onset=Onset(None, "no failure in the log"),
        remedies=_liveness_check(calm, made, context, job),
        restart=RestartAdvice("none", [], "no restart needed"),
        job=about,
        progress=made,
        notes=[*job.notes, *claims_beside_work(timeline), *earlier],
    )
    trouble = unexplained(context.stories)
    looked_at = event_reasons(trouble.sifted, catalog)
    doubt = _doubt(context, trouble.counted, job)
    if doubt is not None:
        return _unknown(found, doubt, context, trouble.counted, job, looked_at)
    sure = (
        ("pasted", "the log was pasted: what follows the excerpt is not known")
        if pasted
        else ("nothing_found", "no line of the whole log shows a failure; silence proves little")
    )
    level = found.root_cause.confidence
    reasons = [*quiet_reasons(named, calm, summary, level, sure), *looked_at]
    return replace(found, reasons=reasons)


def _liveness_check(
    calm: str, made: Progress | None, context: Context, job: Job
) -> list[RemedyStep]:
    """What shows whether the job still runs, where only its last lines speak for that."""
    if calm != "at_work_at_end":
        return []
    title = context.catalog.classes["none"].title
    still = Hypothesis("none", Tier.NONE, title, "", ranks=[*made.lagging] if made else [])
    held: list[Held] = [*job.documents.held(), "unfinished"]
    return remedies.remedies(still, context.catalog, context.facts, held=held)


def _author(trouble: Sequence[Event], timeline: Timeline) -> Culprits:
    """Who printed errors that nobody knows, if it wrote nothing more."""
    rank = fell_silent_with(trouble, timeline)
    if rank is None:
        return Culprits()
    host = timeline.hosts_of_ranks.get(rank)
    return Culprits([rank], [host] if host else [], "crashed", WROTE_NOTHING_MORE)


def _calm(context: Context) -> str:
    """The predicate by which a job without a failure has ended, or was at work."""
    if done(context.stories):
        return "done"
    if closed(context.timeline):
        return "closed"
    return "seen_at_work" if seen_at_work(context) else "at_work_at_end"


def _doubt(context: Context, trouble: Sequence[Event], job: Job) -> str | None:
    """The predicate by which the job is not called healthy or running; None where it is."""
    if trouble:
        return "unexplained_error"
    ended = _calm(context) in _ENDED
    if ended and seen_in_its_work(context):
        return "seen_in_its_work"
    if not_ended(context.stories, context.world):
        return "others_not_ended"
    if not ended and shut_down(context.stories):
        return "shut_down"
    working = at_work(context) or went_on(context.stories) or seen_at_work(context)
    if not working:
        return "not_at_work"
    if not done(context.stories):
        if seen_together(context):
            return "one_look"
        if _glanced_at(context, job):
            return "only_glanced"
    return "not_read_to_end" if job.unread else None


def _glanced_at(context: Context, job: Job) -> bool:
    """Whether counters were asked for that show no movement, and no work is known to follow.

    Who asks RAS suspects a hang, and one on the devices looks like work there: the log of a job
    that hangs just ends.
    """
    if not job.documents.glances or job.documents.halted or seen_at_work(context):
        return False
    times = [event.time for event in context.timeline.kind("progress") if event.time is not None]
    last = max(times, default=None)
    return any(
        asked is None or last is None or last < asked * 1e9 for asked in job.documents.glances
    )


def _unknown(
    found: Diagnosis,
    doubt: str,
    context: Context,
    trouble: Sequence[Event],
    job: Job,
    looked_at: Sequence[Reason],
) -> Diagnosis:
    """The verdict where nothing shows a failure and something speaks against a good end."""
    catalog = context.catalog
    summary = _in_words(doubt, context, trouble, job)
    unknown = Hypothesis("unknown", Tier.NONE, catalog.classes["unknown"].title, summary)
    lead = None
    if doubt in _READ:
        lines = trouble or unknown_lines(context)
        lead = suggested(context, lines, trouble=bool(trouble))
    if lead is not None:
        unknown = replace(lead, summary=f"{lead.summary} {summary}")
    facts = Facts(world_size=found.job.world_size, ranks_seen=found.job.ranks_seen)
    text = _UNKNOWN[doubt].format(*job.unread[:1])
    named = _author(trouble, context.timeline)
    why = ("no_cause_shown", "no evidence shows a cause")
    held = job.documents.held()
    return replace(
        found,
        verdict="unknown",
        culprits=named,
        root_cause=RootCause(
            unknown.cause, unknown.title, unknown.summary, "low", suggested=unknown.suggested
        ),
        evidence=[
            Evidence(*event.place, narrative.clean(event.text), "")
            for event in trouble[:_TROUBLE_SHOWN]
        ],
        remedies=remedies.remedies(unknown, catalog, facts, held=held),
        missing_evidence=capture_next(unknown, "low", catalog, facts, waits=False, held=held),
        reasons=[
            *quiet_reasons("unknown", doubt, text, "low", why),
            *author_reasons(named, trouble, context),
            *proposal_reasons([lead] if lead else [], [], [], context.timeline),
            *looked_at,
        ],
    )


def _in_words(doubt: str, context: Context, trouble: Sequence[Event], job: Job) -> str:
    """What speaks against a good end, for people."""
    if doubt == "unexplained_error":
        quoted = narrative.clean(trouble[:_TROUBLE_SHOWN][-1].text)[:_QUOTED]
        return f"The log contains an error that the catalog does not recognise: {quoted}"
    if doubt == "others_not_ended":
        late = ranks_phrase(not_ended(context.stories, context.world))
        return f"No failure found, but only some ranks say that they finished, not {late}."
    return _DOUBTED[doubt].format(*job.unread[:1])
