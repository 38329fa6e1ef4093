"""Is there a failure at all? Events that show one, unless the job survived it or was done.

Else error lines that no entry of the catalog explains and that no work answered.
"""

from __future__ import annotations

import re
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Sequence
from operator import attrgetter

from diagnose.catalog.entries import is_word
from diagnose.parse.prefix import peel
from diagnose.stories.passing import (
    CONCLUDED,
    WAITED,
    Failures,
    Passed,
    Sieve,
    ends_process,
    fatal_so_far,
    fell_silent,
)
from diagnose.stories.story import Stories
from diagnose.timeline.captures import integer
from diagnose.timeline.ends import exit_failed, is_end
from diagnose.timeline.event import Event, Meaning, Timeline

_LAST_LINES, _CAUGHT_LINES = 25, 150
_SHORT, _PASTE = 200, 400  # lines
_EFFECTS = ("timeout", "notified", "missing", "mismatch", "store_wait", "teardown", "joined")
# A dotted name with what was raised, or a bare one, as no program writes it but below a traceback.
_NAMED = re.compile(
    r"(?:[a-z_]\w*\.)+(?:[A-Z][A-Za-z0-9]*[a-z]\w*)(?:: .*)?$|(?:[A-Z][a-z0-9]+){2,}$"
)
# A frame of a native stack, as a signal handler of the program itself prints it: a debugger, which
# looks at a program that goes on, writes arguments.
_FRAME = re.compile(r"(?:\[\d+\] )?#\d+ +\S.* (?:in|at) \S+(?! *\()[^()]*$")


def failures(stories: Stories) -> Failures:
    """Events that show a failure: causes, effects, exits with a code, waits."""
    sieve, timeline = Sieve(), stories.timeline
    serious = _serious_events(stories, sieve)
    if serious and _only_after_the_end(stories, serious):
        sieve.absolve("after_the_end", serious)
        return sieve.counting("", [])
    if serious:
        weaker = timeline.where(lambda meaning: _weak(meaning) and not _serious(meaning))
        sieve.absolve("weaker_hint", weaker, "ignored")
        return sieve.counting("shows_failure", serious)
    if stuck := _stuck_at_the_end(stories):
        return sieve.counting("stuck_at_the_end", stuck)
    if reports := reported_hang(stories):
        return sieve.counting("reported_hang", reports)
    hints = timeline.where(lambda meaning: _weak(meaning) or meaning.role == "aftermath")
    return _hinted(stories, hints, sieve)


def _serious_events(stories: Stories, sieve: Sieve) -> list[Event]:
    """Events that show a failure unless the job survived them."""
    timeline = stories.timeline
    found = [e for e in timeline.where(_serious) if e.kind != "exit" or exit_failed(e)]
    claims = [event for event in found if event.signal == CONCLUDED]
    serious = _own_failures(stories, [e for e in found if e.signal != CONCLUDED], sieve)
    if not claims:
        return serious
    claims = _absolved(sieve, claims, stories.passed)
    if not serious:  # else the logs show a failure, and rules weigh the claims beside it
        return sieve.keep("beside_work", claims, _decisive(stories, claims))
    return sorted([*serious, *claims], key=attrgetter("index"))


def _own_failures(stories: Stories, serious: list[Event], sieve: Sieve) -> list[Event]:
    """Those that the job reports itself."""
    timeline = stories.timeline
    serious = _absolved(sieve, serious, stories.passed)
    gathering = unfinished_gathering(timeline)
    if gathering is not None and not any(event is gathering for event in serious):
        insort(serious, gathering, key=attrgetter("index"))
    if all(is_word(event.signature) for event in serious):
        if not _in_last_lines(stories, serious):
            return sieve.keep("word_above_the_end", serious, [])
        return serious
    caught = all(_may_be_caught(stories, event) for event in serious)
    if caught and not _ends_with(stories, serious, _CAUGHT_LINES):
        return sieve.keep("caught", serious, [])
    return serious


def _decisive(stories: Stories, claims: Sequence[Event]) -> list[Event]:
    """What other detectors state that the job did not outlast, as far as anybody knows."""
    from diagnose.infer.events.claims import beside_work  # noqa: PLC0415  few jobs have any

    return [event for event in claims if beside_work(stories, event) is None]


def _absolved(
    sieve: Sieve, events: Sequence[Event], how: Callable[[Event], Passed | None]
) -> list[Event]:
    """The events that did not pass; of the others it is noted how they did."""
    left: list[Event] = []
    passed: dict[Passed, list[Event]] = defaultdict(list)
    for event in events:
        predicate = how(event)
        (passed[predicate] if predicate else left).append(event)
    for predicate, own in passed.items():
        sieve.absolve(predicate, own)
    return left


def _may_be_caught(stories: Stories, event: Event) -> bool:
    """Whether it is an exception in a source of which nobody knows who writes and how far he is."""
    author = stories.deeds.author(event)
    if event.kind != "exception" or author.kind != "source":
        return False
    return event.index not in stories.deeds.raised.uncaught and not stories.deeds.works_of(
        author, event
    )


def _hinted(stories: Stories, hints: list[Event], sieve: Sieve) -> Failures:
    """A weak hint, or what follows an abort, counts only in a log that ends with it."""
    timeline = stories.timeline
    complaint = timeline.signalling("complaint")
    if complaint and _worked_since(stories, complaint[-1]):
        sieve.absolve("work_went_on", hints)
        return sieve.counting("", [])
    hints = _absolved(sieve, hints, stories.hint_passed)
    if hints and _only_after_the_end(stories, hints):
        sieve.absolve("after_the_end", hints)
        return sieve.counting("", [])
    stacks, at = stories.deeds.raised.stacks.items(), timeline.at
    passed = {stack.header.index for index, stack in stacks if stories.passed(at(index))}
    hints = sieve.keep("caught", hints, [one for one in hints if one.index not in passed])
    if hints and all(is_word(event.signature) for event in hints):
        hints = sieve.keep("word_above_the_end", hints, _in_last_lines(stories, hints))
    if closed(timeline):
        before = [event for event in hints if event.phase != "shutdown"]
        hints = sieve.keep("orderly_shutdown", hints, before)
    if all(event.signal == "closed" for event in hints):
        hints = sieve.keep("orderly_shutdown", hints, [])  # who shuts down in order need not fail
    if all(_of_a_shutdown(event.meaning) for event in hints):
        hints = sieve.keep("shutdown_alone", hints, [])
    if complaint:
        return sieve.counting("complaint", complaint)
    if raised := [event for event in hints if _is_unsurvived(stories, event)]:
        return sieve.counting("unsurvived", raised)
    if not _ends_with(stories, hints, _CAUGHT_LINES):
        hints = sieve.keep("caught", hints, [])
    return sieve.counting("ends_the_log", hints)


def shut_down(stories: Stories) -> bool:
    """Whether processes were being ended after all work that the log shows; by whom is not said."""
    last = max((event.index for event in stories.deeds.progress), default=-1)
    return any(event.index > last for event in stories.timeline.where(_of_a_shutdown))


def _is_unsurvived(stories: Stories, event: Event) -> bool:
    """Whether an exception or a death is of someone who is known and was not seen to go on."""
    deeds = stories.deeds
    if event.index in deeds.raised.uncaught:
        return True
    if ends_process(event, deeds) and fell_silent(event, deeds.author(event), deeds):
        return True
    raised = event.kind == "exception" and event.role == "cause"
    return raised and not _may_be_caught(stories, event)


def _stuck_at_the_end(stories: Stories) -> list[Event]:
    """Lines that say that a process is stuck, after everything that the job did or said."""
    stuck = stories.timeline.signalling("host_blocked")
    work = [*stories.deeds.progress, *stories.deeds.endings]
    last = max((event.index for event in work), default=-1)
    return [event for event in stuck if event.index > last]


def reported_hang(stories: Stories) -> list[Event]:
    """What the user says of a job that hangs, above or below its log, if it did not end well.

    Amid the steps of a log, or in a long one, it is text that the job trains on or writes.
    """
    timeline = stories.timeline
    reports = timeline.signalling("stuck")
    if not reports or done(stories):
        return []
    ends, steps = stories.deeds.last_lines, timeline.kind("progress")
    return [
        event
        for event in reports
        if ends[event.source] <= _PASTE
        and not (_steps(steps, event, above=True) and _steps(steps, event, above=False))
    ]


def _steps(steps: Sequence[Event], event: Event, *, above: bool) -> bool:
    """Whether the source of this event has progress above or below its line."""
    return any(s.source == event.source and (s.line < event.line) == above for s in steps)


def _of_a_job(timeline: Timeline) -> bool:
    """Whether it is the log of a job, not of some machine, or short enough for someone's choice."""
    kinds = ("phase", "progress", "frame", "exit", "collective", "fact", "exception", "restart")
    of_job = timeline.where(lambda a: a.kind in kinds and not is_word(a.signature))
    return bool(of_job) or all(event.line <= _SHORT for event in timeline)


def _ends_with(stories: Stories, events: Sequence[Event], lines: int) -> bool:
    """Whether some log ends with these: one that went on for long had caught what it raised."""
    ends = stories.deeds.last_lines
    return any(event.line > ends[event.source] - lines for event in events)


def _in_last_lines(stories: Stories, events: Sequence[Event]) -> list[Event]:
    """Those of the last lines of their sources: a word alone makes no failure of what went on."""
    if not _of_a_job(stories.timeline):
        return []
    ends = stories.deeds.last_lines
    return [event for event in events if event.line > ends[event.source] - _LAST_LINES]


def _of_a_shutdown(meaning: Meaning) -> bool:
    return meaning.role == "aftermath" and meaning.phase == "shutdown"


def _weak(meaning: Meaning) -> bool:
    return meaning.role == "cause" and meaning.strength == "weak"


def _serious(meaning: Meaning) -> bool:
    """Whether such events show a failure; an exit may."""
    failing = meaning.role in ("cause", "effect") and not _weak(meaning)
    return failing or meaning.signal in _EFFECTS or meaning.kind == "exit"


def _only_after_the_end(stories: Stories, events: Sequence[Event]) -> bool:
    """Symptoms alone, all after the job said that it was done: sockets that close at exit."""
    if any(e.role == "cause" or e.kind == "exit" or e.signal in WAITED for e in events):
        return False
    if any(e.signal == "dies" and stories.deeds.unordered(e) for e in events):
        return False  # a table of the pods tells of no order
    ends = stories.deeds.endings
    return bool(ends) and ends[0].index < events[0].index and not _left_others(stories)


def _left_others(stories: Stories) -> bool:
    """Whether only some ranks said that they finished, and others had steps of a total to go."""
    finished = {event.rank for event in stories.deeds.endings}
    last = {event.rank: event for event in stories.timeline.kind("progress")}
    return None not in finished and any(
        rank is not None and rank not in finished and _to_go(event) for rank, event in last.items()
    )


def _to_go(progress: Event) -> bool:
    total = integer(progress.fields.get("total"))
    return None not in (progress.step, total) and progress.step < total  # type: ignore[operator]


def went_on(stories: Stories) -> bool:
    """The job finished, or made steps after everything that looks like trouble.

    What ran before the user's complaint does not speak against it, nor does a server that answers.
    """
    timeline = stories.timeline
    if complaints := timeline.signalling("complaint"):
        return _worked_since(stories, complaints[-1])
    if done(stories):
        return True
    reported = timeline.role("cause", "effect", "aftermath")
    claims = [one for one in reported if one.signal == CONCLUDED]
    if claims:
        own = [one for one in reported if one.signal != CONCLUDED]
        reported = [*own, *_decisive(stories, claims)]
    trouble = [one for one in reported if one.signal != "waiting" or not stories.passed(one)]
    if not trouble:
        return bool(timeline.kind("progress"))
    return all(stories.hint_passed(event) for event in trouble)


def _worked_since(stories: Stories, event: Event) -> bool:
    """Whether the job made steps, or ended well, below what its user says of it."""
    below = [e for e in stories.timeline.after(event.index) if e.place != event.place]
    return any(
        is_end(later) or (later.kind == "progress" and later.phase != "inference")
        for later in below
    )


def done(stories: Stories) -> bool:
    """The job said that it finished, and raised nothing after its last such word.

    A rank speaks for itself: the others that tell of their own steps have to finish as well.
    """
    timeline, ends = stories.timeline, stories.deeds.endings
    if not ends:
        return False
    raised = [event for event in timeline.kind("exception") if event.role == "cause"]
    if raised and raised[-1].index > ends[-1].index:
        return False
    finished = {event.rank for event in ends}
    at_work = {event.rank for event in timeline.kind("progress")} - {None}
    return None in finished or at_work <= finished


def not_ended(stories: Stories, world: int | None) -> list[int]:
    """The ranks that did not say that they finished where others did, each for itself.

    What one rank says alone may be of the job, unless a few ranks are missing from the log. Where
    most are, there are other logs.
    """
    named, finished = {*stories.timeline.ranks}, {event.rank for event in stories.deeds.endings}
    if not finished or None in finished:
        return []
    missing = {*range(world or 0)} - named
    late = (named if len(finished) > 1 else set()) - finished
    return sorted(late | (missing if len(missing) < len(named) else set()))


def closed(timeline: Timeline) -> bool:
    """Whether it is a server that served, and then shut down in order."""
    shutdowns = timeline.signalling("closed")
    served = [e.index for e in timeline.kind("progress") if e.phase == "inference"]
    return bool(shutdowns and served) and served[0] < shutdowns[-1].index > served[-1]


def unfinished_gathering(timeline: Timeline) -> Event | None:
    """The last line that counts who came (n of world), if the count is not the world size.

    Each rank may count itself only, and the logs of the others be lost: where ranks have launched
    numbered calls of a communicator, all of them had come.
    """
    counted = timeline.capturing("joined", "world_size")
    if not counted or any(event.seq is not None for event in timeline.kind("collective")):
        return None
    # Each process may tell its own number, in any order: all came if one of them was the last.
    last = max(counted, key=lambda event: (int(event.fields["joined"]), event.index))
    later = [event for event in timeline.kind("progress") if event.index > last.index]
    same = int(last.fields["joined"]) == int(last.fields["world_size"])
    return None if same or len(later) >= 2 else last


def unexplained(stories: Stories) -> Failures:
    """Error lines that no other entry knows and whose authors were not seen to go on.

    Those in words of their own (`signal: trouble`), and last lines that a logger wrote at error
    level or that read as the name of an exception. Where nobody knows who writes, what is only of
    error level passes as soon as anybody works on below it.
    """
    timeline = stories.timeline
    edges = timeline.kind("edge")
    last = [e for e in edges if _ends_in_error(e) or _ends_in_stack(e, stories)]
    words = [event for event in timeline.role("cause") if is_word(event.signature)]
    found = [*timeline.signalling("trouble"), *words, *last]
    found.sort(key=lambda event: event.index)
    if not found:
        return Failures([])
    sieve = Sieve()
    lines = {event.line for event in found}
    known = {event.place for event in timeline.where(_explains) if event.line in lines}
    unknown = [e for e in found if e.place not in known or (e.kind == "edge" and _is_named(e))]
    found = sieve.keep("explained", found, unknown)
    answered = {event.place for event in found if not _unanswered(event, stories)}
    found = sieve.keep("worked_on_below", found, [e for e in found if e.place not in answered])
    first: dict[tuple[str, int], Event] = {}
    for event in found:
        first.setdefault(event.place, event)
    return sieve.counting("unexplained", list(first.values()))


def _ends_in_error(edge: Event) -> bool:
    """Whether a first or last line is of error level, or an exception under a name of its own."""
    return edge.severity == "error" or _is_named(edge)


def _ends_in_stack(edge: Event, stories: Stories) -> bool:
    """Whether it is the last line of a program that showed work, and a frame of its stack."""
    if not _FRAME.match(edge.text) or edge.line < stories.deeds.last_lines[edge.source]:
        return False
    return any(work.source == edge.source for work in stories.deeds.progress)


def _is_named(edge: Event) -> bool:
    return _NAMED.match(peel(edge.text).message) is not None


def _unanswered(event: Event, stories: Stories) -> bool:
    """Whether neither its author was seen to go on nor, of a mere line of a console, anybody."""
    if stories.passed(event):
        return False
    if event.strength == "strong" or stories.deeds.author(event).kind != "source":
        return True
    if event.index in stories.deeds.raised.uncaught:
        return True
    return fatal_so_far(event, stories.deeds) or not stories.deeds.answered.after(event)


def _explains(meaning: Meaning) -> bool:
    """Whether an entry knows what lines are about, apart from that they tell of trouble."""
    named = meaning.signature is not None and meaning.signal != "trouble"
    return named and not (is_word(meaning.signature) and meaning.role == "cause")
