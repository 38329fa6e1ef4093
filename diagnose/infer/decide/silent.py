"""Jobs in which no line shows a failure: whether they hang, or were at work when looked at."""

from __future__ import annotations

from dataclasses import replace

from diagnose.infer.events.failures import went_on
from diagnose.infer.events.onset import find_activity
from diagnose.infer.rules import known_issues, plugged
from diagnose.infer.rules.base import Context
from diagnose.infer.tiers import Tier
from diagnose.stories.silence import own_way


def hang_shown_by(context: Context) -> str | None:
    """What shows a freeze without any failure line; None where nothing does.

    A known issue whose every condition the log shows, or stacks that somebody took of a process
    that did not end: steps above them, or in files that no order ties to them, do not speak against
    it unless all ranks were at one line that may be a step. Rules of other packages may know
    failures in words that nobody else knows.
    """
    if any(one.tier >= Tier.STRONG for one in plugged.propose(context)):
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
