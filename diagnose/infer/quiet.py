"""The diagnosis of a job in whose log no line shows a failure: healthy, running, or unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from diagnose.diagnosis import (
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
from diagnose.infer.decide import verdict
from diagnose.infer.decide.culprits import WROTE_NOTHING_MORE
from diagnose.infer.events.facts import Facts, earlier_attempts
from diagnose.infer.events.failures import closed, done, not_ended, shut_down, unexplained, went_on
from diagnose.infer.events.onset import last_phase
from diagnose.infer.rules.base import Context, Hypothesis, Tier
from diagnose.infer.rules.learned import suggested, unknown_lines
from diagnose.infer.why.decision import author_reasons, proposal_reasons, quiet_reasons
from diagnose.infer.why.events import event_reasons
from diagnose.stories.silence import fell_silent_with
from diagnose.stories.work import progress_of
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Event, Timeline

if TYPE_CHECKING:
    from diagnose.catalog.schema import Held
    from diagnose.job.model import Job

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
        notes=[*job.notes, *earlier_attempts(job.events, catalog, about.attempts)],
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
    return "seen_at_work" if verdict.seen_at_work(context) else "at_work_at_end"


def _doubt(context: Context, trouble: Sequence[Event], job: Job) -> str | None:
    """The predicate by which the job is not called healthy or running; None where it is."""
    if trouble:
        return "unexplained_error"
    if _calm(context) in _ENDED and verdict.seen_in_its_work(context):
        return "seen_in_its_work"
    if not_ended(context.stories, context.world):
        return "others_not_ended"
    if _calm(context) not in _ENDED and shut_down(context.stories):
        return "shut_down"
    working = verdict.at_work(context) or went_on(context.stories) or verdict.seen_at_work(context)
    if not working:
        return "not_at_work"
    if not done(context.stories):
        if verdict.seen_together(context):
            return "one_look"
        if _glanced_at(context, job):
            return "only_glanced"
    return "not_read_to_end" if job.unread else None


def _glanced_at(context: Context, job: Job) -> bool:
    """Whether counters were asked for that show no movement, and no work is known to follow.

    Who asks RAS suspects a hang, and one on the devices looks like work there: the log of a job
    that hangs just ends.
    """
    if not job.documents.glances or job.documents.halted or verdict.seen_at_work(context):
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
