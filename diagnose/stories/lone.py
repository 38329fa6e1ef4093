"""The one process that fell silent before all others of its kind, which went on at least a line."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from diagnose.stories.deeds import Deeds
from diagnose.stories.rhythm import Rhythm
from diagnose.text.median import median
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import CIRCUMSTANTIAL, Author, Event, Timeline
from diagnose.timeline.readings import OWN_WAY

# Lines that the others wrote after its last: before they fell silent too, or while they go on,
# when fewer may be lost or late.
_UNTIL_ALL_ARE_SILENT, _WHILE_OTHERS_WORK = range(1, 21), 6
# Lines by which the others may be apart.
_TOGETHER = 2
_LAST_NUMBER = re.compile(r"(.*?)(\d+)(\D*)")


@dataclass(frozen=True, slots=True)
class Lone:
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
    if any(repeated > 1 for repeated in timeline.column("repeated")):
        return None  # lines of some authors were left out
    counters: dict[str | None, list[Rhythm]] = defaultdict(list)
    for one in found:
        counters[one.counter].append(one)
    for counter in sorted(counters.values(), key=len, reverse=True):
        latest = _latest(counter)
        lone = _outlier(latest)
        if lone is None or _ended_itself(lone[0], deeds, endings):
            continue
        rhythm, lines = lone
        if lines in _UNTIL_ALL_ARE_SILENT if whole else lines >= _WHILE_OTHERS_WORK:
            return Lone(rhythm, lines, _rank(rhythm.author, latest, timeline))
    return None


def own_way(timeline: Timeline) -> Event | None:
    """The last line of the one rank that left the way of all others before these fell silent.

    Rank 0 writes alone what it does for all.
    """
    found = {event.rank: event for event in timeline.signalling(OWN_WAY) if event.rank}
    return next(iter(found.values())) if len(found) == 1 else None


def _latest(counter: Sequence[Rhythm]) -> Mapping[Author, Rhythm]:
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
    for rhythm in sorted(latest.values(), key=lambda one: one.last.step or 0):
        others = [one for one in latest.values() if one is not rhythm]
        steps = [one.last.step or 0 for one in others]
        if len(rhythm.lines) < 2 or max(steps) - min(steps) > _TOGETHER * stride:
            continue
        lines = (min(steps) - (rhythm.last.step or 0)) // stride
        if lines < 0:  # the counter began again, with another epoch
            lines = min(_lines_between(rhythm, one) for one in others)
        if lines > 0:
            return rhythm, lines
    return None


def _lines_between(rhythm: Rhythm, other: Rhythm) -> int:
    """How many lines the other wrote below the last one of this, in the same file."""
    if rhythm.last.source != other.last.source:
        return 0
    return (other.last.line - rhythm.last.line) // max(1, other.apart)


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
