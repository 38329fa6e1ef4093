"""Whether a job, or one of its processes, fell silent long before whoever ended it did so.

Lines that came regularly and then came no more are a hang, whatever its end: a limit, a signal, a
person, or a monitor that watches. What ends it later is its aftermath: where the work ends, who
ended it, and how long after the last sign of life that was. One process may fall silent before all
others of its kind, which went on at least a line.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from diagnose.parse.prefix import peel
from diagnose.parse.stamps import duration_in, time_in
from diagnose.stories.deeds import Deeds
from diagnose.stories.work import SECOND, Rhythm, lines_lost, median, rhythms
from diagnose.text.ranks import ranks_phrase
from diagnose.text.times import duration
from diagnose.timeline.event import CIRCUMSTANTIAL, Author, Event, Timeline, author_of
from diagnose.timeline.readings import OWN_WAY

# A silence is far beyond the rhythm of its author from so many of its intervals on, and so many of
# its longest earlier pauses; and it is not over in a moment.
INTERVALS, PAUSES, LEAST_S = 20, 2, 60
# Where no two lines show a rhythm.
_UNKNOWN_RHYTHM_S = 3600
# What is reckoned from how long a run and its bar took leaves out how long it took to start.
_RECKONED_S = 1200
# What tells of an end, besides what follows one, and of a silence while it lasts.
_ENDS, _WATCHES, _TOOK = ("teardown", "stopping", "exit"), "silent", "duration"
# Lines that nobody knows, from the last work to the end, may be work in other words.
_UNKNOWN_LINES = 5
# What stands so shortly above an ending and is not of those who work announces it.
_PRELUDE_S = 60
_HOUR_S, _HOURS = 3600, 14
_MS = 1000
# Lines that the others wrote after its last: before they fell silent too, or while they go on,
# when fewer may be lost or late.
_UNTIL_ALL_ARE_SILENT, _WHILE_OTHERS_WORK = range(1, 21), 6
# Lines by which the others may be apart.
_TOGETHER = 2
_LAST_NUMBER = re.compile(r"(.*?)(\d+)(\D*)")


class Silence(NamedTuple):
    """A silence that is long for those who fell silent.

    `last` is the last work before it. `whole`: of the whole job, and proven to have lasted
    `seconds`, where lines came every `usual_s`; else only the one author of `lone` is silent.
    `ended` is the first line of who ended it, None where nothing did.
    """

    last: Event
    whole: bool
    seconds: float | None = None
    usual_s: float | None = None
    ended: Event | None = None
    lone: Lone | None = None

    @property
    def began(self) -> Event:
        """The last line of who fell silent first."""
        return self.lone.rhythm.last if self.lone else self.last

    def summary(self, work: str | None) -> str:
        """What is known of it in sentences; `work`: what was begun then, "saving a checkpoint"."""
        lone, usual = self.lone, self.usual_s
        before = f"; before, lines came every {duration(usual)}" if usual else ""
        if self.seconds is None:
            assert lone is not None
            return (
                f"{lone.name} wrote no more progress{before}, while the others wrote {lone.lines} "
                "more lines: it hangs, or only its output is lost."
            )
        busy, first = f" while it was {work}" if work else "", ""
        if lone is not None:
            more = "one more line" if lone.lines == 1 else f"{lone.lines} more lines"
            first = f" {lone.name} was the first, the others wrote {more}."
        text = f"The job fell silent{busy} for {duration(self.seconds)}{before}.{first}"
        if self.ended is None:
            return f"{text} Nothing ended it: look at it while it hangs."
        return f"{text} Whoever ended it then is not the cause."


def find_silence(deeds: Deeds, endings: Collection[str]) -> Silence | None:
    """The silence of a job or of one of its processes; None where all worked to the end.

    `endings` are the cause classes of those who end a job from outside.
    """
    timeline = deeds.timeline
    found = timeline.once(rhythms)
    known = [one for one in found if len(one.lines) > 1]
    if not known:
        return None
    end = end_of(timeline, endings, known)
    usual = _usual(known)
    seconds, reckoned = end.silence(usual)
    bound = max(_bound(usual, known), _RECKONED_S if reckoned else 0)
    whole = seconds is not None and seconds >= bound
    lone = find_lone(found, deeds, endings, whole=whole)
    if not whole and lone is None:
        return None
    return Silence(end.last, whole, seconds if whole else None, usual, end.first, lone)


def _usual(known: Sequence[Rhythm]) -> float | None:
    """The usual seconds between two lines of one author."""
    found = [one.interval_s for one in known if one.interval_s is not None]
    return median(found) if found else None


def _bound(usual: float | None, known: Sequence[Rhythm]) -> float:
    """Seconds from which on a silence is long."""
    if usual is None:
        return _UNKNOWN_RHYTHM_S
    return max(LEAST_S, INTERVALS * usual, PAUSES * max(one.pause_s for one in known))


@dataclass
class End:
    """The end of a job by what `timeline` says of it.

    `last` is its last sign of life, `first` the first line of who ended it, None where nobody did;
    `watched` are lines that others print while it is silent, `durations` those of its end that may
    say how long it took. `failed`: something else went wrong in between.
    """

    timeline: Timeline
    working: Sequence[Rhythm]
    last: Event
    first: Event | None
    ending: Sequence[Event]
    watched: Sequence[Event]
    durations: Sequence[Event]
    failed: bool

    def silence(self, usual: float | None) -> tuple[float | None, bool]:
        """Seconds from the last sign of life to the end, and whether they are only reckoned."""
        if self.last.signal == "finished" or self._works_unseen():
            return None, False
        stated = [seconds for event in self.watched if (seconds := _stated(event)) is not None]
        until = self._time
        if until is not None and self.last.time is not None:
            seconds = (until - self.last.time) / SECOND
            return max([*stated, 0.0 if self._other_zone(seconds, usual) else seconds]), False
        if stated:
            return max(stated), False
        return self._reckoned(), True

    @cached_property
    def _time(self) -> int | None:
        """When it was ended, or seen to be silent for the last time."""
        if self.first is not None:
            return next((time for one in self.ending if (time := _when(one)) is not None), None)
        return max((one.time for one in self.watched if one.time is not None), default=None)

    def _works_unseen(self) -> bool:
        """Whether too many lines that nobody knows stand between the last work and the end."""
        end = self.first or (self.watched[-1] if self.watched else None)
        if end is None:
            return True
        above = [
            line
            for line in self.timeline
            if line.source == end.source and line.line < end.line and line.kind != "edge"
        ]
        known = max((e.line for e in above if e.role in ("progress", "phase")), default=None)
        if known is None:
            return False
        watched = {e.line for e in self.watched if e.source == end.source and e.line > known}
        apart = max((one.apart for one in self.working if one.last.source == end.source), default=0)
        return end.line - known - 1 - len(watched) > _UNKNOWN_LINES + apart

    def _other_zone(self, seconds: float, usual: float | None) -> bool:
        """Whether the clock of a scheduler that ended it may only be in another time zone."""
        hours, rest = divmod(seconds + (usual or 0.0), _HOUR_S)
        of_another = any(one.time is None and _when(one) == self._time for one in self.ending)
        return of_another and 1 <= hours <= _HOURS and rest <= 2 * (usual or 0.0)

    def _reckoned(self) -> float | None:
        """How long it lasted by how long the run took, and how far into it the last work was."""
        if self.failed:
            return None  # nobody knows when
        first = min(one.lines[0].index for one in self.working)
        above = (event for event in self.timeline if event.index < first)
        begun = next((time for event in above if (time := _when(event)) is not None), None)
        took = next((s for one in self.durations if (s := _stated(one)) is not None), None)
        if took is None and begun is not None and self._time is not None:
            took = (self._time - begun) / SECOND
        if took is None:
            return None
        if self.last.time is not None:
            return took - (self.last.time - begun) / SECOND if begun is not None else None
        return None if (shown := self._clock()) is None else took - shown / _MS

    def _clock(self) -> int | None:
        """How far into the run the last work was, by a bar: its own, or one drawn just above it."""
        last = self.last
        bars = [
            one.last
            for one in self.working
            if one.last.source == last.source and last.line - one.last.line <= one.apart
        ]
        known = [bar.elapsed_ms for bar in (last, *bars) if bar.elapsed_ms is not None]
        return known[0] if known else None


def end_of(timeline: Timeline, endings: Collection[str], working: Sequence[Rhythm]) -> End:
    """The end of a job whose lines of progress have these rhythms."""
    last = max((one.last for one in working), key=lambda line: line.index)
    lasts = sorted((one.last for one in working), key=attrgetter("line"))
    lines = {line.source: line.line for line in lasts}
    later = [event for event in timeline if _later(event, last, lines)]
    ending = [event for event in later if _ends(event, endings)]
    watched = [event for event in later if event.signal == _WATCHES]
    first = ending[0] if ending else None
    if first is not None:
        watched = [event for event in watched if event.index < first.index]
    before = [event for event in later if first is None or _before(event, first)]
    strange = {event.place for event in (*ending, *watched)} if before else set()
    authors = {one.author for one in working}
    life = [
        event
        for event in before
        if event.time is not None and event.source in lines and event.place not in strange
        if _alive(event, authors, first)
    ]
    stated = [
        one for one in later if one.signal == _TOOK or (one.role == "cause" and _ends(one, endings))
    ]
    worked = {line.place for one in working for line in one.lines} if stated else set()
    durations = [one for one in stated if one.place not in worked]
    last = max([last, *life], key=_order)
    failed = any(e.role in ("cause", "effect") and not _ends(e, endings) for e in later)
    return End(timeline, working, last, first, ending, watched, durations, failed)


def _order(event: Event) -> tuple[int, int]:
    return (event.time if event.time is not None else -1, event.index)


def _later(event: Event, last: Event, lines: dict[str, int]) -> bool:
    """Whether it comes after the last work: below it, by its time, or, without one, elsewhere."""
    if event.source in lines:
        return event.line >= lines[event.source] and event.role != "progress"
    return event.time is None or last.time is None or event.index > last.index


def _before(event: Event, first: Event) -> bool:
    return event.line < first.line if event.source == first.source else event.index < first.index


def _ends(event: Event, endings: Collection[str]) -> bool:
    """Whether it tells of an end: somebody ends the job, or what follows that."""
    meaning = event.meaning
    if meaning.role == "cause":
        return meaning.cause in endings
    return meaning.role == "aftermath" or meaning.kind == "exit" or meaning.signal in _ENDS


def _alive(event: Event, authors: Collection[Author], first: Event | None) -> bool:
    """Whether a line after the last step shows that somebody still worked."""
    if event.kind != "edge" or author_of(event).kind != "source":
        return event.kind != "edge" or author_of(event) in authors
    time = _when(first) if first is not None else None
    return time is None or event.time is None or (time - event.time) / SECOND > _PRELUDE_S


def _when(event: Event) -> int | None:
    """When a line was written, by what stands before it or in it."""
    return event.time if event.time is not None else time_in(event.text)


def _stated(event: Event) -> float | None:
    """Seconds that a line says something took."""
    if event.elapsed_ms is not None:
        return event.elapsed_ms / _MS
    return duration_in(peel(event.text).message)  # the time of the line is no duration


class Lone(NamedTuple):
    """The rhythm of the one author that fell silent, and how many lines the others wrote since.

    `rank` is what it has by its own lines, or by those of its file or pod.
    """

    rhythm: Rhythm
    lines: int
    rank: int | None = None

    @property
    def author(self) -> Author:
        """Who it is."""
        return self.rhythm.author

    @property
    def host(self) -> str | None:
        """The host that it is known by, if not by a rank."""
        host = self.author.name[0]
        known = self.rank is None and self.author.kind in ("host", "process")
        return host if known and isinstance(host, str) else None

    @property
    def name(self) -> str:
        """Who it is, as a sentence begins with it."""
        if self.rank is not None:
            return ranks_phrase([self.rank]).capitalize()
        kind = {"process": "Process", "host": "Host", "source": "Log"}.get(self.author.kind, "Task")
        return f"{kind} {':'.join(str(part) for part in self.author.name if part is not None)}"


def find_lone(
    found: Sequence[Rhythm], deeds: Deeds, endings: Collection[str], *, whole: bool
) -> Lone | None:
    """The one author behind all others of its counter; `whole`: all are silent in the end."""
    timeline = deeds.timeline
    if max(timeline.column("repeated"), default=1) > 1:
        return None  # lines of some authors were left out
    counters: dict[str | None, list[Rhythm]] = defaultdict(list)
    for one in found:
        counters[one.counter].append(one)
    for counter in sorted(counters.values(), key=len, reverse=True):
        latest = _latest_of_each(counter)
        rhythm, lines = _outlier(latest) or (None, 0)
        if rhythm is None or _ended_itself(rhythm, deeds, endings):
            continue
        if lines <= lines_lost(latest.values(), rhythm.last, timeline):
            continue
        if lines in _UNTIL_ALL_ARE_SILENT if whole else lines >= _WHILE_OTHERS_WORK:
            return Lone(rhythm, lines, _rank(rhythm.author, latest, timeline))
    return None


def own_way(timeline: Timeline) -> Event | None:
    """The last line of the one rank that left the way of all others before these fell silent.

    Rank 0 writes alone what it does for all.
    """
    found = {event.rank: event for event in timeline.signalling(OWN_WAY) if event.rank}
    return next(iter(found.values())) if len(found) == 1 else None


def _latest_of_each(counter: Sequence[Rhythm]) -> Mapping[Author, Rhythm]:
    """The last rhythm of each author: a launcher may repeat what it wrote into its own file."""
    last: dict[Author, Rhythm] = {}
    for one in sorted(counter, key=lambda rhythm: (rhythm.last.index, rhythm.last.source)):
        last[one.author] = one
    return last


def _outlier(latest: Mapping[Author, Rhythm]) -> tuple[Rhythm, int] | None:
    """The one that stopped first, where the others are together, and their lines since."""
    strides = [one.stride for one in latest.values() if one.stride]
    if len(latest) < 2 or not strides or any(one.last.step is None for one in latest.values()):
        return None
    stride = max(1, int(median(strides)))
    ordered = sorted(latest.values(), key=lambda one: one.last.step or 0)
    steps = [one.last.step or 0 for one in ordered]
    for index, rhythm in enumerate(ordered):
        # Of all others, which are in order, too.
        least, most = steps[index == 0], steps[-2 if index == len(steps) - 1 else -1]
        if len(rhythm.lines) < 2 or most - least > _TOGETHER * stride:
            continue
        lines = (least - steps[index]) // stride
        if lines < 0:  # the counter began again, with another epoch
            lines = _least_between(rhythm, latest.values())
        if lines > 0:
            return rhythm, lines
    return None


def _least_between(rhythm: Rhythm, latest: Iterable[Rhythm]) -> int:
    """The least that the others wrote below its last line, in its file; 0 where one wrote none."""
    found: list[int] = []
    for one in latest:
        if one is not rhythm:
            same = one.last.source == rhythm.last.source
            found.append((one.last.line - rhythm.last.line) // max(1, one.apart) if same else 0)
            if found[-1] <= 0:
                return 0
    return min(found)


def _ended_itself(rhythm: Rhythm, deeds: Deeds, endings: Collection[str]) -> bool:
    """Whether its own lines say why it wrote no more.

    These are later ones, or an exception that nobody caught: below it stands what its process had
    held in a buffer.
    """
    author, last, uncaught = rhythm.author, rhythm.last, deeds.raised.uncaught
    reported = deeds.timeline.where(lambda meaning: meaning.role in ("cause", "effect", "phase"))
    nameless = [deeds.timeline.at(index) for index in deeds.raised.nameless]
    return any(
        event.index in uncaught or event.index > last.index
        for event in (*reported, *nameless)
        if event.signal == "finished" or (event.role != "phase" and event.cause not in endings)
        if deeds.author(event) == deeds.author(last) or _of(author, event)
    )


def _rank(author: Author, latest: Mapping[Author, Rhythm], timeline: Timeline) -> int | None:
    """The rank of an author: its own, the one that its pod or file names, or its file's number."""
    if author.rank is not None or author.kind not in ("host", "source", "process"):
        return author.rank
    ranks = {event.rank for event in timeline if event.rank is not None and _of(author, event)}
    if len(ranks) == 1:
        return ranks.pop()
    return None if ranks or author.kind != "source" else _number_of_file(author, latest)


def _of(author: Author, event: Event) -> bool:
    """Whether a line is of a host, process or file, whichever rank it names."""
    if author.kind == "host":
        return (event.host,) == author.name
    if author.kind == "process":
        return (event.host, event.pid) == author.name
    return author.kind == "source" and (event.source,) == author.name


def _number_of_file(author: Author, latest: Collection[Author]) -> int | None:
    """Its number where the files of all authors differ in their last number only, from 0 on."""
    found = {one: _LAST_NUMBER.fullmatch(str(one.name[0])) for one in latest}
    parts = [(match[1], match[3]) for match in found.values() if match is not None]
    numbers = sorted(int(match[2]) for match in found.values() if match is not None)
    own = found[author]
    alike = len(parts) == len(found) and len(set(parts)) == 1
    return int(own[2]) if own and alike and numbers == [*range(len(found))] else None


def fell_silent_with(errors: Iterable[Event], timeline: Timeline) -> int | None:
    """The one rank that printed these and wrote nothing more, in a job of which others are seen.

    What it only says as it is stopped is no more.
    """
    own = [event for event in errors if event.rank is not None]
    ranks = {event.rank for event in own}
    if len(ranks) != 1 or not {*timeline.ranks} - ranks:
        return None
    if any(event.learned in CIRCUMSTANTIAL for event in own):
        return None
    (rank,), last = ranks, max(own, key=attrgetter("index"))
    later = (event for event in timeline.after(last.index) if event.rank == rank)
    more = any(event.role != "aftermath" and event.place != last.place for event in later)
    return None if more else rank
