"""What a tree of files offers, wherever it lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from diagnose.ingest.raw import Store

MAX_ENTRIES = 200_000  # of one folder


@dataclass(frozen=True, slots=True)
class File:
    """A file where it lies: its path or URL, bytes, seconds since 1970 (0: unknown).

    `tag` changes when the content does, as far as the place tells without reading it (an ETag).
    `on_disk` are the bytes its blocks take, None where the place does not tell: fewer than `size`
    for a file with holes, and where a file system compresses or has not written yet.
    """

    path: str
    size: int
    mtime: float
    tag: str = ""
    on_disk: int | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]


class Place(Protocol):
    """A tree of files. All methods raise OSError; paths are whole ones, divided by `/`."""

    def look(self, path: str) -> File | None:
        """The file at `path`, or None for a folder."""

    def listing(self, folder: str, *, every: bool = False) -> tuple[list[File], list[str]]:
        """Files and folders right inside a folder, sorted; no hidden ones and no links.

        `every`: hidden ones too, and the files that links lead to; a link to nothing has size -1.
        """

    def matches(self, pattern: str) -> list[str]:
        """Paths that match a glob; `**` crosses folders."""

    def tag(self, file: File) -> str:
        """What changes with a file's content, read from its ends where nothing else tells."""

    def store(self, file: File) -> Store:
        """Its bytes, to be read any number of times as a whole."""

    def ranges(self, file: File) -> Store:
        """Its bytes, of which only single ranges are read: nothing else is fetched."""
