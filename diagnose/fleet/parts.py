"""A table of jobs, or a part of one, made small: what is asked of it, each text stored once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from diagnose.fleet.columns import Coded

TEXTS = (
    "labels", "verdict", "class", "signature", "confidence", "fingerprint", "title", "versions",
    "error",
)  # fmt: skip
LISTS = ("hosts", "culprit_hosts", "frameworks")
NUMBERS = ("gpu_hours_lost", "ranks", "duration_hung_s")
TIMES = ("onset", "ended", "started")
UNIQUE = ("job", "source", "tag")
COLUMNS = (*TEXTS, *LISTS, *NUMBERS, *TIMES, *UNIQUE, "mtime", "notes")
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
    """Rows of the columns that are asked for."""

    def column(name: str) -> pa.Array:
        return table[name].combine_chunks()

    texts = {name: pc.fill_null(column(name), "").dictionary_encode() for name in TEXTS}
    return Part(
        texts=texts | {"note": _last_notes(column("notes"), texts["class"])},
        unique={name: pc.fill_null(column(name), "") for name in UNIQUE},
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


def _lists(column: pa.Array) -> tuple[np.ndarray, pa.DictionaryArray]:
    lengths: np.ndarray = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    return lengths, pc.list_flatten(column).dictionary_encode()


def _number(column: pa.Array) -> np.ndarray:
    """Numbers; NaN where there is none."""
    found: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found


def _time(column: pa.Array) -> np.ndarray:
    """Times in microseconds."""
    counts = pc.fill_null(column.cast(pa.int64()), np.iinfo(np.int64).min)
    return np.asarray(counts).view("datetime64[us]")


def _written(column: pa.Array) -> np.ndarray:
    """The time of an archive, from seconds since 1970."""
    seconds = _number(column)
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
    texts = [value[-1] if value else "" for value in notes.filter(unknown).to_pylist()]
    codes = np.zeros(len(causes), dtype=np.int32)
    codes[unknown.to_numpy(zero_copy_only=False)] = np.arange(1, len(texts) + 1)
    whole = pa.array(["", *texts], pa.string()).take(pa.array(codes))
    return whole.dictionary_encode()


def _unknown(causes: pa.DictionaryArray) -> pa.BooleanArray:
    return pc.equal(causes.dictionary_decode(), UNKNOWN)
