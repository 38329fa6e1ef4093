"""Peeling a line like the one before: the same prefixes at the same places, other numbers in them.

`way_of` notes which families took the prefixes of a line; `peel_again` asks only these, on lines
that differ from it in digits alone (see `match.digits`). That gives what `peel` would: expressions
of the families tell no digits apart, and where numbers decide (no month is the 13th) either each
line of the shape passes, which is looked at again, or there is no way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

from diagnose.parse.launcher_prefixes import hydra, label, mpi
from diagnose.parse.logging_prefixes import bare_date, bracket_date
from diagnose.parse.nccl_prefix import nccl
from diagnose.parse.prefix import Prefix, peel
from diagnose.parse.stamps import refusals
from diagnose.parse.torch_prefixes import c10, glog, in_group, rank, role

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


# What these take is known wherever it stands, in lines of any shape: a process prints many.
_TIMELESS = (rank, role, nccl)
_HEADS = 1024  # of as many processes; then they are learned anew

_Steps = tuple[tuple[_Family, int], ...]
_Head = tuple[int | None, int | None, int | None, str | None, int | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Way:
    """How the prefixes of a line were peeled: who took which, up to where; then the message.

    `head` are the first steps, those that tell no time, which end at `reach`; `known` is what was
    peeled by these, by its text. `names` are those of the families; `grouped`: the message tells
    its rank in a group.
    """

    head: _Steps
    rest: _Steps
    reach: int
    known: dict[str, _Head]
    message: int
    names: list[str]
    grouped: bool


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
    head = tuple(takewhile(lambda step: step[0] in _TIMELESS, steps))
    reach = head[-1][1] if head else 0
    told = _known(head, tuple(peeled.names[: len(head)]))
    grouped = peeled.group_rank is not None
    way = Way(head, steps[len(head) :], reach, told, at, peeled.names, grouped)
    return way if peel_again(line, way) == peeled else None


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


def peel_again(line: str, way: Way) -> Prefix | None:
    """What `peel` gives for a line of the shape of this way; None where its numbers are no time."""
    text, message = line[: way.reach], line[way.message :]
    told = way.known.get(text)
    if told is None:
        prefix = Prefix(message)
        if not _taken(way.head, line, 0, prefix):
            return None
        if len(way.known) >= _HEADS:
            way.known.clear()
        way.known[text] = (
            prefix.rank, prefix.local_rank, prefix.dev, prefix.host, prefix.pid, prefix.level,
            prefix.origin,
        )  # fmt: skip
    else:
        of, local, dev, host, pid, level, origin = told
        prefix = Prefix(message, None, of, local, None, None, dev, host, pid, level, origin)
    if not _taken(way.rest, line, way.reach, prefix):
        return None
    prefix.names = way.names  # one list for all of them
    if way.grouped:
        prefix.group_rank = in_group(prefix.message)
    return prefix


def _taken(steps: _Steps, line: str, at: int, prefix: Prefix) -> bool:
    """Whether the families of these steps take the same of this line."""
    for family, end in steps:
        if family(line, at, prefix) != end:
            return False
        at = end
    return True


@lru_cache(maxsize=256)
def _known(_head: _Steps, _names: tuple[str, ...]) -> dict[str, _Head]:
    """One memory for all ways that begin with the same steps.

    The names are part of it: what stands behind `[rank3]:` tells which rank that is.
    """
    return {}
