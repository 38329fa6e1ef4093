"""Files of torch.save: what is in them, and whether all of it is there.

Since 1.6 they are a zip whose records are stored as they are, its directory last. Records are
`<archive>/data.pkl`, `<archive>/data/<number>` for each storage, `<archive>/version` and a few
small ones (caffe2/serialize/inline_container.cc in PyTorch). Sizes and checksums stand in the
directory, so that the end of the file tells of all of it. Nothing is inflated.

Before, and with `_use_new_zipfile_serialization=False` ever since, five pickles stand one behind
the other (magic number, protocol 1001, system, content, keys of the storages), then for each
storage its number of elements in 8 bytes and these (`_legacy_save` in torch/serialization.py).
Still older files are a tar of `sys_info`, `pickle`, `tensors` and `storages`. Nothing but a walk
over the pickles tells where such a file ends.
"""

from __future__ import annotations

import hashlib
import heapq
import zlib
from typing import Any, NamedTuple
from zipfile import ZIP_STORED, ZipInfo

from diagnose.checkpoint.contents import DamagedError, exactly
from diagnose.checkpoint.model import Flaw
from diagnose.ingest import archive_formats
from diagnose.ingest.archive_formats import (
    BLOCK,
    MAGIC,
    LargeDirectoryError,
    NoDirectoryError,
    ReaderFeed,
    ZipError,
    tar_entries,
)
from diagnose.ingest.chunks import is_zeros
from diagnose.ingest.raw import Reader
from diagnose.ingest.source import Budget
from diagnose.parse.pickles import (
    Global,
    NoPickleError,
    TooLongError,
    TruncatedPickleError,
    end_of,
    walk,
)
from diagnose.text.ranks import counted

__all__ = ["MAGIC", "Archive", "check_headers", "check_torch", "data_at", "digest_of"]

MAX_RECORDS = 300_000
_END_SIZE = 22
_TAIL = (64 << 10) + _END_SIZE  # the longest comment there can be, and the end record
_CUT_OFF = "ends before its table of contents, which a save writes last"


class Archive(NamedTuple):
    """The directory of a zip: its records in order of their place, and where it begins."""

    records: list[ZipInfo]
    begin: int

    def find(self, name: str) -> ZipInfo | None:
        """The record of this name inside the archive's folder."""
        return next((record for record in self.records if _inside(record) == name), None)


def _inside(record: ZipInfo) -> str:
    """The name of a record inside the archive's folder."""
    return record.filename.partition("/")[2]


def _is_stored(record: ZipInfo) -> bool:
    """Whether the bytes of a record are as they are in memory."""
    return record.compress_type == ZIP_STORED


def _shown(record: ZipInfo) -> str:
    """The name of a record for a sentence, which may be anything up to 64 KiB."""
    return repr(record.filename[:80])


def read_archive(reader: Reader) -> Archive:
    """The directory, with all that it says about places and sizes checked.

    Raises DamagedError: `partial` where the end is missing, `corrupt` where places and sizes do not
    fit each other, `unknown` for more than is looked at. Raises OSError.
    """
    _check_end(reader)
    try:
        infos, begin = archive_formats.directory(reader, Budget(headers=MAX_RECORDS))
    except LargeDirectoryError as error:
        raise DamagedError("unknown", f"has a table of contents of {error}") from None
    except NoDirectoryError:
        raise DamagedError("partial", _CUT_OFF) from None
    except ZipError:
        raise DamagedError("corrupt", "its table of contents is damaged") from None
    if infos and infos[0].header_offset:  # all are as far off
        raise DamagedError("corrupt", "its table of contents is not where its end says")
    for info in infos:
        info.filename = archive_formats.name_of(info)
    _check_places(infos, begin)
    return Archive(infos, begin)


def _check_end(reader: Reader) -> None:
    """Whether the end record is the last there is, with its comment."""
    size = reader.size
    for length in (_END_SIZE, _TAIL):
        begin = max(0, size - length)
        tail = exactly(reader, begin, size - begin)
        at = tail.rfind(b"PK\5\6")
        comment = int.from_bytes(tail[at + _END_SIZE - 2 : at + _END_SIZE], "little")
        more = len(tail) - at - _END_SIZE - comment
        if at >= 0 and more == 0:
            return
    if is_zeros(tail):
        raise DamagedError("partial", "ends in zero bytes: its end was never written")
    if at < 0 or more < 0:
        raise DamagedError("partial", _CUT_OFF)
    raise DamagedError("corrupt", f"has {counted(more, 'byte')} after its end")


def _check_places(records: list[ZipInfo], begin: int) -> None:
    last, end = "", 0
    for record in records:
        if _is_stored(record) and record.file_size != record.compress_size:
            raise DamagedError("corrupt", "its table of contents has contradictory sizes")
        if record.header_offset < end:
            raise DamagedError("corrupt", f"its records {last} and {_shown(record)} overlap")
        # At the earliest: its local header may be longer than the directory says.
        end = record.header_offset + archive_formats.header_size(record) + record.compress_size
        if end > begin:
            raise DamagedError(
                "corrupt", f"its record {_shown(record)} extends beyond its table of contents"
            )
        last = _shown(record)
    if len({record.filename for record in records}) < len(records):
        raise DamagedError("corrupt", "it has two records of the same name")


def check_torch(archive: Archive) -> None:
    """Whether it has what torch.load needs. Raises DamagedError."""
    folders = {record.filename.partition("/")[0] for record in archive.records}
    if len(folders) > 1 or archive.find("data.pkl") is None:
        raise DamagedError("corrupt", "is a zip file but not from torch: it has no data.pkl")
    if archive.find("version") is None and archive.find(".data/version") is None:
        raise DamagedError("corrupt", "has no record 'version', without which torch cannot load it")
    for record in archive.records:
        # The code in files of TorchScript is compressed, which is no concern of anyone here.
        if not _is_stored(record) and _inside(record).startswith("data"):
            raise DamagedError(
                "unknown", f"its record {_shown(record)} is compressed, which torch never does"
            )


def check_headers(reader: Reader, archive: Archive, sample: int) -> None:
    """Whether local headers stand where the directory says, on about so many records.

    The first and the last are among them. Raises DamagedError, OSError.
    """
    records = archive.records
    step = max(1, -(-(len(records) - 1) // max(1, sample - 1)))
    for place in sorted({*range(0, len(records), step), len(records) - 1} if records else ()):
        record = records[place]
        limit = records[place + 1].header_offset if place + 1 < len(records) else archive.begin
        if data_at(reader, record) + record.compress_size > limit:
            raise DamagedError("corrupt", f"its record {_shown(record)} overlaps the next one")


def data_at(reader: Reader, record: ZipInfo) -> int:
    """Where the bytes of a record begin. Raises DamagedError, OSError."""
    start = archive_formats.data_at(reader, record)
    if isinstance(start, int):
        return start
    raise DamagedError(
        "corrupt", f"its record {_shown(record)} is not where its table of contents says"
    )


def digest_of(archive: Archive) -> str:
    """The same for the same data.pkl and storages; empty where records carry no checksums."""
    digest = hashlib.blake2b(digest_size=16)
    for record in sorted(archive.records, key=lambda record: record.filename):
        name = _inside(record)
        if name == "data.pkl" or name.startswith("data/"):
            if record.compress_size and not record.CRC:
                return ""
            digest.update(
                f"{name} {record.compress_size} {record.CRC}\n".encode("utf-8", "replace")
            )
    return digest.hexdigest()


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
    data = exactly(reader, data_at(reader, record), min(limit, record.compress_size))
    wrong = len(data) == record.compress_size and record.CRC not in (0, zlib.crc32(data))
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
    largest = heapq.nlargest(HOLE_RECORDS, archive.records, key=lambda one: one.compress_size)
    for record in largest:
        size = record.compress_size
        if size < _PAGE or not record.CRC or not _is_stored(record):
            continue
        begin = data_at(reader, record)
        ends = reader.read_at(begin, _PAGE) + reader.read_at(begin + size - _PAGE, _PAGE)
        if not is_zeros(ends) or crc_of_zeros(size) == record.CRC:
            continue
        if size > left:
            why = f"its record {_shown(record)} starts and ends with zero bytes and looks like a"
            return Flaw("unknown", f"{why} sparse hole: use --verify")
        left -= size
        if not _fits(reader, record) and _any_fits(reader, archive):
            return Flaw("corrupt", _mismatch(record))
    return None


def wrong_checksum(reader: Reader, archive: Archive) -> Flaw | None:
    """Read all records and compare their checksums, as torch.load does not.

    Where none at all fits, whoever wrote the file did not mean them. Raises DamagedError, OSError.
    """
    meant = [one for one in archive.records if one.CRC and _is_stored(one)]
    wrong = [record for record in meant if not _fits(reader, record)]
    return Flaw("corrupt", _mismatch(wrong[0])) if 0 < len(wrong) < len(meant) else None


def _mismatch(record: ZipInfo) -> str:
    size = counted(record.compress_size, "byte")
    return f"the {size} of its record {_shown(record)} do not match their checksum"


def _fits(reader: Reader, record: ZipInfo) -> bool:
    """Whether the bytes of a record have its checksum. Raises DamagedError, OSError."""
    begin, crc = data_at(reader, record), 0
    end = begin + record.compress_size
    for offset in range(begin, end, PIECE):
        crc = zlib.crc32(exactly(reader, offset, min(PIECE, end - offset)), crc)
    return crc == record.CRC


def _any_fits(reader: Reader, archive: Archive) -> bool:
    """Whether the checksum of one of the smallest records fits: checksums are meant."""
    small = [one for one in archive.records if one.CRC and 0 < one.compress_size <= _PAGE]
    smallest = heapq.nsmallest(8, small, key=lambda one: one.compress_size)
    return any(_fits(reader, record) for record in smallest)


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


_MAGIC = b"\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b"."  # LONG1, STOP
_START = 32  # bytes that the pickle of the magic number may take, whatever its protocol
TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257
MAX_PICKLES = 32 << 20  # bytes of the pickles of one file
MAX_FILES = 1000  # written one behind the other into one file
MAX_MEMBERS = 100_000  # of a tar
SAMPLE = 8  # storages at each end whose number of elements is looked at
_FIRST_READ = 1 << 20
_ITEM_SIZES = {
    "Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1,
    "Byte": 1, "Bool": 1, "ComplexDouble": 16, "ComplexFloat": 8, "QInt8": 1, "QUInt8": 1,
    "QInt32": 4, "QUInt4x2": 1, "QUInt2x4": 1, "Untyped": 1, "_Untyped": 1,
}  # fmt: skip


def is_legacy(head: bytes) -> bool:
    """Whether a file that begins so is one of these."""
    return head.startswith(b"\x80") and _MAGIC in head[:_START]


def check_legacy(reader: Reader) -> None:
    """Whether the file ends where its pickles say. Raises DamagedError, OSError.

    `partial` where it is shorter, `corrupt` where pickles and storages do not fit, `unknown` for
    what is not looked at.
    """
    at = walked = 0
    for _ in range(MAX_FILES):
        at, size = _one(reader, at)
        if at == reader.size:
            return
        walked += size
        if walked > MAX_PICKLES:
            raise DamagedError("unknown", "its pickles are too long to check")
        # torch.save may be called several times with one open file.
        if not is_legacy(reader.read_at(at, _START)):
            break
    raise DamagedError("corrupt", f"has {counted(reader.size - at, 'byte')} after its last storage")


def _one(reader: Reader, start: int) -> tuple[int, int]:
    """Where the torch.save that begins at `start` ends, and the bytes of its pickles."""
    keys, sizes, at = _pickles(reader, start)
    end, size = at, at - start
    starts = []
    for key in keys:
        numel, item = sizes.get(key, (-1, 0))
        if numel < 0:
            raise DamagedError("corrupt", "its list of storages and its content disagree")
        starts.append((end, numel))
        end += 8 + numel * item
    if end > reader.size:
        raise DamagedError(
            "partial",
            f"ends before its last storage: {reader.size - start:,} of"
            f" {counted(end - start, 'byte')} are there",
        )
    for place, numel in {*starts[:SAMPLE], *starts[-SAMPLE:]}:
        if int.from_bytes(exactly(reader, place, 8), "little") != numel:
            raise DamagedError("corrupt", "its storages are not where its content places them")
    return end, size


def _pickles(reader: Reader, start: int) -> tuple[list[str], dict[str, tuple[int, int]], int]:
    """Keys of the storages in order; elements and their size by key; where the pickles end."""
    size = _FIRST_READ
    while True:
        data = reader.read_at(start, size)
        try:
            at = 0
            for _ in range(3):  # magic number, protocol, system
                at = end_of(data, at)
            content = walk(data, at)
            keys = walk(data, content.end)
            break
        except TruncatedPickleError:
            if start + len(data) >= reader.size:
                raise DamagedError(
                    "partial", "ends inside its pickles, before its tensors"
                ) from None
        except NoPickleError:
            raise DamagedError("corrupt", "its pickles are damaged") from None
        except TooLongError:
            raise DamagedError("unknown", "its pickles are too long to check") from None
        if size >= MAX_PICKLES:
            raise DamagedError("unknown", "its pickles are too long to check")
        size = min(4 * size, MAX_PICKLES)
    if not isinstance(keys.value, list) or not all(isinstance(key, str) for key in keys.value):
        raise DamagedError("corrupt", "it has no list of its storages")
    if len(set(keys.value)) < len(keys.value):
        raise DamagedError("corrupt", "its list of storages has a duplicate")
    return keys.value, _sizes(content.ids), start + keys.end


def _sizes(ids: list[tuple[Any, ...]]) -> dict[str, tuple[int, int]]:
    """Number of elements and bytes of one, by the key of the storage."""
    sizes: dict[str, tuple[int, int]] = {}
    for pid in ids:
        match pid:
            case ("storage", Global(name=kind), str() as key, _, int() as numel, *_):
                item = _ITEM_SIZES.get(kind.removesuffix("Storage"))
                if item is None:
                    what = f"holds storages of type {kind[:40]!r}: its end was not checked"
                    raise DamagedError("unknown", what)
                sizes.setdefault(key, (numel, item))
    return sizes


def check_tar(reader: Reader) -> None:
    """Whether a tar is all there, up to the two zero blocks at its end.

    Raises DamagedError, OSError.
    """
    budget, feed, end = Budget(headers=MAX_MEMBERS), ReaderFeed(reader), 0
    for entry in tar_entries(feed, budget):
        end = feed.position + -(-entry.size // BLOCK) * BLOCK
    note = budget.notes[0] if budget.notes else ""
    if note.startswith("damaged"):
        raise DamagedError("corrupt", "its tar archive has a damaged header")
    if note.startswith("more than"):
        raise DamagedError("unknown", "its tar archive has too many members to check")
    if note or reader.size < end + 2 * BLOCK:
        raise DamagedError("partial", "ends before the end of its tar archive")
