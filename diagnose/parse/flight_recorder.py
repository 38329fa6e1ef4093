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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from diagnose.parse import pickles
from diagnose.parse.opcodes import TruncatedPickleError, UnsafePickleError
from diagnose.parse.path import read_path

STATES = ("enqueued", "started", "completed")
ENQUEUED, STARTED, COMPLETED = range(3)
MAX_ENTRIES = 200_000  # of one dump; of more, the newest
MAX_RANKS = 1_000_000
MAX_GROUPS = 65_536
MAX_ELEMENTS = 8_000_000  # sizes, types, members: a pickle can name one list a million times
MAX_NUMBER = 1 << 44  # of operations, records, milliseconds; more is no number of a dump
MAX_NS = 4_102_444_800_000_000_000  # since 1970: the year 2100
MAX_TEXT = 4096
MAX_FRAMES = 256

Sizes = tuple[tuple[int, ...], ...]

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_KEYS = re.compile(
    rb"pg_config|pg_status|profiling_name|record_id|comm_lib_version|nccl_version|nccl_comm_state"
)
_JSON_KEYS = re.compile(rb'"(?:%s)"\s*:' % _KEYS.pattern)
_JSON_LINES = re.compile(rb"\}\s*\n\s*\{")  # one document has a comma between its objects
_EXTENSIONS = re.compile(r"(?i)(?:\.(?:pickle|pkl|json|bin|dump|trace|txt|gz|zst|xz|bz2))+\Z")
_DIGITS = re.compile(r"(\d{1,9})\D{0,8}\Z")
_PEER = re.compile(r"(send|recv)\s+(\d{1,7})\s*(?:->|<-)\s*(\d{1,7})\Z")
_RANKS = re.compile(r"\[[\d,\s]*\]\Z")
# Frames of libraries: not where a person would look.
_LIBRARY = re.compile(
    r"(?:^|[/\\])(?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3|[/\\]torch[/\\]"
    r"|^<frozen|^torch[/\\]|\.(?:cpp|cc|cu|c|h|hpp|so)\Z|^\?*\Z"
)


class DumpError(ValueError):
    """The file is no dump that can be used; the message is one line."""


@dataclass(frozen=True, slots=True)
class Call:
    """What was called: one value per distinct call of a dump.

    `op` is without the backend's prefix and the ranks of a send or recv; `peer` is the other side
    of those, as rank IN the group.
    """

    op: str
    backend: str
    size_in: Sizes
    size_out: Sizes
    dtype: str
    peer: int | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A group as the dump's pg_config tells it; `ranks` are global."""

    name: str
    desc: str
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """How far a group got on this rank, -1 for not at all. Sends and receives count as well."""

    enqueued: int
    started: int
    completed: int


@dataclass(slots=True)
class Dump:
    """One dump in columns of equal length, entries in the order of the ring (oldest first).

    `pg`, `call` and `site` index `pgs` (name, desc), `calls` and `sites`. `rank` is None when
    neither the name nor the groups tell it. `partial`: cut off, the last entries are missing.
    `lines` has the 1-based line of every entry where the source is a log, None for a dump.
    """

    name: str
    rank: int | None
    version: tuple[int, int] | None
    record: npt.NDArray[np.int64]
    pg: npt.NDArray[np.int32]
    seq: npt.NDArray[np.int64]
    p2p: npt.NDArray[np.bool_]
    call: npt.NDArray[np.int32]
    state: npt.NDArray[np.int8]
    retired: npt.NDArray[np.bool_]
    created: npt.NDArray[np.int64]
    site: npt.NDArray[np.int32]
    timeout_ms: npt.NDArray[np.int64]
    pgs: list[tuple[str, str]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    sites: list[str] = field(default_factory=list)
    config: list[Config] = field(default_factory=list)
    status: dict[str, Status] = field(default_factory=dict)  # by name of the group
    partial: bool = False
    lines: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.record)


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
    collecting = gc.isenabled()
    gc.disable()  # entries come by the ten thousand and hold no cycles: a fifth of the time
    try:
        content, partial = _content(data, name)
        return _columns(content, name, partial)
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


def _columns(content: Any, name: str, partial: bool) -> Dump:
    top: Mapping[str, Any] = content if isinstance(content, dict) else {}
    entries = content if isinstance(content, list) else top.get("entries", [])
    known = ("entries", "pg_config", "pg_status", "nccl_comm_state", "version")
    if not isinstance(content, list) and not any(key in top for key in known):
        raise ValueError("none of its keys")
    if not isinstance(entries, list):
        raise ValueError("no list of entries")
    entries = entries[-MAX_ENTRIES:]
    if not set(map(type, entries)) <= {dict}:
        raise ValueError("an entry is not a dict")
    if len(set(map(id, entries))) < len(entries):
        raise ValueError("an entry is listed twice")
    if entries and not any(key in entries[0] for key in ("profiling_name", "pg_id", "seq_id")):
        raise ValueError("entries without operations")
    config = _config(top.get("pg_config"))
    calls, call = _calls(entries)
    sites, site = _sites(entries)
    pgs, pg = _groups(entries, config)
    p2p = _flags(entries, "is_p2p") | np.array([c.peer is not None for c in calls], bool)[call]
    retired = _flags(entries, "retired")
    gloo = np.array([c.backend == "gloo" for c in calls], bool)[call]
    states = [_STATE_CODES.get(said, ENQUEUED) for said in _column(entries, "state", "")]
    state = np.array(states, np.int8)
    state[gloo & retired] = COMPLETED
    old = bool(entries) and "collective_seq_id" not in entries[0]
    seq = _numbers(entries, "seq_id" if old else "collective_seq_id")
    if not old:
        seq = np.where(p2p, _numbers(entries, "p2p_seq_id"), seq)
    created = _numbers(entries, "time_created_ns", 0, MAX_NS)
    if entries and "time_created_ns" not in entries[0]:
        created = _numbers(entries, "time_created_us", 0, MAX_NS // 1000) * 1000
    record = _numbers(entries, "record_id")
    if entries and "record_id" not in entries[0]:
        record = np.arange(len(entries), dtype=np.int64)
    dump = Dump(
        name, _rank(name, config), _version(top.get("version")), record, pg, seq, p2p, call,
        state, retired, created, site, _numbers(entries, "timeout_ms"),
        pgs, calls, sites, config, partial=partial,
    )  # fmt: skip
    dump.status = _status(top.get("pg_status"), _names_of_ids(entries, dump, config, top))
    _close_batches(dump)
    return dump


_STATE_CODES = {"scheduled": ENQUEUED, "started": STARTED, "completed": COMPLETED}


def _column(entries: Sequence[dict[str, Any]], key: str, missing: Any) -> list[Any]:
    try:
        return [*map(itemgetter(key), entries)]
    except KeyError:
        return [entry.get(key, missing) for entry in entries]


def _numbers(
    entries: Sequence[dict[str, Any]], key: str, missing: int = -1, most: int = MAX_NUMBER
) -> npt.NDArray[np.int64]:
    """The numbers of a key from `missing` to `most`; others are as good as missing."""
    found = _column(entries, key, missing)
    if not set(map(type, found)) <= {int}:
        found = [_number(value, missing) for value in found]
    if found and not missing <= min(found) <= max(found) <= most:
        found = [value if missing <= value <= most else missing for value in found]
    return np.array(found, np.int64)


def _number(value: Any, missing: int) -> int:
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return missing
    return int(value)


def _flags(entries: Sequence[dict[str, Any]], key: str) -> npt.NDArray[np.bool_]:
    return np.array([value is True for value in _column(entries, key, False)], bool)


def _calls(entries: Sequence[dict[str, Any]]) -> tuple[list[Call], npt.NDArray[np.int32]]:
    index: dict[tuple[Any, int, int, int, int], int] = {}
    names = _column(entries, "profiling_name", "")
    size_in, codes_in = _shapes(entries, "input_sizes", _sizes, _elements)
    size_out, codes_out = _shapes(entries, "output_sizes", _sizes, _elements)
    dtypes_in, codes_a = _shapes(entries, "input_dtypes", _dtypes, len)
    dtypes_out, codes_b = _shapes(entries, "output_dtypes", _dtypes, len)
    keys = zip(names, codes_in, codes_out, codes_a, codes_b, strict=True)
    codes = [index.setdefault(key, len(index)) for key in keys]
    many_in, many_out = ([*map(_elements, found)] for found in (size_in, size_out))
    if sum(many_in[a] + many_out[b] for _, a, b, _, _ in index) > MAX_ELEMENTS:
        raise ValueError(f"calls of more than {MAX_ELEMENTS:,} sizes")
    calls = [
        _call(name, size_in[a], size_out[b], (*dtypes_in[c], *dtypes_out[d]))
        for name, a, b, c, d in index
    ]
    return calls, _codes(codes)


T = TypeVar("T")


def _shapes(
    entries: Sequence[dict[str, Any]],
    key: str,
    read: Callable[[Any], T],
    count: Callable[[Any], int],
) -> tuple[list[T], list[int]]:
    """The distinct values of a key, and which of them each entry has.

    A list that entries share is read once: what it costs is bounded by what the dump holds.
    """
    found = _column(entries, key, ())
    distinct = {id(value): value for value in found}
    if sum(map(count, distinct.values())) > MAX_ELEMENTS:
        raise ValueError(f"more than {MAX_ELEMENTS:,} {key}")
    index: dict[T, int] = {}
    codes = {at: index.setdefault(read(value), len(index)) for at, value in distinct.items()}
    return list(index), [codes[id(value)] for value in found]


def _elements(value: Any) -> int:
    """The elements of a list, and of what stands in it."""
    several = (list, tuple, dict, str)
    return len(value) + sum(len(inner) for inner in value if isinstance(inner, several))


def _sizes(value: Any) -> Sizes:
    sizes = tuple(map(tuple, value))
    if any(type(number) is not int for size in sizes for number in size):
        raise ValueError("sizes are not numbers")
    return sizes


def _dtypes(value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_text(text)[:64] for text in value))[:8]


def _call(name: Any, size_in: Sizes, size_out: Sizes, dtypes: tuple[str, ...]) -> Call:
    backend, colon, op = _text(name).partition(":")
    if not colon:
        backend, op = "", backend
    peer = _PEER.match(op)
    return Call(
        peer[1] if peer else op, backend, size_in, size_out,
        ",".join([*dict.fromkeys(dtypes)][:8]), int(peer[3]) if peer else None,
    )  # fmt: skip


def _sites(entries: Sequence[dict[str, Any]]) -> tuple[list[str], npt.NDArray[np.int32]]:
    """First frame of the user's own code, `file:line`, "" where there is none.

    Frames are shared between entries, so what a frame says is worked out once per object.
    """
    said: dict[int, str | None] = {}
    of_list: dict[int, int] = {}
    of_stack: dict[tuple[int, ...], int] = {}
    index: dict[str, int] = {"": 0}
    codes = []
    for stack in _column(entries, "frames", ()):
        code = of_list.get(id(stack))
        if code is None:
            frames = stack[:MAX_FRAMES]
            key = tuple(map(id, frames))
            code = of_stack.get(key)
            if code is None:
                site = _first_site(frames, said)
                code = of_stack[key] = index.setdefault(site, len(index))
            of_list[id(stack)] = code
        codes.append(code)
    return [*index], _codes(codes)


def _first_site(frames: Sequence[Mapping[str, Any]], said: dict[int, str | None]) -> str:
    for frame in frames:
        if id(frame) not in said:
            said[id(frame)] = _site(frame)
        site = said[id(frame)]
        if site is not None:
            return site
    return ""


def _site(frame: Mapping[str, Any]) -> str | None:
    name = _text(frame.get("filename"))
    return None if _LIBRARY.search(name) else f"{name}:{int(frame.get('line') or 0)}"


def _groups(
    entries: Sequence[dict[str, Any]], config: list[Config]
) -> tuple[list[tuple[str, str]], npt.NDArray[np.int32]]:
    """Groups by name; before version 2.1 there is only the number of the group on this rank.

    Those numbers are mapped to names by order where pg_config lists just as many groups.
    """
    index: dict[Any, int] = {}
    if entries and "process_group" not in entries[0]:
        keys = _column(entries, "pg_id", -1)
        codes = [index.setdefault(key, len(index)) for key in keys]
        named = {group.name: group for group in config if group.name.isdigit()}
        if len(named) == len(config) == len(index) and all(type(key) is int for key in index):
            order = dict(zip(sorted(index), sorted(named, key=int), strict=True))
            return [(order[key], named[order[key]].desc) for key in index], _codes(codes)
        return [(_text(key), "") for key in index], _codes(codes)
    codes = [
        index.setdefault(tuple(pg[:2]), len(index))
        for pg in _column(entries, "process_group", ("", ""))
    ]
    return [(_text(name)[:256], _text(desc)[:256]) for name, desc in index], _codes(codes)


def _codes(codes: list[int]) -> npt.NDArray[np.int32]:
    return np.array(codes, np.int32)


def _text(value: object) -> str:
    """A string, cut; never the text of a list, which may be endless."""
    if type(value) is int:
        return str(value)
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _config(found: Any) -> list[Config]:
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
            name, desc = _text(group.get("name", key))[:256], _text(group.get("desc"))[:256]
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
    parts = re.match(r"(\d{1,4})\.(\d{1,4})", _text(found))
    return (int(parts[1]), int(parts[2])) if parts else None


def _close_batches(dump: Dump) -> None:
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
    _, first, number = np.unique(_units(dump), return_index=True, return_counts=True)
    several = dump.pg[first[(number > 1) & dump.p2p[first]]]
    ended = dump.pg[_is_batch(dump) & dump.p2p]
    return {dump.pgs[pg][1] for pg in {*several.tolist(), *ended.tolist()}}


def close_lone_members(dump: Dump, descs: set[str]) -> None:
    """Members of batches whose end is not listed count as completed, in groups of `descs`.

    A dump of pending operations leaves out batches that completed, but not their members; one that
    was cut off may end inside a batch.
    """
    listed = (dump.state == COMPLETED).any() and not dump.partial
    if listed or not dump.p2p.any():
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


def _names_of_ids(
    entries: Sequence[dict[str, Any]],
    dump: Dump,
    config: list[Config],
    top: Mapping[str, Any],
) -> dict[str, str]:
    """pg_id → name of the group.

    Entries tell it. A rank without any is mapped by order: both the ids and the names (numbers,
    counted up as groups are made) grow with the groups, and both list those that were used.
    """
    pairs = set(zip(_column(entries, "pg_id", -1), dump.pg.tolist(), strict=True))
    names = {_text(pg_id): dump.pgs[code][0] for pg_id, code in pairs}
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


def _status(found: Any, names: dict[str, str]) -> dict[str, Status]:
    told: dict[str, Status] = {}
    for key, status in found.items() if isinstance(found, dict) else ():
        if isinstance(status, dict) and str(key) in names:
            keys = [f"last_{what}_collective" for what in _STATUS_KEYS]
            told[names[str(key)]] = Status(*(int(_numbers([status], key)[0]) for key in keys))
    return told


_STATUS_KEYS = ("enqueued", "started", "completed")
