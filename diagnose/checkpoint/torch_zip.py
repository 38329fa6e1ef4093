"""Files of torch.save since 1.6: a zip whose records are stored as they are, its directory last.

Records are `<archive>/data.pkl`, `<archive>/data/<number>` for each storage, `<archive>/version`
and a few small ones (caffe2/serialize/inline_container.cc in PyTorch). Sizes and checksums stand
in the directory, so that the end of the file tells of all of it. Nothing is inflated. The zip's
own layout is that of PKWARE's APPNOTE 6.3.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from struct import Struct, unpack_from
from typing import NamedTuple

from diagnose.checkpoint.damaged import DamagedError, exactly, is_blank
from diagnose.ingest.raw import Reader
from diagnose.text.ranks import counted

MAGIC = b"PK\3\4"
TAIL = (64 << 10) + 22  # the longest comment there can be, and the end record
MAX_DIRECTORY = 64 << 20
MAX_RECORDS = 300_000
_MAX_ENDS = 100  # end records tried

_LOCAL = Struct("<4s5H3I2H")
_ENTRY = Struct("<4s6H3I5H2I")
_END = Struct("<4s4H2IH")
_END64 = Struct("<4sQ2H2I4Q")
_LOCATOR = Struct("<4sIQI")
_WIDE = 0xFFFFFFFF
_CUT_OFF = "ends before its table of contents, which a save writes last"
_MOVED = "its table of contents is not where its end says"


class Record(NamedTuple):
    """One entry of the directory; `offset` is that of its local header, `crc` 0 where it has none.

    `end` is where it ends at the earliest: its local header may be longer than the directory tells.
    """

    name: str
    offset: int
    size: int
    crc: int
    stored: bool
    end: int

    @property
    def shown(self) -> str:
        """Its name for a sentence, which may be anything up to 64 KiB."""
        return repr(self.name[:80])


class Archive(NamedTuple):
    """The directory of a zip: its records in order of their place, and where it begins."""

    records: list[Record]
    begin: int

    def find(self, name: str) -> Record | None:
        """The record of this name inside the archive's folder."""
        inside = (record for record in self.records if record.name.partition("/")[2] == name)
        return next(inside, None)


def read_archive(reader: Reader) -> Archive:
    """The directory, with all that it says about places and sizes checked.

    Raises DamagedError: `partial` where the end is missing, `corrupt` where places and sizes do not
    fit each other, `unknown` for more than is looked at. Raises OSError.
    """
    size = reader.size
    tail_at = max(0, size - TAIL)
    tail = exactly(reader, tail_at, size - tail_at)
    begin, length, count = _end(tail, tail_at, size)
    if length > MAX_DIRECTORY or count > MAX_RECORDS:
        raise DamagedError("unknown", f"lists {counted(count, 'record')}: too many to check")
    if begin >= tail_at:
        directory = tail[begin - tail_at : begin - tail_at + length]
    else:
        directory = exactly(reader, begin, length)
    records = sorted(_entries(directory, count), key=lambda record: record.offset)
    _check_places(records, begin)
    return Archive(records, begin)


def _end(tail: bytes, tail_at: int, size: int) -> tuple[int, int, int]:
    """Offset and bytes of the directory, and its number of records."""
    at = len(tail)
    for _ in range(_MAX_ENDS):
        at = tail.rfind(b"PK\5\6", 0, at + 3)
        if at < 0:
            break
        if at + _END.size > len(tail):
            continue
        begin, length, count, end = _place(tail, tail_at, at)
        comment = int.from_bytes(tail[at + 20 : at + 22], "little")
        close = tail_at + at + _END.size + comment
        if close == size:
            if begin + length != end:
                raise DamagedError("corrupt", _MOVED)
            return begin, length, count
        if close < size and begin + length == end:
            raise DamagedError("corrupt", f"has {counted(size - close, 'byte')} after its end")
    if is_blank(tail):
        raise DamagedError("partial", "ends in zero bytes: its end was never written")
    raise DamagedError("partial", _CUT_OFF)


def _place(tail: bytes, tail_at: int, at: int) -> tuple[int, int, int, int]:
    """What the end record at `at` says: directory's offset, bytes, records, and where it ends."""
    _, _, _, _, count, length, begin, _ = _END.unpack_from(tail, at)
    locator = at - _LOCATOR.size
    if locator >= 0 and tail.startswith(b"PK\6\7", locator):
        _, _, wide, _ = _LOCATOR.unpack_from(tail, locator)
        inside = wide - tail_at
        if 0 <= inside <= locator - _END64.size and tail.startswith(b"PK\6\6", inside):
            *_, count, length, begin = _END64.unpack_from(tail, inside)
            return begin, length, count, wide
        return 0, 0, 0, -1
    return begin, length, count, tail_at + at


def _entries(directory: bytes, count: int) -> Iterator[Record]:
    at = 0
    try:
        for _ in range(count):
            (
                magic, _, _, _, method, _, _, crc, length, size, name_size, extra_size,
                comment_size, _, _, _, offset,
            ) = _ENTRY.unpack_from(directory, at)  # fmt: skip
            if magic != b"PK\1\2":
                raise DamagedError("corrupt", "its table of contents is damaged")
            at += _ENTRY.size
            raw = directory[at : at + name_size]
            extra = directory[at + name_size : at + name_size + extra_size]
            at += name_size + extra_size + comment_size
            if _WIDE in (size, length, offset):
                size, length, offset = _wide(extra, size, length, offset)
            if method == 0 and size != length:
                raise DamagedError("corrupt", "its table of contents has contradictory sizes")
            end = offset + _LOCAL.size + name_size + length
            yield Record(raw.decode("utf-8", "replace"), offset, length, crc, method == 0, end)
    except struct.error:
        raise DamagedError("corrupt", "its table of contents is damaged") from None
    if at != len(directory):
        raise DamagedError("corrupt", "its table of contents is damaged")


def _wide(extra: bytes, size: int, length: int, offset: int) -> tuple[int, int, int]:
    """Sizes and offset, of which the extra field 1 has those that need more than 32 bits."""
    at = 0
    while at + 4 <= len(extra):
        kind, have = unpack_from("<2H", extra, at)
        if kind == 1:
            wide = iter(unpack_from(f"<{have // 8}Q", extra, at + 4))
            size, length, offset = (
                next(wide, number) if number == _WIDE else number
                for number in (size, length, offset)
            )
            break
        at += 4 + have
    return size, length, offset


def _check_places(records: list[Record], begin: int) -> None:
    last = Record("", 0, 0, 0, True, 0)
    for record in records:
        if record.end > begin:
            raise DamagedError(
                "corrupt", f"its record {record.shown} extends beyond its table of contents"
            )
        if record.offset < last.end:
            raise DamagedError("corrupt", f"its records {last.shown} and {record.shown} overlap")
        last = record
    if len({record.name for record in records}) < len(records):
        raise DamagedError("corrupt", "it has two records of the same name")


def check_torch(archive: Archive) -> None:
    """Whether it has what torch.load needs. Raises DamagedError."""
    folders = {record.name.partition("/")[0] for record in archive.records}
    if len(folders) > 1 or archive.find("data.pkl") is None:
        raise DamagedError("corrupt", "is a zip file but not from torch: it has no data.pkl")
    if archive.find("version") is None and archive.find(".data/version") is None:
        raise DamagedError("corrupt", "has no record 'version', without which torch cannot load it")
    for record in archive.records:
        # The code in files of TorchScript is compressed, which is no concern of anyone here.
        if not record.stored and record.name.partition("/")[2].startswith("data"):
            raise DamagedError(
                "unknown", f"its record {record.shown} is compressed, which torch never does"
            )


def check_headers(reader: Reader, archive: Archive, sample: int) -> None:
    """Whether local headers stand where the directory says, on about so many records.

    The first and the last are among them. Raises DamagedError, OSError.
    """
    records = archive.records
    step = max(1, -(-(len(records) - 1) // max(1, sample - 1)))
    for place in sorted({*range(0, len(records), step), len(records) - 1} if records else ()):
        record = records[place]
        limit = records[place + 1].offset if place + 1 < len(records) else archive.begin
        if data_at(reader, record) + record.size > limit:
            raise DamagedError("corrupt", f"its record {record.shown} overlaps the next one")


def data_at(reader: Reader, record: Record) -> int:
    """Where the bytes of a record begin. Raises DamagedError, OSError."""
    head = reader.read_at(record.offset, _LOCAL.size + 4 * len(record.name))
    if head[:4] == MAGIC and len(head) >= _LOCAL.size:
        *_, name_size, extra_size = _LOCAL.unpack_from(head)
        name = head[_LOCAL.size : _LOCAL.size + name_size].decode("utf-8", "replace")
        if name == record.name:
            return record.offset + _LOCAL.size + int(name_size) + int(extra_size)
    raise DamagedError(
        "corrupt", f"its record {record.shown} is not where its table of contents says"
    )


def digest_of(archive: Archive) -> str:
    """The same for the same data.pkl and storages; empty where records carry no checksums."""
    digest = hashlib.blake2b(digest_size=16)
    for record in sorted(archive.records):
        name = record.name.partition("/")[2]
        if name == "data.pkl" or name.startswith("data/"):
            if record.size and not record.crc:
                return ""
            digest.update(f"{name} {record.size} {record.crc}\n".encode("utf-8", "replace"))
    return digest.hexdigest()
