"""Lanes of many ranks folded into classes of ranks that look alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from diagnose.report import words
from diagnose.report.html.lane import PHASES, Key, Lane
from diagnose.report.html.states import STATES
from diagnose.text.ranks import ranks_phrase

MAX_CLASSES = 40


@dataclass(frozen=True, slots=True)
class LaneClass:
    """Ranks that look alike: lanes `begin` to `end` (exclusive)."""

    label: str
    state: str
    ranks: list[int]
    begin: int
    end: int
    step: str
    phase: str


def folded(
    lanes: list[Lane], signatures: Mapping[Key, Set[str]]
) -> tuple[list[Lane], list[LaneClass]]:
    """Lanes of ranks sorted into classes of those that look alike, the odd ones first.

    `signatures` are those of the causes and effects that each rank printed.
    """
    keys = [_keys(lane, tuple(sorted(signatures.get(lane.rank or 0, ())))) for lane in lanes]
    groups: dict[Any, list[Lane]] = {}
    for level in range(4):
        groups = {}
        for lane, key in zip(lanes, keys, strict=True):
            groups.setdefault(key[: 4 - level], []).append(lane)
        if len(groups) <= MAX_CLASSES:
            break
    importance = {state: index for index, state in enumerate(STATES)}
    ordered: list[Lane] = []
    classes = []
    for members in sorted(
        groups.values(),
        key=lambda m: (importance[m[0].state], len(m), min(lane.rank or 0 for lane in m)),
    ):
        begin = len(ordered)
        ordered += by_host(members)
        numbers = sorted(lane.rank for lane in members if lane.rank is not None)
        classes.append(_class(members, ranks_phrase(numbers), numbers, begin))
    return ordered, classes


def alone(lane: Lane, number: int) -> LaneClass:
    """A rank as a class of its own."""
    return _class([lane], lane.label, [lane.rank or 0], number)


def by_host(lanes: Iterable[Lane]) -> list[Lane]:
    """In the order of hosts, and of ranks on each."""
    return sorted(lanes, key=lambda lane: (lane.host, lane.rank or 0))


def _class(members: list[Lane], label: str, ranks: list[int], begin: int) -> LaneClass:
    end = begin + len(members)
    state, steps = members[0].state, _span(lane.step for lane in members)
    return LaneClass(label, state, ranks, begin, end, steps, _common(members))


def _keys(lane: Lane, signatures: tuple[str, ...]) -> tuple[Any, ...]:
    """What makes ranks alike, the coarsest first; the finer ones are dropped if need be."""
    return (lane.state, signatures, lane.bars[-1][2] if lane.bars else -1, lane.step)


def _span(steps: Iterable[int | None]) -> str:
    known = [step for step in steps if step is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def _common(members: list[Lane]) -> str:
    last = {lane.bars[-1][2] for lane in members if lane.bars}
    return words.phase(PHASES[last.pop()]) if len(last) == 1 else ""
