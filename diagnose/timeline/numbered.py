"""Ranks by numbers: of files, pods and hosts whose names differ in one number only."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from diagnose.timeline.captures import rank_of
from diagnose.timeline.event import Event

_NUMBER, _DIGITS = re.compile(r"(\d+)"), 7

# What gives drafts without a rank the one that each must be of.
Namer = Callable[[Sequence[Event]], Iterable[int | None]]


def of_numbered_files(found: Sequence[Event], _: Sequence[Event]) -> Namer | None:
    """Files whose names differ in one number are one of each rank, where most ranks have one.

    So are those that a launcher names by task (`--output=train.%t.out`), or a script by rank; that
    of a rank which printed nothing is empty.
    """
    world = _world(found)
    for numbers in _series({draft.source for draft in found}) if world > 1 else ():
        ranks = {*numbers.values()}
        if (
            2 * len(ranks) > world > max(ranks)
            and len(ranks) == len(numbers)
            and all(draft.rank in (None, numbers.get(draft.source, draft.rank)) for draft in found)
        ):
            return lambda drafts: (numbers.get(draft.source) for draft in drafts)
    return None


def of_numbered_hosts(found: Sequence[Event], _: Sequence[Event]) -> Namer | None:
    """Pods, or hosts, whose numbers are the ranks that they name: one process runs in each.

    Where several ranks run in each, they name others than its number; so do workers beside a
    master. One name is enough where the job has no room for a second rank in each.
    """
    named = {(draft.host, draft.rank) for draft in found if draft.host is not None}
    world = _world(found)
    for numbers in _series({host for host, _ in named if host is not None}):
        ranks = {(numbers[host], rank) for host, rank in named if host in numbers}
        shown = {(number, rank) for number, rank in ranks if rank is not None}
        last = max(numbers.values())
        enough = len(shown) > 1 or (len(shown) == 1 and 2 * (last + 1) > world > 0)
        alike = enough and all(number == rank for number, rank in shown)
        if alike and (not world or last < world):
            return lambda drafts: (numbers.get(draft.host or "") for draft in drafts)
    return None


def _world(found: Sequence[Event]) -> int:
    return max((rank_of(draft.fields.get("world_size")) or 0 for draft in found), default=0)


def _series(names: Collection[str]) -> Iterable[Mapping[str, int]]:
    """The names that differ in one number only, with that number; for each place of a number."""
    alike: dict[tuple[str, ...], dict[str, int]] = defaultdict(dict)
    for name in names:
        parts = _NUMBER.split(name)
        for at in range(1, len(parts), 2):
            alike[(*parts[:at], "", *parts[at + 1 :])][name] = int(parts[at][:_DIGITS])
    return alike.values()
