"""Runs that were appended to one file: where a process ended, and another one began below it.

An uncaught exception of its main thread ends a process, and so does a fatal signal. What a log of
one process says after that in the words of a start is said by the next one. A file is of one
process where its name says so, or where all its lines that name a rank, or a device, name the same.
Elsewhere the ranks of a console may die one after the other while others still start, so that the
clock has to tell that time passed between death and start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from diagnose.timeline.deaths import TRACEBACK, Death, deaths, outermost
from diagnose.timeline.draft import Draft

_AGAIN = 60_000_000_000  # ns that lie between a death and a start by hand
_STARTS = ("init", "preprocessing", "model_load")
_AFTER = ("effect", "aftermath")  # roles of what a dying process goes on to say
_BLOCK = 60  # lines that belong to a death, such as a native stack

# What is said once in each run: the entry, and the rank or device that it names.
_Key = tuple[str | None, int | None]


@dataclass(slots=True)
class _Reader:
    """What was read of one source, in the order of its lines."""

    sole: bool  # its name says that it is the log of one rank
    named: bool  # so do the ranks that its lines name
    started: set[_Key] = field(default_factory=set)
    steps: tuple[int, int] = (-1, -1)  # the highest and the last one of this run
    death: Death | None = None
    before: int | None = None  # the last time printed before it
    now: int | None = None
    follows: int | None = None  # the first line that is not part of the death


def begun(found: Sequence[Draft]) -> Mapping[str, Sequence[int]]:
    """Source → the lines at which its second, third … run begins; only sources that have several.

    The drafts are in the order of their sources and lines.
    """
    ending = {draft.source for draft in found if outermost(draft) or _ends(draft)}
    lines: dict[str, list[int]] = {}
    for source, group in groupby(found, attrgetter("source")) if ending else ():
        if source in ending and (starts := [*_starts([*group])]):
            lines[source] = starts
    return lines


def _ends(draft: Draft) -> bool:
    """Whether it is a process's own word that it ends, by a signal or because it cannot start."""
    if draft.meaning.tells == "quits":
        return True
    told = draft.meaning.tells in ("exit", "teardown") and draft.pid is not None
    return told and "signal" in draft.fields and "pid" in draft.fields


def _starts(drafts: Sequence[Draft]) -> Iterator[int]:
    if any(draft.attempt is not None for draft in drafts):
        return
    died = {id(death.said): death for death in deaths(drafts)}
    died |= {id(draft): Death(draft.line, draft) for draft in drafts if _ends(draft)}
    reader = _Reader(_of_one_rank(drafts), _names_one(drafts))
    for draft in drafts:
        if draft.meaning.kind == "edge":
            continue
        death = died.get(id(draft))
        line = _again(reader, draft, death)
        if line is not None:
            yield line
            reader.steps, reader.death = (-1, -1), None
        _note(reader, draft, death)


def _of_one_rank(drafts: Sequence[Draft]) -> bool:
    """Whether the file is one rank's by its name."""
    names = {draft.rank for draft in drafts} - {None}
    return len(names) == 1 and all(draft.rank is not None for draft in drafts)


def _names_one(drafts: Sequence[Draft]) -> bool:
    """Whether its lines name one rank, on one device, and no process of another one."""
    several = False
    for name in ("rank", "local_rank", "mapped_rank", "device", "task", "host"):
        several |= len({getattr(draft, name) for draft in drafts} - {None}) > 1
    named = any((key := _start(draft)) and key[1] is not None for draft in drafts)
    return named and not several


def _start(draft: Draft) -> _Key | None:
    """What it is the start of, where it is a line of a start."""
    meaning = draft.meaning
    if meaning.tells != "rank_map" and not (meaning.kind == "phase" and meaning.phase in _STARTS):
        return None
    numbers = (draft.device, draft.mapped_rank, draft.rank, draft.local_rank)
    return meaning.signature, next((number for number in numbers if number is not None), None)


def _note(reader: _Reader, draft: Draft, death: Death | None) -> None:
    """Remember what later lines are compared with."""
    reader.now = reader.now if draft.time is None else draft.time
    step = draft.work.step
    if draft.meaning.kind == "progress" and step is not None:
        reader.steps = max(step, reader.steps[0]), step
    key = _start(draft)
    if key is not None:
        reader.started.add(key)
        reader.death = None  # who starts for the first time did not die above
    if death is not None and reader.death is None:
        reader.death, reader.before, reader.follows = death, reader.now, None


def _again(reader: _Reader, draft: Draft, death: Death | None) -> int | None:
    """The line at which another run began, if this line is its sign."""
    known = reader.death
    if known is None:
        return None
    if reader.follows is None and not _belongs(draft, known):
        reader.follows = draft.line
    key = _start(draft)
    said_again = key is not None and key in reader.started and _trusted(reader, draft, key)
    if said_again or (reader.sole and _counts_again(reader, draft)):
        return draft.line if reader.follows is None else reader.follows
    # No process ends in two ways, save that a signal may end it amid its last words.
    other = reader.sole and death is not None and not _ends(draft)
    return death.begins if death and other and draft.text != known.said.text else None


def _belongs(draft: Draft, death: Death) -> bool:
    """Whether it is among the last words of the process that died there."""
    if draft.line > death.said.line + _BLOCK or TRACEBACK in draft.text:
        return False
    meaning = draft.meaning
    return meaning.role in _AFTER or meaning.kind in ("exit", "frame", "fact")


def _trusted(reader: _Reader, draft: Draft, key: _Key) -> bool:
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
