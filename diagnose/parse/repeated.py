"""Peeling a line like the one before: the same prefixes at the same places, other numbers in them.

`way_of` notes which families took the prefixes of a line; `peel_repeated` asks only these, on lines
that differ from it in digits alone (see `match.shapes`). That gives what `peel` would: expressions
of the families tell no digits apart, and where numbers decide (no month is the 13th) either each
line of the shape passes, which is looked at again, or there is no way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import takewhile

from diagnose.parse.dated_prefixes import bare_date, bracket_date
from diagnose.parse.launcher_prefixes import hydra, label, mpi
from diagnose.parse.nccl_prefix import nccl, thread
from diagnose.parse.prefix import Prefix, peel
from diagnose.parse.stamps import refusals
from diagnose.parse.torch_prefixes import c10, glog, monotonic, place_in_group, rank, role

_Family = Callable[[str, int, Prefix], int]
_FAMILIES: tuple[_Family, ...] = (
    rank, role, nccl, c10, glog, bracket_date, bare_date, label, hydra, mpi,
)  # fmt: skip
_NAMES = frozenset(
    {"torchrun", "rank", "lightning", "nccl", "c10", "glog", "date", "deepspeed", "axolotl", "iso",
     "torch-logger", "colorlog", "loguru", "srun", "hydra", "mpi", "horovodrun"}
)  # fmt: skip
# A message that begins so may be a prefix with other digits: `<191>`, `{"rank": 01}`, ` [2024-…`.
_DOUBTFUL = ("<", "{", " [", "  [", "   [", "    [", "     [", "      [")


# What these take tells no time: a process prints it in front of lines of any shape.
_TIMELESS = (rank, role, nccl)
# Where digits are in these that tell nothing: other ones in each line, or in each thread's.
_UNREAD: dict[_Family, Callable[[str, int], tuple[int, int]]] = {c10: monotonic, nccl: thread}
_REMEMBERED = 1024  # texts of a part; then they are learned anew

_Steps = tuple[tuple[_Family, int], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the prefixes of a line: who took which, up to where, from `start` to `end`.

    `known` is what they tell by their text, of which that from `skip` to `resume` tells nothing.
    """

    steps: _Steps
    start: int
    skip: int
    resume: int
    end: int
    known: dict[str, Prefix]


@dataclass(frozen=True, slots=True)
class Way:
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
    peeled = peel(line)
    at = len(line) - len(peeled.message)
    known = _NAMES.issuperset(peeled.names) and refusals.count == before
    if not known or line[at:] != peeled.message or peeled.message.startswith(_DOUBTFUL):
        return None
    if " [repeated " in peeled.message:
        return None
    steps = _steps(line, at)
    if steps is None:
        return None
    timeless = len(tuple(takewhile(lambda step: step[0] in _TIMELESS, steps)))
    cut = timeless if 0 < timeless < len(steps) else len(steps)
    reach = steps[cut - 1][1] if cut else 0
    first = _part(line, 0, steps[:cut], peeled.names[:cut])
    second = _part(line, reach, steps[cut:], peeled.names[cut:]) if steps[cut:] else None
    group = place_in_group(peeled.message)
    way = Way(first, second, peeled.names, at, (at + group[0], at + group[1]) if group else None)
    return way if peel_repeated(line, way) == replace(peeled, message="") else None


def tells_time(way: Way) -> bool:
    """Whether prefixes that were peeled so may be refused for their numbers."""
    return way.second is not None or any(step not in _TIMELESS for step, _ in way.first.steps)


def _steps(line: str, message: int) -> tuple[tuple[_Family, int], ...] | None:
    """Which families take what is before the message; None if it is none of ours."""
    steps: list[tuple[_Family, int]] = []
    prefix, at = Prefix(line), 0
    while at < message:
        for family in _FAMILIES:
            end = family(line, at, prefix)
            if at < end <= message:
                steps.append((family, end))
                at = end
                break
        else:
            return None
    return tuple(steps)


def _part(line: str, start: int, steps: _Steps, names: Sequence[str]) -> Part:
    last = [start, *(end for _, end in steps)][-2:]
    unread = _UNREAD.get(steps[-1][0]) if steps else None
    skip, resume = unread(line, last[0]) if unread else (last[-1], last[-1])
    return Part(steps, start, skip, resume, last[-1], _known(start, steps, tuple(names)))


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
    # Only tags of a rank have another prefix behind them: NCCL's is the last one.
    return Prefix(
        "",
        last.stamp,
        first.rank if last.rank is None else last.rank,
        first.local_rank if last.local_rank is None else last.local_rank,
        int(line[way.group[0] : way.group[1]]) if way.group is not None else None,
        last.task, last.dev, last.host, last.pid, last.level, last.origin,
        None, 1, None, way.names,  # one list for all of them
    )  # fmt: skip


def _prefix_of(line: str, part: Part) -> Prefix | None:
    """What a part of a line tells; None where its numbers are no time."""
    text = line[part.start : part.skip] + line[part.resume : part.end]
    prefix = part.known.get(text)
    if prefix is None:
        prefix, at = Prefix(""), part.start
        for family, end in part.steps:
            if family(line, at, prefix) != end:
                return None
            at = end
        if len(part.known) >= _REMEMBERED:
            part.known.clear()
        part.known[text] = prefix
    return prefix
