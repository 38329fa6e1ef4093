"""Peeling a line like the one before: the same prefixes at the same places, other numbers in them.

`way_of` notes which rows took the prefixes of a line; `peel_repeated` asks only these, on lines
that differ from it in digits alone (see `match.shapes`). That gives what `peel` would: expressions
of the rows tell no digits apart, and where numbers decide (no month is the 13th) either each
line of the shape passes, which is looked at again, or there is no way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

from diagnose.parse.prefix import Prefix, Row, Steps, peel_steps, place_in_group
from diagnose.parse.stamps import refusals

_REMEMBERED = 1024  # texts of a part; then they are learned anew

_Steps = tuple[tuple[Row, int], ...]


class Part(NamedTuple):
    """Some of the prefixes of a line: who took which, up to where, from `start` to `end`.

    `known` is what they tell by their text, of which that from `skip` to `resume` tells nothing.
    """

    steps: _Steps
    start: int
    skip: int
    resume: int
    end: int
    known: dict[str, Prefix]


class Way(NamedTuple):
    """How the prefixes of a line were peeled: in one part, or those that tell no time in the first.

    `names` are those of the families; `group` is where the message tells its rank in a group.
    """

    first: Part
    second: Part | None
    names: list[str]
    message: int
    group: tuple[int, int] | None


def way_of(line: str) -> Way | None:
    """How to peel lines of this shape; None where each is to be peeled by itself."""
    before = refusals.count
    peeled, steps = peel_steps(line)
    if any(row.decode or row.peeks for row, _ in steps):
        return None
    at = steps[-1][1] if steps else 0
    if refusals.count != before or line[at:] != peeled.message:
        return None
    timeless = len(tuple(takewhile(lambda step: step[0].timeless, steps)))
    cut = timeless if 0 < timeless < len(steps) else len(steps)
    reach = steps[cut - 1][1] if cut else 0
    first = _part(line, 0, steps[:cut], peeled.names[:cut])
    second = _part(line, reach, steps[cut:], peeled.names[cut:]) if steps[cut:] else None
    group = place_in_group(peeled.message)
    way = Way(first, second, peeled.names, at, (at + group[0], at + group[1]) if group else None)
    return way if peel_repeated(line, way) == replace(peeled, message="") else None


def tells_time(way: Way) -> bool:
    """Whether prefixes that were peeled so may be refused for their numbers."""
    return way.second is not None or any(not row.timeless for row, _ in way.first.steps)


def _part(line: str, start: int, steps: Steps, names: Sequence[str]) -> Part:
    last = [start, *(end for _, end in steps)][-2:]
    skip, resume = steps[-1][0].unread(line, last[0]) if steps else (start, start)
    known = _known(start, tuple(steps), tuple(names))
    return Part(tuple(steps), start, skip, resume, last[-1], known)


@lru_cache(maxsize=256)
def _known(_start: int, _steps: _Steps, _names: tuple[str, ...]) -> dict[str, Prefix]:
    """One memory for the same steps in all ways.

    The names are part of it: what stands behind `[rank3]:` tells which rank that is.
    """
    return {}


def peel_repeated(line: str, way: Way) -> Prefix | None:
    """What `peel` gives for a line of the shape of this way, but the message: of many lines one.

    None where its numbers are no time.
    """
    first = _prefix_of(line, way.first)
    last = first if way.second is None else _prefix_of(line, way.second)
    if first is None or last is None or (last is first and way.group is None):
        return last
    group = last.group_rank if way.group is None else int(line[slice(*way.group)])
    return Prefix(
        "",
        last.stamp,
        first.rank if last.rank is None else last.rank,
        first.local_rank if last.local_rank is None else last.local_rank,
        first.group_rank if group is None else group,
        first.task if last.task is None else last.task,
        first.dev if last.dev is None else last.dev,
        last.host or first.host,
        first.pid if last.pid is None else last.pid,
        last.level or first.level,
        last.origin or first.origin,
        last.actor or first.actor,
        1,
        last.stream or first.stream,
        way.names,  # one list for all of them
        last.pod or first.pod,
    )  # fmt: skip


def _prefix_of(line: str, part: Part) -> Prefix | None:
    """What a part of a line tells; None where its numbers are no time."""
    text = line[part.start : part.skip] + line[part.resume : part.end]
    prefix = part.known.get(text)
    if prefix is None:
        prefix, at = Prefix(""), part.start
        for row, end in part.steps:
            if row.take(line, at, prefix) != end:
                return None
            at = end
        if len(part.known) >= _REMEMBERED:
            part.known.clear()
        part.known[text] = prefix
    return prefix
