"""Reads what a `.metadata` file of torch.distributed.checkpoint says, without unpickling it.

The file is a pickle of records (torch/distributed/checkpoint/metadata.py, filesystem.py): which
tensors there are, cut into which chunks, and for every chunk the data file, the offset and the
length it was written to. torch itself loads it with pickle.load, which runs whatever it says.

Here the opcodes are followed, but nothing is imported, called or kept that the answer does not
need: a call gives nothing, a record is its class's name, containers are forgotten once closed.
So a pickle of 64 MB takes less than 200 MB, whatever is in it. Hundreds of thousands of chunks
are usual (tensors times ranks), hence the short cuts for what comes again for each of them.
"""

from __future__ import annotations

import pickletools
import re
from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from diagnose.ingest.raw import Reader
from diagnose.parse.opcodes import TruncatedPickleError, UnsafePickleError

MAX_BYTES = 64 << 20
MAX_SCAN = 1 << 30  # bytes that are looked through for the names of data files
MAX_NAMES = 100_000  # data files
MAX_STRINGS = 700_000  # strings and classes that the memo keeps
MAX_STACK = 1 << 18
MAX_RARE = 8 << 20  # opcodes of the kinds that make up little of a real file
MAX_FOREIGN = 8  # names of globals told
_MAX_PARTS = 64  # of a tuple or a record that are looked at

_ROOTS = frozenset(
    ("torch", "pathlib", "collections", "megatron", "nemo", "builtins", "copyreg", "_codecs")
)
# What builtins a pickle of plain records can need; all others run something.
_BUILTINS = frozenset(("set", "frozenset", "list", "dict", "tuple", "int", "complex", "bytearray"))
_ITEM, _CHUNK, _BLOB, _TENSOR, _SAVE = (
    "_StorageInfo", "ChunkStorageMetadata", "BytesStorageMetadata", "TensorStorageMetadata",
    "StorageMeta",
)  # fmt: skip
_NAME = re.compile(rb"(?:\x8c.|X...\0)([^\0-\x1f\x7f]{1,240}?\.distcp)(?=[\x94qr\x95])", re.DOTALL)
_PIECE = 1 << 20
_LOOKED = (f".{_ITEM}", f".{_SAVE}")  # records whose state is looked at
_TWO_LINES = re.compile(rb"([^\n]{0,512})\n([^\n]{0,512})\n")

# A new record behind its class, as protocol 4 and 5 write it: (), NEWOBJ, memo, {}, memo, MARK.
_NEW_RECORD = b")\x81\x94}\x94("
# A torch.Size behind its class: a tuple of numbers in a tuple, a call; three memo slots.
_SIZE = rb"(?:(?:K.|M..|J....){1,3}+[\x85-\x87]|\((?:K.|M..|J....){4,64}+t)\x94\x85\x94R\x94"
_GET = rb"(?:h.|j....)"
_AFTER_SIZE = re.compile(_SIZE, re.DOTALL)
# The state of a chunk, offsets and sizes, as far as the BUILD.
_CHUNK_STATE = re.compile(rb"(?:" + _GET * 2 + _SIZE + rb"){2}ub", re.DOTALL)
_OPS = {ord(op.code): op.name for op in pickletools.opcodes}


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
    try:
        return _Machine(data).run()
    except (IndexError, KeyError, TypeError, UnicodeDecodeError):
        raise ValueError("damaged pickle") from None


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


@dataclass(slots=True)
class _Machine:
    """Follows the opcodes.

    On the stack are numbers as int, strings as bytes, classes and records as the class's name
    (str), the parts of a small tuple or of a record's state as a tuple, all else as None.
    """

    data: bytes
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, bytes | str] = field(default_factory=dict)
    names: dict[bytes, int] = field(default_factory=dict)
    where: array[int] = field(default_factory=lambda: array("I"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    counts: dict[str, int] = field(default_factory=dict)
    saved_as: bytes = b""
    transformed: bool = False
    rares: int = 0
    foreign: dict[str, None] = field(default_factory=dict)

    def run(self) -> Metadata:
        """Go to the STOP. Raises as read_metadata, IndexError where the stack runs empty."""
        data, size = self.data, len(self.data)
        stack, marks, memo, push = self.stack, self.marks, self.memo, self.stack.append
        starts, number = data.startswith, int.from_bytes
        after_size, chunk_state = _AFTER_SIZE.match, _CHUNK_STATE.match
        at, slot, chunks = 2, 0, 0
        while True:
            if at >= size:
                raise TruncatedPickleError
            op = data[at]
            at += 1
            if op in b"hj":  # BINGET, LONG_BINGET
                width = 1 if op == 0x68 else 4
                value = memo.get(number(data[at : at + width], "little"))
                at += width
                push(value)
                if type(value) is str:
                    if starts(_NEW_RECORD, at):
                        at, slot = at + 6, slot + 2
                        if value.endswith(_CHUNK) and (match := chunk_state(data, at)):
                            at, slot, chunks = match.end(), slot + 6, chunks + 1
                        else:
                            marks.append(len(stack) + 1)
                            push(None)
                    elif value == "torch.Size" and (match := after_size(data, at)):
                        at, slot = match.end(), slot + 3
                        stack[-1] = None
            elif op in b"\x8cX\x8d":  # SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
                width = 1 if op == 0x8C else 4 if op == 0x58 else 8
                start = at + width
                at = start + number(data[at:start], "little")
                push(data[start:at] if at - start <= 4096 else None)
            elif op == 0x94:  # MEMOIZE
                value = stack[-1]
                if type(value) is bytes or type(value) is str:
                    memo[slot] = value
                    if len(memo) > MAX_STRINGS:
                        raise UnsafePickleError(f"pickle with more than {MAX_STRINGS:,} strings")
                slot += 1
            elif op == 0x4B:  # BININT1
                push(data[at] if at < size else None)
                at += 1
            elif op == 0x4D:  # BININT2
                push(number(data[at : at + 2], "little"))
                at += 2
            elif op == 0x4A:  # BININT
                push(number(data[at : at + 4], "little", signed=True))
                at += 4
            elif op in b"ue\x90":  # SETITEMS, APPENDS, ADDITEMS
                mark = marks.pop()
                # The state of a record comes in one go, right behind it.
                if mark > 1 and type(stack[mark - 2]) is str and stack[mark - 2].endswith(_LOOKED):
                    self.close(mark)
                    stack[-2] = stack[-1]
                    stack.pop()
                else:
                    del stack[mark:]
                    stack[-1] = None
            elif op == 0x62:  # BUILD
                state = stack.pop()
                if type(record := stack[-1]) is str:
                    self.build(record.rpartition(".")[2], state)
            elif op in b"q\x72":  # BINPUT, LONG_BINPUT
                width = 1 if op == 0x71 else 4
                slot = self.put(number(data[at : at + width], "little"), slot)
                at += width
            elif op == 0x2E:  # STOP
                self.counts[_CHUNK] = self.counts.get(_CHUNK, 0) + chunks
                return self.result(stack[-1])
            else:
                at = self.rare(op, at)
            if len(stack) > MAX_STACK:
                raise UnsafePickleError(f"pickle with a stack of more than {MAX_STACK:,}")

    def put(self, index: int, slot: int) -> int:
        """Store the top of the stack; gives the next slot for MEMOIZE."""
        value = self.stack[-1]
        if type(value) is bytes or type(value) is str:
            self.memo[index] = value
            if len(self.memo) > MAX_STRINGS:
                raise UnsafePickleError(f"pickle with more than {MAX_STRINGS:,} strings")
        else:
            self.memo.pop(index, None)
        return slot + 1

    def rare(self, op: int, at: int) -> int:
        """Follow an opcode that is not among the usual ones; gives where the next one is."""
        data, stack = self.data, self.stack
        self.rares += 1
        if self.rares > MAX_RARE:
            raise UnsafePickleError("pickle of very many opcodes")
        if op in b"N\x88\x89]}\x8f":  # NONE, NEWTRUE, NEWFALSE, EMPTY_LIST, _DICT, _SET
            stack.append(None)
        elif op == 0x29:  # EMPTY_TUPLE
            stack.append(())
        elif op == 0x28:  # MARK
            self.marks.append(len(stack))
            if len(self.marks) > MAX_STACK:
                raise UnsafePickleError(f"pickle with more than {MAX_STACK:,} marks")
        elif op in b"\x85\x86\x87":  # TUPLE1, TUPLE2, TUPLE3
            self.close(len(stack) - (op - 0x84))
        elif op in b"tld\x91":  # TUPLE, LIST, DICT, FROZENSET
            self.close(self.marks.pop())
        elif op in b"R\x81":  # REDUCE, NEWOBJ
            args, called = stack.pop(), stack.pop()
            record = op == 0x81 and type(called) is str
            stack.append(called if record else _call(called, args))
            if record and called.endswith(_BLOB):  # it has no state
                self.counts[_BLOB] = self.counts.get(_BLOB, 0) + 1
        elif op == 0x92:  # NEWOBJ_EX
            del stack[-2:]
        elif op == 0x93:  # STACK_GLOBAL
            name, module = stack.pop(), stack.pop()
            stack.append(self.named(module, name))
        elif op == 0x63:  # GLOBAL
            if (lines := _TWO_LINES.match(data, at)) is None:
                raise TruncatedPickleError
            stack.append(self.named(*lines.groups()))
            at = lines.end()
        elif op in b"as":  # APPEND, SETITEM
            del stack[-1 if op == 0x61 else -2 :]
            stack[-1] = None
        elif op == 0x30:  # POP
            stack.pop()
        elif op == 0x31:  # POP_MARK
            del stack[self.marks.pop() :]
        elif op in b"\x8a\x8b":  # LONG1, LONG4
            at, raw = self.counted(at, 1 if op == 0x8A else 4)
            stack.append(int.from_bytes(raw, "little", signed=True) if len(raw) <= 8 else None)
        elif op == 0x95:  # FRAME
            at += 8
        elif op == 0x47:  # BINFLOAT
            stack.append(None)
            at += 8
        elif op in b"C\x42\x8e\x96UT":  # bytes, bytearrays, strings of Python 2
            width = 1 if op in b"CU" else 4 if op in b"BT" else 8
            at = at + width + int.from_bytes(self.data[at : at + width], "little")
            stack.append(None)
        elif op == 0x80:  # PROTO
            at += 1
        else:
            raise UnsafePickleError(f"pickle with opcode {_OPS.get(op, hex(op))} at {at - 1:,}")
        return at

    def counted(self, at: int, width: int) -> tuple[int, bytes]:
        """The bytes behind their own count of `width` bytes, and where they end."""
        start = at + width
        end = start + int.from_bytes(self.data[at:start], "little")
        if end > len(self.data):
            raise TruncatedPickleError
        return end, self.data[start:end][:9]

    def close(self, mark: int) -> None:
        """Make a tuple (or what is not looked at) of all from `mark` on; tuples in it are lost."""
        if mark < 0:
            raise IndexError
        parts = self.stack[mark : mark + _MAX_PARTS]
        del self.stack[mark:]
        self.stack.append(tuple(None if type(part) is tuple else part for part in parts))

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

    def build(self, record: str, state: object) -> None:
        """A record got its state."""
        if record in (_CHUNK, _TENSOR):
            self.counts[record] = self.counts.get(record, 0) + 1
        if type(state) is not tuple:
            return
        if record == _ITEM:
            values = dict(zip(state[::2], state[1::2], strict=False))
            name, offset, length = (
                values.get(key) for key in (b"relative_path", b"offset", b"length")
            )
            if type(name) is not bytes or type(offset) is not int or type(length) is not int:
                raise ValueError("an item without file, offset or length")
            if offset < 0 or length < 0 or offset + length >= 1 << 63:
                raise ValueError(f"an item of {length:,} bytes at {offset:,}")
            self.where.append(self.names.setdefault(name, len(self.names)))
            self.offsets.append(offset)
            self.lengths.append(length)
            self.transformed |= b"transform_descriptors" in values
            if len(self.names) > MAX_NAMES:
                raise UnsafePickleError(f"pickle that names more than {MAX_NAMES:,} files")
        elif record == _SAVE:
            folder = dict(zip(state[::2], state[1::2], strict=False)).get(b"checkpoint_id")
            self.saved_as = folder if type(folder) is bytes else b""

    def result(self, outermost: object) -> Metadata:
        """All that was found, the items sorted."""
        where = np.frombuffer(self.where, np.uint32) if self.where else np.empty(0, np.uint32)
        rows = np.empty((len(where), 2), np.int64)
        rows[:, 0], rows[:, 1] = self.offsets, self.lengths
        order = np.lexsort((rows[:, 0], where))
        rows = rows[order]
        edges = np.searchsorted(where[order], np.arange(len(self.names) + 1))
        return Metadata(
            files={
                name.decode("utf-8", "replace"): rows[edges[number] : edges[number + 1]]
                for name, number in self.names.items()
            },
            tensors=self.counts.get(_TENSOR, 0),
            chunks=self.counts.get(_CHUNK, 0),
            blobs=self.counts.get(_BLOB, 0),
            saved_as=self.saved_as.decode("utf-8", "replace"),
            transformed=self.transformed,
            foreign=tuple(self.foreign),
            genuine=type(outermost) is str and outermost.endswith(".Metadata"),
        )


def _call(called: object, args: object) -> bytes | None:
    """What a call gives: a path its parts, all else nothing."""
    if type(called) is str and called.startswith("pathlib") and type(args) is tuple:
        parts = [part for part in args if type(part) is bytes]
        return b"/".join(part.rstrip(b"/") for part in parts)[:4096]
    return None
