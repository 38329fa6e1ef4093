"""Entries of a pickled Flight Recorder dump that repeat earlier ones, read without building them.

Torch's pickler keeps every string once, in the memo. So all but a few entries of a dump are fixed
opcodes: keys and texts by their number in the memo, and integers. One regular expression, made of
the keys in the order of the dump, takes those; of entries that differ in nothing but a few numbers
one is left in the pickle, and the numbers of the others come from the bytes. What is left is read
like any other dump, by a tenth of the work. What the expression takes has no strings and no PUTs,
so leaving it out changes the meaning of nothing else.

Dumps of other picklers, which fill the memo in every entry, are not thinned.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.lazy import compiled
from diagnose.parse.pickles import CODES

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
_LAYOUTS, _TEXTS = 32, 8  # that are remembered, and texts at one place of each

_Keys = tuple[tuple[bytes, str], ...]  # as in the pickle, and by name
_Texts = tuple[tuple[bytes, ...], ...]  # what stood at each place between numbers
_met: dict[_Keys, _Texts] = {}  # of dumps of other ranks, which say the same mostly


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
    form, numbers = _form(keys, _met.get(keys, ()))
    found = [*form.finditer(data, begin.end())]
    if len(found) < FEW:
        return None
    starts = np.array([match.start() for match in found])
    ends = np.array([match.end() for match in found])
    columns = [*zip(*[match.groups() for match in found], strict=True)]
    texts = [column for at, column in enumerate(columns) if at not in numbers.values()]
    _remember(keys, texts)
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


def _remember(keys: _Keys, texts: Sequence[Sequence[bytes]]) -> None:
    """Keep what stands between the numbers, for the next dump with these keys."""
    if keys not in _met:
        if len(_met) >= _LAYOUTS:
            _met.clear()
        counts = (Counter(column[:_CANDIDATES]) for column in texts)
        _met[keys] = tuple(tuple(text for text, _ in c.most_common(_TEXTS)) for c in counts)


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
