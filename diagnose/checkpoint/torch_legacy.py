"""Files of torch.save before 1.6, and of `_use_new_zipfile_serialization=False` ever since.

Five pickles stand one behind the other (magic number, protocol 1001, system, content, keys of the
storages), then for each storage its number of elements in 8 bytes and these (`_legacy_save` in
torch/serialization.py). Still older files are a tar of `sys_info`, `pickle`, `tensors` and
`storages`. Nothing but a walk over the pickles tells where such a file ends.
"""

from __future__ import annotations

from typing import Any

from diagnose.checkpoint.damaged import DamagedError, exactly
from diagnose.ingest.archive_tar import BLOCK, ReaderFeed, tar_entries
from diagnose.ingest.budget import Budget
from diagnose.ingest.raw import Reader
from diagnose.parse.pickles import (
    Global,
    NoPickleError,
    TooLongError,
    TruncatedPickleError,
    end_of,
    walk,
)
from diagnose.text.ranks import counted

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
