"""Peeling a line like the one before: the same prefixes at the same places, other numbers in them.

`way_of` notes which rows took the prefixes of a line; `peel_repeated` asks only these, on lines
that differ from it in digits alone (see `match.shapes`). That gives what `peel` would: expressions
of the rows tell no digits apart, and where numbers decide (no month is the 13th) either each
line of the shape passes, which is looked at again, or there is no way.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from diagnose.parse.prefix import Prefix, Row, peel_steps, place_in_group
from diagnose.parse.stamps import refusals

_REMEMBERED = 1024

_Steps = tuple[tuple[Row, int], ...]


class Way(NamedTuple):
    """How the prefixes of a line were peeled: who took which, up to where the message begins.

    That from `skip` to `resume` tells nothing; `group` is where the message tells its rank in a
    group. `known` is what prefixes tell by their text.
    """

    steps: _Steps
    skip: int
    resume: int
    message: int
    group: tuple[int, int] | None
    known: dict[str, Prefix]


def way_of(line: str) -> Way | None:
    """How to peel lines of this shape; None where each is to be peeled by itself."""
    before = refusals.count
    peeled, steps = peel_steps(line)
    if any(row.decode or row.peeks for row, _ in steps):
        return None
    at = steps[-1][1] if steps else 0
    if refusals.count != before or line[at:] != peeled.message:
        return None
    last = [0, *(end for _, end in steps)][-2:][0]
    skip, resume = steps[-1][0].unread(line, last) if steps else (0, 0)
    group = place_in_group(peeled.message)
    where = (at + group[0], at + group[1]) if group else None
    way = Way(tuple(steps), skip, resume, at, where, _known(tuple(steps), where))
    return way if peel_repeated(line, way) == replace(peeled, message="") else None


def tells_time(way: Way) -> bool:
    """Whether prefixes that were peeled so may be refused for their numbers."""
    return any(not row.timeless for row, _ in way.steps)


@lru_cache(maxsize=256)
def _known(_steps: _Steps, _group: object) -> dict[str, Prefix]:
    """One memory for the same steps in all ways."""
    return {}


def peel_repeated(line: str, way: Way) -> Prefix | None:
    """What `peel` gives for a line of the shape of this way, but the message: of many lines one.

    None where its numbers are no time.
    """
    text = line[: way.skip] + line[way.resume : way.message]
    group = line[slice(*way.group)] if way.group else ""
    prefix = way.known.get(text + group)
    if prefix is None:
        prefix, at = Prefix(""), 0
        for row, end in way.steps:
            if row.take(line, at, prefix) != end:
                return None
            at = end
        if group:
            prefix.group_rank = int(group)
        if len(way.known) >= _REMEMBERED:
            way.known.clear()
        way.known[text + group] = prefix
    return prefix
