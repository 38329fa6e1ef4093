"""What the records of a `.metadata` file say: items, their data files, and how many there are."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from diagnose.parse.opcodes import UnsafePickleError

MAX_NAMES = 100_000  # data files
MAX_TEXT = 4096  # bytes of a string that is kept
MAX_FOREIGN = 8  # names of globals told

_ROOTS = frozenset(
    ("torch", "pathlib", "collections", "megatron", "nemo", "builtins", "copyreg", "_codecs")
)
# What builtins a pickle of plain records can need; all others run something.
_BUILTINS = frozenset(("set", "frozenset", "list", "dict", "tuple", "int", "complex", "bytearray"))
ITEM, CHUNK, BLOB, TENSOR, SAVE = (
    "_StorageInfo", "ChunkStorageMetadata", "BytesStorageMetadata", "TensorStorageMetadata",
    "StorageMeta",
)  # fmt: skip
WHERE = (b"relative_path", b"offset", b"length")  # of an item


@dataclass(slots=True)
class Records:
    """What the records say that were found so far.

    Item by item `where` is the number of its data file in `names`, and `offsets` and `lengths` say
    which bytes of it. `counts` are the records of each kind; `foreign` the globals that no such
    file needs; `genuine`: the outermost object is a Metadata.
    """

    names: dict[bytes, int] = field(default_factory=dict)
    where: array[int] = field(default_factory=lambda: array("I"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    counts: dict[str, int] = field(default_factory=dict)
    saved_as: bytes = b""
    transformed: bool = False
    foreign: dict[str, None] = field(default_factory=dict)
    genuine: bool = False

    def build(self, record: str, state: object) -> None:
        """A record got its state."""
        if record in (CHUNK, TENSOR):
            self.count(record)
        if type(state) is not tuple:
            return
        if record == ITEM:
            values = dict(zip(state[::2], state[1::2], strict=False))
            self.add(*(values.get(key) for key in WHERE))
            self.transformed |= b"transform_descriptors" in values
        elif record == SAVE:
            folder = dict(zip(state[::2], state[1::2], strict=False)).get(b"checkpoint_id")
            self.saved_as = folder if type(folder) is bytes else b""

    def add(self, name: object, offset: object, length: object) -> None:
        """Add an item."""
        if type(name) is not bytes or type(offset) is not int or type(length) is not int:
            raise ValueError("an item without file, offset or length")
        if offset < 0 or length < 0 or offset + length >= 1 << 63:
            raise ValueError(f"an item of {length:,} bytes at {offset:,}")
        self.where.append(self.names.setdefault(name, len(self.names)))
        self.offsets.append(offset)
        self.lengths.append(length)
        if len(self.names) > MAX_NAMES:
            raise UnsafePickleError(f"pickle that names more than {MAX_NAMES:,} files")

    def count(self, kind: str) -> None:
        """One more record of this kind."""
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def named(self, module: object, name: object) -> str:
        """The class or function of this name, which is nowhere looked for."""
        if type(module) is not bytes or type(name) is not bytes:
            raise UnsafePickleError("pickle with a global whose name is no string")
        full = f"{module.decode()[:200]}.{name.decode()[:200]}"
        root = full.partition(".")[0]
        harmless = root in _ROOTS and (root != "builtins" or full[9:] in _BUILTINS)
        if not harmless and len(self.foreign) < MAX_FOREIGN:
            self.foreign[full] = None
        return full


def called_with(called: object, args: object) -> bytes | None:
    """What a call gives: a path its parts, all else nothing."""
    if type(called) is str and called.startswith("pathlib") and type(args) is tuple:
        parts = [part for part in args if type(part) is bytes]
        return b"/".join(part.rstrip(b"/") for part in parts)[:MAX_TEXT]
    return None
