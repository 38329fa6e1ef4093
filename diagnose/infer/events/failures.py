"""Is there a failure at all? Events that show one, unless the job survived it or was done."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import attrgetter

from diagnose.catalog.entries import is_word
from diagnose.infer.events.afterlife import Afterlife, endings, is_end
from diagnose.infer.events.habits import without_habits, without_warnings
from diagnose.infer.events.recovery import Author, Recovery, author, lasted, left, recoveries
from diagnose.infer.events.sifting import Failures, Sieve
from diagnose.timeline.event import Event, Meaning, Timeline

_LAST_LINES, _CAUGHT_LINES = 25, 150
_SHORT, _PASTE = 200, 400  # lines
_AGAIN = 3  # lines below which a wait that is told again and again has ended
_CAME_BACK = 3  # events of a rank below the line that says it ended
WAITED = ("timeout", "store_wait", "missing", "host_blocked")
_EFFECTS = ("timeout", "notified", "missing", "mismatch", "store_wait", "teardown", "joined")


def failures(timeline: Timeline, life: Afterlife) -> Failures:
    """Events that show a failure: causes, effects, exits with a code, waits."""
    sieve = Sieve()
    serious = _serious_events(timeline, life, sieve)
    if serious and _only_after_the_end(timeline, serious):
        sieve.absolve("after_the_end", serious)
        return sieve.counting("", [])
    if serious and (how := _survived(life, serious)):
        _absolve_survived(sieve, serious, how)
        return sieve.counting("", [])
    if serious:
        weaker = timeline.where(lambda meaning: _weak(meaning) and not _serious(meaning))
        sieve.absolve("weaker_hint", weaker, "ignored")
        return sieve.counting("shows_failure", serious)
    if stuck := _stuck_at_the_end(timeline):
        return sieve.counting("stuck_at_the_end", stuck)
    if reported := said_to_hang(timeline):
        return sieve.counting("reported_hang", reported)
    hints = timeline.where(lambda meaning: _weak(meaning) or meaning.role == "aftermath")
    if went_on(timeline, life):
        sieve.absolve("work_went_on", hints)
        return sieve.counting("", [])
    return _hinted(timeline, hints, sieve)


def _serious_events(timeline: Timeline, life: Afterlife, sieve: Sieve) -> list[Event]:
    """Events that show a failure unless the job survived them."""
    serious = [e for e in timeline.where(_serious) if e.kind != "exit" or _failed(e)]
    of_this_run = [e for e in serious if e.kind != "exit" or not _of_another_run(life, e)]
    serious = sieve.keep("another_run", serious, of_this_run)
    serious = sieve.keep("wait_ended", serious, _waits_at_the_end(timeline, life, serious))
    serious = sieve.keep("logged_as_warning", serious, without_warnings(timeline, serious))
    gathering = unfinished_gathering(timeline)
    if gathering is not None and not any(event is gathering for event in serious):
        insort(serious, gathering, key=attrgetter("index"))
    if all(is_word(event.signature) for event in serious):
        if not any(_last_said(timeline, serious)):
            return sieve.keep("word_above_the_end", serious, [])
    elif all(event.kind == "exception" for event in serious) and not _ends_with(timeline, serious):
        return sieve.keep("caught", serious, [])
    return serious


def _hinted(timeline: Timeline, hints: list[Event], sieve: Sieve) -> Failures:
    """A weak hint, or what follows an abort, counts only in a log that ends with it."""
    if all(is_word(event.signature) for event in hints):
        hints = sieve.keep("word_above_the_end", hints, _last_said(timeline, hints))
    hints = sieve.keep("logged_as_warning", hints, without_warnings(timeline, hints))
    hints = sieve.keep("habit", hints, without_habits(timeline, hints))
    if closed(timeline):
        before = [event for event in hints if event.phase != "shutdown"]
        hints = sieve.keep("orderly_shutdown", hints, before)
    if all(event.tells == "closed" for event in hints):
        hints = sieve.keep("orderly_shutdown", hints, [])  # who shuts down in order need not fail
    if complaint := timeline.telling("complaint"):
        return sieve.counting("complaint", complaint)
    if not _ends_with(timeline, hints):
        hints = sieve.keep("caught", hints, [])
    return sieve.counting("ends_the_log", hints)


def _absolve_survived(
    sieve: Sieve, events: Sequence[Event], how: Mapping[Author, Recovery]
) -> None:
    """Note by which recovery of its author each of these events passed."""
    passed: dict[Recovery, list[Event]] = defaultdict(list)
    for event in events:
        passed[how[author(event)]].append(event)
    for recovery, own in passed.items():
        sieve.absolve(recovery, own)


def _waits_at_the_end(timeline: Timeline, life: Afterlife, events: list[Event]) -> list[Event]:
    """Without waits that ended: whoever waits would say so again, and not something else.

    A rank that signs its steps, and made none below, waits whatever the others say.
    """
    if not timeline.telling("waiting"):
        return events
    ends = _ends_of_sources(timeline)
    return [
        event
        for event in events
        if event.tells != "waiting"
        or event.line > ends[event.source] - _AGAIN
        or ((own := life.by_rank.get(event.rank)) and own[-1].index < event.index)
    ]


def _of_another_run(life: Afterlife, event: Event) -> bool:
    """Whether a process that ended is not the rank of this job: that one works below its line."""
    if not left(life, [event]):
        return True
    own = [
        later
        for later in (life.works.get(event.rank, ()) if event.rank is not None else ())
        if later.source == event.source and later.line > event.line
    ]
    return len(own) >= _CAME_BACK


def _stuck_at_the_end(timeline: Timeline) -> list[Event]:
    """Lines that say that a process is stuck, after everything that the job did or said."""
    stuck = timeline.telling("host_blocked")
    work = [*timeline.kind("progress"), *endings(timeline)]
    last = max((event.index for event in work), default=-1)
    return [event for event in stuck if event.index > last]


def said_to_hang(timeline: Timeline) -> list[Event]:
    """What the user says of a job that hangs, above or below its log, if it did not end well.

    Amid the steps of a log, or in a long one, it is text that the job trains on or writes.
    """
    said = timeline.telling("stuck")
    if not said or done(timeline):
        return []
    ends, steps = _ends_of_sources(timeline), timeline.kind("progress")
    return [
        event
        for event in said
        if ends[event.source] <= _PASTE
        and not (_steps(steps, event, above=True) and _steps(steps, event, above=False))
    ]


def _steps(steps: Sequence[Event], event: Event, *, above: bool) -> bool:
    """Whether the source of this event has progress above or below its line."""
    return any(s.source == event.source and (s.line < event.line) == above for s in steps)


def _of_a_job(timeline: Timeline) -> bool:
    """Whether it is the log of a job, not of some machine, or short enough for someone's choice."""
    told = ("phase", "progress", "frame", "exit", "collective", "fact", "exception", "restart")
    of_job = timeline.where(lambda a: a.kind in told and not is_word(a.signature))
    return bool(of_job) or all(event.line <= _SHORT for event in timeline)


def _ends_with(timeline: Timeline, events: Sequence[Event]) -> bool:
    """Whether some log ends with these: one that went on for long had caught what it raised."""
    ends = _ends_of_sources(timeline)
    return any(event.line > ends[event.source] - _CAUGHT_LINES for event in events)


def _ends_of_sources(timeline: Timeline) -> dict[str, int]:
    """Source → its last line."""
    return dict(zip(timeline.column("source"), timeline.column("line"), strict=True))


def _last_said(timeline: Timeline, events: Sequence[Event]) -> list[Event]:
    """Those of the last lines of their sources: a word alone makes no failure of what went on."""
    if not _of_a_job(timeline):
        return []
    ends = _ends_of_sources(timeline)
    return [event for event in events if event.line > ends[event.source] - _LAST_LINES]


def _weak(meaning: Meaning) -> bool:
    return meaning.role == "cause" and meaning.strength == "weak"


def _serious(meaning: Meaning) -> bool:
    """Whether such events show a failure; an exit may."""
    told = meaning.role in ("cause", "effect") and not _weak(meaning)
    return told or meaning.tells in _EFFECTS or meaning.kind == "exit"


def _failed(end: Event) -> bool:
    return end.fields.get("exitcode") not in ("0", "+0") or "signal" in end.fields


def _only_after_the_end(timeline: Timeline, events: Sequence[Event]) -> bool:
    """Symptoms alone, all after the job said that it was done: sockets that close at exit."""
    if any(e.role == "cause" or e.kind == "exit" or e.tells in WAITED for e in events):
        return False
    ends = endings(timeline)
    return bool(ends) and ends[0].index < events[0].index


def _survived(life: Afterlife, events: Sequence[Event]) -> Mapping[Author, Recovery]:
    """How each rank that printed errors went on from them, to the end of the log; else nothing.

    Symptoms pass like errors, but for exits and waits; as they may tell of others, whose death the
    work of this one outlives for a while, more has to follow.
    """
    if any(event.kind == "exit" or event.tells in WAITED for event in events):
        return {}
    how = recoveries(life, events)
    symptoms = any(event.role != "cause" for event in events)
    return how if how and (not symptoms or lasted(life, events)) else {}


def went_on(timeline: Timeline, life: Afterlife) -> bool:
    """The job finished, or made steps after everything that looks like trouble.

    What ran before the user's complaint does not speak against it, nor does a server that answers.
    """
    said = timeline.telling("complaint")
    if said:
        return any(
            is_end(event) or (event.kind == "progress" and event.phase != "inference")
            for event in _after_line(timeline, said[-1])
        )
    if done(timeline):
        return True
    trouble = timeline.role("cause", "effect", "aftermath")
    if not trouble:
        return bool(timeline.kind("progress"))
    unsurvived = left(life, trouble)
    if any(event.rank in life.by_rank for event in unsurvived):
        return False
    # Of authors that print no steps of their own, those of the others count.
    last = max(unsurvived, key=lambda event: event.index, default=None)
    return last is None or any(e.kind == "progress" for e in _after_line(timeline, last))


def done(timeline: Timeline) -> bool:
    """The job said that it finished, and raised nothing after its last such word.

    A rank speaks for itself: the others that tell of their own steps have to finish as well.
    """
    ends = endings(timeline)
    if not ends:
        return False
    raised = [event for event in timeline.kind("exception") if event.role == "cause"]
    if raised and raised[-1].index > ends[-1].index:
        return False
    finished = {event.rank for event in ends}
    at_work = {event.rank for event in timeline.kind("progress")} - {None}
    return None in finished or at_work <= finished


def closed(timeline: Timeline) -> bool:
    """Whether it is a server that served, and then shut down in order."""
    said = timeline.telling("closed")
    served = [e.index for e in timeline.kind("progress") if e.phase == "inference"]
    return bool(said and served) and served[0] < said[-1].index > served[-1]


def unfinished_gathering(timeline: Timeline) -> Event | None:
    """The last line that counts who came (n of world), if the count is not the world size."""
    counted = timeline.capturing("joined", "world_size")
    if not counted:
        return None
    # Each process may tell its own number, in any order: all came if one of them was the last.
    last = max(counted, key=lambda event: (int(event.fields["joined"]), event.index))
    later = [event for event in timeline.kind("progress") if event.index > last.index]
    same = int(last.fields["joined"]) == int(last.fields["world_size"])
    return None if same or len(later) >= 2 else last


def _after_line(timeline: Timeline, event: Event) -> list[Event]:
    """The events after it, without others of its own line (a bar glued to an error)."""
    return [later for later in timeline.after(event.index) if later.place != event.place]
