"""The shape of a case: a digest by which cases that differ in their numbers alone are found."""

from __future__ import annotations

import hashlib
import pickletools
import re

from benchmarks.hangbench.case import Files

_NUMBER = re.compile(rb"0x[0-9a-fA-F]+|\d+")
_PROTOCOL = b"\x80"  # the first byte of each pickle of protocol 2 and above


def shape_of(files: Files) -> str:
    """Digest of all names and contents with their numbers masked.

    Files are a bag: which rank holds which file is a number too. Lines and files still count, so
    that a job of other size, or one that came further, has another shape.
    """
    parts = sorted(_mask(name.encode()) + b"\0" + _digest(data) for name, data in files.items())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]


def _digest(content: bytes) -> bytes:
    """Digest of one file's content with its numbers masked."""
    masked = _masked_pickle(content) if content.startswith(_PROTOCOL) else None
    return hashlib.sha256(_mask(content) if masked is None else masked).digest()


def _mask(content: bytes) -> bytes:
    return _NUMBER.sub(b"#", content)


def _masked_pickle(content: bytes) -> bytes | None:
    """The operations of a pickle, without numbers; None if it is none. It is never loaded."""
    parts: list[str] = []
    try:
        for operation, argument, _ in pickletools.genops(content):
            # Places in the memo are numbers too, and how many bytes they take is another.
            if "GET" in operation.name or "PUT" in operation.name:
                continue
            if isinstance(argument, str):
                parts.append(argument)
            elif argument is None:
                parts.append(operation.name)
            else:
                parts.append("#" if isinstance(argument, int | float) else repr(argument))
    except Exception:  # genops raises whatever its readers do on a torn or foreign file
        return None
    return _mask("\n".join(parts).encode())
