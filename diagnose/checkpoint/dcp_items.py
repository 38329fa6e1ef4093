"""Whether the items in DCP's data files begin and end where `.metadata` has them.

An item is a whole file of torch.save: a zip with its own end (torch/distributed/checkpoint/
filesystem.py, `_write_item`). So a data file of another save with other sizes, or one whose blocks
never reached the disk, shows at the edges of its items.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import numpy.typing as npt

from diagnose.checkpoint.damaged import DamagedError
from diagnose.checkpoint.look import REQUESTS
from diagnose.checkpoint.model import Flaw
from diagnose.checkpoint.torch_bytes import HOLE, holes, wrong_checksum
from diagnose.checkpoint.torch_zip import MAGIC, read_archive
from diagnose.checkpoint.tree import Leaf
from diagnose.ingest.place import LocalPlace
from diagnose.ingest.raw import Reader, reason
from diagnose.lazy import dataclass

READS = 4096  # of edges of items, in one checkpoint
SAMPLE = 8  # items looked at in one data file

_END = b"PK\5\6"
_END_SIZE = 22
_UNWRITTEN = "contains zeros where {what}: it was never written to disk"
_OTHER = "{what} is not where the metadata places it: they come from different saves"

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file, its items as rows (offset, length), and whether they were transformed."""

    path: str
    leaf: Leaf
    rows: Rows
    transformed: bool


@dataclass(frozen=True, slots=True)
class _Edges:
    """The first bytes of an item and the last; `tail` is empty where it is not looked at."""

    path: str
    offset: int
    head: bytes
    tail: bytes


@dataclass(frozen=True, slots=True)
class _Part:
    """A range of a file, read like a file."""

    reader: Reader
    begin: int
    size: int

    def read_at(self, offset: int, length: int) -> bytes:
        """See Reader."""
        length = min(length, self.size - offset)
        return self.reader.read_at(self.begin + offset, length) if length > 0 else b""


def check_items(files: list[DataFile], *, verify: bool) -> Iterator[Flaw]:
    """What is wrong with data files that are as long as their items need, one flaw for each.

    A sample of the items is looked at; `verify`: all, and all their bytes are read.
    """
    each = max(1, min(SAMPLE, READS // (2 * len(files) + 1)))
    ask = partial(_look_at, each=each, verify=verify)
    if all(isinstance(file.leaf.place, LocalPlace) for file in files):
        looks = list(map(ask, files))
    else:
        with ThreadPoolExecutor(REQUESTS) as pool:
            looks = list(pool.map(ask, files))
    edges = [edge for several, _ in looks for edge in several]
    # Other formats than that of torch.save are possible: what most items are, all have to be.
    zips = sum(edge.head == MAGIC for edge in edges) * 2 >= len(edges)
    reported: set[str] = set()
    for edge in edges:
        if edge.path not in reported and (flaw := _wrong(edge, zips)):
            reported.add(edge.path)
            yield flaw
    yield from (flaw for _, flaw in looks if flaw and flaw.file not in reported)


def _look_at(file: DataFile, each: int, verify: bool) -> tuple[list[_Edges], Flaw | None]:
    """The edges of some items of a file, and what is wrong inside them."""
    rows = file.rows if verify else _sample(file.rows, each)
    try:
        with file.leaf.open() as reader:
            edges = list(_edges(reader, file, rows))
            sparse = file.leaf.on_disk is not None and file.leaf.on_disk < reader.size - HOLE
            inside = verify or sparse
            return edges, _inside(reader, file, rows, verify=verify) if inside else None
    except OSError as error:
        return [], Flaw("unknown", f"not read: {reason(error)}", file.path)


def _sample(rows: Rows, count: int) -> Rows:
    """The first item, the last, and others spread between them; of one only the last."""
    if count == 1:
        return rows[-1:]
    picked: Rows = rows[np.unique(np.linspace(0, len(rows) - 1, count).astype(np.int64))]
    return picked


def _edges(reader: Reader, file: DataFile, rows: Rows) -> Iterator[_Edges]:
    for offset, length in _pairs(rows):
        if length > 2 * _END_SIZE:
            head, tail = reader.read_at(offset, len(MAGIC)), b""
            if not file.transformed:
                tail = reader.read_at(offset + length - _END_SIZE, _END_SIZE)
            yield _Edges(file.path, offset, head, tail)


def _pairs(rows: Rows) -> Iterable[tuple[int, int]]:
    return ((int(offset), int(length)) for offset, length in rows)


def _wrong(edge: _Edges, zips: bool) -> Flaw | None:
    begin = f"the item at byte {edge.offset:,}"
    if not any(edge.head):
        return Flaw("partial", _UNWRITTEN.format(what=f"{begin} begins"), edge.path)
    if not zips or not edge.tail:
        return None
    if edge.head != MAGIC:
        return Flaw("corrupt", _OTHER.format(what=begin), edge.path)
    if edge.tail.startswith(_END):
        return None
    if not any(edge.tail):
        return Flaw("partial", _UNWRITTEN.format(what=f"{begin} ends"), edge.path)
    return Flaw("corrupt", _OTHER.format(what=f"the end of {begin}"), edge.path)


def _inside(reader: Reader, file: DataFile, rows: Rows, *, verify: bool) -> Flaw | None:
    """The first item with a hole, or (`verify`) with bytes that do not match their checksum."""
    for offset, length in _pairs(rows):
        part = _Part(reader, offset, length)
        if file.transformed or part.read_at(0, len(MAGIC)) != MAGIC:
            continue
        try:
            archive = read_archive(part)
            flaw = wrong_checksum(part, archive) if verify else holes(part, archive, 0)
        except DamagedError as error:
            flaw = error.flaw
        if flaw:
            return Flaw(flaw.state, f"the item at byte {offset:,}: {flaw.why}", file.path)
    return None
