"""Sources that are no files: standard input and pasted text."""

from __future__ import annotations

import shutil
from typing import IO, BinaryIO

from diagnose.ingest.chunks import is_zeros
from diagnose.ingest.raw import BytesStore, SpoolStore, Store, reason
from diagnose.ingest.read import ZEROS_LIMIT, look
from diagnose.ingest.recognise import source_of
from diagnose.ingest.source import Source

STDIN_MEMORY = 32 << 20  # bytes of standard input kept in memory
STDIN_LIMIT = 8 << 30  # bytes of standard input kept at all
_BLOCK = 1 << 20


def stdin_source(stream: BinaryIO) -> Source:
    """Read a stream to its end, into memory or beyond STDIN_MEMORY into a temporary file.

    What an error or a bound cuts off is named in the note. The temporary file goes with the source.
    """
    import tempfile  # noqa: PLC0415  not for files

    spool = tempfile.SpooledTemporaryFile(max_size=STDIN_MEMORY)  # noqa: SIM115
    try:
        cut = _spool(stream, spool)
    except (OSError, ValueError) as error:
        cut = f"reading stopped: {reason(error)}"
    size = spool.tell()
    store: Store
    if size <= STDIN_MEMORY:
        spool.seek(0)
        store = BytesStore(spool.read())
        spool.close()
    else:
        spool.flush()
        store = SpoolStore(spool, size)
    return source_of(store, "<stdin>", size, cut=cut)


def _spool(stream: BinaryIO, spool: IO[bytes]) -> str:
    """Copy a stream into a file; says why not all of it.

    What is no log is left where that is seen, and long runs of NULs are not kept. A temporary file
    takes half of the room that there is at most.
    """
    import tempfile  # noqa: PLC0415

    size = zeros = 0
    most, spilled, packed = STDIN_LIMIT, False, False
    while block := stream.read(_BLOCK):
        if not packed and len(block) == _BLOCK and block[:1] == b"\0" and is_zeros(block):
            zeros += len(block)
            if not size and zeros >= ZEROS_LIMIT:
                return f"reading stopped: nothing but NUL bytes in the first {zeros} bytes"
            continue
        if not size:
            opened = look(BytesStore(block), "<stdin>")
            packed = opened.codec is not None
            if opened.kind == "binary":
                spool.write(block)
                return ""
        if not spilled and size + len(block) > STDIN_MEMORY:
            spilled = True
            most = min(most, size + shutil.disk_usage(tempfile.gettempdir()).free // 2)
        kept = block[: most - size]
        size += spool.write(kept)
        if len(kept) < len(block):
            return f"only the first {size} bytes were read: give the file itself"
    return ""


PASTED = ("<paste>", "<stdin>")  # names of text that may be any part of a log


def text_source(text: str, name: str = "<paste>") -> Source:
    """A source of text in memory, such as a paste; lone surrogates become question marks."""
    data = text.encode(errors="replace")
    return source_of(BytesStore(data), name, len(data))
