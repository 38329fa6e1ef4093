"""Runs that were appended to one file: where one ended, and another one began below it.

What a log says after an end (`timeline.deaths`) in the words of a start is said by the next run. A
file of one process, by its name or since all its lines that name a rank, or a device, name the
same, needs no more. Elsewhere the ranks of a console may die one after the other while others still
start. There the clock has to tell that time passed between, or what begins below has to be a whole
run (`timeline.again`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import attrgetter
from typing import NamedTuple

from diagnose.timeline.again import Again, begins_after_pause
from diagnose.timeline.deaths import TRACEBACK, Death, all_deaths, may_end, stops_job
from diagnose.timeline.draft import BEGINS, Draft
from diagnose.timeline.event import Meaning
from diagnose.timeline.starts import Key, may_start, start

_AGAIN = 60_000_000_000  # ns that lie between a death and a start by hand
_AFTER = ("effect", "aftermath")  # roles of what a dying process goes on to say
_BLOCK = 60  # lines that belong to a death, such as a native stack


@dataclass(slots=True)
class _Reader:
    """What was read of one source, in the order of its lines."""

    sole: bool  # its name says that it is the log of one rank
    named: bool  # so do the ranks that its lines name
    again: Again | None  # of a console
    started: set[Key] = field(default_factory=set)
    steps: tuple[int, int] = (-1, -1)  # the highest and the last one of this run
    death: Death | None = None
    stopped: bool = False  # by its owner or a scheduler, all of it
    before: int | None = None  # the last time printed before it
    now: int | None = None
    follows: int | None = None  # the first line that is not part of the death


def begun(found: Sequence[Draft]) -> Mapping[str, Sequence[int]]:
    """Source → the lines at which its second, third … run begins; only sources that have several.

    The drafts are in the order of their sources and lines.
    """
    alone = bool(found) and found[0].source == found[-1].source
    signs = _Signs.of(found)
    lines: dict[str, list[int]] = {}
    several = signs.ends or (alone and any(draft.meaning.tells == BEGINS for draft in found))
    for source, group in groupby(found, attrgetter("source")) if several else ():
        drafts = [*group]
        if (alone or signs.possible(drafts)) and (starts := [*_starts(drafts, alone=alone)]):
            lines[source] = starts
    return lines


class _Signs(NamedTuple):
    """Which meanings, by their identity, may tell of an end and which of a start.

    Most sources hold one run, and few meanings stand for all of their lines.
    """

    ends: frozenset[int]
    starts: frozenset[int]

    @classmethod
    def of(cls, found: Iterable[Draft]) -> _Signs:
        """Those of some drafts."""
        told = {id(draft.meaning): draft.meaning for draft in found}
        return cls(
            frozenset(key for key, meaning in told.items() if _may_be_death(meaning)),
            frozenset(key for key, meaning in told.items() if may_start(meaning)),
        )

    def possible(self, drafts: Sequence[Draft]) -> bool:
        """Whether something starts below what may be an end, or one rank goes on below it."""
        ends = (n for n, draft in enumerate(drafts) if id(draft.meaning) in self.ends)
        first = next(ends, len(drafts))
        below = islice(drafts, first + 1, None)
        if any(id(draft.meaning) in self.starts for draft in below):
            return True
        return first + 1 < len(drafts) and _of_one_rank(drafts)


def _may_be_death(meaning: Meaning) -> bool:
    return meaning.tells == "frame" or may_end(meaning)


def _starts(drafts: Sequence[Draft], *, alone: bool) -> Iterator[int]:
    if any(draft.attempt is not None for draft in drafts):
        return
    paused = begins_after_pause(drafts) if alone else set()
    drafts = [d for d in drafts if d.meaning.kind != "edge" or d.meaning.tells == BEGINS]
    died = all_deaths(drafts)
    sole, named = _of_one_rank(drafts), _names_one(drafts)
    reader = _Reader(sole, named, Again(drafts, died) if alone and not sole else None)
    for index, draft in enumerate(drafts):
        death = died.get(id(draft))
        line = _again(reader, draft, death)
        if line is None and draft.line in paused and draft.meaning.tells == BEGINS:
            line = draft.line
        if line is None and reader.again is not None and reader.again.begins(index):
            line = draft.line
        if line is not None:
            yield line
            reader.steps, reader.death, reader.stopped = (-1, -1), None, False
            if reader.again is not None:
                reader.again.begun(index)
        _note(reader, draft, death)


def _of_one_rank(drafts: Sequence[Draft]) -> bool:
    """Whether the file is one rank's by its name."""
    for name in ("rank", "local_rank", "task"):
        told = {getattr(draft, name) for draft in drafts}
        if len(told) == 1 and None not in told:
            return True
    return False


def _names_one(drafts: Sequence[Draft]) -> bool:
    """Whether its lines name one rank, on one device, and no process of another one."""
    several = False
    for name in ("rank", "local_rank", "mapped_rank", "device", "task", "host"):
        several |= len({getattr(draft, name) for draft in drafts} - {None}) > 1
    named = any((key := start(draft)) and key[1] is not None for draft in drafts)
    return named and not several


def _note(reader: _Reader, draft: Draft, death: Death | None) -> None:
    """Remember what later lines are compared with."""
    reader.now = reader.now if draft.time is None else draft.time
    step = draft.work.step
    if draft.meaning.kind == "progress" and step is not None:
        reader.steps = max(step, reader.steps[0]), step
    key = start(draft)
    if key is not None:
        reader.started.add(key)
        if key[0] != BEGINS:
            reader.death = None  # who starts for the first time did not die above
    reader.stopped |= death is not None and stops_job(death.said.meaning)
    if death is not None and death.whose != "done" and reader.death is None:
        reader.death, reader.before, reader.follows = death, reader.now, None


def _again(reader: _Reader, draft: Draft, death: Death | None) -> int | None:
    """The line at which another run began, if this line is its sign."""
    known = reader.death
    if known is None:
        return None
    if reader.follows is None and not _belongs(draft, known):
        reader.follows = draft.line
    if reader.stopped and draft.meaning.role == "cause" and draft.meaning.phase == "init":
        return death.begins if death else draft.line  # what was stopped does not fail to start
    key = start(draft)
    said_again = key is not None and key in reader.started and _trusted(reader, draft, key)
    if said_again and draft.meaning.tells == BEGINS:
        return draft.line  # what stands above the first words is not of this run
    if said_again or (reader.sole and _counts_again(reader, draft)):
        return draft.line if reader.follows is None else reader.follows
    # No process ends in two ways, save that a signal may end it amid its last words.
    other = reader.sole and death is not None and death.raised
    return death.begins if death and other and draft.text != known.said.text else None


def _belongs(draft: Draft, death: Death) -> bool:
    """Whether it is among the last words of the process that died there."""
    if draft.line > death.said.line + _BLOCK or TRACEBACK in draft.text:
        return False
    meaning = draft.meaning
    return meaning.role in _AFTER or meaning.kind in ("exit", "frame", "fact")


def _trusted(reader: _Reader, draft: Draft, key: Key) -> bool:
    """Whether only another run can say this again."""
    if reader.sole or (reader.named and key[1] is not None):
        return True
    before, now = reader.before, draft.time
    later = before is not None and now is not None and now - before >= _AGAIN
    return later and draft.meaning.phase in ("init", None)


def _counts_again(reader: _Reader, draft: Draft) -> bool:
    """Whether it counts on from a step below those of before."""
    step, (highest, last) = draft.work.step, reader.steps
    if draft.meaning.kind != "progress" or step is None:
        return False
    return 0 <= last < step < highest and draft.line > (reader.follows or draft.line)


def numbered(found: Sequence[Draft], lines: Mapping[str, Sequence[int]]) -> None:
    """Give drafts without an attempt the number of the run that they are of.

    Files that were appended to together end together, so the last runs are the same attempt. What
    another file says belongs to the last one, unless it was said before that began.
    """
    last = max(map(len, lines.values()))
    starts: dict[str, int] = defaultdict(int)
    begun_at: list[int] = []
    for draft in found:
        own = lines.get(draft.source)
        if own is None or draft.attempt is not None:
            continue
        passed = starts[draft.source]
        while passed < len(own) and draft.line >= own[passed]:
            passed += 1
        starts[draft.source] = passed
        draft.attempt = last - len(own) + passed
        if draft.attempt == last and draft.time is not None:
            begun_at.append(draft.time)
    first = min(begun_at, default=None)
    for draft in found:
        if draft.attempt is None:
            early = first is not None and draft.time is not None and draft.time < first
            draft.attempt = last - 1 if early else last
