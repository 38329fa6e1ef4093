"""The `.metadata` of torch.distributed.checkpoint, and whether the data has what it says.

The file is a pickle of records (torch/distributed/checkpoint/metadata.py, filesystem.py): which
tensors there are, cut into which chunks, and for every chunk the data file, the offset and the
length it was written to. torch itself loads it with pickle.load, which runs whatever it says; here
nothing is unpickled, and of hundreds of thousands of chunks only these numbers are kept.

An item is a whole file of torch.save: a zip with its own end (torch/distributed/checkpoint/
filesystem.py, `_write_item`). So a data file of another save with other sizes, or one whose blocks
never reached the disk, shows at the edges of its items.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from diagnose.checkpoint.contents import DamagedError
from diagnose.checkpoint.look import REQUESTS
from diagnose.checkpoint.model import Flaw
from diagnose.checkpoint.torch_files import HOLE, MAGIC, holes, read_archive, wrong_checksum
from diagnose.checkpoint.tree import Leaf
from diagnose.ingest.place import LocalPlace
from diagnose.ingest.raw import Reader, SliceReader, reason
from diagnose.parse.pickles import CODES, OPAQUE, Bounds, Global, Names, UnsafePickleError, walk

MAX_BYTES = 64 << 20
MAX_NAMES = 100_000  # data files
MAX_IMPORTS = 1_000_000  # of classes; a pickle writes each once
MAX_FOREIGN = 8  # names of globals shown
_MAX_TEXT = 4096  # bytes of a string that is kept
MAX_SCAN = 1 << 30  # bytes that are looked through for the names of data files
_NAME = re.compile(rb"(?:\x8c.|X...\0)([^\0-\x1f\x7f]{1,240}?\.distcp)(?=[\x94qr\x95])", re.DOTALL)
_PIECE = 1 << 20
_BOUNDS = Bounds(32_000_000, 1_000_000, _MAX_TEXT, frozenset((str, Global)), items=False)
_OLD = ("INT", "LONG", "FLOAT", "STRING", "UNICODE", "GET", "PUT", "PERSID", "INST", "OBJ")
_UNUSED = (*_OLD, "BINPERSID", "DUP", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER")
_REFUSED = frozenset(CODES[name] for name in _UNUSED) | set(range(256)) - set(CODES.values())
_ROOTS = frozenset(
    ("torch", "pathlib", "collections", "megatron", "nemo", "builtins", "copyreg", "_codecs")
)
# What builtins a pickle of plain records can need; all others run something.
_BUILTINS = frozenset(("set", "frozenset", "list", "dict", "tuple", "int", "complex", "bytearray"))
_ITEM, _CHUNK, _BLOB, _TENSOR, _SAVE = (
    "_StorageInfo", "ChunkStorageMetadata", "BytesStorageMetadata", "TensorStorageMetadata",
    "StorageMeta",
)  # fmt: skip
_WHERE = ("relative_path", "offset", "length")  # of an item
_FOLDER, _TRANSFORMS = "checkpoint_id", "transform_descriptors"


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a checkpoint consists of.

    `files`: for every data file the items written to it as rows (offset, length) in bytes, in order
    of offset; no rows where that is unknown. `tensors` and `chunks` count the tensors and the
    pieces they were cut into, `blobs` what else there is. `saved_as` is the folder it was written
    to, empty where it does not say (torch < 2.3). `transformed`: the items were compressed or the
    like. `ranged`: offsets and lengths are known. `foreign`: globals that such a file never needs.
    `genuine`: the pickle is such a record, and nothing else.
    """

    files: dict[str, npt.NDArray[np.int64]]
    tensors: int = 0
    chunks: int = 0
    blobs: int = 0
    saved_as: str = ""
    transformed: bool = False
    ranged: bool = True
    foreign: tuple[str, ...] = ()
    genuine: bool = True

    @property
    def items(self) -> int:
        """How many items there are in all files."""
        return sum(len(rows) for rows in self.files.values())


def read_metadata(reader: Reader) -> Metadata:
    """What a `.metadata` file says.

    Raises TruncatedPickleError when it ends too early, UnsafePickleError when it is larger than
    allowed or uses opcodes that torch does not write, ValueError when it makes no sense, OSError.
    """
    if reader.size > MAX_BYTES:
        raise UnsafePickleError(f"pickle of {reader.size:,} bytes, more than {MAX_BYTES:,}")
    data = reader.read_at(0, reader.size)
    if data[:1] != b"\x80" or (len(data) > 1 and not 2 <= data[1] <= 5):
        raise ValueError("not a pickle of protocol 2 to 5")
    records = _Records()
    keys = (*_WHERE, _FOLDER, _TRANSFORMS)
    top = walk(data, 0, keys, names=records, bounds=_BOUNDS, refused=_REFUSED).value
    return _metadata(records, genuine=isinstance(top, _Record) and top.kind == "Metadata")


def names_in(reader: Reader) -> Metadata:
    """The data files a `.metadata` names, found without following it; raises OSError.

    For those that `read_metadata` cannot read: no ranges, and a name may be missing.
    """
    names: dict[str, None] = {}
    tail = b""
    for at in range(0, min(reader.size, MAX_SCAN), _PIECE):
        piece = tail + reader.read_at(at, _PIECE)
        for match in _NAME.finditer(piece):
            if len(names) < MAX_NAMES:
                names[match[1].decode("utf-8", "replace")] = None
        tail = piece[-256:]
    nothing = np.empty((0, 2), np.int64)
    return Metadata(dict.fromkeys(names, nothing), ranged=False)


@dataclass(frozen=True, slots=True)
class _Record:
    """Any record of a class: what it says is taken when it gets its state."""

    kind: str


@dataclass(slots=True)
class _Records(Names):
    """What the records say that were found so far.

    Item by item `where` is the number of its data file in `files`, and `offsets` and `lengths` say
    which bytes of it. `counts` are the records of each kind; `foreign` the globals that no such
    file needs.
    """

    files: dict[str, int] = field(default_factory=dict)
    where: array[int] = field(default_factory=lambda: array("I"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    counts: dict[str, int] = field(default_factory=dict)
    saved_as: str = ""
    transformed: bool = False
    foreign: dict[str, None] = field(default_factory=dict)
    imports: int = 0

    def named(self, module: object, name: object) -> Global:
        """The class or function of this name, which is nowhere looked for."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise UnsafePickleError("pickle with a global whose name is no string")
        self.imports += 1
        if self.imports > MAX_IMPORTS:
            raise UnsafePickleError(f"pickle with more than {MAX_IMPORTS:,} globals")
        full = f"{module[:200]}.{name[:200]}"
        root = full.partition(".")[0]
        harmless = root in _ROOTS and (root != "builtins" or full[9:] in _BUILTINS)
        if not harmless and len(self.foreign) < MAX_FOREIGN:
            self.foreign[full] = None
        return Global(module, name)

    def called(self, what: object, args: object, *, new: bool) -> object:
        """A new record; of calls a path its parts, all else nothing."""
        if not isinstance(what, Global):
            return OPAQUE
        if new:
            if what.name == _BLOB:  # it has no state
                self._count(_BLOB)
            return _Record(what.name)
        if what.module.startswith("pathlib") and isinstance(args, tuple):
            parts = [part.rstrip("/") for part in args if isinstance(part, str)]
            return "/".join(parts)[:_MAX_TEXT]
        return OPAQUE

    def built(self, what: object, state: object) -> None:
        """A record got its state."""
        kind = what.kind if isinstance(what, _Record) else ""
        if kind in (_CHUNK, _TENSOR):
            self._count(kind)
        elif kind == _ITEM and isinstance(state, dict):
            self._add(*(state.get(key) for key in _WHERE))
            self.transformed |= _TRANSFORMS in state
        elif kind == _SAVE and isinstance(state, dict):
            folder = state.get(_FOLDER)
            self.saved_as = folder if isinstance(folder, str) else ""

    def _count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def _add(self, name: object, offset: object, length: object) -> None:
        if not isinstance(name, str) or type(offset) is not int or type(length) is not int:
            raise ValueError("an item without file, offset or length")
        if offset < 0 or length < 0 or offset + length >= 1 << 63:
            raise ValueError(f"an item of {length:,} bytes at {offset:,}")
        self.where.append(self.files.setdefault(name, len(self.files)))
        self.offsets.append(offset)
        self.lengths.append(length)
        if len(self.files) > MAX_NAMES:
            raise UnsafePickleError(f"pickle that names more than {MAX_NAMES:,} files")


def _metadata(records: _Records, *, genuine: bool) -> Metadata:
    """What the records say, the items sorted."""
    where = np.frombuffer(records.where, np.uint32) if records.where else np.empty(0, np.uint32)
    rows = np.empty((len(where), 2), np.int64)
    rows[:, 0], rows[:, 1] = records.offsets, records.lengths
    order = np.lexsort((rows[:, 0], where))
    rows = rows[order]
    edges = np.searchsorted(where[order], np.arange(len(records.files) + 1))
    return Metadata(
        files={
            name: rows[edges[number] : edges[number + 1]] for name, number in records.files.items()
        },
        tensors=records.counts.get(_TENSOR, 0),
        chunks=records.counts.get(_CHUNK, 0),
        blobs=records.counts.get(_BLOB, 0),
        saved_as=records.saved_as,
        transformed=records.transformed,
        foreign=tuple(records.foreign),
        genuine=genuine,
    )


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
        part = SliceReader(reader, offset, length)
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
