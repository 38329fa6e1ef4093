"""What processes print while they end: exceptions that Python ignores, crashes, and clean words.

Python reports what fails in a finaliser, an exit handler or a helper thread and goes on ("Exception
ignored in: …"). The traceback below such a line is nobody's death. The other way round a rank that
died of an exception leaves its script, too, and its libraries say so in the words of a clean end.
Threads that still run, communicators and allocators are torn down with it, which often crashes:
"terminate called without an active exception", a segmentation fault in a destructor, SIGABRT, or
SIGTERM from a launcher that saw the exit. The exception came first. NCCL up to 2.20 aborts the
communicators of ranks that finish: that they close follows from an end, of whatever kind, and shows
none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from diagnose.catalog.entries import is_word
from diagnose.catalog.schema import CauseClass
from diagnose.parse.tracebacks import TRACEBACK
from diagnose.stories.passing import Fate, Sifted
from diagnose.timeline.ends import exit_failed, is_implied, tracebacks
from diagnose.timeline.event import Event, Timeline

_BLOCK_LINES = 60  # of a traceback below "Exception ignored in", or below an exception of nobody's
_ENDS_BLOCK = ("ignored", "teardown", "exit")
_WORK = ("progress", "phase")

_NEARLY = 0.9  # of its steps a job that finishes has made, of those that are kept

# What becomes of the events that a predicate finds, and what they mean from then on.
_MEANS: Mapping[str, tuple[Fate, Mapping[str, str | None]]] = {
    "end_of_crash": ("ignored", {"signal": None}),
    "orderly_close": ("absolved", {"role": "context", "signal": None}),
    "own_end": ("absolved", {"role": "aftermath", "cause": None, "strength": None}),
}

# A source and the rank that wrote there (None: not named).
_Author = tuple[str, int | None]


def settled(timeline: Timeline, classes: Mapping[str, CauseClass]) -> tuple[Timeline, list[Sifted]]:
    """The timeline in which nothing that is printed on the way out looks like a death or a success.

    With the events that are not there any more, or mean something else. The tracebacks below
    "ignored" lines are left out. A clean end after an exception tells of no end, a crash after one
    is its aftermath, and communicators that are closed in order are context.
    """
    sifted: list[Sifted] = []
    if timeline.signalling("ignored") and (left := {*_ignored(timeline, classes)}):
        sifted.append(_sifted("absolved", "ignored_exception", timeline, left))
        lines = {event.place for event in sifted[-1].events}
        timeline = timeline.only(
            lambda event: (
                event.index not in left and not (event.kind == "edge" and event.place in lines)
            )
        )
    ends, crashes = _after_exceptions(timeline, classes)
    found = {
        "end_of_crash": ends,
        "orderly_close": {*_closings(timeline, ends)},
        "own_end": crashes,
    }
    changes: dict[int, Mapping[str, str | None]] = {}
    for predicate, chosen in found.items():
        fate, change = _MEANS[predicate]
        if chosen:
            sifted.append(_sifted(fate, predicate, timeline, chosen))
            changes.update((index, change) for index in chosen)
    if changes:
        changed = (_changed(event, changes.get(event.index)) for event in timeline)
        timeline = timeline.with_events(changed)
    return timeline, sifted


def _sifted(fate: Fate, predicate: str, timeline: Timeline, chosen: Collection[int]) -> Sifted:
    """The events of these indices, as they are now."""
    return Sifted(fate, predicate, [timeline.at(index) for index in sorted(chosen)])


def _changed(event: Event, change: Mapping[str, Any] | None) -> Event:
    return replace(event, meaning=replace(event.meaning, **change)) if change else event


def _after_exceptions(
    timeline: Timeline, classes: Mapping[str, CauseClass]
) -> tuple[set[int], set[int]]:
    """Implied ends and crashes of processes that raised before.

    An end is one of a crash where the same rank (or one that is not named) raised and did no more;
    a crash follows from an exception that nobody caught.
    """
    ends: set[int] = set()
    crashes: set[int] = set()
    uncaught = timeline.once(tracebacks).uncaught
    if not uncaught and not timeline.signalling("finished"):
        return ends, crashes
    raised: dict[_Author, int] = {}
    worked: dict[_Author, int] = {}
    died: dict[_Author, list[Event]] = defaultdict(list)
    for event in timeline:
        author, nobody = (event.source, event.rank), (event.source, None)
        if event.kind in _WORK:
            worked[author] = event.index
        elif is_implied(event):
            last = max(raised.get(author, -1), raised.get(nobody, -1))
            if last > max(worked.get(author, -1), worked.get(nobody, -1)):
                ends.add(event.index)
        elif _crashes(event, classes):
            own = died.get(author) or died.get(nobody) or ()
            if any(_of_same(event, one) for one in own):
                crashes.add(event.index)
        if _raises(event):
            raised[author] = event.index
        if event.index in uncaught and event.role == "cause":
            died[author].append(event)
    return ends, crashes


def _of_same(crash: Event, exception: Event) -> bool:
    """Whether the process that raised an exception is the one that crashes below it."""
    below = crash.line - exception.line
    return below > 0 and (below <= _BLOCK_LINES or exception.rank is not None)


def _crashes(event: Event, classes: Mapping[str, CauseClass]) -> bool:
    """Whether a process says that native code ended it, or a launcher that a signal did."""
    if event.role == "aftermath":
        return False
    killed = "signal" in event.fields or event.fields.get("exitcode", "").startswith("-")
    if event.kind == "exit" and killed:
        return True
    return event.cause is not None and classes[event.cause].while_ending


def _raises(event: Event) -> bool:
    """An exception that no entry reads as something else, or the traceback above any."""
    return TRACEBACK in event.text or (event.kind == "exception" and event.role == "cause")


@dataclass(slots=True)
class _Block:
    """The traceback below an "ignored" line, as far as it was read."""

    line: int
    begun: bool = False
    end: int | None = None  # the line of its exception


def _ignored(timeline: Timeline, classes: Mapping[str, CauseClass]) -> Iterator[int]:
    """Events of the tracebacks that belong to "ignored" lines: up to the exceptions' own lines."""
    blocks: dict[_Author, _Block] = {}
    events = [event for event in timeline if event.kind != "edge"]
    for event in sorted(events, key=lambda event: event.line):
        author = event.source, event.rank
        block = blocks.get(author)
        if block is not None and event.line > block.line:
            if _belongs(event, block, classes):
                yield event.index
            else:
                del blocks[author]
        if event.signal == "ignored":
            blocks[author] = _Block(event.line)


def _belongs(event: Event, block: _Block, classes: Mapping[str, CauseClass]) -> bool:
    if event.line > block.line + _BLOCK_LINES:
        return False
    if event.signal == "chained":
        block.end, block.begun = None, False
        return True
    if block.end is not None and event.line > block.end + 1:
        return False  # the code line above an error may quote it
    if event.signal in _ENDS_BLOCK or event.kind in _WORK:
        return False
    if event.role == "cause" and _sure(event) and not _unspecific(event, classes):
        return False  # what it names is true, wherever it was noticed
    if TRACEBACK in event.text:
        first, block.begun = not block.begun, True
        return first
    if event.role in ("cause", "effect", "aftermath"):
        block.end = event.line
    return True


def _unspecific(event: Event, classes: Mapping[str, CauseClass]) -> bool:
    """Whether it says no more than that something was raised, which is only true of a death."""
    return event.cause is not None and classes[event.cause].unspecific


def _sure(event: Event) -> bool:
    """Whether it names a cause by more than a word that tells what an exception is about."""
    return event.strength == "decisive" or (
        event.strength == "strong" and not is_word(event.signature)
    )


def _closings(timeline: Timeline, no_ends: Collection[int]) -> Iterator[int]:
    """Communicators that ranks closed behind their last work, where no line shows any trouble."""
    closings = [event for event in timeline.capturing("closes") if _of_itself(event)]
    works = timeline.kind("progress")
    if not closings or not works or works[0].index > closings[0].index:
        return
    last = max(work.index for work in works if work.index < closings[0].index)
    latest = [work for work in works if work.place == timeline.at(last).place]
    ended = any(event.index not in no_ends for event in timeline.signalling("finished"))
    if not ended and any(_amid(work) for work in latest):
        return
    own = {event.index for event in closings}
    if not any(_of_trouble(e) for e in timeline.after(last) if e.index not in own):
        yield from own


def _of_itself(closing: Event) -> bool:
    """Whether a rank leaves its own proxy; that it left another's is a sign of its death."""
    fields = closing.fields
    return "local_rank" not in fields or fields["local_rank"] == fields.get("dev")


def _amid(work: Event) -> bool:
    """Whether much of the work was still to be done."""
    total = work.fields.get("total", "")
    return work.step is not None and total.isdigit() and work.step < _NEARLY * int(total)


def _of_trouble(event: Event) -> bool:
    """Whether it is, or follows from, anything but an end in order."""
    if event.kind == "exit":
        return exit_failed(event)
    return event.role in ("cause", "effect", "aftermath") or event.signal == "trouble"
