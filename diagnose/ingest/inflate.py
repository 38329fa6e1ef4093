"""Small gzip files decoded at once with ISA-L, where it is installed: thrice as fast as zlib.

Only what is whole, of which both give the same bytes. How damaged data ends each tells differently.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from diagnose.ingest.raw import Reader

if TYPE_CHECKING:
    from types import ModuleType

_PACKED = 512 << 10  # bytes
_RATIO = 32  # what shrinks more is decoded in steps, which its reader may end
MOST = _PACKED * _RATIO  # bytes of text
# The header of a file, and of one with its name (RFC 1952); of others zlib looks at more.
_HEADERS = (b"\x1f\x8b\x08\0", b"\x1f\x8b\x08\x08")


def inflated(reader: Reader) -> bytes | None:
    """What one small gzip member holds that is whole and all there is; None of anything else."""
    library = _library()
    if library is None or reader.size > _PACKED:
        return None
    try:
        data = reader.read_at(0, _PACKED)
    except OSError:
        return None  # what comes before can be read
    if not data.startswith(_HEADERS):
        return None
    decoder: Any = library.decompressobj(wbits=31)
    try:
        text: bytes = decoder.decompress(data, len(data) * _RATIO)
    except library.error:
        return None
    return text if decoder.eof and not decoder.unused_data else None


@cache
def _library() -> ModuleType | None:
    try:
        from isal import isal_zlib  # noqa: PLC0415  for gzip only, and not on every system
    except ImportError:
        return None
    return isal_zlib
