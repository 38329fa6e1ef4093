"""What is lost or garbled of a job's lines before anybody looks at them.

`damage` works on lines, so that what is left can be judged by what it shows; `garble` on files,
and leaves everything that they show.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from benchmarks.hangbench.case import Files
from benchmarks.hangbench.sim.outcome import Line, Outcome

# ranks      some ranks (up to a third) are missing, as if their files were not collected
# nodes      the same for whole nodes, at most half of them
# start      all before a moment is cut off, at the latest just before the first timeout
# end        all after a moment is cut off, which lies between the middle and the last twentieth
# undated    no line has a time (but what a layout adds, as `cri` does)
# lost       5 to 20 % of the lines are lost
# rank_0     only what rank 0 printed, and the launcher of its node
# tail       only the last 200 lines
Kind = Literal["ranks", "nodes", "start", "end", "undated", "lost", "rank_0", "tail"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# doubled    some lines stand twice
# glued      some ends of lines are missing, so that two lines of one file stand in one
Garbling = Literal["doubled", "glued"]
GARBLINGS: tuple[Garbling, ...] = get_args(Garbling)

_TAIL = 200  # lines

# Times as programs, launchers and torch print them, each with the text that stays.
_TIMES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?m)^((?:\[rank\d+\]:)?\[[FEWIV])\d{3,4} \d\d:\d\d:\d\d\.\d+ "), r"\1 "),
    (re.compile(r"(?m)^([EWI])\d{4} \d\d:\d\d:\d\d\.\d+ \d+ "), r"\1 "),
    (re.compile(r" ?\[?\d{4}-\d\d-\d\d[ T_]\d\d:\d\d:\d\d(?:[.,]\d+)?\]? ?"), ""),
)


@dataclass(frozen=True, slots=True)
class Damaged:
    """What is left. missing: ranks of which nothing was collected, whose files are gone too."""

    lines: list[Line]
    missing: frozenset[int]


def damage(lines: Sequence[Line], outcome: Outcome, rng: random.Random, kind: Kind) -> Damaged:
    """Take lines away, or their times; `lines` are in order of time and stay as they are."""
    return _KINDS[kind](lines, outcome, rng)


def garble(files: Files, rng: random.Random, kind: Garbling) -> Files:
    """Double or glue lines of text files; other files stay as they are."""
    garbled: Files = {}
    for name, content in files.items():
        kept = content.splitlines(keepends=True)
        if b"\0" in content or len(kept) < 2:
            garbled[name] = content
        elif kind == "doubled":
            garbled[name] = b"".join(line * (2 if rng.random() < 0.08 else 1) for line in kept)
        else:
            garbled[name] = _glue(kept, rng)
    return garbled


def _glue(lines: Sequence[bytes], rng: random.Random) -> bytes:
    """Leave out ends of lines where two processes wrote at once, the second end coming later."""
    parts: list[bytes] = []
    owed = False
    for line in lines:
        if not owed and rng.random() < 0.03 and line.endswith(b"\n") and line.strip():
            parts.append(line[:-1])
            owed = True
        else:
            parts.append(line + (b"\n" if owed and line.endswith(b"\n") else b""))
            owed = False
    return b"".join(parts)


def _ranks(lines: Sequence[Line], outcome: Outcome, rng: random.Random) -> Damaged:
    count = rng.randint(1, max(1, outcome.world // 3))
    missing = frozenset(rng.sample(range(outcome.world), count))
    return Damaged([one for one in lines if one.rank not in missing], missing)


def _nodes(lines: Sequence[Line], outcome: Outcome, rng: random.Random) -> Damaged:
    """With one node nothing is taken."""
    if outcome.nodes < 2:
        return Damaged(list(lines), frozenset())
    gone = frozenset(rng.sample(range(outcome.nodes), rng.randint(1, outcome.nodes // 2)))
    missing = frozenset(rank.rank for rank in outcome.ranks if rank.node in gone)
    kept = [
        one
        for one in lines
        if (one.rank not in missing if one.rank is not None else one.node not in gone)
    ]
    return Damaged(kept, missing)


def _start(lines: Sequence[Line], outcome: Outcome, rng: random.Random) -> Damaged:
    first = next((at for at, one in enumerate(lines) if one.shows == "waits"), len(lines) - 1)
    return Damaged(list(lines[rng.randint(first // 2, max(first, 0)) :]), frozenset())


def _end(lines: Sequence[Line], outcome: Outcome, rng: random.Random) -> Damaged:
    last = len(lines) - len(lines) // 20
    return Damaged(list(lines[: rng.randint(last // 2, last)]), frozenset())


def _undated(lines: Sequence[Line], outcome: Outcome, rng: random.Random) -> Damaged:
    return Damaged([replace(one, text=without_times(one.text)) for one in lines], frozenset())


def without_times(text: str) -> str:
    """Take out every date with its time."""
    for pattern, rest in _TIMES:
        text = pattern.sub(rest, text)
    return text


def _lost(lines: Sequence[Line], outcome: Outcome, rng: random.Random) -> Damaged:
    share = rng.uniform(0.05, 0.2)
    return Damaged([one for one in lines if rng.random() >= share], frozenset())


def _rank_0(lines: Sequence[Line], outcome: Outcome, rng: random.Random) -> Damaged:
    kept = [one for one in lines if one.rank == 0 or (one.rank is None and one.node in (None, 0))]
    return Damaged(kept, frozenset(range(1, outcome.world)))


def _tail(lines: Sequence[Line], outcome: Outcome, rng: random.Random) -> Damaged:
    """The last 200 lines, a message of which the beginning does not fit being lost as a whole."""
    left, first = _TAIL, len(lines)
    while first and left >= lines[first - 1].text.count("\n") + 1:
        first -= 1
        left -= lines[first].text.count("\n") + 1
    return Damaged(list(lines[first:]), frozenset())


_KINDS: dict[Kind, Callable[[Sequence[Line], Outcome, random.Random], Damaged]] = {
    "ranks": _ranks,
    "nodes": _nodes,
    "start": _start,
    "end": _end,
    "undated": _undated,
    "lost": _lost,
    "rank_0": _rank_0,
    "tail": _tail,
}
