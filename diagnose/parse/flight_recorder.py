"""PyTorch Flight Recorder dumps: what every rank had enqueued, one dump a rank.

Formats: torch 2.2 (a bare list of entries), 2.3 (version 1.4), 2.4 (2.1), 2.5 to 2.7 (2.4), 2.8
(2.9) and 2.9 on (2.10; versions compare as pairs of integers), as pickle or JSON, from NCCL and
gloo. Keys are read where present; unknown ones are ignored. gloo differs: the state is always
`scheduled` and only `retired` tells that an operation finished; `pg_config` is empty.

The rank is not in the dump, only in the name of the file. Dumps are read into columns at once and
the entries let go, so that a thousand ranks fit into memory.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Iterable, Mapping
from threading import active_count
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.parse import pickles
from diagnose.parse.flight_recorder_entries import (
    COMPLETED,
    ENQUEUED,
    MAX_ELEMENTS,
    MAX_RANKS,
    STARTED,
    STATES,
    Call,
    Config,
    Dump,
    DumpError,
    Entries,
    Sizes,
    Status,
    column,
    distinct_calls,
    distinct_groups,
    distinct_sites,
    each_number,
    flags,
    numbers,
    spread,
    text_of,
    thinned,
    whole,
)
from diagnose.parse.path import read_path
from diagnose.parse.pickles import TruncatedPickleError, UnsafePickleError

__all__ = [
    "COMPLETED", "ENQUEUED", "STARTED", "STATES", "Call", "Config", "Dump", "DumpError", "Sizes",
    "Status", "batched", "close_lone_members", "is_dump", "rank_of", "read_dump",
]  # fmt: skip

MAX_ENTRIES = 200_000  # of one dump; of more, the newest
MAX_NS = 4_102_444_800_000_000_000  # since 1970: the year 2100

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_KEYS = re.compile(
    rb"pg_config|pg_status|profiling_name|record_id|comm_lib_version|nccl_version|nccl_comm_state"
)
_JSON_KEYS = re.compile(rb'"(?:%s)"\s*:' % _KEYS.pattern)
_JSON_LINES = re.compile(rb"\}\s*\n\s*\{")  # one document has a comma between its objects
_EXTENSIONS = re.compile(r"(?i)(?:\.(?:pickle|pkl|json|bin|dump|trace|txt|gz|zst|xz|bz2))+\Z")
_DIGITS = re.compile(r"(\d{1,9})\D{0,8}\Z")

_STATE_CODES = {"scheduled": ENQUEUED, "started": STARTED, "completed": COMPLETED}


def is_dump(head: bytes) -> bool:
    """Whether a file that begins with `head` (4 KiB are plenty) looks like a dump."""
    if _PICKLE.match(head):
        return _KEYS.search(head) is not None or head[2:].startswith((b"](e.", b"]q\x00."))
    stripped = head.lstrip()
    if stripped[:1] not in (b"{", b"[") or _JSON_LINES.search(stripped):
        return False
    return _JSON_KEYS.search(stripped) is not None


def rank_of(name: str) -> int | None:
    """The rank a file name tells: `rank_3` anywhere in it, else its last number.

    None without a number, or with one that no rank has, such as a date.
    """
    stem = _EXTENSIONS.sub("", re.split(r"[/\\!]", name)[-1])
    rank = read_path(stem).rank
    if rank is None:
        found = _DIGITS.search(stem)
        rank = int(found[1]) if found else None
    return rank if rank is not None and rank < MAX_RANKS else None


def read_dump(data: bytes, name: str) -> Dump:
    """Read one dump, unpacked, from the file `name`.

    A pickle that was cut off gives what is whole. Raises DumpError for a file that is empty,
    damaged, no dump, or holds what no dump holds (a global to import, say).
    """
    if not data:
        raise DumpError(f"{name}: empty dump (the process died before it wrote anything)")
    # Entries come by the ten thousand and hold no cycles: a fifth of the time. The garbage of other
    # threads is theirs.
    collecting = gc.isenabled() and active_count() == 1
    if collecting:
        gc.disable()
    try:
        found = _repeating(data)
        if found is not None:
            return _columns(*found, name, partial=False)
        content, partial = _content(data, name)
        return _columns(content, whole(_listed(content)), name, partial=partial)
    except DumpError:
        raise
    except (TypeError, ValueError, KeyError, OverflowError, AttributeError) as error:
        raise DumpError(f"{name}: not a Flight Recorder dump: {str(error)[:120]}") from None
    finally:
        if collecting:
            gc.enable()


def _content(data: bytes, name: str) -> tuple[Any, bool]:
    """The plain data of a dump, and whether its end is missing."""
    if data[:1] == b"\x80":
        try:
            return pickles.load(data), False
        except UnsafePickleError as error:
            raise DumpError(f"{name}: refused: {error}") from None
        except TruncatedPickleError:
            try:
                return pickles.load_truncated(data), True
            except ValueError:
                raise DumpError(f"{name}: truncated dump, no entry is complete") from None
        except ValueError as error:
            raise DumpError(f"{name}: {error}") from None
    if data.lstrip()[:1] not in (b"{", b"["):
        raise DumpError(f"{name}: neither a pickle nor JSON")
    if len(data) > pickles.MAX_BYTES:
        raise DumpError(f"{name}: refused: {len(data):,} bytes of JSON")
    if data.count(b"[") + data.count(b"{") > pickles.MAX_CONTAINERS:
        raise DumpError(f"{name}: refused: too many containers")
    try:
        return json.loads(data), False
    except (ValueError, RecursionError):
        raise DumpError(f"{name}: truncated or damaged JSON") from None


def _repeating(data: bytes) -> tuple[Any, Entries] | None:
    """The plain data of a pickle and its entries, where many of them repeat; None elsewhere.

    What is wrong with a dump is found, and told, by the reading of all of it.
    """
    sampled = thinned(data) if data[:1] == b"\x80" and pickles.bounded(data) else None
    if sampled is None:
        return None
    try:
        content = pickles.load(sampled.data)
        return content, spread(sampled, _listed(content))
    except (TypeError, ValueError):
        return None


def _listed(content: Any) -> list[Any]:
    """The list of entries."""
    top: Mapping[str, Any] = content if isinstance(content, dict) else {}
    known = ("entries", "pg_config", "pg_status", "nccl_comm_state", "version")
    if not isinstance(content, list) and not any(key in top for key in known):
        raise ValueError("none of its keys")
    entries = content if isinstance(content, list) else top.get("entries", [])
    if not isinstance(entries, list):
        raise ValueError("no list of entries")
    return entries


def _columns(content: Any, entries: Entries, name: str, *, partial: bool) -> Dump:
    top: Mapping[str, Any] = content if isinstance(content, dict) else {}
    entries = entries.last(MAX_ENTRIES)
    rows, of = entries.rows, entries.of
    if not set(map(type, rows)) <= {dict}:
        raise ValueError("an entry is not a dict")
    if len(set(map(id, rows))) < len(rows):
        raise ValueError("an entry is listed twice")
    if rows and not any(key in rows[0] for key in ("profiling_name", "pg_id", "seq_id")):
        raise ValueError("entries without operations")
    config = groups_of(top.get("pg_config"))
    calls, call = distinct_calls(rows)
    sites, site = distinct_sites(rows)
    pgs, pg = distinct_groups(rows, config)
    p2p = flags(rows, "is_p2p") | np.array([c.peer is not None for c in calls], bool)[call]
    retired = flags(rows, "retired")
    gloo = np.array([c.backend == "gloo" for c in calls], bool)[call]
    states = [_STATE_CODES.get(stated, ENQUEUED) for stated in column(rows, "state", "")]
    state = np.array(states, np.int8)
    state[gloo & retired] = COMPLETED
    old = bool(rows) and "collective_seq_id" not in rows[0]
    seq = each_number(entries, "seq_id" if old else "collective_seq_id")
    if not old:
        seq = np.where(p2p[of], each_number(entries, "p2p_seq_id"), seq)
    created = each_number(entries, "time_created_ns", 0, MAX_NS)
    if rows and "time_created_ns" not in rows[0]:
        created = each_number(entries, "time_created_us", 0, MAX_NS // 1000) * 1000
    record = each_number(entries, "record_id")
    if rows and "record_id" not in rows[0]:
        record = np.arange(len(entries), dtype=np.int64)
    dump = Dump(
        name, _rank(name, config), _version(top.get("version")), record, pg[of], seq, p2p[of],
        call[of], state[of], retired[of], created, site[of], numbers(rows, "timeout_ms")[of],
        pgs, calls, sites, config, partial=partial,
    )  # fmt: skip
    groups = set(zip(column(rows, "pg_id", -1), pg.tolist(), strict=True))
    dump.status = status_of(top.get("pg_status"), names_of_ids(groups, dump, config, top))
    close_batches(dump)
    return dump


def _rank(name: str, config: list[Config]) -> int | None:
    """The rank by the name, as long as the groups do not contradict.

    A rank is a member of all its groups; `node015` behind a host's own digits may be rank 15 or 5.
    """
    rank = rank_of(name)
    if not config:
        return rank
    lists = {id(group.ranks): group.ranks for group in config}  # groups may share one
    possible = set.intersection(*map(set, lists.values()))
    if rank is not None and rank not in possible:
        digits = str(rank)
        shorter = (int(digits[cut:]) for cut in range(1, len(digits)))
        return next((number for number in shorter if number in possible), rank)
    return rank if rank is not None or len(possible) != 1 else possible.pop()


def _version(found: Any) -> tuple[int, int] | None:
    parts = re.match(r"(\d{1,4})\.(\d{1,4})", text_of(found))
    return (int(parts[1]), int(parts[2])) if parts else None


# --- groups, and how far each got -----------------------------------------------------------------

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
    pairs: Iterable[tuple[Any, int]], dump: Dump, config: list[Config], top: Mapping[str, Any]
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


# --- coalesced batches of sends and receives, and when they ended ---------------------------------


def close_batches(dump: Dump) -> None:
    """Members of a coalesced batch get the state of the batch: torch never updates their own.

    The batch is recorded last, as `coalesced`, with the group and number of its members.
    """
    keys = _units(dump)
    rows = np.flatnonzero(_is_batch(dump))
    if len(rows):
        order = np.argsort(keys[rows], kind="stable")
        ordered = keys[rows][order]
        place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
        member = ordered[place] == keys
        last = rows[order][place[member]]
        dump.state[member] = dump.state[last]
        dump.retired[member] = dump.retired[last]


def batched(dump: Dump) -> set[str]:
    """Descriptions of the groups that send and receive in batches, as far as one dump tells."""
    if not dump.p2p.any():
        return set()
    _, first, number = np.unique(_units(dump), return_index=True, return_counts=True)
    several = dump.pg[first[(number > 1) & dump.p2p[first]]]
    ended = dump.pg[_is_batch(dump) & dump.p2p]
    return {dump.pgs[pg][1] for pg in {*several.tolist(), *ended.tolist()}}


def close_lone_members(dump: Dump, descs: set[str]) -> None:
    """Members of batches whose end is not listed count as completed, in groups of `descs`.

    A dump of pending operations leaves out batches that completed, but not their members; one that
    was cut off may end inside a batch.
    """
    if not descs or not dump.p2p.any():
        return
    if (dump.state == COMPLETED).any() and not dump.partial:
        return
    keys = _units(dump)
    lone = dump.p2p & ~np.isin(keys, keys[_is_batch(dump)])
    for pg, (name, desc) in enumerate(dump.pgs):
        if desc in descs:
            status = dump.status.get(name, Status(-1, -1, -1))
            going_on = (dump.seq > status.completed) & (dump.seq <= status.enqueued)
            dump.state[lone & (dump.pg == pg) & ~going_on] = COMPLETED


def _is_batch(dump: Dump) -> npt.NDArray[np.bool_]:
    return np.array([call.op == "coalesced" for call in dump.calls], bool)[dump.call]


def _units(dump: Dump) -> npt.NDArray[np.int64]:
    """A number for every group, kind (send and receive or not) and sequence number."""
    return ((dump.pg.astype(np.int64) << 1 | dump.p2p) << 44) + dump.seq
