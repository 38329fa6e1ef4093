"""Who did what, and when: what questions about the time after an error are answered from.

What surely came after what follows from sources and clocks. Errors that a job prints again and
again and works on are its habit: rollouts whose answers cannot be parsed, files that a loader
leaves out. Each is caught, logged with its traceback, and the next step is made. Where one is below
the last step it looks like the error that ended the job, and is no death.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import TypeVar

from diagnose.catalog.entries import COUNTER
from diagnose.catalog.schema import CauseClass
from diagnose.parse.prefix import peel
from diagnose.stories.work import Works, moved
from diagnose.timeline.ends import Raised, endings, exit_failed, is_implied, tracebacks
from diagnose.timeline.event import Author, Event, Timeline, author_of

_OFTEN = 5  # times before the last progress
_BETWEEN = 2  # stretches of work in which it occurred, each with progress behind it
_FURTHER = 3  # or steps that were counted on since it first occurred (not all lines are kept)
_NUMBER = re.compile(r"\d+")
_ALIKE = 40  # characters in which messages of one kind agree
Kind = tuple[str, str, str]  # source, entry, how the message begins
Found = TypeVar("Found")
_TRAINING = ("training", None)
_SPEAKING = (None, 0)  # ranks that speak for the job
_HOSTS = 2  # of which each is one rank's, so that none is a node with several
_DEATHS = ("timeout", "teardown")
_INDEX = attrgetter("index")
_NO_WORKS = Works(())


def after(later: Event, event: Event, slack: int = 0) -> bool:
    """Whether it surely came later: below in the same source, or by the clocks of both.

    `slack` is by how many ns these are not trusted to agree.
    """
    if later.source == event.source:
        return later.line > event.line
    if later.time is None or event.time is None or later.index <= event.index:
        return False
    return not slack or later.time - event.time > slack


class Latest:
    """The last of some events, given in order: in each source, and by the clock."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._lines: dict[str, int] = {}
        for event in events:
            if event.line > self._lines.get(event.source, -1):
                self._lines[event.source] = event.line
        timed = (event.index for event in reversed(events) if event.time is not None)
        self._index = next(timed, -1)

    def after(self, event: Event) -> bool:
        """Whether one of them surely came later than an event."""
        if self._lines.get(event.source, -1) > event.line:
            return True
        return event.time is not None and self._index > event.index

    def beside(self, event: Event) -> bool:
        """Whether one of them is on the same line."""
        return self._lines.get(event.source, -1) == event.line


def habits(timeline: Timeline) -> Collection[Kind]:
    """The kinds of errors, of those that may be caught, which the job survived regularly."""
    steps = [event for event in timeline.kind("progress") if event.signature != COUNTER.id]
    mild = timeline.where(lambda one: one.strength == "weak" or one.signal == "trouble")
    errors = [event for event in mild if _mild(event) and event.role != "progress"]
    often = Counter((event.source, event.signature) for event in errors)
    errors = [event for event in errors if often[event.source, event.signature] > _OFTEN]
    if not steps or not errors:  # a number that grows is too little for this
        return ()
    marks: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
    for step in steps:
        marks[step.source].append((step.line, step.step))
    for lines in marks.values():
        lines.sort(key=itemgetter(0))
    stretches: dict[Kind, list[int]] = defaultdict(list)
    for event in errors:
        own = marks[event.source]
        stretch = bisect_left(own, event.line, key=itemgetter(0))
        if stretch < len(own):
            stretches[_kind_of_line(event)].append(stretch)
    return {
        kind
        for kind, found in stretches.items()
        if len(found) >= _OFTEN and _worked_on(marks[kind[0]], found)
    }


def _worked_on(marks: Sequence[tuple[int, int | None]], stretches: Sequence[int]) -> bool:
    """Whether an error that occurred in these stretches did not keep the job from its steps."""
    if len(set(stretches)) >= _BETWEEN:
        return True
    first, last = marks[max(stretches[0] - 1, 0)][1], marks[-1][1]
    return first is not None and last is not None and last - first >= _FURTHER


def _mild(event: Event) -> bool:
    """Whether it may be caught: an exception of no known cause, an error line, a traceback."""
    if event.kind == "exit" or event.strength == "decisive":
        return False
    return event.strength == "weak" or event.signal == "trouble"


def kind_of(event: Event) -> Kind | None:
    """What such lines have in common; None for an error that may not be caught."""
    return _kind_of_line(event) if _mild(event) else None


def _kind_of_line(event: Event) -> Kind:
    message = peel(event.text).message.strip()
    return event.source, event.signature or "", _NUMBER.sub("0", message)[:_ALIKE]


class Deeds:
    """What the authors of a timeline did, worked out as it is asked for.

    `final` are the cause classes after which whatever is printed comes from processes about to end,
    `deadly` those of which a process dies.
    """

    def __init__(self, timeline: Timeline, classes: Mapping[str, CauseClass]) -> None:
        self.timeline = timeline
        self.final = frozenset(one.id for one in classes.values() if one.final)
        self.deadly = frozenset(one.id for one in classes.values() if one.ends_process)
        self.progress = timeline.kind("progress")
        self.last = max((event.index for event in timeline), default=0)

    def author(self, event: Event) -> Author:
        """The author of an event: the rank, too, where a host or pod of the job is one rank's."""
        found = author_of(event)
        if found.kind in ("host", "process") and event.host in self._rank_of_host:
            return Author("rank", (self._rank_of_host[event.host],))
        return found

    @cached_property
    def _rank_of_host(self) -> Mapping[str | None, int]:
        ranks: dict[str | None, set[int]] = defaultdict(set)
        for event in self.timeline:
            if event.rank is not None and event.host is not None:
                ranks[event.host].add(event.rank)
        if len(ranks) < _HOSTS or any(len(own) > 1 for own in ranks.values()):
            return {}
        return {host: next(iter(own)) for host, own in ranks.items()}

    @cached_property
    def last_lines(self) -> Mapping[str, int]:
        """Source → the last of its lines that are known."""
        columns = self.timeline.column("source"), self.timeline.column("line")
        return dict(zip(*columns, strict=True))

    @cached_property
    def raised(self) -> Raised:
        """The events of tracebacks."""
        return self.timeline.once(tracebacks)

    @cached_property
    def works(self) -> Mapping[Author, Works]:
        """The progress of each author."""
        return {author: Works(own) for author, own in _by(self.author, self.progress).items()}

    @cached_property
    def _works_here(self) -> Mapping[tuple[Author, str], Works]:
        """The progress of each author in each source."""
        found = _by(lambda one: (self.author(one), one.source), self.progress)
        return {key: Works(own) for key, own in found.items()}

    @cached_property
    def _works_timed(self) -> Mapping[Author, Works]:
        """The progress of each author of which the time is known."""
        timed = [work for work in self.progress if work.time is not None]
        return {author: Works(own) for author, own in _by(self.author, timed).items()}

    def works_of(self, author: Author, event: Event) -> Works:
        """The progress of an author whose order to an event is known."""
        here = self._works_here.get((author, event.source))
        if here is not None:
            return here
        if event.time is None:
            return _NO_WORKS
        return self._works_timed.get(author, _NO_WORKS)

    def signs_steps(self, author: Author) -> bool:
        """Whether an author prints steps of its own, wherever."""
        return author in self.works

    @cached_property
    def few_sign_steps(self) -> bool:
        """Whether most of those who are known print no steps of their own, as a rule."""
        known = {author for own in self.writers.values() for author in own}
        signing = [author for author in self.works if author.kind != "source"]
        return 2 * len(signing) <= len([one for one in known if one.kind != "source"])

    def named_writers(self, event: Event) -> Iterator[Works]:
        """The progress of everybody who writes where an event stands."""
        found = (self.works_of(author, event) for author in self.works)
        return filter(None, found)

    @cached_property
    def _training(self) -> tuple[Mapping[str, Works], Works]:
        """Steps of a training by source, and all of which the time is known."""
        steps = [work for work in self.progress if work.phase in _TRAINING]
        here = {name: Works(own) for name, own in _by(attrgetter("source"), steps).items()}
        return here, Works(work for work in steps if work.time is not None)

    def counted_after(self, event: Event) -> int:
        """How many steps the training surely counted on after an event."""
        here, timed = self._training
        found = here.get(event.source, _NO_WORKS).counted(event.index)
        return max(found, timed.counted(event.index) if event.time is not None else 0)

    def unordered(self, event: Event) -> bool:
        """Whether nobody knows if the work of the job came before or after an event."""
        timed = event.time is not None and self._timed
        return not timed and event.source not in self._sources_at_work

    @cached_property
    def _timed(self) -> bool:
        return any(work.time is not None for work in self.progress)

    @cached_property
    def _sources_at_work(self) -> Collection[str]:
        return {work.source for work in self.progress}

    def nothing_after(self, event: Event) -> bool:
        """Whether nobody worked, began a phase or finished after an event, or may have."""
        later = self._last_deeds.after(event) or self._last_deeds.beside(event)
        unknown = self.unordered(event) and bool(self.progress or self.endings)
        return not later and not unknown

    @cached_property
    def _last_deeds(self) -> Latest:
        done = self.timeline.where(
            lambda one: one.kind in ("phase", "progress") or one.signal == "finished"
        )
        return Latest(done)

    def worked_beside(self, event: Event) -> bool:
        """Whether somebody worked after an event, or may have, as far as anything is ordered."""
        return self.worked.after(event) or (self.unordered(event) and bool(self.progress))

    def busy_in(self, event: Event) -> Sequence[Event]:
        """What its author did below an event in the same source: progress and phases."""
        own = self._busy_of.get((self.author(event), event.source), ())
        return [one for one in own if one.line > event.line]

    @cached_property
    def _busy_of(self) -> Mapping[tuple[Author, str], Sequence[Event]]:
        events = self.timeline.kind("phase", "progress")
        return _by(lambda one: (self.author(one), one.source), events)

    def answers_after(self, event: Event) -> Sequence[Event]:
        """The answers of servers that surely came after an event."""
        begin = bisect_right(self._answers, event.index, key=_INDEX)
        return [work for work in self._answers[begin:] if after(work, event)]

    @cached_property
    def _answers(self) -> Sequence[Event]:
        return [work for work in self.progress if work.phase == "inference"]

    @cached_property
    def _moves(self) -> Sequence[Event]:
        return [*moved(self.progress)]

    @cached_property
    def worked(self) -> Latest:
        """The last work of anybody."""
        return Latest(self._moves)

    @cached_property
    def busy(self) -> Latest:
        """The last work of anybody, or beginning of a phase."""
        return Latest(self.timeline.kind("phase", "progress"))

    @cached_property
    def answered(self) -> Latest:
        """The last work of anybody, or good end."""
        return Latest([*self._moves, *self.endings])

    @cached_property
    def _finished(self) -> Mapping[Author, Latest]:
        claimed = [ending for ending in self.endings if not is_implied(ending)]
        return {author: Latest(own) for author, own in _by(self.author, claimed).items()}

    @cached_property
    def endings(self) -> Sequence[Event]:
        """The lines that say that the job, or a rank, finished."""
        return endings(self.timeline)

    def finished_after(self, author: Author, event: Event) -> bool:
        """Whether an author wrote afterwards that its work is complete."""
        own = self._finished.get(author)
        return own is not None and own.after(event)

    def exited_after(self, author: Author, event: Event) -> bool:
        """Whether an author reached the end of its script afterwards, well or not."""
        own = self._exited.get(author)
        return own is not None and own.after(event)

    @cached_property
    def _exited(self) -> Mapping[Author, Latest]:
        return {author: Latest(own) for author, own in _by(self.author, self.endings).items()}

    def left_phase_after(self, author: Author, event: Event) -> bool:
        """Whether an author surely ended the phase of an event by success after it."""
        known = author.kind != "source" and event.phase is not None
        own = self._left.get((author, event.phase)) if known else None
        return own is not None and own.after(event)

    @cached_property
    def _left(self) -> Mapping[tuple[Author, str | None], Latest]:
        ends = self.timeline.where(lambda one: one.ends_phase and one.role == "context")
        found = _by(lambda one: (self.author(one), one.phase), ends)
        return {key: Latest(own) for key, own in found.items()}

    def job_finished_after(self, event: Event) -> bool:
        """Whether the first rank, or nobody in particular, wrote so."""
        return self._finished_job.after(event)

    @cached_property
    def _finished_job(self) -> Latest:
        claimed = [ending for ending in self.endings if not is_implied(ending)]
        return Latest([one for one in claimed if self.author(one).rank in _SPEAKING])

    def finished_elsewhere(self, event: Event) -> bool:
        """Whether somebody wrote so in another source."""
        return bool(self._sources_finished - {event.source})

    @cached_property
    def _sources_finished(self) -> Set[str]:
        return {ending.source for ending in self.endings}

    @cached_property
    def _deaths(self) -> Mapping[Author, list[int]]:
        """The ends of each author; what is reported in nobody's name may be anybody's."""
        ends = self.timeline.where(lambda one: one.kind == "exit" or one.signal in _DEATHS)
        raised = [
            event for event in self.timeline.role("cause") if event.index in self.raised.uncaught
        ]
        failed = [event for event in ends if event.kind != "exit" or exit_failed(event)]
        merged = sorted({*map(_INDEX, failed), *map(_INDEX, raised)})
        by_author = _by(self.author, map(self.timeline.at, merged))
        return {author: [*map(_INDEX, own)] for author, own in by_author.items()}

    @cached_property
    def _deaths_of_nobody(self) -> list[int]:
        return sorted(i for who, own in self._deaths.items() if who.kind == "source" for i in own)

    def end_after(self, author: Author, event: Event) -> tuple[int, bool]:
        """The index at which an author ended after an event, else the last one; whether it did."""
        ends = self._deaths.get(author, []), self._deaths_of_nobody
        later = [own[at] for own in ends if (at := bisect_right(own, event.index)) < len(own)]
        return min(later, default=self.last), bool(later)

    def died_after(self, event: Event) -> bool:
        """Whether anybody ended after an event."""
        return self._last_death > event.index

    @cached_property
    def _last_death(self) -> int:
        return max((ends[-1] for ends in self._deaths.values()), default=-1)

    @cached_property
    def _handled(self) -> Mapping[str, Sequence[Event]]:
        return _by(attrgetter("source"), self.timeline.signalling("handled"))

    def handled(self, author: Author, event: Event, reach: int) -> bool:
        """Whether a handler took an error up, in its author's name or nobody's."""
        return any(
            0 <= word.line - event.line <= reach
            for word in self._handled.get(event.source, ())
            if (own := self.author(word)) == author or own.kind == "source"
        )

    @cached_property
    def _habits(self) -> Collection[Kind]:
        return habits(self.timeline)

    def habit(self, event: Event) -> bool:
        """Whether the job survived errors of this kind regularly."""
        return bool(self._habits) and kind_of(event) in self._habits

    @cached_property
    def writers(self) -> Mapping[str, set[Author]]:
        """Source → who wrote in it."""
        found: dict[str, set[Author]] = defaultdict(set)
        for event in self.timeline:
            found[event.source].add(self.author(event))
        return found

    def one_writer(self, source: str) -> bool:
        """Whether all of a source is of one author."""
        return len(self.writers[source]) == 1


def _by(key: Callable[[Event], Found], events: Iterable[Event]) -> dict[Found, list[Event]]:
    found: dict[Found, list[Event]] = defaultdict(list)
    for event in events:
        found[key(event)].append(event)
    return found
