"""Work on many bytes at once, in numpy: for pieces so large that loading it pays.

Escape sequences are all measured at once: one expression that replaces them one by one takes a
second and a hundred bytes of memory for every megabyte and byte of a hostile log. No sequence holds
the ESC of another, but for a string's end which is a sequence by itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from diagnose.ingest.escapes import INTERMEDIATES, PARAMETERS, TEXT


def _table(*spans: bytes) -> npt.NDArray[np.bool_]:
    """Which bytes lie in one of the spans, given by their two ends."""
    table = np.zeros(256, np.bool_)
    for span in spans:
        table[span[0] : span[-1] + 1] = True
    return table


_PARAMETER, _INTERMEDIATE, _FINAL = _table(b"0?"), _table(b" /"), _table(b"@~")
_SET_FINAL = _table(b"0~")
_TWO_BYTES = _table(b"0O", b"QW", b"YZ", b"\\", b"`~")
_STRING = _table(b"]", b"P", b"X", b"^", b"_")
_STOP = _table(b"\x07", b"\x1b", b"\r", b"\n")

_Places = npt.NDArray[np.int32]  # in a chunk, which is far smaller


def newlines(data: bytes, base: int) -> bytes:
    """Where the newlines are, plus `base`, as 64-bit integers."""
    places = np.flatnonzero(np.frombuffer(data, np.uint8) == 10).astype(np.int64)
    return (places + base).tobytes()


def without_escapes(data: bytes) -> bytes:
    """The data without escape sequences."""
    # Padded, so that looking behind the end finds what belongs to no sequence.
    codes = np.frombuffer(data + b"\n" * (PARAMETERS + INTERMEDIATES + 4), np.uint8)
    starts = np.flatnonzero(codes == 0x1B).astype(np.int32)
    ends = starts + 1
    kind = codes[ends]
    two = _TWO_BYTES[kind]
    ends[two] += 1
    for first, sequence in (
        (kind == ord("["), _csi),
        (_INTERMEDIATE[kind], _set),
        (_STRING[kind], _string),
    ):
        if first.any():
            ends[first] = sequence(codes, starts[first])
    # The end of a string is a sequence of its own as well.
    inner = np.flatnonzero(starts[1:] < ends[:-1]) + 1
    ends[inner - 1] = ends[inner]
    starts, ends = np.delete(starts, inner), np.delete(ends, inner)
    inside = np.zeros(len(data) + 1, np.int8)
    inside[starts] += 1
    inside[ends] -= 1
    outside = np.cumsum(inside[:-1], dtype=np.int8) == 0
    return bytes(codes[: len(data)][outside])


def _csi(codes: npt.NDArray[np.uint8], starts: _Places) -> _Places:
    """The ends of `ESC [`, parameters, intermediates, final; of what is none behind its ESC."""
    at = _run(codes, starts + 2, _PARAMETER, PARAMETERS)
    at = _run(codes, at, _INTERMEDIATE, INTERMEDIATES)
    return np.where(_FINAL[codes[at]], at + 1, starts + 1)


def _set(codes: npt.NDArray[np.uint8], starts: _Places) -> _Places:
    """The ends of ESC, intermediates, final; of what is none behind its ESC."""
    at = _run(codes, starts + 1, _INTERMEDIATE, INTERMEDIATES)
    return np.where(_SET_FINAL[codes[at]], at + 1, starts + 1)


def _run(
    codes: npt.NDArray[np.uint8], at: _Places, table: npt.NDArray[np.bool_], most: int
) -> _Places:
    """Where a run of at most that many bytes of a table ends."""
    at = at.copy()
    going = np.arange(len(at), dtype=np.int32)
    for _ in range(most):
        going = going[table[codes[at[going]]]]
        if not len(going):
            break
        at[going] += 1
    return at


def _string(codes: npt.NDArray[np.uint8], starts: _Places) -> _Places:
    """The ends of strings, which BEL or ESC and a backslash close; else behind the ESC."""
    stops = np.flatnonzero(_STOP[codes])
    stop = stops[np.searchsorted(stops, starts + 2)]
    bell = codes[stop] == 0x07
    closed = bell | ((codes[stop] == 0x1B) & (codes[stop + 1] == ord("\\")))
    closed &= stop - (starts + 2) <= TEXT
    return np.where(closed, stop + np.where(bell, 1, 2), starts + 1)
