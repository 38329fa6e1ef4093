"""Reads what a `.metadata` file of torch.distributed.checkpoint says, without unpickling it.

The file is a pickle of records (torch/distributed/checkpoint/metadata.py, filesystem.py): which
tensors there are, cut into which chunks, and for every chunk the data file, the offset and the
length it was written to. torch itself loads it with pickle.load, which runs whatever it says.

Of hundreds of thousands of chunks (tensors times ranks) nothing is kept but these numbers.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import field

import numpy as np
import numpy.typing as npt

from diagnose.ingest.raw import Reader
from diagnose.lazy import dataclass
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
