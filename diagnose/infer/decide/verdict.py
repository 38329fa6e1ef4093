"""The verdict: hung, failed, healthy or unknown, and in which phase.

Jobs in which no line shows a failure hang, or were at work when they were looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import Collective, JobFacts, Verdict
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.failures import reported_hang, went_on
from diagnose.infer.events.onset import Start, find_activity, last_phase
from diagnose.infer.judge.verdict import DIFFER
from diagnose.infer.judge.verdict import Verdict as Stopped
from diagnose.infer.rules import known_issues, plugged_rules
from diagnose.infer.rules.base import Context, Hypothesis, Tier
from diagnose.stories.passing import WAITED
from diagnose.stories.silence import own_way
from diagnose.timeline.event import Event

_ROWS = 4
# Evidence whose phase is that of the trouble; other events tell what went on beside it.
_OF_ITS_OWN = ("cause", "aftermath")
# What a job does again and again between training steps.
_WITHIN_TRAINING = ("evaluation", "checkpoint", "inference")


def inconclusive(failing: Sequence[Event], catalog: Catalog) -> Hypothesis:
    """What is left where no rule proposes anything; the one pod that is told to have failed."""
    summary = "The job failed, but these lines do not show why."
    if not failing:
        summary = "The job had not ended when somebody looked into it; nothing shows why it hangs."
    elif all(event.signal == "stuck" for event in failing):
        summary = "The user says that the job hangs; these lines do not show why."
    rows = [event.index for event in failing[:_ROWS]]
    title = catalog.classes["unknown"].title
    found = Hypothesis(
        "unknown", Tier.GUESS, title, summary, rows, inferred=True, rule="inconclusive"
    )
    ended = {event.fields["host"] for event in failing if event.signal == "dies" and _of_pod(event)}
    if len(ended) == 1:
        found.hosts, found.kind, found.why = sorted(ended), "crashed", "it alone ended in an error"
    return found


def _of_pod(event: Event) -> bool:
    """Whether a line is about a pod, or host, that it names."""
    return event.rank is None and bool(event.fields.get("host"))


def verdict_of(winner: Hypothesis, context: Context) -> tuple[Verdict, str]:
    """Hung: ranks waited in vain and nobody died of it first; failed: everything else.

    With the name of the predicate that decided it.
    """
    if winner.basis == "silence" and context.silence is not None and not context.silence.whole:
        return "unknown", "one_fell_silent"
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

        if node_signs.hang(context.signs, context.stacks):
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
