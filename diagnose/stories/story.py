"""What one process did: its state, how it came to be, and what it stated on the way.

The stories of a run are one fold over the events of each author, with a reason for each change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import NamedTuple

from diagnose.catalog.schema import CauseClass
from diagnose.stories.deeds import Deeds
from diagnose.stories.passing import Passed, ends_process, hint_passed, passed
from diagnose.stories.work import LONG, finished_bar, trains
from diagnose.timeline.ends import exit_code, exit_failed, is_end
from diagnose.timeline.event import CIRCUMSTANTIAL, Author, Event, Learned, Timeline
from diagnose.timeline.readings import BEGINS

_STEPPED_ON = 2  # different steps of training after work began, by which that work is over
_ERRORS = ("cause", "effect")
_DEEDS = ("phase", "progress", "context")
# What others find of the rank that it names.
_OF_OTHERS = frozenset({"missing", "joined", "mismatch"})


class State(Enum):
    """What a process is doing after its last line."""

    STARTING = auto()
    WORKING = auto()
    WAITING = auto()
    FAILED = auto()
    GONE_ON = auto()
    ENDED = auto()


class Change(NamedTuple):
    """A change of state: to what, by which event, by which predicate."""

    state: State
    row: int
    predicate: str


@dataclass(slots=True)
class Story:
    """One process of a run, by its own lines; it claims nothing of why.

    `last`: its last sign of life, which waits and errors are not; `last_step`: of a training;
    `doing`: the last line that shows a phase, `steps_since` the steps of training after it;
    `place`: the first frame of a stack that shows a phase. `lost_peer`, `notified`: where it first
    lost a connection, and was first notified of another rank's failure. `stated`: the causes in the
    order in which it stated them; `ended`: how, as far as a line says; `finished`: the last line
    that its work is done. `learned`: the ways by which lines became its own. `changes`: of state,
    in order.
    """

    author: Author
    state: State = State.STARTING
    last: Event | None = None
    last_step: Event | None = None
    doing: Event | None = None
    steps_since: set[int] = field(default_factory=set)
    place: Event | None = None
    lost_peer: Event | None = None
    notified: Event | None = None
    stated: list[Event] = field(default_factory=list)
    ended: Event | None = None
    finished: Event | None = None
    learned: set[Learned] = field(default_factory=set)
    changes: list[Change] = field(default_factory=list)

    @property
    def step(self) -> int | None:
        """The number of its last step of training."""
        return self.last_step.step if self.last_step is not None else None

    @property
    def phase(self) -> str | None:
        """What it was at, by its own lines or else by its stack."""
        shown = self.doing or self.place
        return shown.phase if shown is not None else None

    @property
    def unfinished(self) -> bool:
        """Whether what it was doing neither ended nor gave way to training."""
        if self.doing is None or self.doing.ends_phase:
            return False
        return len(self.steps_since) < _STEPPED_ON

    @property
    def exit_code(self) -> int | None:
        """The code with which it ended; negative is a signal."""
        return exit_code(self.ended.fields) if self.ended is not None else None

    @property
    def failed(self) -> bool:
        """Whether it ever failed or waited in vain, whatever came of it."""
        return any(one.state in (State.FAILED, State.WAITING) for one in self.changes)

    @property
    def certain(self) -> bool:
        """Whether something in the log ties all of its lines to it."""
        return not self.learned & CIRCUMSTANTIAL

    def become(self, state: State, row: int, predicate: str) -> None:
        """Change to a state, if it is another one."""
        if state is not self.state:
            self.state = state
            self.changes.append(Change(state, row, predicate))


class Stories:
    """What each author of a timeline did, and which errors passed; worked out as it is asked for.

    `classes` are the cause classes, by which it is known what ends a process.
    """

    def __init__(self, timeline: Timeline, classes: Mapping[str, CauseClass]) -> None:
        self.timeline = timeline
        self.deeds = Deeds(timeline, classes)
        self._passed: dict[int, Passed | None] = {}

    def passed(self, event: Event) -> Passed | None:
        """How an error passed; None where its author was not seen to go on."""
        if event.index not in self._passed:
            self._passed[event.index] = passed(event, self.deeds)
        return self._passed[event.index]

    def hint_passed(self, event: Event) -> Passed | None:
        """How an event passed that only hints at a failure; None where it may show one."""
        return self.passed(event) or hint_passed(event, self.deeds)

    def survived(self, events: Sequence[Event]) -> bool:
        """Whether all of these errors passed."""
        return bool(events) and all(map(self.passed, events))

    def doubtful(self, events: Sequence[Event]) -> bool:
        """Whether others worked on for long after them, or a run began and worked.

        A death would have stopped other ranks; and a later run need not have failed.
        """
        if any(event.cause in self.deeds.final for event in events):
            return False
        last = max(events, key=lambda event: event.index)
        if self.deeds.counted_after(last) >= LONG:
            return True
        begun = (
            one
            for one in self.timeline.signalling(BEGINS)
            if one.source == last.source and one.line > last.line
        )
        restart = next(begun, None)
        return restart is not None and self.deeds.busy.after(restart)

    @cached_property
    def all(self) -> Mapping[Author, Story]:
        """The story of each author."""
        events: dict[Author, list[Event]] = defaultdict(list)
        for event in self.timeline:
            if event.meaning.kind != "edge" and event.meaning.signal not in _OF_OTHERS:
                events[self.deeds.author(event)].append(event)
        return {author: self._story(author, own) for author, own in events.items()}

    @cached_property
    def of_ranks(self) -> Mapping[int, Story]:
        """Rank → its story, in order, for every rank with a line of its own."""
        ranks = {who.rank: story for who, story in self.all.items() if who.rank is not None}
        return dict(sorted(ranks.items()))

    def _story(self, author: Author, events: Sequence[Event]) -> Story:
        story = Story(author)
        open_: list[Event] = []  # errors that pass with what the author does next
        for event in events:
            if event.learned is not None:
                story.learned.add(event.learned)
            if event.meaning.role in _DEEDS:
                _did(story, event)
            elif lost_peer(event):
                story.lost_peer = story.lost_peer or event
            elif event.meaning.signal == "notified":
                story.notified = story.notified or event
            self._became(story, event, open_)
        return story

    def _became(self, story: Story, event: Event, open_: list[Event]) -> None:
        """Change the state by an event, where it shows one."""
        kind = event.meaning.kind
        if kind == "progress" or (kind == "phase" and not is_end(event)):
            self._worked(story, event, open_)
        elif is_end(event):
            story.ended = story.finished = event
            story.become(State.ENDED, event.index, "finished")
        elif kind == "exit":
            story.ended = event
            failed = exit_failed(event)
            story.become(State.FAILED if failed else State.ENDED, event.index, "exit")
        elif event.meaning.role in _ERRORS:
            self._erred(story, event, open_)
        elif kind == "frame" and event.meaning.phase is not None:
            story.place = story.place or event

    def _worked(self, story: Story, event: Event, open_: list[Event]) -> None:
        if story.state is State.STARTING and event.meaning.kind == "progress":
            story.become(State.WORKING, event.index, "progress")
        if story.state is not State.FAILED or not open_:
            return
        lasting = next((error for error in open_ if self.passed(error) is None), None)
        if lasting is None:
            story.become(State.GONE_ON, event.index, self.passed(open_[-1]) or "")
        open_[:] = [] if lasting is None else [lasting]  # which no later work will pass

    def _erred(self, story: Story, event: Event, open_: list[Event]) -> None:
        if event.meaning.role == "cause":
            story.stated.append(event)
        open_.append(event)
        if event.meaning.signal == "timeout":
            story.become(State.WAITING, event.index, "timeout")
        elif ends_process(event, self.deeds):
            story.ended = event
            story.become(State.FAILED, event.index, "ends_process")
        else:
            story.become(State.FAILED, event.index, "error")


def lost_peer(event: Event) -> bool:
    """Whether its author lost the connection to a peer, whose own log knows why."""
    return event.role == "effect" and (event.signal == "peer_gone" or "peer" in event.fields)


def only_lost_peers(events: Sequence[Event]) -> bool:
    """Whether there are events, and all they say is that their authors lost a peer."""
    return bool(events) and all(map(lost_peer, events))


def _did(story: Story, event: Event) -> None:
    """Take in a deed: a step of training, or a line that shows a phase."""
    story.last = event
    step = event.step if trains(event) else None
    if step is not None:
        story.last_step = event
    if event.phase is not None and not finished_bar(event):
        story.doing = event
        story.steps_since.clear()
    elif step is not None:
        story.steps_since.add(step)
