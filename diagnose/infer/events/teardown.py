"""What interpreters print while they end: ignored exceptions, and ends that are no success.

Python reports what fails in a finaliser, an exit handler or a helper thread and goes on ("Exception
ignored in: …"). The traceback below such a line is nobody's death. The other way round a rank that
died of an exception leaves its script, too, and its libraries say so in the words of a clean end.
NCCL up to 2.20 aborts the communicators of ranks that finish: that they close follows from an end,
of whatever kind, and shows none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from diagnose.catalog.entries import is_word
from diagnose.infer.events.sifting import Fate, Sifted
from diagnose.timeline.deaths import exit_failed
from diagnose.timeline.event import Event, Meaning, Timeline

# The traceback below "Exception ignored in" is short; further on it is another one.
_BLOCK_LINES = 60
_TRACEBACK = "Traceback (most recent call last)"
_ENDS_BLOCK = ("ignored", "teardown", "exit")
_WORK = ("progress", "phase")
_RAISED = "crash.exception"  # the class of what is only true of an exception that ended a rank

_NEARLY = 0.9  # of its steps a job that finishes has made, of those that are kept
_ABORTS = "nccl.init.comm-abort"
# The proxy of a rank says that the rank itself left; of another one it is a sign of its death.
_LEAVES = re.compile(
    r"\[(\d+)\] NCCL INFO \[(?:Proxy )?Service thread\] \w+ closed by localRank \1\b"
)

# A source and the rank that wrote there (None: not named).
_Author = tuple[str, int | None]


def without_teardown_noise(timeline: Timeline) -> tuple[Timeline, list[Sifted]]:
    """The timeline without exceptions that Python ignored, and without ends after a crash.

    With the events that are not there any more, or mean something else.
    """
    sifted: list[Sifted] = []
    dropped = set(_ignored(timeline)) if timeline.telling("ignored") else set()
    if dropped:
        sifted.append(_sifted("absolved", "ignored_exception", timeline, dropped))
        lines = {event.place for event in sifted[-1].events}
        timeline = timeline.only(
            lambda event: (
                event.index not in dropped and not (event.kind == "edge" and event.place in lines)
            )
        )
    if timeline.telling("finished"):
        left = set(_ends_of_crashes(timeline))
        sifted.append(_sifted("ignored", "end_of_crash", timeline, left))
        timeline = _with(timeline, left, lambda meaning: replace(meaning, tells=None))
    if timeline.telling("peer_gone", "teardown"):
        closed = set(_closings(timeline))
        sifted.append(_sifted("absolved", "orderly_close", timeline, closed))
        timeline = _with(timeline, closed, lambda one: replace(one, role="context", tells=None))
    return timeline, [one for one in sifted if one.events]


def _sifted(fate: Fate, predicate: str, timeline: Timeline, chosen: set[int]) -> Sifted:
    """The events of these indices, as they are now."""
    return Sifted(fate, predicate, [timeline.at(index) for index in sorted(chosen)])


def _with(timeline: Timeline, chosen: set[int], changed: Callable[[Meaning], Meaning]) -> Timeline:
    """The timeline in which the events of these indices mean something else."""
    if not chosen:
        return timeline
    return Timeline(
        replace(event, meaning=changed(event.meaning)) if event.index in chosen else event
        for event in timeline
    )


@dataclass(slots=True)
class _Block:
    """The traceback below an "ignored" line, as far as it was read."""

    line: int
    begun: bool = False
    end: int | None = None  # the line of its exception


def _ignored(timeline: Timeline) -> Iterator[int]:
    """Events of the tracebacks that belong to "ignored" lines: up to the exceptions' own lines."""
    blocks: dict[_Author, _Block] = {}
    events = [event for event in timeline if event.kind != "edge"]
    for event in sorted(events, key=lambda event: event.line):
        author = event.source, event.rank
        block = blocks.get(author)
        if block is not None and event.line > block.line:
            if _belongs(event, block):
                yield event.index
            else:
                del blocks[author]
        if event.tells == "ignored":
            blocks[author] = _Block(event.line)


def _belongs(event: Event, block: _Block) -> bool:
    if event.line > block.line + _BLOCK_LINES:
        return False
    if event.tells == "chained":
        block.end, block.begun = None, False
        return True
    if block.end is not None and event.line > block.end + 1:
        return False  # the code line above an error may quote it
    if event.tells in _ENDS_BLOCK or event.kind in _WORK:
        return False
    if event.role == "cause" and _sure(event) and event.cause != _RAISED:
        return False  # what it names is true, wherever it was noticed
    if _TRACEBACK in event.text:
        first, block.begun = not block.begun, True
        return first
    if event.role in ("cause", "effect", "aftermath"):
        block.end = event.line
    return True


def _sure(event: Event) -> bool:
    """Whether it names a cause by more than a word that tells what an exception is about."""
    return event.strength == "decisive" or (
        event.strength == "strong" and not is_word(event.signature)
    )


def _ends_of_crashes(timeline: Timeline) -> Iterator[int]:
    """Implied ends before which the same rank (or one that is not named) raised and did no more."""
    raised: dict[_Author, int] = {}
    worked: dict[_Author, int] = {}
    for event in timeline:
        author = event.source, event.rank
        if event.kind in _WORK:
            worked[author] = event.index
        elif _raises(event):
            raised[author] = event.index
        elif _implies_end(event):
            authors = (author, (event.source, None))
            last = max(raised.get(one, -1) for one in authors)
            if last > max(worked.get(one, -1) for one in authors):
                yield event.index


def _raises(event: Event) -> bool:
    """An exception that no entry reads as something else, or the traceback above any."""
    return _TRACEBACK in event.text or (event.kind == "exception" and event.role == "cause")


def _implies_end(event: Event) -> bool:
    """A rank's own words at exit which do not claim success (those are markers of a phase)."""
    return event.tells == "finished" and event.role == "context" and event.rank is not None


def _closings(timeline: Timeline) -> Iterator[int]:
    """Communicators that ranks closed behind their last work, where no line shows any trouble."""
    told = timeline.where(lambda meaning: meaning.tells in ("peer_gone", "teardown"))
    closings = [event for event in told if event.signature == _ABORTS or _LEAVES.search(event.text)]
    works = timeline.kind("progress")
    if not closings or not works or works[0].index > closings[0].index:
        return
    last = max(work.index for work in works if work.index < closings[0].index)
    latest = [work for work in works if work.place == timeline.at(last).place]
    if not timeline.telling("finished") and any(_amid(work) for work in latest):
        return
    own = {event.index for event in closings}
    if not any(_of_trouble(e) for e in timeline.after(last) if e.index not in own):
        yield from own


def _amid(work: Event) -> bool:
    """Whether much of the work was still to be done."""
    total = work.fields.get("total", "")
    return work.step is not None and total.isdigit() and work.step < _NEARLY * int(total)


def _of_trouble(event: Event) -> bool:
    """Whether it is, or follows from, anything but an end in order."""
    if event.kind == "exit":
        return exit_failed(event)
    return event.role in ("cause", "effect", "aftermath") or event.tells == "trouble"
