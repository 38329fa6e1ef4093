"""Did an error pass? Only what its own author did or wrote afterwards can show it.

A process that died is silent; that others went on proves nothing of it. So an error passes by
further work of its author, beyond what it had done before; by the author's own words that it was
handled, or that it is less than an error; by its own end after further work. Of a line whose
author cannot be told from others in its source, all who write there must be seen to go on. An
author that prints no steps is seen at work by those of a training that could not make them alone.

What becomes of events that look like a failure has the stable name of the predicate that decided it
(`Sifted`), so that a verdict can be explained.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from diagnose.catalog.entries import is_word
from diagnose.parse.prefix import peel
from diagnose.stories.deeds import Deeds
from diagnose.stories.work import FURTHER, LONG, Works
from diagnose.timeline.event import Author, Event

# What shows that an error passed: the author's own work or words.
Passed = Literal[
    "another_run", "another_program", "caught", "mentioned", "logged_as_warning", "handled",
    "habit", "completed", "answered", "served_on", "everybody_went_on", "counted_on", "worked_on",
    "work_went_on", "wait_ended", "phase_ended",
]  # fmt: skip
Fate = Literal["counted", "absolved", "ignored"]
WAITED = ("timeout", "store_wait", "missing", "host_blocked")
CONCLUDED = "concluded"  # the signal of what other detectors state
# A handler's words belong to an error at most this many lines above them.
_HANDLED_REACH = 40
_CALM = ("WARNING", "INFO", "DEBUG")  # levels at which nobody reports a death
_DYING = ("FATAL", "CRITICAL")  # levels of those who cannot go on
_CAME_BACK = 3  # states of work of a rank below the line that says it ended
_SERVED_LINES = 150  # below the error that a server survived
_BUFFER = 8192  # bytes that a process may hold back until it ends
_REPEATED_WITHIN = 3  # lines below which a wait that is reported over and over has ended
_NAME = re.compile(r"\s*\S+: +(?=\S)")  # who writes, where no prefix is known to say it
_OTHER = re.compile(r"[^a-z0-9]+")
# Programs as which jobs run; the kernel cuts their names to 15 characters.
_PROGRAMS = re.compile(r"(?i)python|^pt_|ray|torch|mpi|train|worker|java|nccl|jax|accelerate")
_VERY_LONG = 30  # lines of steps that a training cannot make without one of its ranks


class Sifted(NamedTuple):
    """Events that met the same fate, and the predicate that decided it.

    `ignored` are lines that nobody asks about: weak hints where something stronger counts, the
    clean end of a rank that had crashed.
    """

    fate: Fate
    predicate: str
    events: Sequence[Event]


class Failures(NamedTuple):
    """The events that show a failure, and what became of all that were looked at."""

    counted: list[Event]
    sifted: Sequence[Sifted] = ()


class Sieve:
    """Remembers what each predicate takes out of events that pass one after the other."""

    def __init__(self) -> None:
        self.sifted: list[Sifted] = []

    def keep(self, predicate: str, events: Sequence[Event], kept: list[Event]) -> list[Event]:
        """`kept`; those of `events` that are not among them are absolved by the predicate."""
        if len(kept) < len(events):
            left = {event.index for event in kept}
            self.absolve(predicate, [event for event in events if event.index not in left])
        return kept

    def absolve(self, predicate: str, events: Sequence[Event], fate: Fate = "absolved") -> None:
        """Note that the predicate takes out all of these."""
        if events:
            self.sifted.append(Sifted(fate, predicate, events))

    def counting(self, predicate: str, events: list[Event]) -> Failures:
        """The result where these are left, which count by the predicate."""
        counted = [Sifted("counted", predicate, events)] if events else []
        return Failures(events, [*counted, *self.sifted])


def passed(event: Event, deeds: Deeds) -> Passed | None:
    """How an error passed; None where its author was not seen to go on."""
    if event.signal == "waiting" and event.kind != "exit":
        return "wait_ended" if _wait_ended(event, deeds.author(event), deeds) else None
    if deeds.nothing_after(event):
        lasting = event.kind == "exit" or not deeds.habit(event) or ends_process(event, deeds)
        return None if lasting else "habit"
    return _by_deeds(event, deeds)


def _by_deeds(event: Event, deeds: Deeds) -> Passed | None:
    """The same of an error after which somebody went on, or may have."""
    if event.kind == "exit":
        return "another_run" if _came_back(event, deeds) else None
    author = deeds.author(event)
    if deeds.left_phase_after(author, event) and deeds.worked.after(event):
        return "phase_ended"
    if ends_process(event, deeds):
        return _outlived(event, author, deeds)
    if words := _by_words(event, author, deeds):
        return words
    if event.signal in WAITED:
        return None
    if _completed(event, author, deeds):
        return "completed"
    if _served(event, deeds):
        return "answered" if event.role == "effect" else "served_on"
    own = deeds.works_of(author, event)
    if author.kind == "source":
        return _everybody(event, deeds)
    if own:
        limit, ended = deeds.end_after(author, event)
        if own.went_beyond(event.index, limit, ended=ended):
            return "worked_on" if event.role == "cause" or _lasted(event, deeds) else None
        return None
    return None if deeds.signs_steps(author) else _by_the_job(event, author, deeds)


def _wait_ended(event: Event, author: Author, deeds: Deeds) -> bool:
    """Whether other lines follow: whoever waits would say so again, and not something else.

    A rank that signs its steps, and neither made one below nor began anything, waits whatever the
    others say.
    """
    if event.line > deeds.last_lines[event.source] - _REPEATED_WITHIN:
        return False
    alone = author.kind != "source" and deeds.signs_steps(author)
    return (
        not alone
        or bool(deeds.works_of(author, event).after(event.index))
        or bool(deeds.busy_in(event))
    )


def hint_passed(event: Event, deeds: Deeds) -> Passed | None:
    """How an event that only hints at a failure passed, though `passed` has no reason: by others.

    Not where it is an exception or a death, or its author prints steps and made no more. Of an
    author that is known the others must have worked for longer than they can without it.
    """
    if event.kind in ("exception", "exit") or event.index in deeds.raised.uncaught:
        return None
    if event.role == "cause" and (event.cause in deeds.deadly or event.strength != "weak"):
        return None
    if event.cause in deeds.final and deeds.counted_after(event) < LONG:
        return None  # steps of processes that are about to be ended
    author = deeds.author(event)
    if deeds.exited_after(author, event):
        return "completed"
    alone = author.kind != "source" and deeds.signs_steps(author)
    if alone or (author.kind != "source" and deeds.counted_after(event) < FURTHER):
        return None
    return "work_went_on" if deeds.worked.after(event) else None


def ends_process(event: Event, deeds: Deeds) -> bool:
    """Whether its author cannot go on after it, whatever is printed below."""
    if event.index in deeds.raised.uncaught:
        return True
    if event.role not in ("cause", "effect") or _is_mention(event) or _of_another_program(event):
        return False
    if event.signal == "dies" or (event.cause in deeds.final and not is_word(event.signature)):
        return True
    return event.cause in deeds.deadly and event.strength != "weak"


def _is_mention(event: Event) -> bool:
    """Whether a word stands amid a sentence, and below no traceback: no report of what it names."""
    if not is_word(event.signature) or ".raised" in (event.signature or ""):
        return False
    slug = (event.signature or "").split(".")[2].replace("-", " ")
    message = peel(event.text).message
    messages = (message, _NAME.sub("", message, count=1))
    return not any(_OTHER.sub(" ", one.lower()).strip().startswith(slug) for one in messages)


def _of_another_program(event: Event) -> bool:
    """Whether a kernel's line names a program as which no job runs."""
    name = event.fields.get("name")
    return name is not None and "pid" in event.fields and not _PROGRAMS.search(name)


def _outlived(event: Event, author: Author, deeds: Deeds) -> Passed | None:
    """The same of the death of a process: it was another one than the author of the rest."""
    if event.index in deeds.raised.signed:
        return None
    counted = deeds.counted_after(event)
    if counted >= LONG and _is_calm(event) and not fell_silent(event, author, deeds):
        return "logged_as_warning"
    if event.cause in deeds.final:
        return None
    own = deeds.works_of(author, event)
    if author.kind == "source":
        # Of a program of several processes the others may be all who print steps, but for what
        # this one held back until it ended.
        spawned = event.index in deeds.raised.spawned and _is_far(own, event)
        if own.all_went_beyond(event.index, several=not spawned) and counted >= LONG:
            return "everybody_went_on"
    elif own and (event.index not in deeds.raised.uncaught or deeds.one_writer(event.source)):
        limit, ended = deeds.end_after(author, event)
        buffered = event.index in deeds.raised.uncaught and not _is_far(own, event)
        if not buffered and own.went_beyond(event.index, limit, ended=ended):
            return "worked_on"
    return None


def _is_far(works: Works, event: Event) -> bool:
    """Whether work stands further below an error than a buffer of its author reaches."""
    lines = [work.offset for work in works.after(event.index) if work.source == event.source]
    return max(lines, default=0) - event.offset > _BUFFER


def _by_words(event: Event, author: Author, deeds: Deeds) -> Passed | None:
    """Whether the author's own words say that it was handled, or no error, and work went on."""
    if deeds.habit(event):
        return "habit"
    if not deeds.worked_beside(event):
        same_line = deeds.busy.after(event) and deeds.handled(author, event, 0)
        return "handled" if same_line else None
    if deeds.handled(author, event, _HANDLED_REACH):
        return "handled"
    if event.signal in WAITED:
        return None
    if _of_another_program(event):
        return "another_program"
    grave = event.strength == "decisive" and event.role == "cause"
    counted = deeds.counted_after(event)
    if event.index in deeds.raised.caught and not grave:
        finished = deeds.unordered(event) and deeds.finished_elsewhere(event)
        went_on = counted >= FURTHER and not fell_silent(event, author, deeds)
        return "caught" if went_on or finished else None
    if fell_silent(event, author, deeds):
        return None
    if (not grave or counted >= LONG) and _is_calm(event):
        return "logged_as_warning"
    return "mentioned" if _is_mention(event) and event.cause not in deeds.deadly else None


def fell_silent(event: Event, author: Author, deeds: Deeds) -> bool:
    """Whether its author prints steps of its own, and made none since."""
    if author.kind == "source" or not deeds.signs_steps(author):
        return False
    return not deeds.works_of(author, event).after(event.index)


def _is_calm(event: Event) -> bool:
    """Whether its author logged it below the level of an error; NCCL warns of what ends it."""
    prefix = peel(event.text)
    if "nccl" in prefix.names and prefix.level != "INFO":
        return False
    return prefix.level in _CALM


def _came_back(event: Event, deeds: Deeds) -> bool:
    """Whether a process that ended is not the rank of this job: that one works below its line."""
    return event.rank is not None and len(deeds.busy_in(event)) >= _CAME_BACK


def _completed(event: Event, author: Author, deeds: Deeds) -> bool:
    """Whether the author wrote afterwards that the work is complete, or the job as a whole did.

    Of an error that is decisive the word is not enough: its author must have worked, too. Who
    prints no steps is spoken for by the job, but for errors that end a process as a rule.
    """
    own = deeds.works_of(author, event)
    if deeds.finished_after(author, event):
        return event.strength != "decisive" or bool(own.after(event.index))
    if own or event.kind == "exception" or event.strength == "decisive":
        return False
    if deeds.unordered(event):
        return deeds.finished_elsewhere(event) and peel(event.text).level not in (*_DYING, "ERROR")
    _, ended = deeds.end_after(author, event)
    return deeds.job_finished_after(event) and deeds.worked.after(event) and not ended


def _served(event: Event, deeds: Deeds) -> bool:
    """Whether a server answered below this line, or was at work far below it."""
    works = deeds.answers_after(event)
    if not works or event.strength == "decisive":
        return False
    if event.role == "effect" and event.phase == "inference":
        return len({work.text for work in works}) >= FURTHER
    lines = [work.line for work in works if work.source == event.source]
    return max(lines, default=0) > event.line + _SERVED_LINES


def fatal_so_far(event: Event, deeds: Deeds) -> bool:
    """Whether its author calls it fatal; a few steps of others say little of that."""
    return peel(event.text).level in _DYING and deeds.counted_after(event) < LONG


def _everybody(event: Event, deeds: Deeds) -> Passed | None:
    """Whether all who may have written a line of a source are seen at work after it."""
    if fatal_so_far(event, deeds):
        return None
    works, ended = deeds.works_of(deeds.author(event), event), deeds.died_after(event)
    if not works:
        named = deeds.named_writers(event)
        went = (one.went_beyond(event.index, deeds.last, ended=ended) for one in named)
        first = next(went, False)
        return "everybody_went_on" if first and all(went) and _lasting(event, deeds) else None
    after = works.after(event.index)
    if any(work.step is not None for work in after):
        went_on = works.all_went_beyond(event.index)
    else:
        # A few answers of a server show that a symptom passed, not that an error did.
        counted = [w for w in after if w.phase != "inference" or event.role == "effect"]
        went_on = len({work.text for work in counted}) >= FURTHER and not ended
    return "everybody_went_on" if went_on and _lasting(event, deeds) else None


def _by_the_job(event: Event, author: Author, deeds: Deeds) -> Passed | None:
    """Whether a training counted on for long that could not without an author who prints none."""
    counted = deeds.counted_after(event)
    if counted < LONG or not deeds.few_sign_steps or deeds.end_after(author, event)[1]:
        return None
    enough = peel(event.text).level not in _DYING
    if event.strength == "decisive" and event.role == "cause":
        enough &= counted >= _VERY_LONG or deeds.job_finished_after(event)
    return "counted_on" if enough else None


def _lasting(event: Event, deeds: Deeds) -> bool:
    return event.role == "cause" or event.signal == "trouble" or _lasted(event, deeds)


def _lasted(event: Event, deeds: Deeds) -> bool:
    """Whether the job finished after it, or worked on for long: it may tell of another's death."""
    if deeds.job_finished_after(event) or deeds.counted_after(event) >= LONG:
        return True
    return len({work.text for work in deeds.answers_after(event)}) >= FURTHER
