"""The tree of files that checkpoints are looked for in: names, sizes and times, read once.

Contents are read by range only, where a check asks for them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from diagnose.ingest.place import File, Place, place_of
from diagnose.ingest.raw import Reader, reason

MAX_FILES = 500_000  # of one tree
MAX_DEPTH = 12  # folders inside each other
_STATE = re.compile(
    r"\.(?:pt|pth|ckpt|bin|safetensors|distcp|nemo|pkl)$|^\.metadata$|^trainer_state\.json$"
)
MAX_TEXT = 64 << 20  # bytes of a JSON or text file that are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf(File):
    """One file of a tree. Its `size` is -1 for a link to nothing."""

    place: Place = field(repr=False)

    @contextmanager
    def open(self) -> Iterator[Reader]:
        """Open it to read ranges. Raises OSError."""
        with self.place.ranges(self).open() as reader:
            yield reader

    def text(self, limit: int = MAX_TEXT) -> str:
        """The first `limit` bytes as UTF-8; what is none becomes U+FFFD. Raises OSError."""
        with self.open() as reader:
            return reader.read_at(0, limit).decode("utf-8", "replace")


@dataclass(slots=True)
class Folder:
    """One folder: its files and folders by name, sorted. `problem` says why it is not all there."""

    path: str
    files: dict[str, Leaf] = field(default_factory=dict)
    folders: dict[str, Folder] = field(default_factory=dict)
    problem: str = ""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rsplit("/", 1)[-1]

    def leaves(self) -> Iterator[tuple[str, Leaf]]:
        """All files in and below it with their paths relative to it, divided by `/`."""
        yield from self.files.items()
        for name, folder in self.folders.items():
            for path, leaf in folder.leaves():
                yield f"{name}/{path}", leaf

    def below(self) -> Iterator[Folder]:
        """Itself and all folders below it."""
        yield self
        for folder in self.folders.values():
            yield from folder.below()


def holds_states(folder: str, max_files: int = MAX_FILES) -> bool:
    """Whether a folder of this machine holds any file that only a checkpoint has, by its name.

    Costs next to nothing, where looking for checkpoints wants all their layouts.
    """
    left = max_files
    for _, folders, files in os.walk(folder):
        if any(_STATE.search(name) for name in files):
            return True
        left -= len(files) + len(folders)
        if left < 0:
            return False
    return False


def read_tree(path: str, max_files: int = MAX_FILES) -> Folder | Leaf:
    """The tree below a path or URL, or the file there. Raises OSError, InputError.

    Links to folders are not followed. A folder that cannot be listed, lies deeper than MAX_DEPTH or
    comes after `max_files` files is there without its content and says so in `problem`.
    """
    place, inner = place_of(path)
    file = place.look(inner)
    if file is not None:
        return _leaf(file, place)
    return _Walk(place, max_files).read(inner, 0)


def _leaf(file: File, place: Place) -> Leaf:
    return Leaf(file.path, file.size, file.mtime, file.tag, file.on_disk, place=place)


@dataclass(slots=True)
class _Walk:
    place: Place
    left: int

    def read(self, path: str, depth: int) -> Folder:
        folder = Folder(path)
        if depth > MAX_DEPTH or self.left <= 0:
            folder.problem = "too deep: not read" if depth > MAX_DEPTH else "too many files"
            return folder
        try:
            files, folders = self.place.listing(path, every=True)
        except OSError as error:
            if depth == 0:
                raise
            folder.problem = f"not read: {reason(error)}"
            return folder
        self.left -= len(files)
        folder.files = {file.name: _leaf(file, self.place) for file in files}
        for inside in folders:
            below = self.read(inside, depth + 1)
            folder.folders[below.name] = below
        return folder
