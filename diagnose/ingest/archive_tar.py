"""Members of tar archives, in order, of a file or of a stream that can only be read forward.

`tarfile.TarInfo` reads a header; what stands between headers is followed here. The standard
library's own reader takes extended headers of any size at once, in some of the versions that are
supported loops over crafted ones, and on a stream of garbage looks for headers without end.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from dataclasses import field
from typing import Protocol

from diagnose.ingest.archive_names import NAME_LIMIT, Entry, short
from diagnose.ingest.budget import Budget
from diagnose.ingest.raw import Reader
from diagnose.lazy import dataclass

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


class Feed(Protocol):
    """Bytes of a tar archive, read forward."""

    position: int

    def take(self, length: int) -> bytes:
        """The next `length` bytes, fewer only at the end. Raises OSError."""

    def skip_to(self, position: int) -> None:
        """Go forward to `position`, or to the end. Raises OSError."""


@dataclass(slots=True)
class ReaderFeed:
    """A tar archive that lies open as it is; see Feed."""

    reader: Reader
    position: int = 0

    def take(self, length: int) -> bytes:
        """See Feed."""
        data = self.reader.read_at(self.position, length)
        self.position += len(data)
        return data

    def skip_to(self, position: int) -> None:
        """See Feed."""
        self.position = min(position, self.reader.size)


@dataclass(slots=True)
class StreamFeed:
    """A tar archive that comes in blocks of any size; see Feed."""

    blocks: Iterator[bytes]
    position: int = 0
    _block: bytes = field(default=b"", repr=False)
    _at: int = 0

    def take(self, length: int) -> bytes:
        """See Feed."""
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
        """See Feed."""
        for _ in self.pieces(position - self.position):
            pass


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
