"""A table of jobs, or a part of one, made small: what is asked of it, each text stored once.

Columns are taken by what they hold, for a table may also be written by pandas, and then hold times
as text, or nothing but nulls. What does not fit is as good as absent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from diagnose.fleet.columns import Coded

TEXTS = (
    "labels", "verdict", "class", "signature", "confidence", "fingerprint", "title", "versions",
    "error",
)  # fmt: skip
LISTS = ("hosts", "culprit_hosts", "frameworks")
NUMBERS = ("gpu_hours_lost", "ranks", "duration_hung_s")
TIMES = ("onset", "ended", "started")
UNIQUE = ("job", "source", "tag")
UNKNOWN = "unknown"  # class of a job whose cause is not known, also where it clearly failed
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows. A list column is the lengths of its lists and their items one after another."""

    texts: dict[str, pa.DictionaryArray]
    unique: dict[str, pa.Array]
    lists: dict[str, tuple[np.ndarray, pa.DictionaryArray]]
    numbers: dict[str, np.ndarray]
    times: dict[str, np.ndarray]

    def __len__(self) -> int:
        """How many rows."""
        return len(self.unique["source"])


def part(table: pa.Table) -> Part:
    """The columns that are asked for; those a table lacks are empty."""

    def column(name: str) -> pa.Array:
        if name not in table.column_names:
            return pa.nulls(len(table))
        found = table[name].combine_chunks()
        return found.dictionary_decode() if kinds.is_dictionary(found.type) else found

    texts = {name: _text(column(name)).dictionary_encode() for name in TEXTS}
    return Part(
        texts=texts | {"note": _last_notes(column("notes"), texts["class"])},
        unique={name: _text(column(name)) for name in UNIQUE},
        lists={name: _lists(column(name)) for name in LISTS},
        numbers={name: _number(column(name)) for name in NUMBERS},
        times={name: _time(column(name)) for name in TIMES} | {"mtime": _written(column("mtime"))},
    )


def unexplained(parts: Sequence[Part]) -> set[str]:
    """The sources of the jobs without a known cause."""
    return {
        source
        for part in parts
        for source in part.unique["source"].filter(_unknown(part.texts["class"])).to_pylist()
    }


def coded(chunks: Sequence[pa.DictionaryArray]) -> Coded[str]:
    """Parts of a column as one, with an empty text where there is none."""
    whole = pa.chunked_array(chunks, type=_DICTIONARY).unify_dictionaries()
    if not whole.num_chunks:
        return Coded(np.zeros(0, dtype=np.int32), [""])
    values = whole.chunk(whole.num_chunks - 1).dictionary.to_pylist()
    codes = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in whole.chunks]
    return Coded(np.concatenate(codes).astype(np.int32, copy=False), values)


def _text(column: pa.Array) -> pa.Array:
    if kinds.is_string(column.type) or kinds.is_large_string(column.type):
        return pc.fill_null(column.cast(pa.string()), "")
    return pa.repeat(pa.scalar("", pa.string()), len(column))


def _lists(column: pa.Array) -> tuple[np.ndarray, pa.DictionaryArray]:
    """Lists of texts without what is none in them; a text is a list of itself."""
    if kinds.is_list(column.type) or kinds.is_large_list(column.type):
        rows, flat = pc.list_parent_indices(column), pc.list_flatten(column)
        texts = _text(flat)
        keep = flat.is_valid()
        if not _is_text(flat.type):
            keep = pa.repeat(pa.scalar(value=False), len(flat))
        if len(flat) and not pc.all(keep).as_py():
            rows, texts = rows.filter(keep), texts.filter(keep)
        lengths = np.bincount(rows.to_numpy(), minlength=len(column))
        return lengths, texts.dictionary_encode()
    words = _text(column)
    some = pc.not_equal(words, "")
    lengths = some.to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths, words.filter(some).dictionary_encode()


def _is_text(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind))


def _number(column: pa.Array) -> np.ndarray:
    """Numbers; NaN where there is none."""
    if kinds.is_integer(column.type) or kinds.is_floating(column.type):
        plain = column.cast(pa.float64(), safe=False)
        found: np.ndarray = plain.to_numpy(zero_copy_only=False).astype(np.float64)
        return found
    return np.full(len(column), np.nan)


def _time(column: pa.Array) -> np.ndarray:
    """Times in UTC, microseconds; those without a zone are taken for it."""
    if kinds.is_timestamp(column.type) or kinds.is_date(column.type):
        plain = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False)
        counts = pc.fill_null(plain.cast(pa.int64()), np.iinfo(np.int64).min)
        return np.asarray(counts).view("datetime64[us]")
    if not _is_text(column.type):
        return np.full(len(column), np.datetime64("NaT", "us"))
    return _each(_text(column).dictionary_encode(), _iso)


def _each(column: pa.DictionaryArray, read: Callable[[str], np.datetime64]) -> np.ndarray:
    values = [read(text) for text in column.dictionary.to_pylist()]
    found: np.ndarray = np.array(values, dtype="datetime64[us]")[column.indices.to_numpy()]
    return found


def _iso(text: str) -> np.datetime64:
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is not None:
            time = time.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return np.datetime64("NaT", "us")
    return np.datetime64(time, "us")


def _written(column: pa.Array) -> np.ndarray:
    """The time of an archive: seconds since 1970, ISO 8601 text, or a time already."""
    seconds = _number(column)
    if not (kinds.is_integer(column.type) or kinds.is_floating(column.type)):
        return _time(column)
    seconds = np.where(np.abs(seconds) < 8e9, seconds, np.nan)  # exact in microseconds
    rest, whole = np.modf(seconds)
    counts = whole * 1e6 + np.rint(rest * 1e6)  # both exact: as datetime.fromtimestamp rounds
    lost = np.isnan(counts)
    found = np.where(lost, 0.0, counts).astype(np.int64).view("datetime64[us]")
    found[lost] = np.datetime64("NaT", "us")
    return found


def _last_notes(notes: pa.Array, causes: pa.DictionaryArray) -> pa.DictionaryArray:
    """The last note of each job without a known cause, which is what else is known of its end."""
    unknown = _unknown(causes)
    texts = [_last(value) for value in notes.filter(unknown).to_pylist()]
    codes = np.zeros(len(causes), dtype=np.int32)
    codes[unknown.to_numpy(zero_copy_only=False)] = np.arange(1, len(texts) + 1)
    whole = pa.array(["", *texts], pa.string()).take(pa.array(codes))
    return whole.dictionary_encode()


def _unknown(causes: pa.DictionaryArray) -> pa.BooleanArray:
    return pc.equal(causes.dictionary_decode(), UNKNOWN)


def _last(value: Any) -> str:
    if isinstance(value, str):
        return value
    texts = [item for item in value or () if isinstance(item, str)]
    return texts[-1] if texts else ""
