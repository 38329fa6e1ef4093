"""Members of tar and zip archives: what is said of each, and where its bytes lie.

Of tar, in order, in a file or a stream that can only be read forward, `tarfile.TarInfo` reads a
header; what stands between headers is followed here. The standard library's own reader takes
extended headers of any size at once, in some of the versions that are supported loops over crafted
ones, and on a stream of garbage looks for headers without end.

Of zip `zipfile` reads the directory. It takes one of any size and believes what it says; here its
size is bounded first, and every entry is judged on its own. Nothing is inflated.
"""

from __future__ import annotations

import calendar
import io
import re
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field

from diagnose.ingest.compress import Codec
from diagnose.ingest.names import printable, why_special
from diagnose.ingest.raw import BytesStore, GzipStore, Reader, SliceStore, Store
from diagnose.ingest.source import Budget

NAME_LIMIT = 4096  # characters of a member's name
SHOWN = 200  # characters of a name in a note


@dataclass(frozen=True, slots=True)
class Entry:
    """A member as its header tells it: `size` in bytes when unpacked, `mtime` in seconds.

    `refused` says why its type or header rules out reading it, `special` that it is a link, pipe or
    device, which holds no log; `folder` members hold nothing. Bytes of `name` that are not UTF-8
    are surrogates.
    """

    name: str
    size: int
    mtime: float | None = None
    folder: bool = False
    refused: str = ""
    special: bool = False


def short(name: str) -> str:
    """A name cut to SHOWN characters and made printable, for notes."""
    shown = printable(name[: SHOWN + 1])
    return shown if len(shown) <= SHOWN else shown[:SHOWN] + "…"


BLOCK = tarfile.BLOCKSIZE
_ASCII = bytes(range(128))
_EXTENSION_LIMIT = 1 << 20  # bytes of a pax header or of a long name
_SEARCH_LIMIT = 1 << 20  # bytes without a header, among which a further archive may begin

_EXTENDING = frozenset({b"g", b"x", b"X", b"L", b"K"})
_BODILESS = {
    tarfile.LNKTYPE: "hard link",
    tarfile.SYMTYPE: "symbolic link",
    tarfile.CHRTYPE: "device: not read",
    tarfile.BLKTYPE: "device: not read",
    tarfile.FIFOTYPE: "named pipe: not read",
}
_FOLDERS = (tarfile.DIRTYPE, b"D")
_OTHER = {
    tarfile.GNUTYPE_SPARSE: "sparse file: not read",
    b"M": "continued from another volume: not read",
    b"N": "old GNU name list: not read",
}
_RECORDS = 16  # of extended headers that count as one header
_PAX_RECORD = re.compile(rb"(\d{1,7}) ([^=\n]{1,256})=")


@dataclass(slots=True)
class ReaderFeed:
    """A tar archive that lies open as it is, read forward."""

    reader: Reader
    position: int = 0

    def take(self, length: int) -> bytes:
        """The next `length` bytes, fewer only at the end. Raises OSError."""
        data = self.reader.read_at(self.position, length)
        self.position += len(data)
        return data

    def skip_to(self, position: int) -> None:
        """Go forward to `position`, or to the end. Raises OSError."""
        self.position = min(position, self.reader.size)


@dataclass(slots=True)
class StreamFeed:
    """The same of one that comes in blocks of any size."""

    blocks: Iterator[bytes]
    position: int = 0
    _block: bytes = field(default=b"", repr=False)
    _at: int = 0

    def take(self, length: int) -> bytes:
        """See ReaderFeed."""
        end = self._at + length
        if end <= len(self._block):
            data = self._block[self._at : end]
            self._at = end
            self.position += length
            return data
        return b"".join(self.pieces(length))

    def peek(self, length: int) -> bytes:
        """The next bytes without taking them."""
        data = self.take(length)
        self.position -= len(data)
        self._at -= len(data)
        if self._at < 0:  # some of it was of the block before
            self._block, self._at = data + self._block[self._at + len(data) :], 0
        return data

    def pieces(self, length: int) -> Iterator[bytes]:
        """The next `length` bytes in pieces, fewer only at the end."""
        while length > 0:
            if self._at >= len(self._block):
                block = next(self.blocks, None)
                if block is None:
                    return
                self._block, self._at = block, 0
            piece = self._block[self._at : self._at + length]
            self._at += len(piece)
            self.position += len(piece)
            length -= len(piece)
            yield piece

    def skip_to(self, position: int) -> None:
        """See ReaderFeed."""
        for _ in self.pieces(position - self.position):
            pass


Feed = ReaderFeed | StreamFeed


@dataclass(slots=True)
class _Extension:
    """What headers before a member say of it."""

    name: bytes | None = None
    link: bytes | None = None
    size: int | None = None
    mtime: float | None = None
    refused: str = ""
    records: int = 0


def is_tar(head: bytes) -> bool:
    """Whether the first 512 bytes are a tar header with a right checksum."""
    return len(head) >= BLOCK and head[0] != 0 and _info(head[:BLOCK]) is not None


def tar_entries(feed: Feed, budget: Budget) -> Iterator[Entry]:
    """The members in order; when one is given the feed stands at the start of its bytes.

    A damaged header loses the members up to the next one that is not; the budget notes it, and
    bounds how many headers are read. Members behind the end mark (archives one after the other) are
    read too. Raises OSError.
    """
    extension = _Extension()
    for info, header in _headers(feed, budget):
        size, kind, start = info.size, info.type, feed.position
        if kind in _EXTENDING:
            data = feed.take(size) if size <= _EXTENSION_LIMIT else None
            if kind != b"g":
                _extend(extension, kind, data)
                budget.headers -= extension.records // _RECORDS
                extension.records %= _RECORDS
            feed.skip_to(_padded(start, size))
            continue
        if extension.size is not None and kind not in _BODILESS:
            size = extension.size
        if kind == tarfile.GNUTYPE_SPARSE:
            more = header[482]  # blocks of the map of an old GNU sparse file
            while more:
                block = feed.take(BLOCK)
                more = block[504] if len(block) == BLOCK else 0
            start = feed.position
        if kind != b"V":  # a volume's label
            yield _entry(info, size, extension)
        extension = _Extension()
        if kind not in _BODILESS and kind != tarfile.DIRTYPE:
            feed.skip_to(_padded(start, size))


def _headers(feed: Feed, budget: Budget) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """The headers, read and raw; whoever takes one goes on behind its bytes."""
    blank = passed = 0
    most, damaged = budget.headers, False
    while passed <= _SEARCH_LIMIT:
        at = feed.position
        block = feed.take(BLOCK)
        if len(block) < BLOCK:
            if block.strip(b"\0"):
                budget.cut("the archive ends inside a header")
            elif not blank:
                budget.cut("the archive's end mark is missing, members may be too")
            return
        if not block.strip(b"\0"):
            blank += 1
            passed += BLOCK
            continue
        budget.headers -= 1
        if budget.headers < 0:
            budget.cut(f"more than {most} headers: the archive was read up to there")
            return
        info = _info(block)
        if info is None:
            if not passed and not damaged:
                budget.cut(f"damaged header at byte {at}: members may be missing")
                damaged = True
            passed += BLOCK
            continue
        blank = passed = 0
        yield info, block


def _info(block: bytes) -> tarfile.TarInfo | None:
    """A header; None for what is none, or damaged."""
    if not _summed(block):  # of most that are none it takes a fifth of the time
        return None
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return None
    if block[257:263] != b"ustar\0":  # tarfile takes the times in a GNU header for a folder
        info.name = _decoded(block[:100].partition(b"\0")[0])
    # It takes signs, underscores and spaces for parts of a number, too.
    octal = not block[124:136].partition(b"\0")[0].strip().strip(b"01234567")
    return info if info.size >= 0 and (octal or block[124] & 0x80) else None


def _summed(block: bytes) -> bool:
    """Whether the checksum may be right: as tarfile has it, of unsigned bytes or of signed ones."""
    found = re.match(rb" *([0-7]+)", block[148:156])
    if found is None:
        return False
    summed = block[:148] + b" " * 8 + block[156:]
    total = sum(summed)
    return int(found[1], 8) in (total, total - 256 * len(summed.translate(None, _ASCII)))


def _entry(info: tarfile.TarInfo, size: int, extension: _Extension) -> Entry:
    """The member of a header."""
    kind, name, mtime = info.type, info.name, extension.mtime
    if extension.name is not None:
        name = _decoded(extension.name)
    if mtime is None and abs(info.mtime) < 1 << 40:
        mtime = float(info.mtime)
    refused = extension.refused
    if kind in (tarfile.LNKTYPE, tarfile.SYMTYPE):
        link = info.linkname if extension.link is None else _decoded(extension.link)
        refused = f"{_BODILESS[kind]} to {short(link)}: not followed"
    elif kind in _BODILESS:
        refused = _BODILESS[kind]
    elif kind in _OTHER:
        refused = _OTHER[kind]
    elif kind not in tarfile.REGULAR_TYPES and kind not in _FOLDERS:
        refused = f"member of unknown type {kind.decode('latin-1')!a}: not read"
    folder = kind in _FOLDERS or (kind in tarfile.REGULAR_TYPES and name.endswith("/"))
    folder = folder and not extension.refused
    return Entry(name, size, mtime, folder, refused, special=kind in _BODILESS)


def _extend(extension: _Extension, kind: bytes, data: bytes | None) -> None:
    """Take over what a pax header or a GNU long name says of the next member."""
    if data is None:
        extension.refused = f"extended header of more than {_EXTENSION_LIMIT} bytes: not read"
    elif kind == b"L":
        extension.name = data.partition(b"\0")[0]
    elif kind == b"K":
        extension.link = data.partition(b"\0")[0]
    else:
        _pax(extension, data)


def _pax(extension: _Extension, data: bytes) -> None:
    """The records `<length> <key>=<value><newline>` of a pax header."""
    at = 0
    while found := _PAX_RECORD.match(data, at):
        end = at + int(found[1])
        if end <= found.end() or data[end - 1 : end] != b"\n":
            break
        key, value = found[2], data[found.end() : end - 1]
        at = end
        extension.records += 1
        if key == b"path":
            extension.name = value
        elif key == b"linkpath":
            extension.link = value
        elif key == b"size":
            if not re.fullmatch(rb"\d{1,18}", value):
                extension.refused = "damaged size in its extended header: not read"
            else:
                extension.size = int(value)
        elif key == b"mtime":
            if re.fullmatch(rb"-?\d{1,12}(?:\.\d{1,12})?", value):
                extension.mtime = float(value)
        elif key.startswith(b"GNU.sparse."):
            extension.refused = _OTHER[tarfile.GNUTYPE_SPARSE]
    if data[at:].strip(b"\0"):
        extension.refused = extension.refused or "damaged extended header: not read"


def _decoded(name: bytes) -> str:
    return name[: NAME_LIMIT * 4 + 4].decode(errors="surrogateescape")


def _padded(start: int, size: int) -> int:
    return start + (size + BLOCK - 1) // BLOCK * BLOCK


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
        special = why_special(mode)
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
