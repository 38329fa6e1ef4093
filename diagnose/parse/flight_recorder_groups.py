"""The groups of a Flight Recorder dump (`pg_config`) and how far each got (`pg_status`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from diagnose.parse.flight_recorder_dump import MAX_ELEMENTS, MAX_RANKS, Config, Dump, Status
from diagnose.parse.flight_recorder_entries import numbers, text_of

MAX_GROUPS = 65_536

_RANKS = re.compile(r"\[[\d,\s]*\]\Z")
_STATUS_KEYS = ("enqueued", "started", "completed")


def groups_of(found: Any) -> list[Config]:
    """The groups of pg_config; gloo's only one has no ranks and says nothing."""
    groups: list[Config] = []
    parsed: dict[int | str, tuple[int, ...]] = {}  # by the list itself, which groups may share
    left = MAX_ELEMENTS
    for key, group in [*found.items()][:MAX_GROUPS] if isinstance(found, dict) else ():
        if not isinstance(group, dict):
            continue
        ranks = group.get("ranks", "")
        same = ranks if isinstance(ranks, str) else id(ranks)
        members = parsed.get(same)
        if members is None:
            members = parsed[same] = _members(ranks)
        left -= len(members)
        if left < 0:
            raise ValueError("too many ranks in its groups")
        if members:
            name, desc = text_of(group.get("name", key))[:256], text_of(group.get("desc"))[:256]
            groups.append(Config(name, desc, members))
    return groups


def _members(ranks: Any) -> tuple[int, ...]:
    if isinstance(ranks, str):
        ranks = json.loads(ranks) if _RANKS.match(ranks) else []
    if not isinstance(ranks, list):
        return ()
    if len(ranks) > MAX_RANKS:
        raise ValueError("too many ranks in a group")
    return tuple(sorted({rank for rank in ranks if type(rank) is int and 0 <= rank < MAX_RANKS}))


def names_of_ids(
    pairs: Iterable[tuple[Any, int]],
    dump: Dump,
    config: list[Config],
    top: Mapping[str, Any],
) -> dict[str, str]:
    """pg_id → name of the group.

    Entries tell it, by `pairs` of the id and the group's index in `dump.pgs`. A rank without any
    is mapped by order: both the ids and the names (numbers, counted up as groups are made) grow
    with the groups, and both list those that were used.
    """
    names = {text_of(pg_id): dump.pgs[code][0] for pg_id, code in pairs}
    status = top.get("pg_status")
    ids = (
        [k for k in status if isinstance(k, str) and k.isdigit()]
        if isinstance(status, dict)
        else []
    )
    numbered = sorted({group.name for group in config if group.name.isdigit()}, key=int)
    if len(ids) == len(numbered) == len(config):
        by_order = dict(zip(sorted(ids, key=int), numbered, strict=True))
        if all(by_order.get(key, name) == name for key, name in names.items()):
            return by_order
    return names


def status_of(found: Any, names: dict[str, str]) -> dict[str, Status]:
    """The pg_status by name of the group; `names` has them by pg_id."""
    by_name: dict[str, Status] = {}
    for key, status in found.items() if isinstance(found, dict) else ():
        if isinstance(status, dict) and str(key) in names:
            keys = [f"last_{what}_collective" for what in _STATUS_KEYS]
            by_name[names[str(key)]] = Status(*(int(numbers([status], key)[0]) for key in keys))
    return by_name
