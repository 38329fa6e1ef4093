"""The entries of a Flight Recorder dump as columns; what many of them share is read once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from diagnose.parse.flight_recorder_dump import MAX_ELEMENTS, Call, Config, Sizes
from diagnose.parse.flight_recorder_repeats import Entries

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
