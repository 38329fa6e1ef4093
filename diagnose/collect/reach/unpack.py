"""A node's stream to files: `nodes/HOST/…` and nothing else, only regular files, so much.

A stream comes from a machine that may be broken, or that someone has broken into: paths out of the
folder, links and devices are left out, and a stream with any damage is not complete.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from diagnose.collect import private
from diagnose.ingest.archive_formats import BLOCK, Entry, StreamFeed, is_tar, short, tar_entries
from diagnose.ingest.source import Budget
from diagnose.text.ranks import counted

TOP = "nodes"
MAX_FILES = 50_000  # members of one stream
_DEPTH = 12  # folders below that of a host
_BLOCK = 1 << 16
_GZIP = b"\x1f\x8b\x08"
_HOST = re.compile(r"[\w-][\w.-]{0,252}", re.ASCII)
_PART = re.compile(r"[^\x00-\x1f\x7f/\\]{1,200}")
_NAMED = 3  # members left out that get a line each


@dataclass(slots=True)
class Unpacked:
    """What came out of one stream. `hosts` are the folders below `nodes/`."""

    hosts: list[str] = field(default_factory=list)
    files: int = 0
    size: int = 0
    problems: list[str] = field(default_factory=list)
    complete: bool = False


def unpack(stream: IO[bytes], folder: Path, size: int) -> Unpacked:
    """Write the files of a tar stream, plain or with gzip, below an empty folder.

    At most `size` bytes of files. Raises OSError where they cannot be written.
    """
    found = Unpacked()
    budget = Budget(headers=MAX_FILES)
    left_out: list[str] = []
    feed = StreamFeed(_blocks(stream, budget))
    for entry in tar_entries(feed, budget):
        if entry.folder:
            continue
        path, why = _place(entry)
        if why:
            left_out.append(f"{short(entry.name)}: {why}")
            continue
        if found.size + entry.size > size:
            budget.cut(f"more than {size} bytes of files")
            break
        try:
            written = _write(folder / path, feed, entry.size)
        except FileExistsError:
            left_out.append(f"{short(entry.name)}: there twice")
            continue
        found.files += 1
        found.size += written
        host = path.split("/")[1]
        if host not in found.hosts:
            found.hosts.append(host)
        if written < entry.size:
            budget.cut(f"it ends inside of {short(entry.name)}")
            break
    found.problems += left_out[:_NAMED]
    if len(left_out) > _NAMED:
        found.problems.append(f"{counted(len(left_out) - _NAMED, 'more member')} left out")
    found.complete = not budget.notes
    if budget.notes and found.files:
        found.problems.append(f"its answer is incomplete: {budget.notes[0]}")
    return found


def _place(entry: Entry) -> tuple[str, str]:
    """Where a member goes, or why nowhere."""
    if entry.refused:
        return "", entry.refused
    parts = entry.name.split("/")
    if parts[0] != TOP or not 3 <= len(parts) <= _DEPTH + 2:
        return "", "not below nodes/HOST: left out"
    if not _HOST.fullmatch(parts[1]):
        return "", "not the name of a host: left out"
    if parts[2] == "node.json" and len(parts) > 3:
        return "", "not a folder: left out"
    for part in parts[2:]:
        if part in (".", "..") or not _PART.fullmatch(part):
            return "", "not a name for a file here: left out"
        if len(part.encode("utf-8", "surrogateescape")) > 255 or not part.isprintable():
            return "", "not a name for a file here: left out"
    return "/".join(parts), ""


def _write(path: Path, feed: StreamFeed, size: int) -> int:
    """The next bytes of a stream as a new file; how many there were. Raises OSError."""
    try:
        private.folder(path.parent)
        fd = private.opened(path, os.O_EXCL)
    except NotADirectoryError as error:
        raise FileExistsError from error
    with os.fdopen(fd, "wb") as out:
        written = 0
        for piece in feed.pieces(size):
            out.write(piece)
            written += len(piece)
        return written


def _blocks(stream: IO[bytes], budget: Budget) -> Iterator[bytes]:
    """The bytes of a stream, unpacked if they are packed; damage is the end, and is told."""
    head = stream.read(_BLOCK)
    if not head.startswith(_GZIP) and not is_tar(head[:BLOCK]):
        # The files that a shell reads at its start may greet whoever comes.
        head = head[max(0, head.find(_GZIP)) :]
    if not head.startswith(_GZIP):
        while head:
            yield head
            head = stream.read(_BLOCK)
        return
    unpacker = zlib.decompressobj(31)
    while head and not unpacker.eof:
        try:
            block = unpacker.decompress(head, _BLOCK)
        except zlib.error:
            budget.cut("damaged on the way")
            return
        head = unpacker.unconsumed_tail or stream.read(_BLOCK)
        if block:
            yield block
