"""Checkpoints among what was uploaded, judged as `diagnose triage` judges those of a folder.

An upload lies in a folder of a name that means nothing to anybody, so what is told of a checkpoint
names it by the path under which it was sent.

Logs are read where they lie in an archive; a checkpoint's files are read at their ends, which a
packed archive gives only as a whole: they are put into a folder while they are judged. Names become
paths below the folder as those of uploads do.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from diagnose.checkpoint.model import Checkpoint, Inspection, resume
from diagnose.errors import InputError
from diagnose.ingest.archive import archive_form
from diagnose.ingest.archive_formats import Entry, ReaderFeed, StreamFeed, tar_entries, zip_members
from diagnose.ingest.compress import codec_of, decompress
from diagnose.ingest.names import printable
from diagnose.ingest.raw import FileStore, Reader, Store, reason
from diagnose.ingest.sniff import is_log_name
from diagnose.ingest.source import Budget, Source
from diagnose.job.load import saved
from diagnose.serve.spool import Upload

_ROOT = "."  # the path of a checkpoint whose files were sent without a folder


_BLOCK = 1 << 20
_LOG = 1 << 20  # bytes from which on a file that is called a log is left out

_Member = tuple[Entry, Iterable[bytes]]


def uploaded(
    folder: Path, sources: Sequence[Source], limit: int
) -> tuple[Inspection | None, list[str]]:
    """The checkpoints in `folder` and in the archives there, and notes on what could not be read.

    `sources` are what was found there; `limit` bytes of each archive may be unpacked for it.
    """
    # Most archives hold logs alone: of these nothing was left out.
    partly = {source.name for source in sources if source.left_out}
    archives = [
        path
        for path in sorted(folder.iterdir())
        if path.is_file() and printable(path.name) in partly
    ]
    # When a browser sent a file says nothing of when it was written.
    for base, _, names in os.walk(folder):
        for name in names:
            os.utime(Path(base, name), (0, 0))
    notes: list[str] = []
    found = _in(folder, notes)
    for path in archives:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            try:
                unpack(path, Path(place), limit)
            except InputError as error:
                note = f"checkpoints in it were not looked for: {error}"
                notes.append(f"{printable(path.name)}: {note}")
            else:
                found += _in(Path(place), notes)
    return (Inspection(found, resume(found)) if found else None), notes


def _in(folder: Path, notes: list[str]) -> list[Checkpoint]:
    """The checkpoints of a folder, by their paths in it."""
    inspection = saved([folder])
    if inspection is None:
        return []
    notes += [_short(note, folder) for note in inspection.notes]
    return [
        replace(
            one,
            path=os.path.relpath(one.path, folder),
            reasons=[_short(reason, folder) for reason in one.reasons],
            notes=[_short(note, folder) for note in one.notes],
        )
        for one in inspection.checkpoints
    ]


def _short(text: str, folder: Path) -> str:
    return text.replace(f"{folder}/", "").replace(str(folder), _ROOT)


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
                log = entry.size > _LOG and is_log_name(entry.name.rpartition("/")[2])
                if not entry.folder and not entry.refused and not log:
                    _write(upload, entry, blocks, budget)
    except OSError as error:
        raise InputError(reason(error)) from error
    if budget.notes:
        raise InputError(budget.notes[0])


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
