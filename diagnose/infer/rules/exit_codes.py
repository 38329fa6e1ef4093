"""Causes from how processes ended: exit codes and signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace

from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.signatures import who
from diagnose.infer.tiers import Tier
from diagnose.stories.exits import exit_code
from diagnose.timeline.event import Event, Timeline
from diagnose.timeline.learned import Learned

_BY_SIGNAL: dict[int, tuple[str, Tier, str]] = {
    signal.SIGKILL: ("crash.killed", Tier.STRONG, "was killed by SIGKILL"),
    signal.SIGSEGV: ("crash.native", Tier.STRONG, "crashed in native code (SIGSEGV)"),
    signal.SIGBUS: (
        "net.shm",
        Tier.CIRCUMSTANTIAL,
        "died from a bus error (SIGBUS), most often because /dev/shm is full",
    ),
    signal.SIGFPE: ("crash.native", Tier.STRONG, "died from an arithmetic error (SIGFPE)"),
    signal.SIGILL: ("crash.native", Tier.STRONG, "ran an illegal instruction (SIGILL)"),
    signal.SIGABRT: ("crash.native", Tier.GUESS, "aborted (SIGABRT)"),
    signal.SIGINT: ("user.interrupt", Tier.CIRCUMSTANTIAL, "was interrupted (SIGINT)"),
    signal.SIGHUP: ("user.interrupt", Tier.CIRCUMSTANTIAL, "lost its terminal (SIGHUP)"),
    signal.SIGTERM: ("scheduler.preempted", Tier.GUESS, "received SIGTERM"),
    signal.SIGXCPU: ("scheduler.limit", Tier.STRONG, "exceeded its CPU time limit (SIGXCPU)"),
}
# What launchers send to victims, and what the watchdog ends with.
_OF_VICTIMS = (-signal.SIGTERM, -signal.SIGABRT)
_ROWS = 4
_NEXT_LINES = 2  # of a block that names who ended, and then how


def propose(context: Context) -> Iterator[Hypothesis]:
    """What killed the first process that was not a victim.

    SIGTERM and SIGABRT count only where no process ended otherwise and nothing in the log before
    them sent them; SIGKILL not where the launcher had begun to stop the others of one that had
    ended, and not of a process that the launcher says it killed.
    """
    by_code: dict[int, list[Event]] = {}
    timeline = context.timeline
    stopping, killed = _stopping(timeline), _killed_by_launcher(timeline)
    for event in [*_named(timeline.kind("exit")), *_own_words(timeline)]:
        code = exit_code(event.fields)
        stopped = code == -signal.SIGKILL and event.line > stopping.get(event.source, event.line)
        stopped |= code == -signal.SIGKILL and event.fields.get("pid") in killed
        if code and event.role != "aftermath" and not stopped:
            by_code.setdefault(code, []).append(event)
    waits, stops = timeline.telling("timeout"), timeline.telling("teardown")
    others = any(code not in _OF_VICTIMS for code in by_code)
    for code in _OF_VICTIMS:
        group = by_code.get(code, [])
        if waits or others or (stops and all(e.index > stops[0].index for e in group)):
            by_code.pop(code, None)
    for code, group in by_code.items():
        yield _hypothesis(code, group, context)
    if not (by_code or waits or stops) and (unsaid := _unsaid(timeline)):
        yield _of_unsaid(unsaid, context)


def _own_words(timeline: Timeline) -> list[Event]:
    """What processes say of the signal that ends them, before anybody sees how they end."""
    return [event for event in timeline.telling("dies") if exit_code(event.fields) is not None]


def _unsaid(timeline: Timeline) -> list[Event]:
    """The ends of ranks of which nobody says how they ended, if no end says more."""
    ends = [event for event in timeline.kind("exit") if event.role != "aftermath"]
    if any(exit_code(event.fields) is not None for event in ends):
        return []
    return [event for event in ends if event.rank is not None and event.learned is Learned.LINE]


def _of_unsaid(group: Sequence[Event], context: Context) -> Hypothesis:
    """Who raises says so; who ends without a word was killed, or crashed in native code."""
    named = who(sorted({event.rank for event in group if event.rank is not None}), [])
    return replace(
        _hypothesis(-signal.SIGKILL, [*group], context),
        tier=Tier.GUESS,
        summary=f"{named[:1].upper()}{named[1:]} ended without a word; nothing says what ended it.",
        why="ended without a word",
    )


def _named(exits: Sequence[Event]) -> Iterator[Event]:
    """These ends; one whose line has the code only is that of the rank named on the line above."""
    before: Event | None = None
    for event in exits:
        if event.rank is None and before is not None and _right_above(before, event):
            event = replace(event, rank=before.rank, host=before.host)  # noqa: PLW2901
        yield event
        before = event


def _right_above(named: Event, coded: Event) -> bool:
    """Whether one line names a rank that ended, and the next one how."""
    apart = coded.line - named.line if coded.source == named.source else 0
    return 0 < apart <= _NEXT_LINES and named.rank is not None and exit_code(named.fields) is None


def _stopping(timeline: Timeline) -> dict[str, int]:
    """Source → the line from which a launcher kills the rest, because a process ended by itself."""
    ended: dict[str, int] = {}
    for event in timeline.kind("exit"):
        if event.role != "aftermath" and exit_code(event.fields) not in (0, None, -signal.SIGKILL):
            ended[event.source] = min(event.line, ended.get(event.source, event.line))
    lines: dict[str, int] = {}
    for event in timeline.telling("stopping"):
        if event.line > ended.get(event.source, event.line):
            lines[event.source] = min(event.line, lines.get(event.source, event.line))
    return lines


def _killed_by_launcher(timeline: Timeline) -> set[str]:
    """The processes which a launcher says that it killed, as they did not end when told to."""
    return {
        event.fields["pid"]
        for event in timeline.telling("teardown")
        if "pid" in event.fields and exit_code(event.fields) == -signal.SIGKILL
    }


def _hypothesis(code: int, group: list[Event], context: Context) -> Hypothesis:
    ranks = sorted({event.rank for event in group if event.rank is not None})
    hosts = sorted({event.host for event in group if event.host is not None})
    cause, tier, did = "crash.exception", Tier.GUESS, f"exited with status {code}"
    if code < 0:
        cause, tier, did = _BY_SIGNAL.get(-code, (cause, tier, did))
    named = who(ranks, hosts) or "a process"
    if not context.catalog.classes[cause].strikes_one_process:
        ranks, hosts = [], []  # whom somebody ended is not to blame
    return Hypothesis(
        cause=cause,
        tier=tier,
        title=context.catalog.classes[cause].title,
        summary=f"{named[:1].upper()}{named[1:]} {did}.",
        rows=[event.index for event in group[:_ROWS]],
        ranks=ranks,
        hosts=hosts,
        kind="crashed" if ranks or hosts else None,
        why=f"{did}; other processes ended later" if ranks else "",
        inferred=True,
        basis="exit",
        vague=tier == Tier.GUESS,
    )
