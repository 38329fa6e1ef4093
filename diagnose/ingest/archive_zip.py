"""The directory of a zip archive, and where its members' bytes lie (PKWARE's APPNOTE 6.3.10).

The standard library's reader takes a whole directory of any size, believes sizes, and gives up on
the archive at one odd entry; here every entry is judged on its own.
"""

from __future__ import annotations

import calendar
import stat
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from diagnose.ingest.archive_names import Entry
from diagnose.ingest.archive_stores import GzipStore, SliceStore
from diagnose.ingest.compress import DEFAULT_LIMITS, Codec, Limits
from diagnose.ingest.raw import BytesStore, Reader, Store
from diagnose.text.ranks import counted

DIRECTORY_LIMIT = 64 << 20  # bytes of a directory
_COMMENT = 1 << 16
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_EXTRA = struct.Struct("<2H")
_FULL32 = 0xFFFFFFFF

_ENCRYPTED, _STREAMED, _UTF8, _MASKED = 0x1, 0x8, 0x800, 0x2000
_STORED, _DEFLATED = 0, 8
# All but deflate begin with the magic of their codec; that one is put into gzip's frame.
_CODECS: dict[int, Codec] = {_DEFLATED: "gzip", 12: "bzip2", 93: "zstd", 95: "xz"}
_OTHER_METHODS = {9: "deflate64", 14: "LZMA", 98: "PPMd", 99: "AES"}
_UNIX = 3
_SPECIAL = [
    (stat.S_ISLNK, "symbolic link: not followed"),
    (stat.S_ISFIFO, "named pipe: not read"),
    (stat.S_ISSOCK, "socket: not read"),
    (stat.S_ISCHR, "device: not read"),
    (stat.S_ISBLK, "device: not read"),
]


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A member and where it lies; there is no store for a refused one.

    `codec` is the compression of the zip, if any, not that of a log which was compressed before.
    """

    entry: Entry
    store: Store | None = None
    codec: Codec | None = None
    limits: Limits = DEFAULT_LIMITS


@dataclass(slots=True)
class _Record:
    """An entry of the directory, or a local header where there is no directory."""

    raw_name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int
    mtime: float | None
    mode: int = 0
    known: bool = True  # sizes and CRC

    @property
    def name(self) -> str:
        # Without the flag it should be CP437, but most writers put UTF-8 or what the system has.
        name = self.raw_name.replace(b"\\", b"/")
        try:
            return name.decode()
        except UnicodeDecodeError:
            # Undecodable bytes stay so where UTF-8 was promised, as they do in a tar.
            if self.flags & _UTF8:
                return name.decode(errors="surrogateescape")
            return name.decode("cp437")


def is_zip(head: bytes) -> bool:
    """Whether the first bytes are those of a zip archive, empty ones included."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def zip_members(
    store: Store, reader: Reader, cut: Callable[[str], None], limit: int
) -> Iterator[ZipMember]:
    """The members by their place in the archive. At most `limit` are looked at.

    Where the directory at the end is missing, as in a truncated archive, the members' own headers
    are followed from the start; `cut` is told. Raises OSError.
    """
    found = _directory(reader)
    if found is None:
        cut("truncated zip archive: no directory at its end, read from its start")
        records, end = list(_walk(reader, limit)), reader.size
    elif isinstance(found, str):
        cut(found)
        return
    else:
        data, end, count = found
        records = list(_records(data, cut, limit))
        if len(records) < min(count, limit):
            cut(f"the directory lists {counted(count, 'member')} and holds {len(records)}")
    taken = 0
    for record in sorted(records, key=lambda record: record.offset):
        member, taken = _member(store, reader, record, taken, end)
        yield member


def _directory(reader: Reader) -> tuple[bytes, int, int] | str | None:
    """The directory's bytes, its offset, and its number of members; or what is wrong with it.

    None if there is no end record at all.
    """
    tail_at = max(0, reader.size - _COMMENT - _END.size)
    tail = reader.read_at(tail_at, _COMMENT + _END.size)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        return None
    _, disk, _, _, count, size, offset, _ = _END.unpack_from(tail, at)
    end = tail_at + at
    if end >= _LOCATOR.size:
        locator = reader.read_at(end - _LOCATOR.size, _LOCATOR.size)
        if locator.startswith(b"PK\x06\x07"):
            _, disk, at64, _ = _LOCATOR.unpack(locator)
            record = reader.read_at(at64, _END64.size)
            if len(record) < _END64.size or not record.startswith(b"PK\x06\x06"):
                return "damaged zip64 directory: not read"
            *_, count, size, offset = _END64.unpack(record)
            end = at64
    if disk not in (0, 0xFFFF):
        return "one part of a split zip archive: not read"
    if size > DIRECTORY_LIMIT:
        return f"zip directory of more than {DIRECTORY_LIMIT} bytes: not read"
    # Bytes put before an archive would shift all offsets; such a file is not taken for an archive.
    if offset + size > end:
        return "damaged zip directory: it ends behind its end record"
    data = reader.read_at(offset, size)
    if count and not data.startswith(b"PK\x01\x02"):
        return "damaged zip directory: not found where its end record says"
    return data, offset, count


def _records(data: bytes, cut: Callable[[str], None], limit: int) -> Iterator[_Record]:
    at = count = 0
    while at + _CENTRAL.size <= len(data):
        fields = _CENTRAL.unpack_from(data, at)
        signature, made, _, flags, method, time, date, crc, packed, size = fields[:10]
        name_size, extra_size, comment_size, _, _, attributes, offset = fields[10:]
        if signature != b"PK\x01\x02":
            cut(f"damaged zip directory after {counted(count, 'member')}")
            return
        if count == limit:
            cut(f"only the first {limit} members were looked at")
            return
        at += _CENTRAL.size
        name = data[at : at + name_size]
        extra = data[at + name_size : at + name_size + extra_size]
        at += name_size + extra_size + comment_size
        count += 1
        packed, size, offset, stamp = _extras(extra, packed, size, offset)
        yield _Record(
            raw_name=name,
            flags=flags,
            method=method,
            crc=crc,
            packed=packed,
            size=size,
            offset=offset,
            mtime=stamp if stamp is not None else _dos_time(date, time),
            mode=attributes >> 16 if made >> 8 == _UNIX else 0,
        )


def _extras(
    extra: bytes, packed: int, size: int, offset: int
) -> tuple[int, int, int, float | None]:
    """Sizes and offset from the zip64 field where 32 bits did not do; the Unix time if given."""
    stamp: float | None = None
    at = 0
    while at + _EXTRA.size <= len(extra):
        kind, length = _EXTRA.unpack_from(extra, at)
        body = extra[at + _EXTRA.size : at + _EXTRA.size + length]
        at += _EXTRA.size + length
        if kind == 0x5455 and len(body) >= 5 and body[0] & 1:
            stamp = float(struct.unpack_from("<i", body, 1)[0])
        elif kind == 0x0001:
            numbers = iter(struct.unpack_from(f"<{len(body) // 8}Q", body))
            size = next(numbers, size) if size == _FULL32 else size
            packed = next(numbers, packed) if packed == _FULL32 else packed
            offset = next(numbers, offset) if offset == _FULL32 else offset
    return packed, size, offset, stamp


def _walk(reader: Reader, limit: int) -> Iterator[_Record]:
    """The members' own headers from the start of the archive on, as far as they tell sizes."""
    at = 0
    for _ in range(limit):
        header = reader.read_at(at, _LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(b"PK\x03\x04"):
            return
        fields = _LOCAL.unpack(header)
        _, _, flags, method, time, date, crc, packed, size, name_size, extra_size = fields
        rest = reader.read_at(at + _LOCAL.size, name_size + extra_size)
        packed, size, _, stamp = _extras(rest[name_size:], packed, size, 0)
        start = at + _LOCAL.size + name_size + extra_size
        known = start + packed <= reader.size and not flags & _STREAMED
        yield _Record(
            raw_name=rest[:name_size],
            flags=flags,
            method=method,
            crc=crc,
            packed=min(packed, max(0, reader.size - start)),
            size=size,
            offset=at,
            mtime=stamp if stamp is not None else _dos_time(date, time),
            known=known,
        )
        if not known:
            return
        at = start + packed


def _member(
    store: Store, reader: Reader, record: _Record, taken: int, end: int
) -> tuple[ZipMember, int]:
    """A member with its store, and the end of its bytes; members never share bytes."""
    special = next((why for is_special, why in _SPECIAL if is_special(record.mode)), "")
    start = special or _start(reader, record, taken, end)
    empty = record.raw_name.endswith((b"/", b"\\")) and not record.size
    if isinstance(start, str):
        entry = Entry(record.name, record.size, record.mtime, empty, start, bool(special))
        return ZipMember(entry), taken
    entry = Entry(record.name, record.size, record.mtime, empty)
    codec = _CODECS.get(record.method)
    body = SliceStore(store, start, record.packed)
    place: Store = body
    if not record.size and record.known:
        place, codec = BytesStore(b""), None
    elif record.method == _DEFLATED:
        trailer = struct.pack("<2L", record.crc, record.size & _FULL32) if record.known else b""
        place = GzipStore(body, trailer)
    # A directory that lies about the size of what is packed cannot make it larger than it says.
    limits = Limits(max_out=min(record.size, DEFAULT_LIMITS.max_out)) if codec else DEFAULT_LIMITS
    return ZipMember(entry, place, codec, limits), start + record.packed


def _start(reader: Reader, record: _Record, taken: int, end: int) -> int | str:
    """Where a member's bytes begin, or why they are not read."""
    if record.flags & (_ENCRYPTED | _MASKED):
        return "encrypted: not read"
    if record.method != _STORED and record.method not in _CODECS:
        method = _OTHER_METHODS.get(record.method, f"method {record.method}")
        return f"{method} compression: not read"
    if not record.known and record.flags & _STREAMED:
        return "size unknown without the missing directory: not read"
    if record.offset < taken:
        return "shares its bytes with another member: not read"
    header = reader.read_at(record.offset, _LOCAL.size)
    if len(header) < _LOCAL.size or not header.startswith(b"PK\x03\x04"):
        return "the directory gives a wrong position: not read"
    *_, name_size, extra_size = _LOCAL.unpack(header)
    start = record.offset + _LOCAL.size + int(name_size) + int(extra_size)
    if reader.read_at(record.offset + _LOCAL.size, name_size) != record.raw_name:
        return "its own header has a different name: not read"
    if start + record.packed > end:
        return "its bytes would extend beyond the archive: not read"
    return _wrong_size(record) or start


def _wrong_size(record: _Record) -> str:
    """What contradicts itself in the sizes that the directory gives."""
    if not record.known:
        return ""
    if record.method == _STORED and record.size != record.packed:
        return "stored, but with two different sizes: not read"
    return "listed as empty but is not: not read" if not record.size and record.crc else ""


def _dos_time(date: int, time: int) -> float | None:
    """Seconds since 1970, as if the writer's clock, whose zone nobody noted, were UTC."""
    month, day = date >> 5 & 15, date & 31
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    clock = (time >> 11, time >> 5 & 63, (time & 31) * 2)
    return float(calendar.timegm((1980 + (date >> 9), month, day, *clock)))
