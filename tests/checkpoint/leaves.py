"""Files in memory, to look at many of them quickly."""

from __future__ import annotations

from diagnose.checkpoint.look import Look, Looker
from diagnose.checkpoint.tree import Leaf
from diagnose.ingest.place import File, LocalPlace
from diagnose.ingest.raw import BytesStore, Store


class Memory(LocalPlace):
    """A place of one file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def ranges(self, file: File) -> Store:
        return BytesStore(self.data)


def leaf(name: str, data: bytes, *, on_disk: int | None = None) -> Leaf:
    """A file of this name and content."""
    return Leaf(f"/out/{name}", len(data), 1.0, on_disk=on_disk, place=Memory(data))


def look(name: str, data: bytes, *, verify: bool = False) -> Look:
    """What a look at such a file tells."""
    return Looker(verify)(leaf(name, data))
