"""One Flight Recorder dump as it was read: its columns, and how its entries become these."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from math import isfinite
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from diagnose.lazy import compiled
from diagnose.parse.pickles import CODES

STATES = ("enqueued", "started", "completed")
ENQUEUED, STARTED, COMPLETED = range(3)
MAX_RANKS = 1_000_000
MAX_ELEMENTS = 8_000_000  # sizes, types, members: a pickle can name one list a million times

Sizes = tuple[tuple[int, ...], ...]


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


# --- entries as columns; what many of them share is read once -------------------------------------

MAX_NUMBER = 1 << 44  # of operations, records, milliseconds; more is no number of a dump
MAX_TEXT = 4096
MAX_FRAMES = 256

_PEER = re.compile(r"(send|recv)\s+(\d{1,7})\s*(?:->|<-)\s*(\d{1,7})\Z")
# Frames of libraries: not where a person would look.
_LIBRARY = re.compile(
    r"(?:^|[/\\])(?:site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3|[/\\]torch[/\\]"
    r"|^<frozen|^torch[/\\]|\.(?:cpp|cc|cu|c|h|hpp|so)\Z|^\?*\Z"
)


def column(entries: Sequence[dict[str, Any]], key: str, missing: Any) -> list[Any]:
    """The values of a key."""
    try:
        return [*map(itemgetter(key), entries)]
    except KeyError:
        return [entry.get(key, missing) for entry in entries]


def numbers(
    entries: Sequence[dict[str, Any]], key: str, missing: int = -1, most: int = MAX_NUMBER
) -> npt.NDArray[np.int64]:
    """The numbers of a key from `missing` to `most`; others are as good as missing."""
    found = column(entries, key, missing)
    if not set(map(type, found)) <= {int}:
        found = [_number(value, missing) for value in found]
    if found and not missing <= min(found) <= max(found) <= most:
        found = [value if missing <= value <= most else missing for value in found]
    return np.array(found, np.int64)


def each_number(
    entries: Entries, key: str, missing: int = -1, most: int = MAX_NUMBER
) -> npt.NDArray[np.int64]:
    """Like `numbers`, of all entries."""
    found = numbers(entries.rows, key, missing, most)[entries.of]
    own = entries.numbers.get(key)
    if own is not None:
        found[entries.repeats] = np.where((own < missing) | (own > most), missing, own)
    return found


def _number(value: Any, missing: int) -> int:
    if value is None or (isinstance(value, float) and not isfinite(value)):
        return missing
    return int(value)


def flags(entries: Sequence[dict[str, Any]], key: str) -> npt.NDArray[np.bool_]:
    """Of which entries a key is true."""
    return np.array([value is True for value in column(entries, key, False)], bool)


def distinct_calls(entries: Sequence[dict[str, Any]]) -> tuple[list[Call], npt.NDArray[np.int32]]:
    """The calls, and which of them each entry is."""
    index: dict[tuple[Any, int, int, int, int], int] = {}
    names = column(entries, "profiling_name", "")
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
    found = column(entries, key, ())
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
    return tuple(dict.fromkeys(text_of(text)[:64] for text in value))[:8]


def _call(name: Any, size_in: Sizes, size_out: Sizes, dtypes: tuple[str, ...]) -> Call:
    backend, colon, op = text_of(name).partition(":")
    if not colon:
        backend, op = "", backend
    peer = _PEER.match(op)
    return Call(
        peer[1] if peer else op, backend, size_in, size_out,
        ",".join([*dict.fromkeys(dtypes)][:8]), int(peer[3]) if peer else None,
    )  # fmt: skip


def distinct_sites(entries: Sequence[dict[str, Any]]) -> tuple[list[str], npt.NDArray[np.int32]]:
    """First frame of the user's own code, `file:line`, "" where there is none.

    Frames are shared between entries, so what a frame says is worked out once per object.
    """
    known: dict[int, str | None] = {}
    of_list: dict[int, int] = {}
    of_stack: dict[tuple[int, ...], int] = {}
    index: dict[str, int] = {"": 0}
    codes = []
    for stack in column(entries, "frames", ()):
        code = of_list.get(id(stack))
        if code is None:
            frames = stack[:MAX_FRAMES]
            key = tuple(map(id, frames))
            code = of_stack.get(key)
            if code is None:
                site = _first_site(frames, known)
                code = of_stack[key] = index.setdefault(site, len(index))
            of_list[id(stack)] = code
        codes.append(code)
    return [*index], _codes(codes)


def _first_site(frames: Sequence[Mapping[str, Any]], known: dict[int, str | None]) -> str:
    for frame in frames:
        if id(frame) not in known:
            known[id(frame)] = _site(frame)
        site = known[id(frame)]
        if site is not None:
            return site
    return ""


def _site(frame: Mapping[str, Any]) -> str | None:
    name = text_of(frame.get("filename"))
    return None if _LIBRARY.search(name) else f"{name}:{int(frame.get('line') or 0)}"


def distinct_groups(
    entries: Sequence[dict[str, Any]], config: list[Config]
) -> tuple[list[tuple[str, str]], npt.NDArray[np.int32]]:
    """Groups by name; before version 2.1 there is only the number of the group on this rank.

    Those numbers are mapped to names by order where pg_config lists just as many groups.
    """
    index: dict[Any, int] = {}
    if entries and "process_group" not in entries[0]:
        keys = column(entries, "pg_id", -1)
        codes = [index.setdefault(key, len(index)) for key in keys]
        named = {group.name: group for group in config if group.name.isdigit()}
        if len(named) == len(config) == len(index) and all(type(key) is int for key in index):
            order = dict(zip(sorted(index), sorted(named, key=int), strict=True))
            return [(order[key], named[order[key]].desc) for key in index], _codes(codes)
        return [(text_of(key), "") for key in index], _codes(codes)
    codes = [
        index.setdefault(tuple(pg[:2]), len(index))
        for pg in column(entries, "process_group", ("", ""))
    ]
    return [(text_of(name)[:256], text_of(desc)[:256]) for name, desc in index], _codes(codes)


def _codes(codes: list[int]) -> npt.NDArray[np.int32]:
    return np.array(codes, np.int32)


def text_of(value: object) -> str:
    """A string, cut; never the text of a list, which may be endless."""
    if type(value) is int:
        return str(value)
    return value[:MAX_TEXT] if isinstance(value, str) else ""


# --- entries that repeat --------------------------------------------------------------------------

# Entries that repeat earlier ones are read without building them: torch's pickler keeps every
# string once, in the memo. So all but a few entries of a dump are fixed opcodes: keys and texts
# by their number in the memo, and integers. One regular expression, made of the keys in the order
# of the dump, takes those; of entries that differ in nothing but a few numbers one is left in the
# pickle, and the numbers of the others come from the bytes. What is left is read like any other
# dump, by a tenth of the work. What the expression takes has no strings and no PUTs, so leaving
# it out changes the meaning of nothing else.
# Dumps of other picklers, which fill the memo in every entry, are not thinned.

# Of these only the numbers that are asked for are kept; those of OTHER are of no use here.
NUMBERS = (
    "record_id", "collective_seq_id", "p2p_seq_id", "seq_id", "time_created_ns", "time_created_us",
)  # fmt: skip
OTHER = ("op_id", "time_discovered_started_ns", "time_discovered_completed_ns", "duration_ms")
FEW = 16  # entries for which this is not worth while
_CANDIDATES = 64  # entries looked at for one that repeats
_HEAD = 64 << 10  # where the first entry ends, with the names of the keys

_INTEGER = rb"(?:K.|M..|J....|\x8a\x08.{8})"
_WIDEST = 10  # bytes of one; so many are taken, which makes columns of one width
_REF = rb"(?:h.|j....)"
_VALUE = (
    rb"(?>h.(?:h.\x86)?|j....(?:j....\x86)?|[N\x88\x89]|" + _INTEGER + rb"|G.{8}"
    rb"|\](?:\((?>" + _REF + rb"|\]\((?>K.|M..|J....)*+e)*+e)?)"
)
_ENTRIES = re.compile(rb"X\x07\0\0\0entries(?:q.|r....)?\]\(\}\(", re.DOTALL)
_KEY = re.compile(rb"X.\0\0\0([a-z_0-9]{1,40})(?:q(.)|r(....))", re.DOTALL)
_PAIR = compiled(rb"(" + _REF + rb")" + _VALUE, re.DOTALL)
_NEXT = b"u}("
_LAYOUTS, _TEXTS = 32, 8  # whose expressions are kept, and texts at one place of each

_Keys = tuple[tuple[bytes, str], ...]  # as in the pickle, and by name
_Texts = tuple[tuple[bytes, ...], ...]  # what stands at each place between numbers


@dataclass(frozen=True, slots=True)
class Thinned:
    """A dump without repeats: where a run of them was there is None, behind the last one a sample
    of each. `runs` says which sample each entry of a run is; `numbers` are those of all entries of
    all runs.
    """

    data: bytes
    samples: int
    runs: list[npt.NDArray[np.int64]]
    numbers: dict[str, npt.NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of a dump: distinct `rows`, which of them each entry is (`of`), and, of those
    that are `repeats`, their own `numbers`.
    """

    rows: list[Any]
    of: npt.NDArray[np.int64]
    repeats: npt.NDArray[np.bool_]
    numbers: dict[str, npt.NDArray[np.int64]]

    def __len__(self) -> int:
        return len(self.of)

    def last(self, most: int) -> Entries:
        """The newest entries."""
        dropped, kept = self.repeats[:-most], self.repeats[-most:]
        if not len(dropped):
            return self
        before = int(dropped.sum())
        numbers = {key: found[before:] for key, found in self.numbers.items()}
        return _ordered(self.rows, self.of[-most:], kept, numbers)


def whole(rows: list[Any]) -> Entries:
    """Entries of which none was left out."""
    return Entries(rows, np.arange(len(rows)), np.zeros(len(rows), bool), {})


def thinned(data: bytes) -> Thinned | None:
    """A pickled dump without entries that repeat; None where it has none."""
    begin = _ENTRIES.search(data, 0, _HEAD)
    keys = begin and _keys(data, begin.end())
    if not begin or not keys:
        return None
    some, numbers = _form(keys, ())
    form, _ = _form(keys, _texts(islice(some.finditer(data, begin.end()), _CANDIDATES), numbers))
    found = [*form.finditer(data, begin.end())]
    if len(found) < FEW:
        return None
    starts = np.array([match.start() for match in found])
    ends = np.array([match.end() for match in found])
    columns = [*zip(*[match.groups() for match in found], strict=True)]
    texts = [column for at, column in enumerate(columns) if at not in numbers.values()]
    index: dict[tuple[bytes, ...], int] = {}
    codes = np.array([index.setdefault(key, len(index)) for key in zip(*texts, strict=True)])
    _, first = np.unique(codes, return_index=True)
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    firsts, lasts = [0, *breaks.tolist()], [*(breaks - 1).tolist(), len(found) - 1]
    parts, at = [], 0
    for low, high in zip(firsts, lasts, strict=True):
        parts += [data[at : starts[low]], b"N"]
        at = ends[high]
    parts += [found[at].group() for at in first.tolist()]
    own = {key: integers(columns[at]) for key, at in numbers.items()}
    return Thinned(b"".join([*parts, data[at:]]), len(index), np.split(codes, breaks), own)


def spread(sampled: Thinned, rows: list[Any]) -> Entries:
    """All entries, given those that were read of a thinned dump. Raises ValueError if these do not
    fit.
    """
    gaps = [at for at, row in enumerate(rows) if row is None]
    if len(gaps) != len(sampled.runs) or gaps[-1] + sampled.samples >= len(rows):
        raise ValueError("entries in an odd place")
    samples = gaps[-1] + 1
    of, repeats = [], []
    for low, high, run in zip([-1, *gaps], [*gaps, None], [*sampled.runs, None], strict=True):
        # In front of each run, and behind the last and its samples, are entries of their own.
        first = low + 1 if high is not None else samples + sampled.samples
        own = np.arange(first, len(rows) if high is None else high)
        of.append(own)
        repeats.append(np.zeros(len(own), bool))
        if run is not None:
            of.append(samples + run)
            repeats.append(np.ones(len(run), bool))
    return _ordered(rows, np.concatenate(of), np.concatenate(repeats), sampled.numbers)


def _ordered(
    rows: list[Any],
    of: npt.NDArray[np.int64],
    repeats: npt.NDArray[np.bool_],
    numbers: dict[str, npt.NDArray[np.int64]],
) -> Entries:
    """With the rows that are there, each where it comes first."""
    used, first, code = np.unique(of, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return Entries([rows[at] for at in used[order].tolist()], place[code], repeats, numbers)


def _keys(data: bytes, begin: int) -> _Keys:
    """The keys of an entry that repeats, in the order of this dump; none where nothing does."""
    names = {
        b"h" + found[2] if found[2] else b"j" + found[3]: found[1].decode()
        for found in _KEY.finditer(data, begin, begin + _HEAD)
    }
    at = begin
    for _ in range(_CANDIDATES):
        at = data.find(_NEXT, at) + len(_NEXT)
        if at < len(_NEXT):
            return ()
        keys, end = [], at
        while pair := _PAIR.match(data, end):
            keys.append((pair[1], names.get(pair[1], "")))
            end = pair.end()
        if keys and data[end : end + 1] == b"u":
            return tuple(keys)
    return ()


def _texts(some: Iterable[re.Match[bytes]], numbers: Mapping[str, int]) -> _Texts:
    """What stands between the numbers of some entries, the most frequent first."""
    columns = enumerate(zip(*(match.groups() for match in some), strict=True))
    counts = (Counter(column) for at, column in columns if at not in numbers.values())
    return tuple(tuple(text for text, _ in count.most_common(_TEXTS)) for count in counts)


@lru_cache(_LAYOUTS)
def _form(keys: _Keys, texts: _Texts) -> tuple[re.Pattern[bytes], dict[str, int]]:
    """The expression for entries with these keys, and which of its groups are which numbers.

    What stands between the numbers is mostly one of these `texts`: to compare is three times as
    fast as to look at each value.
    """
    parts, groups, inside = [rb"\}\("], 0, False
    likely = iter(texts)
    numbers: dict[str, int] = {}
    for key, name in keys:
        cut = name in NUMBERS or name in OTHER
        if inside == cut:  # a group of what is kept as it is begins or ends
            alternatives = (
                b"".join(re.escape(text) + b"|" for text in next(likely, ())) if not cut else b""
            )
            parts.append(b")" if cut else b"(" + alternatives)
            groups += not cut
            inside = not cut
        value = _VALUE
        if name in NUMBERS:
            value = b"(?=(.{%d}))" % _WIDEST + _INTEGER
            numbers[name] = groups
            groups += 1
        elif cut:
            value = b"(?:N|" + _INTEGER + b"|G.{8})"
        parts.append(re.escape(key) + value)
    parts.append(b")u" if inside else b"u")
    return compiled(b"".join(parts), re.DOTALL), numbers


_CODED = (
    (CODES["BININT1"], 1, "u1"), (CODES["BININT2"], 1, "<u2"), (CODES["BININT"], 1, "<i4"),
    (CODES["LONG1"], 2, "<i8"),
)  # fmt: skip


def integers(pickled: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """The numbers that these opcodes push, each with what follows it, of _WIDEST bytes."""
    rows = np.frombuffer(b"".join(pickled), np.uint8).reshape(-1, _WIDEST)
    found = np.zeros(len(rows), np.int64)
    for code, start, form in _CODED:
        these = rows[:, 0] == code
        size = np.dtype(form).itemsize
        found[these] = np.ascontiguousarray(rows[these, start : start + size]).view(form)[:, 0]
    return found
