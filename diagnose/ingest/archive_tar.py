"""Tar headers, one after the other, of a file or of a stream that can only be read forward.

Forms: POSIX.1-1988 ustar, POSIX.1-2001 pax, GNU (long names, base-256 numbers, sparse), and the
tar of Unix V7. The standard library's reader does the same at several times the cost per member,
seeks, and gives up on the whole archive at one odd header.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from diagnose.ingest.archive_feeds import Feed
from diagnose.ingest.archive_names import NAME_LIMIT, Entry, short

BLOCK = 512
_EXTENSION_LIMIT = 1 << 20  # bytes of a pax header or of a long name
_PADDING_LIMIT = 1 << 20  # zeros behind the end, among which a further archive may begin

_REGULAR = b"0\x007"
_EXTENDING = frozenset({b"g", b"x", b"X", b"L", b"K"})
_BODILESS = {
    b"1": "hard link",
    b"2": "symbolic link",
    b"3": "device: not read",
    b"4": "device: not read",
    b"6": "named pipe: not read",
}
_OTHER = {
    b"S": "sparse file: not read",
    b"M": "continued from another volume: not read",
    b"N": "old GNU name list: not read",
}
_PAX_RECORD = re.compile(rb"(\d{1,7}) ([^=\n]{1,256})=")


@dataclass(slots=True)
class _Extension:
    """What headers before a member say of it."""

    name: bytes | None = None
    link: bytes | None = None
    size: int | None = None
    mtime: float | None = None
    refused: str = ""


def is_tar(head: bytes) -> bool:
    """Whether the first 512 bytes are a tar header with a right checksum."""
    return len(head) >= BLOCK and head[0] != 0 and _checks(head[:BLOCK])


def tar_entries(feed: Feed, cut: Callable[[str], None], limit: int) -> Iterator[Entry]:
    """The members in order; when one is given the feed stands at the start of its bytes.

    Damage ends the archive; `cut` is told. At most `limit` headers are read. Members behind the end
    mark (archives one after the other) are read too. Raises OSError.
    """
    extension = _Extension()
    for header, length in _headers(feed, cut, limit):
        size, kind, start = length, header[156:157], feed.position
        if kind in _EXTENDING:
            data = feed.take(size) if size <= _EXTENSION_LIMIT else None
            if kind != b"g":
                _extend(extension, kind, data)
            feed.skip_to(_padded(start, size))
            continue
        if extension.size is not None and kind not in _BODILESS:
            size = extension.size
        if kind == b"S":
            _skip_sparse_map(feed, header)
            start = feed.position
        entry = _entry(header, size, extension)
        extension = _Extension()
        if entry is not None:
            yield entry
        if kind not in _BODILESS and kind != b"5":
            feed.skip_to(_padded(start, size))


def _headers(feed: Feed, cut: Callable[[str], None], limit: int) -> Iterator[tuple[bytes, int]]:
    """The headers with the size that each gives; whoever takes one goes on behind its bytes."""
    zeros = headers = 0
    while True:
        at = feed.position
        header = feed.take(BLOCK)
        if len(header) < BLOCK:
            if header.strip(b"\0"):
                cut("the archive ends inside a header")
            elif not zeros:
                cut("the archive's end mark is missing, members may be too")
            return
        if not header.strip(b"\0"):
            zeros += BLOCK
            if zeros > _PADDING_LIMIT:
                return
            continue
        size = _number(header[124:136])
        if not _checks(header) or size is None or size < 0:
            if not zeros:
                cut(f"damaged header at byte {at}: the archive was read up to there")
            return
        headers += 1
        if headers > limit:
            cut(f"more than {limit} headers: the archive was read up to there")
            return
        zeros = 0
        yield header, size


def _entry(header: bytes, size: int, extension: _Extension) -> Entry | None:
    """The member of a header; None for what is none (a volume's label)."""
    kind = header[156:157]
    if kind == b"V":
        return None
    name = _until_nul(header[:100])
    if header[257:263] == b"ustar\0" and header[345]:
        name = _until_nul(header[345:500]) + b"/" + name
    if extension.name is not None:
        name = extension.name
    decoded = name[: NAME_LIMIT * 4 + 4].decode(errors="surrogateescape")
    mtime = extension.mtime
    if mtime is None:
        stamp = _number(header[136:148])
        mtime = float(stamp) if stamp is not None and abs(stamp) < 1 << 40 else None
    refused = extension.refused
    if kind in (b"1", b"2"):
        link = _until_nul(header[157:257]) if extension.link is None else extension.link
        target = short(link[:NAME_LIMIT].decode(errors="surrogateescape"))
        refused = f"{_BODILESS[kind]} to {target}: not followed"
    elif kind in _BODILESS:
        refused = _BODILESS[kind]
    elif kind in _OTHER:
        refused = _OTHER[kind]
    elif kind not in _REGULAR and kind not in (b"5", b"D"):
        refused = f"member of unknown type {kind.decode('latin-1')!a}: not read"
    folder = kind in (b"5", b"D") or (kind in _REGULAR and decoded.endswith("/"))
    special = kind in _BODILESS
    return Entry(decoded, size, mtime, folder and not extension.refused, refused, special)


def _extend(extension: _Extension, kind: bytes, data: bytes | None) -> None:
    """Take over what a pax header or a GNU long name says of the next member."""
    if data is None:
        extension.refused = f"extended header of more than {_EXTENSION_LIMIT} bytes: not read"
    elif kind == b"L":
        extension.name = _until_nul(data)
    elif kind == b"K":
        extension.link = _until_nul(data)
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
            extension.refused = _OTHER[b"S"]
    if data[at:].strip(b"\0"):
        extension.refused = extension.refused or "damaged extended header: not read"


def _skip_sparse_map(feed: Feed, header: bytes) -> None:
    """The blocks of an old GNU sparse file's map, which lie before its data."""
    more = header[482]
    while more:
        block = feed.take(BLOCK)
        more = block[504] if len(block) == BLOCK else 0


def _checks(header: bytes) -> bool:
    stored = _number(header[148:156])
    if stored is None:
        return False
    total = sum(header) - sum(header[148:156]) + 8 * 32
    # Some old tars summed signed bytes.
    return stored == total or stored == total - 256 * sum(
        byte > 127 for byte in header[:148] + header[156:]
    )


def _number(data: bytes) -> int | None:
    """An octal or a GNU base-256 number; None if it is neither."""
    if data[0] in (0x80, 0xFF):
        return int.from_bytes(data[1:], "big") - (256 ** (len(data) - 1) if data[0] == 0xFF else 0)
    digits = _until_nul(data).strip()
    if not digits:
        return 0
    # int() would take a sign, underscores and other spaces.
    return int(digits, 8) if not digits.strip(b"01234567") else None


def _padded(start: int, size: int) -> int:
    return start + (size + BLOCK - 1) // BLOCK * BLOCK


def _until_nul(data: bytes) -> bytes:
    return data.partition(b"\0")[0]
