"""The stories of a run: one fold over the events of each author, with a reason for each change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from diagnose.catalog.schema import CauseClass
from diagnose.stories.deeds import Deeds
from diagnose.stories.passing import ends_process, hint_passed, passed
from diagnose.stories.story import Passed, State, Story
from diagnose.stories.work import LONG, finished_bar, trains, two_steps
from diagnose.timeline.ends import exit_failed, is_end
from diagnose.timeline.event import Author, Event, Timeline
from diagnose.timeline.readings import BEGINS

_ERRORS = ("cause", "effect")
_DEEDS = ("phase", "progress", "context")
# What others find of the rank that it names.
_OF_OTHERS = frozenset({"missing", "joined", "mismatch"})


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

    def left(self, events: Iterable[Event]) -> list[Event]:
        """The errors that did not pass."""
        return [event for event in events if self.passed(event) is None]

    def survived(self, events: Sequence[Event]) -> bool:
        """Whether all of these errors passed."""
        return bool(events) and not self.left(events)

    def doubtful(self, events: Sequence[Event]) -> bool:
        """Whether others worked on for long after them, or a run began and worked.

        A death would have stopped other ranks; and a later run need not have failed.
        """
        if any(event.cause in self.deeds.final for event in events):
            return False
        last = max(events, key=lambda event: event.index)
        if self.deeds.counted_after(last) >= LONG:
            return True
        begun = (one for one in self.timeline.signalling(BEGINS) if self._below(one, last))
        restart = next(begun, None)
        return restart is not None and self.deeds.busy_after(restart)

    def _below(self, event: Event, other: Event) -> bool:
        return event.source == other.source and event.line > other.line

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
        story.two_steps = two_steps(event for event in events if event.meaning.kind == "progress")
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
            story.waits_in = story.waits_in or event
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
