"""Whether the bytes in a file of torch.save are those that its checksums say."""

from __future__ import annotations

import heapq
import zlib

from diagnose.checkpoint.damaged import DamagedError, exactly, is_blank
from diagnose.checkpoint.model import Flaw
from diagnose.checkpoint.torch_zip import Archive, Record, data_at
from diagnose.ingest.raw import Reader
from diagnose.text.ranks import counted

PIECE = 1 << 20
HOLE = 64 << 10  # a file that takes so many bytes less than its size is looked at for holes
HOLE_RECORDS = 256  # records that are looked at for holes, the largest
HOLE_BYTES = 64 << 20  # read of records both ends of which are zero
_PAGE = 4096
_CRC_32, _ONES = 0xEDB88320, 0xFFFFFFFF


def read_pickle(reader: Reader, archive: Archive, limit: int) -> bytes:
    """The first `limit` bytes of data.pkl at most, checked. Raises DamagedError, OSError."""
    record = archive.find("data.pkl")
    if record is None:
        return b""
    data = exactly(reader, data_at(reader, record), min(limit, record.size))
    wrong = len(data) == record.size and record.crc not in (0, zlib.crc32(data))
    if wrong and _any_fits(reader, archive):
        raise DamagedError("corrupt", _mismatch(record))
    if not data.startswith(b"\x80"):
        raise DamagedError("corrupt", "its data.pkl is not a pickle")
    return data


def holes(reader: Reader, archive: Archive, on_disk: int | None) -> Flaw | None:
    """Whether records seem to lie in holes of a file whose blocks are fewer than its bytes.

    Fewer blocks are normal where a file system compresses or has not written yet, and tensors of
    zeros are normal anywhere. So the ends of the largest records are read, and the checksum says
    whether zeros were meant. A record without one (torch can leave them out) is passed over.
    Raises DamagedError, OSError.
    """
    if on_disk is None or on_disk > reader.size - HOLE:
        return None
    left = HOLE_BYTES
    largest = heapq.nlargest(HOLE_RECORDS, archive.records, key=lambda record: record.size)
    for record in largest:
        if record.size < _PAGE or not record.crc or not record.stored:
            continue
        begin = data_at(reader, record)
        ends = reader.read_at(begin, _PAGE) + reader.read_at(begin + record.size - _PAGE, _PAGE)
        if not is_blank(ends) or record.crc == crc_of_zeros(record.size):
            continue
        if record.size > left:
            return Flaw(
                "unknown",
                f"its record {record.shown} starts and ends with zero bytes and looks like a sparse"
                " hole: use --verify",
            )
        left -= record.size
        if _crc(reader, begin, record.size) != record.crc and _any_fits(reader, archive):
            return Flaw("corrupt", _mismatch(record))
    return None


def wrong_checksum(reader: Reader, archive: Archive) -> Flaw | None:
    """Read all records and compare their checksums, as torch.load does not.

    Where none at all fits, whoever wrote the file did not mean them. Raises DamagedError, OSError.
    """
    wrong = None
    fits = False
    for record in archive.records:
        if not record.crc or not record.stored:
            continue
        if _crc(reader, data_at(reader, record), record.size) == record.crc:
            fits = True
        else:
            wrong = wrong or record
    return Flaw("corrupt", _mismatch(wrong)) if wrong and fits else None


def _mismatch(record: Record) -> str:
    size = counted(record.size, "byte")
    return f"the {size} of its record {record.shown} do not match their checksum"


def _crc(reader: Reader, begin: int, size: int) -> int:
    crc = 0
    for offset in range(begin, begin + size, PIECE):
        crc = zlib.crc32(exactly(reader, offset, min(PIECE, begin + size - offset)), crc)
    return crc


def _any_fits(reader: Reader, archive: Archive) -> bool:
    """Whether the checksum of one of the smallest records fits: checksums are meant."""
    small = (record for record in archive.records if record.crc and 0 < record.size <= _PAGE)
    return any(
        _crc(reader, data_at(reader, record), record.size) == record.crc
        for record in heapq.nsmallest(8, small, key=lambda record: record.size)
    )


def _times(one: int, other: int) -> int:
    """The product of two polynomials over GF(2) modulo that of CRC-32, bits reflected (as zlib)."""
    product = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = other >> 1 ^ (_CRC_32 if other & 1 else 0)
    return product


def crc_of_zeros(size: int) -> int:
    """The CRC-32 of so many zero bytes, in about log(size) steps."""
    shift, power, bits = 1 << 31, 1 << 30, 8 * size  # x^0 and x^1
    while bits:
        if bits & 1:
            shift = _times(shift, power)
        power = _times(power, power)
        bits >>= 1
    return _times(shift, _ONES) ^ _ONES
