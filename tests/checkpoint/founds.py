"""Checkpoints of made-up files, for what is told from names, sizes and times alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from diagnose.checkpoint.layouts.rows import layouts, read
from diagnose.checkpoint.look import Look, Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder, Leaf
from diagnose.ingest.place import LocalPlace


def found(name: str, files: dict[str, tuple[int, float]], step: int | None = None) -> Found:
    """A checkpoint of files with size and time of change."""
    parts = {
        path: Leaf(f"/out/{name}/{path}", size, mtime, place=LocalPlace())
        for path, (size, mtime) in files.items()
    }
    return Found(f"/out/{name}", "made up", parts, step=step)


def remove(path: Path) -> None:
    """Take away a file, or a folder with all in it."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


class Told(Looker):
    """Gives the digests it was told, by path."""

    def __init__(self, digests: dict[str, str] | None = None) -> None:
        super().__init__()
        self.digests = digests or {}

    def __call__(self, leaf: Leaf) -> Look:
        return Look("torch", digest=self.digests.get(leaf.path, leaf.path))


class Family:
    """The layouts of one family, as `find` asks them for folders that are known to be theirs."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)

    def read(self, folder: Folder, look: Looker) -> Found | None:
        return read(self.names, folder, look)

    def compare(self, run: Folder, found: list[Found]) -> None:
        for name in self.names:
            labels = {one.name for one in layouts(name)}
            several = [one for one in found if len(self.names) == 1 or one.layout in labels]
            layouts(name)[0].compare(run, several)
