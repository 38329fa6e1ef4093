"""The log files below the given paths, by name and path, as a job that runs makes them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diagnose.ingest.file_names import ARCHIVE_NAME, MAX_DEPTH, PACKED, is_no_log, printable
from diagnose.ingest.place import MAX_ENTRIES


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file: its name below what all given paths share, its path, its `stat`."""

    name: str
    path: str
    status: os.stat_result


def logs(paths: Sequence[str]) -> Iterator[Found]:
    """Files given, and those inside of folders given that may be logs; each file once.

    Hidden ones, packed ones, files that are no logs by their names and what symbolic links lead to
    are left out inside of folders. What cannot be read, or is not there yet, is passed over.
    """
    seen: set[tuple[int, int]] = set()
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in paths]  # noqa: PTH112, PTH120
    base = os.path.commonpath([os.path.abspath(folder) for folder in folders]) if paths else "."  # noqa: PTH100
    for path in paths:
        found = _below(path, 0) if os.path.isdir(path) else _one(path)  # noqa: PTH112
        for place, status in found:
            key = status.st_dev, status.st_ino
            if key not in seen:
                seen.add(key)
                yield Found(printable(os.path.relpath(place, base)), place, status)


def _one(path: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return
    if stat.S_ISREG(status.st_mode):
        yield path, status


def _below(folder: str, depth: int) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(folder) as entries:
            inside = sorted(
                (entry for entry, _ in zip(entries, range(MAX_ENTRIES), strict=False)),
                key=lambda entry: entry.name,
            )
    except OSError:
        return
    for entry in inside:
        if entry.name.startswith("."):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH:
                    yield from _below(entry.path, depth + 1)
            elif entry.is_file(follow_symlinks=False) and may_be_log(entry.name):
                yield entry.path, entry.stat(follow_symlinks=False)
        except OSError:
            continue


def may_be_log(name: str) -> bool:
    """Whether a file inside of a folder may be a log that grows, by its name."""
    packed = name.lower().endswith(PACKED) or ARCHIVE_NAME.search(name)
    return not packed and not is_no_log(name)
