"""Where jobs lie: folders of this machine, or whatever fsspec reads (s3, gs, hdfs, http …)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from diagnose.ingest.local_place import LocalPlace
from diagnose.ingest.place import File, Place
from diagnose.ingest.raw import reason
from diagnose.ingest.remote_place import is_url, remote_place

__all__ = ["File", "LocalPlace", "Place", "is_url", "place_of", "walk"]


def place_of(path: str) -> tuple[Place, str]:
    """The place of a path or URL, and the path as that place writes it.

    Raises InputError for a URL whose reader is not installed.
    """
    if is_url(path):
        protocol = re.split(r"::|://", path, maxsplit=1)[0].lower()
        if protocol != "file":
            return remote_place(protocol, path), path.rstrip("/")
        path = path.partition("://")[2]
    return LocalPlace(), os.path.abspath(path)  # noqa: PTH100


def walk(
    place: Place, folder: str, depth: int, missed: list[tuple[str, str]] | None = None
) -> Iterator[File]:
    """All files below a folder, `depth` folders deep at most; passes by what cannot be listed.

    `missed` takes the folders that were passed by, and why.
    """
    try:
        files, folders = place.listing(folder)
    except OSError as error:
        if missed is not None:
            missed.append((folder, reason(error)))
        return
    yield from files
    for inside in folders:
        if depth > 0:
            yield from walk(place, inside, depth - 1, missed)
        elif missed is not None:
            missed.append((inside, "too many folders deep"))
