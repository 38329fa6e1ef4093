"""The directory of a zip archive, by `zipfile`, and where its members' bytes lie.

The standard library takes a whole directory of any size and believes what it says; here its size
is bounded first, and every entry is judged on its own. Nothing is inflated.
"""

from __future__ import annotations

import calendar
import io
import stat
import struct
import zipfile
from collections.abc import Iterator

from diagnose.ingest.archive_names import Entry
from diagnose.ingest.archive_stores import GzipStore, SliceStore
from diagnose.ingest.budget import Budget
from diagnose.ingest.compress import Codec
from diagnose.ingest.raw import BytesStore, Reader, Store
from diagnose.lazy import dataclass

MAGIC = b"PK\3\4"
DIRECTORY_LIMIT = 64 << 20  # bytes of a directory
# What reading a directory raises of crafted bytes, besides BadZipFile.
_ODD = (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error, EOFError)

_ENCRYPTED, _STREAMED, _UTF8, _MASKED = 0x1, 0x8, 0x800, 0x2000
# All but deflate begin with the magic of their codec; that one is put into gzip's frame.
_CODECS: dict[int, Codec] = {zipfile.ZIP_DEFLATED: "gzip", 12: "bzip2", 93: "zstd", 95: "xz"}
_OTHER_METHODS = {9: "deflate64", 14: "LZMA", 98: "PPMd", 99: "AES"}
_LOCAL = struct.Struct("<4s5H3I2H")  # a member's own header
_UNIX = 3
_FULL32 = 0xFFFFFFFF
_SPECIAL = [
    (stat.S_ISLNK, "symbolic link: not followed"),
    (stat.S_ISFIFO, "named pipe: not read"),
    (stat.S_ISSOCK, "socket: not read"),
    (stat.S_ISCHR, "device: not read"),
    (stat.S_ISBLK, "device: not read"),
]


class ZipError(ValueError):
    """There is no directory that can be read; one line says why."""


class NoDirectoryError(ZipError):
    """The end of the archive is missing."""


class LargeDirectoryError(ZipError):
    """The directory is larger than what is read."""


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A member and where it lies; there is no store for a refused one.

    `codec` is the compression of the zip, if any, not that of a log which was compressed before.
    """

    entry: Entry
    store: Store | None = None
    codec: Codec | None = None


@dataclass(slots=True)
class _File(io.RawIOBase):
    """A reader as the file that zipfile wants, which reads no directory larger than allowed."""

    reader: Reader
    most: int  # members
    at: int = 0
    seen: int = 0  # members, as it seems

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.reader.size}[whence]
        if base + offset < 0:
            raise io.UnsupportedOperation("a place before the start")
        self.at = base + offset
        return self.at

    def read(self, size: int = -1, /) -> bytes:
        size = self.reader.size - self.at if size < 0 else size
        if size > DIRECTORY_LIMIT:
            raise LargeDirectoryError(f"more than {DIRECTORY_LIMIT} bytes")
        data = self.reader.read_at(self.at, size)
        self.seen = max(self.seen, data.count(b"PK\1\2"))
        if self.seen > self.most:
            raise LargeDirectoryError(f"more than {self.most} members")
        self.at += len(data)
        return data


def is_zip(head: bytes) -> bool:
    """Whether the first bytes are those of a zip archive, empty ones included."""
    return head.startswith((MAGIC, b"PK\5\6"))


def directory(reader: Reader, budget: Budget) -> tuple[list[zipfile.ZipInfo], int]:
    """The entries of a directory in order of their place, and where it begins.

    They are taken from the headers of `budget`. Raises ZipError, OSError.
    """
    file = _File(reader, budget.headers)
    try:
        with zipfile.ZipFile(file) as archive:
            found = sorted(archive.infolist(), key=lambda info: info.header_offset)
            return found, archive.start_dir
    except ZipError:
        raise
    except _ODD as error:
        if not zipfile.is_zipfile(file):
            raise NoDirectoryError("no directory at its end") from None
        why = str(error).split("\n")[0][:120]
        raise ZipError(why[:1].lower() + why[1:]) from None
    finally:
        budget.headers -= min(file.seen, file.most)


def data_at(reader: Reader, info: zipfile.ZipInfo) -> int | str:
    """Where a member's bytes begin, or what is wrong with its own header. Raises OSError."""
    head = reader.read_at(info.header_offset, _LOCAL.size)
    if len(head) < _LOCAL.size or not head.startswith(MAGIC):
        return "the directory gives a wrong position"
    *_, name_size, extra_size = _LOCAL.unpack(head)
    start = info.header_offset + _LOCAL.size
    if reader.read_at(start, name_size) != raw_name(info):
        return "its own header has a different name"
    return start + int(name_size) + int(extra_size)


def header_size(info: zipfile.ZipInfo) -> int:
    """Bytes of a member's own header without extra fields."""
    return _LOCAL.size + len(raw_name(info))


def raw_name(info: zipfile.ZipInfo) -> bytes:
    """The bytes of a name, which zipfile takes for CP437 where they are not marked as UTF-8."""
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")


def name_of(info: zipfile.ZipInfo) -> str:
    """The name. Without the mark most writers put UTF-8 or what their system has."""
    name = raw_name(info).replace(b"\\", b"/")
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name.decode("cp437")


def zip_members(store: Store, reader: Reader, budget: Budget) -> Iterator[ZipMember]:
    """The members by their place in the archive.

    Where the directory at the end is missing or damaged, as in a truncated archive, the members'
    own headers are followed from the start; the budget notes it. Raises OSError.
    """
    walked = False
    try:
        infos, end = directory(reader, budget)
    except ZipError as error:
        missing = isinstance(error, NoDirectoryError)
        what = "truncated zip archive" if missing else "damaged zip directory"
        budget.cut(f"{what}: {error}, read from its start")
        infos, end, walked = [*_walk(reader, budget.headers)], reader.size, True
        budget.headers -= len(infos)
    taken = 0
    for info in infos:
        mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
        special = next((why for is_special, why in _SPECIAL if is_special(mode)), "")
        start = special or _start(reader, info, taken, end, walked=walked)
        refused, name, size = start if isinstance(start, str) else "", name_of(info), info.file_size
        folder = name.endswith("/") and not size
        entry = Entry(name, size, _mtime(info), folder, refused, bool(special))
        if isinstance(start, str):
            yield ZipMember(entry)
        else:
            taken = start + info.compress_size
            yield ZipMember(entry, *_place(store, info, start, end))


def _place(store: Store, info: zipfile.ZipInfo, start: int, end: int) -> tuple[Store, Codec | None]:
    """The store of a member's bytes, and their compression."""
    there = min(info.compress_size, end - start)
    if not info.file_size and there == info.compress_size:
        return BytesStore(b""), None
    body, codec = SliceStore(store, start, there), _CODECS.get(info.compress_type)
    if codec != "gzip":
        return body, codec
    trailer = struct.pack("<2L", info.CRC, info.file_size & _FULL32)
    return GzipStore(body, trailer if there == info.compress_size else b""), codec


def _walk(reader: Reader, most: int) -> Iterator[zipfile.ZipInfo]:
    """The members' own headers from the start of the archive on, as far as they give sizes."""
    at = 0
    for _ in range(most):
        header = reader.read_at(at, _LOCAL.size)
        if len(header) < _LOCAL.size or not header.startswith(MAGIC):
            return
        (
            _, version, flags, method, time, date, crc, packed, size, name_size, extra_size,
        ) = _LOCAL.unpack(header)  # fmt: skip
        at += _LOCAL.size
        rest = reader.read_at(at, name_size + extra_size)
        info = zipfile.ZipInfo(rest[:name_size].decode("cp437"))
        info.extra = rest[name_size:]
        wide = _field(info.extra, 0x0001)
        if _FULL32 in (packed, size) and len(wide) >= 16:
            size, packed = struct.unpack_from("<2Q", wide)
        info.header_offset, info.extract_version = at - _LOCAL.size, version
        info.flag_bits, info.compress_type = flags & ~_UTF8, method
        info.CRC, info.compress_size, info.file_size = crc, packed, size
        info.date_time = (
            (date >> 9) + 1980, date >> 5 & 15, date & 31, time >> 11, time >> 5 & 63, time % 32 * 2
        )  # fmt: skip
        yield info
        if flags & _STREAMED:
            return
        at += name_size + extra_size + packed


def _start(
    reader: Reader, info: zipfile.ZipInfo, taken: int, end: int, *, walked: bool
) -> int | str:
    """Where a member's bytes begin, or why they are not read. Members never share bytes."""
    if info.flag_bits & (_ENCRYPTED | _MASKED):
        return "encrypted: not read"
    if info.compress_type != zipfile.ZIP_STORED and info.compress_type not in _CODECS:
        method = _OTHER_METHODS.get(info.compress_type, f"method {info.compress_type}")
        return f"{method} compression: not read"
    if walked and info.flag_bits & _STREAMED:
        return "size unknown without the missing directory: not read"
    if info.header_offset < taken:
        return "shares its bytes with another member: not read"
    start = data_at(reader, info)
    if isinstance(start, str):
        return f"{start}: not read"
    if start + info.compress_size > end and not walked:
        return "its bytes would extend beyond the archive: not read"
    if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
        return "stored, but with two different sizes: not read"
    if not info.file_size and info.CRC:
        return "listed as empty but is not: not read"
    return start


def _mtime(info: zipfile.ZipInfo) -> float | None:
    """Seconds since 1970, as if the writer's clock were UTC where no field has Unix time."""
    unix = _field(info.extra, 0x5455)
    if len(unix) >= 5 and unix[0] & 1:
        return float(struct.unpack_from("<i", unix, 1)[0])
    _, month, day, *_ = info.date_time
    known = 1 <= month <= 12 and 1 <= day <= 31
    return float(calendar.timegm(info.date_time)) if known else None


def _field(extra: bytes, kind: int) -> bytes:
    """What an extra field has; empty where it is missing."""
    at = 0
    while at + 4 <= len(extra):
        found, size = struct.unpack_from("<2H", extra, at)
        at += 4
        if found == kind:
            return extra[at : at + size]
        at += size
    return b""
