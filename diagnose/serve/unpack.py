"""The files of a checkpoint out of an archive, put into a folder while they are judged.

Logs are read where they lie in an archive; a checkpoint's files are read at their ends, which a
packed archive gives only as a whole. Names become paths below the folder as those of uploads do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from diagnose.errors import InputError
from diagnose.ingest.archive import archive_form
from diagnose.ingest.archive_formats import Entry, ReaderFeed, StreamFeed, tar_entries, zip_members
from diagnose.ingest.compress import codec_of, decompress
from diagnose.ingest.raw import FileStore, Reader, Store, reason
from diagnose.ingest.sniff import is_log_name
from diagnose.ingest.source import Budget
from diagnose.serve.spool import Upload

_BLOCK = 1 << 20
_LOG = 1 << 20  # bytes from which on a file that is called a log is left out

_Member = tuple[Entry, Iterable[bytes]]


def unpack(archive: Path, folder: Path, limit: int) -> None:
    """Put the files of an archive into a folder, but for large logs: `limit` bytes at most.

    What is no archive gives nothing. Raises InputError where not all of it can be had: a checkpoint
    of which files are missing here looks incomplete.
    """
    store = FileStore(archive)
    budget = Budget()
    upload = Upload(folder, limit)
    try:
        form = archive_form(store, archive.name)
        if form is None:
            return
        with store.open() as reader:
            members = _tar(reader, budget) if form == "tar" else _zip(store, reader, budget)
            for entry, blocks in members:
                if not entry.folder and not entry.refused and not _is_log(entry):
                    _write(upload, entry, blocks, budget)
    except OSError as error:
        raise InputError(reason(error)) from error
    if budget.notes:
        raise InputError(budget.notes[0])


def _is_log(entry: Entry) -> bool:
    return entry.size > _LOG and is_log_name(entry.name.rpartition("/")[2])


def _write(upload: Upload, entry: Entry, blocks: Iterable[bytes], budget: Budget) -> None:
    before = upload.size
    upload.begin(entry.name)
    try:
        for block in blocks:
            upload.write(block)
    finally:
        upload.end()
    if upload.size - before != entry.size:
        budget.cut(f"{upload.size - before:,} of {entry.size:,} bytes of a member are there")
    time = entry.mtime or 0.0
    os.utime(upload.folder / upload.names[-1], (time, time))


def _tar(reader: Reader, budget: Budget) -> Iterator[_Member]:
    codec = codec_of(reader.read_at(0, _BLOCK))
    if codec is None:
        whole = ReaderFeed(reader)
        for entry in tar_entries(whole, budget):
            yield entry, _read(reader, whole.position, entry.size)
        return
    feed = StreamFeed(decompress(reader, codec, budget))
    for entry in tar_entries(feed, budget):
        yield entry, feed.pieces(entry.size)


def _zip(store: Store, reader: Reader, budget: Budget) -> Iterator[_Member]:
    for member in zip_members(store, reader, budget):
        if member.store is not None:
            with member.store.open() as inside:
                if member.codec is None:
                    yield member.entry, _read(inside, 0, inside.size)
                else:
                    most = replace(budget, total=min(budget.total, member.entry.size))
                    yield member.entry, decompress(inside, member.codec, most)


def _read(reader: Reader, start: int, size: int) -> Iterator[bytes]:
    for at in range(0, size, _BLOCK):
        block = reader.read_at(start + at, min(_BLOCK, size - at))
        if not block:  # cut off, or a size that only the header knows
            return
        yield block
