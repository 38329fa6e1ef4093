"""Files of safetensors: 8 bytes for the length of a JSON header, the header, the data.

The header gives dtype, shape and place of every tensor, so that header and size tell whether the
file is whole (FORMATS 10.2; the README of safetensors).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from diagnose.checkpoint.damaged import DamagedError, exactly, is_blank
from diagnose.checkpoint.json_text import TOO_HEAVY, parse
from diagnose.checkpoint.model import Flaw
from diagnose.ingest.raw import Reader
from diagnose.text.ranks import counted

MAX_HEADER = 100_000_000  # bytes; what the library refuses
MAX_PARSED = 16 << 20  # bytes of a header that is looked at; a hundred thousand tensors take 10 MB
HOLE = 1 << 20  # a file that takes so many bytes less than its size is looked at for holes
HOLE_TENSORS = 4
_PAGE = 4096
_MAX_AXES = 64  # each of them below _MAX_NUMBER: so their product is soon computed
_MAX_NUMBER = 1 << 62
_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
}  # fmt: skip  a dtype that is not here is no flaw: there will be new ones


class Header(NamedTuple):
    """Bytes of each tensor by name, their places in the file, and where the header ends."""

    tensors: Mapping[str, int]
    places: list[tuple[int, int]]
    begin: int


def read_header(reader: Reader) -> Header:
    """The header, checked against itself and the file's size. Raises DamagedError, OSError.

    `partial` for a file that is shorter than it says, `corrupt` for one that contradicts itself.
    """
    size = reader.size
    if size < 8:
        raise DamagedError("partial", f"has only {counted(size, 'byte')}, too few for a header")
    start = exactly(reader, 0, min(16, size))
    length = int.from_bytes(start[:8], "little")
    if is_blank(start):
        raise DamagedError("partial", "starts with zero bytes: its start was never written")
    if length > MAX_HEADER or length < 2:
        raise DamagedError("corrupt", f"claims a header of {counted(length, 'byte')}")
    if size > 8 and start[8:9] != b"{":
        raise DamagedError("corrupt", "its header is not a JSON object")
    if size < 8 + length:
        raise DamagedError(
            "partial",
            f"ends inside its header: {size - 8:,} of {counted(length, 'byte')} are there",
        )
    if length > MAX_PARSED:
        raise DamagedError(
            "unknown", f"has a header of {counted(length, 'byte')}: too long to check"
        )
    return _checked(_parsed(exactly(reader, 8, length)), 8 + length, size)


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        header = parse(raw, _unique)
    except DamagedError as error:
        # The header is all there: text that is cut off inside it was never right.
        raise DamagedError("corrupt", f"its header {error.flaw.why}") from None
    if header is TOO_HEAVY or not isinstance(header, dict):
        raise DamagedError("corrupt", "its header is not a list of tensors")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DamagedError("corrupt", "names the same tensor twice")
    return found


def _checked(header: dict[str, Any], begin: int, size: int) -> Header:
    header.pop("__metadata__", None)
    tensors: dict[str, int] = {}
    places: list[tuple[int, int]] = []
    for name, entry in header.items():
        first, last = _place(name, entry)
        tensors[name] = last - first
        places.append((first, last))
    places.sort()
    end = 0
    for first, last in places:
        if first != end:
            what = "overlap" if first < end else "leave a gap"
            raise DamagedError("corrupt", f"its tensors {what} at byte {min(first, end):,}")
        end = last
    have = size - begin
    if have < end:
        raise DamagedError(
            "partial", f"ends inside its tensors: {have:,} of {counted(end, 'byte')} are there"
        )
    if have > end:
        raise DamagedError("corrupt", f"has {counted(have - end, 'byte')} after its last tensor")
    return Header(tensors, places, begin)


def _place(name: str, entry: Any) -> tuple[int, int]:
    """Where a tensor begins and ends behind the header. Raises DamagedError."""
    match entry:
        case {"dtype": str() as dtype, "shape": list() as shape, "data_offsets": [first, last]}:
            numbers = [*shape, first, last]
            fine = len(shape) <= _MAX_AXES and all(map(_is_size, numbers)) and first <= last
        case _:
            fine = False
    if not fine:
        raise DamagedError("corrupt", f"its header is malformed for tensor {name[:80]!r}")
    count = math.prod(shape)
    bits = _BITS.get(dtype)
    if bits is not None and count * bits != 8 * (last - first):
        raise DamagedError(
            "corrupt",
            f"tensor {name[:80]!r} of shape {shape} and type {dtype} cannot have"
            f" {counted(last - first, 'byte')}",
        )
    return first, last


def _is_size(number: Any) -> bool:
    return type(number) is int and 0 <= number <= _MAX_NUMBER


def holes(reader: Reader, header: Header, on_disk: int | None) -> Flaw | None:
    """Whether a file whose blocks are far fewer than its bytes seems never to have been written.

    There are no checksums, and fewer blocks are normal where a file system compresses. So this
    asks for at least half of the largest tensors to begin and end in zeros. Raises OSError.
    """
    if on_disk is None or on_disk > reader.size - HOLE:
        return None
    large = heapq.nlargest(HOLE_TENSORS, header.places, key=lambda place: place[1] - place[0])
    blank = 0
    for first, last in large:
        near = reader.read_at(header.begin + first, min(_PAGE, last - first))
        far = reader.read_at(header.begin + max(first, last - _PAGE), min(_PAGE, last - first))
        blank += is_blank(near) and is_blank(far)
    if 2 * blank < len(large):
        return None
    return Flaw(
        "unknown",
        f"its largest tensors start and end with zero bytes, and only {on_disk:,} of its"
        f" {counted(reader.size, 'byte')} are on disk: it looks like a sparse hole",
    )
