"""Follows the pickle of a `.metadata` file and gathers what its records say.

Nothing is imported, called or kept that the answer does not need: a call gives nothing, a record
is its class's name, containers are forgotten once closed. So a pickle of 64 MB takes less than
200 MB, whatever is in it. Hundreds of thousands of chunks are usual (tensors times ranks), hence
the short cuts for what comes again for each of them.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from diagnose.parse.opcodes import (
    CODES,
    NAMES,
    STOP,
    TruncatedPickleError,
    UnsafePickleError,
    by_code,
    opcode_at,
)

MAX_NAMES = 100_000  # data files
MAX_STRINGS = 700_000  # strings and classes that the memo keeps
MAX_STACK = 1 << 18
MAX_RARE = 8 << 20  # opcodes of the kinds that make up little of a real file
MAX_FOREIGN = 8  # names of globals told
_MAX_PARTS = 64  # of a tuple or a record that are looked at
_MAX_TEXT = 4096  # bytes of a string that is kept
_MAX_GLOBAL = 1024  # bytes of a global's module and name

_ROOTS = frozenset(
    ("torch", "pathlib", "collections", "megatron", "nemo", "builtins", "copyreg", "_codecs")
)
# What builtins a pickle of plain records can need; all others run something.
_BUILTINS = frozenset(("set", "frozenset", "list", "dict", "tuple", "int", "complex", "bytearray"))
ITEM, CHUNK, BLOB, TENSOR, SAVE = (
    "_StorageInfo", "ChunkStorageMetadata", "BytesStorageMetadata", "TensorStorageMetadata",
    "StorageMeta",
)  # fmt: skip
_LOOKED = (f".{ITEM}", f".{SAVE}")  # records whose state is looked at
_WHERE = (b"relative_path", b"offset", b"length")  # of an item


def _pattern(text: bytes) -> Callable[[bytes, int], re.Match[bytes] | None]:
    """What matches opcodes where they begin; capital words stand for what several records have."""
    for name, pattern in {
        b"SIZE": rb"(?:NUMBER{1,3}+[\x85-\x87]|\(NUMBER{4,64}+t)PUT\x85PUTRPUT",
        b"PART": rb"(?:GET|NUMBER|N)",
        b"TEXT": rb"(?:GET|(?:\x8c.|X....)[ -~]{1,512}?PUT)",
        b"LONG": rb"(?:NUMBER|\x8a\x05.{5}|\x8a\x06.{6})",
        b"NUMBER": rb"(?:K.|M..|J....)",
        b"GET": rb"(?:h.|j....)",
        b"PUT": rb"(?:\x94|q.|r....)",
    }.items():
        text = text.replace(name, pattern)
    return re.compile(text, re.DOTALL).match


# Behind its class, a new record: (), NEWOBJ, memo, {}, memo, MARK; and a torch.Size: a tuple of
# numbers in a tuple, a call, three memo slots.
_NEW_RECORD = _pattern(rb"\)\x81PUT\}PUT\(")
_NEW_SIZE = _pattern(rb"SIZE")
# The states of records as far as the BUILD: of a chunk offsets and sizes, of an item what _WHERE
# says, of the key of an item its tensor, perhaps offsets, and a number.
_CHUNK_STATE = _pattern(rb"(?:GETGETSIZE){2}ub")
_ITEM_STATE = _pattern(rb"(GET)(TEXT)(GET)(LONG)(GET)(LONG)ub")
_KEY_STATE = _pattern(rb"GET(TEXT)PART{0,6}(SIZE)?PART{0,6}ub")
_LONG1, _SIGNED = CODES["LONG1"], (CODES["BININT"], CODES["LONG1"])
_PUTS = (CODES["MEMOIZE"], CODES["BINPUT"], CODES["LONG_BINPUT"])
_BININT, _NEWOBJ, _BEFORE_TUPLE1 = CODES["BININT"], CODES["NEWOBJ"], CODES["TUPLE1"] - 1


@dataclass(slots=True)
class Records:
    """What the records of `data` say. `follow` fills it.

    Item by item `where` is the number of its data file in `names`, and `offsets` and `lengths` say
    which bytes of it. `counts` are the records of each kind; `foreign` the globals that no such
    file needs; `genuine`: the outermost object is a Metadata.

    On the stack are numbers as int, strings as bytes, classes and records as the class's name
    (str), the parts of a small tuple or of a record's state as a tuple, all else as None. Handlers
    take an opcode and where its argument begins; that ends at `at`.
    """

    data: bytes
    names: dict[bytes, int] = field(default_factory=dict)
    where: array[int] = field(default_factory=lambda: array("I"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    lengths: array[int] = field(default_factory=lambda: array("q"))
    counts: dict[str, int] = field(default_factory=dict)
    saved_as: bytes = b""
    transformed: bool = False
    foreign: dict[str, None] = field(default_factory=dict)
    genuine: bool = False
    _at: int = 2
    _stack: list[Any] = field(default_factory=list)
    _marks: list[int] = field(default_factory=list)
    _memo: dict[int, bytes | str] = field(default_factory=dict)
    _slot: int = 0  # that the next MEMOIZE fills
    _rares: int = 0

    def follow(self) -> None:
        """Go to the STOP.

        Raises PickleError, ValueError; IndexError, KeyError, TypeError for a damaged pickle.
        """
        data, size, stack, handlers = self.data, len(self.data), self._stack, _HANDLERS
        while True:
            code, begin, self._at = opcode_at(data, self._at)
            if self._at > size and code not in _REFUSED:
                raise TruncatedPickleError
            if code == STOP:
                self.genuine = type(stack[-1]) is str and stack[-1].endswith(".Metadata")
                return
            handlers[code](self, code, begin)
            if len(stack) > MAX_STACK:
                raise UnsafePickleError(f"pickle with a stack of more than {MAX_STACK:,}")

    def _get(self, code: int, begin: int) -> None:
        value = self._memo.get(int.from_bytes(self.data[begin : self._at], "little"))
        self._stack.append(value)
        if type(value) is not str:
            return
        if new := _NEW_RECORD(self.data, self._at):
            self._at = new.end()
            self._slot += 2
            if not self._whole_record(value):
                self._marks.append(len(self._stack) + 1)
                self._stack.append(None)
        elif value == "torch.Size" and (size := _NEW_SIZE(self.data, self._at)):
            self._at = size.end()
            self._slot += 3
            self._stack[-1] = None

    def _whole_record(self, kind: str) -> bool:
        """Step over the state of a usual record; whether it is one."""
        state, step = None, None
        if kind.endswith(CHUNK):
            state, step = _CHUNK_STATE(self.data, self._at), self._usual_chunk
        elif kind.endswith(f".{ITEM}"):
            state, step = _ITEM_STATE(self.data, self._at), self._usual_item
        elif kind.endswith(".MetadataIndex"):
            state, step = _KEY_STATE(self.data, self._at), self._usual_key
        if state is None or step is None or not step(state):
            return False
        self._at = state.end()
        return True

    def _usual_chunk(self, state: re.Match[bytes]) -> bool:
        self._slot += 6
        self._count(CHUNK)
        return True

    def _usual_item(self, state: re.Match[bytes]) -> bool:
        path_key, path, offset_key, offset, length_key, length = state.groups()
        memo = self._memo
        keys = (memo.get(_number(path_key)), memo.get(_number(offset_key)),
                memo.get(_number(length_key)))  # fmt: skip
        if keys != _WHERE or not self._usual_text(path):
            return False
        self._item(self._stack.pop(), _number(offset), _number(length))
        return True

    def _usual_key(self, state: re.Match[bytes]) -> bool:
        if not self._usual_text(state[1]):
            return False
        self._stack.pop()
        self._slot += 3 if state[2] else 0
        return True

    def _usual_text(self, raw: bytes) -> bool:
        """Push a string from the memo, or one that is stored there, unless it has another end."""
        if raw[0] in b"hj":
            self._stack.append(self._memo.get(_number(raw)))
            return True
        _, begin, end = opcode_at(raw, 0)
        if end >= len(raw):
            return False
        put, slot, close = opcode_at(raw, end)
        if put not in _PUTS or close != len(raw):
            return False
        self._stack.append(raw[begin:end])
        self._store(int.from_bytes(raw[slot:close], "little") if close > slot else self._slot)
        return True

    def _text(self, code: int, begin: int) -> None:
        short = self._at - begin <= _MAX_TEXT
        self._stack.append(self.data[begin : self._at] if short else None)

    def _memoize(self, code: int, begin: int) -> None:
        self._store(self._slot)

    def _put(self, code: int, begin: int) -> None:
        self._store(int.from_bytes(self.data[begin : self._at], "little"))

    def _store(self, slot: int) -> None:
        value = self._stack[-1]
        if type(value) is bytes or type(value) is str:
            self._memo[slot] = value
            if len(self._memo) > MAX_STRINGS:
                raise UnsafePickleError(f"pickle with more than {MAX_STRINGS:,} strings")
        else:
            self._memo.pop(slot, None)
        self._slot += 1

    def _integer(self, code: int, begin: int) -> None:
        raw = self.data[begin : self._at]
        self._stack.append(int.from_bytes(raw, "little", signed=code == _BININT))

    def _fill(self, code: int, begin: int) -> None:
        mark, stack = self._marks.pop(), self._stack
        # The state of a record comes in one go, right behind it.
        if mark > 1 and type(stack[mark - 2]) is str and stack[mark - 2].endswith(_LOOKED):
            self._close(mark)
            del stack[-2]
        else:
            del stack[mark:]
            stack[-1] = None

    def _build(self, code: int, begin: int) -> None:
        """A record gets its state."""
        state = self._stack.pop()
        if type(self._stack[-1]) is not str:
            return
        record = self._stack[-1].rpartition(".")[2]
        if record in (CHUNK, TENSOR):
            self._count(record)
        if type(state) is not tuple:
            return
        if record == ITEM:
            values = dict(zip(state[::2], state[1::2], strict=False))
            self._item(*(values.get(key) for key in _WHERE))
            self.transformed |= b"transform_descriptors" in values
        elif record == SAVE:
            folder = dict(zip(state[::2], state[1::2], strict=False)).get(b"checkpoint_id")
            self.saved_as = folder if type(folder) is bytes else b""

    def _item(self, name: object, offset: object, length: object) -> None:
        if type(name) is not bytes or type(offset) is not int or type(length) is not int:
            raise ValueError("an item without file, offset or length")
        if offset < 0 or length < 0 or offset + length >= 1 << 63:
            raise ValueError(f"an item of {length:,} bytes at {offset:,}")
        self.where.append(self.names.setdefault(name, len(self.names)))
        self.offsets.append(offset)
        self.lengths.append(length)
        if len(self.names) > MAX_NAMES:
            raise UnsafePickleError(f"pickle that names more than {MAX_NAMES:,} files")

    def _count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def _rare(self, code: int, begin: int) -> None:
        self._rares += 1
        if self._rares > MAX_RARE:
            raise UnsafePickleError("pickle of very many opcodes")
        _RARE[code](self, code, begin)

    def _any(self, code: int, begin: int) -> None:
        self._stack.append(None)

    def _empty_tuple(self, code: int, begin: int) -> None:
        self._stack.append(())

    def _mark(self, code: int, begin: int) -> None:
        self._marks.append(len(self._stack))
        if len(self._marks) > MAX_STACK:
            raise UnsafePickleError(f"pickle with more than {MAX_STACK:,} marks")

    def _short_tuple(self, code: int, begin: int) -> None:
        self._close(len(self._stack) - (code - _BEFORE_TUPLE1))

    def _marked(self, code: int, begin: int) -> None:
        self._close(self._marks.pop())

    def _close(self, mark: int) -> None:
        """Make a tuple (or what is not looked at) of all from `mark` on; tuples in it are lost."""
        if mark < 0:
            raise IndexError
        parts = self._stack[mark : mark + _MAX_PARTS]
        del self._stack[mark:]
        self._stack.append(tuple(None if type(part) is tuple else part for part in parts))

    def _call(self, code: int, begin: int) -> None:
        args, called = self._stack.pop(), self._stack.pop()
        record = code == _NEWOBJ and type(called) is str
        self._stack.append(called if record else _called(called, args))
        if record and called.endswith(BLOB):  # it has no state
            self._count(BLOB)

    def _call_with_names(self, code: int, begin: int) -> None:
        del self._stack[-2:]

    def _stack_global(self, code: int, begin: int) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._stack.append(self._named(module, name))

    def _global(self, code: int, begin: int) -> None:
        module, _, name = self.data[begin : min(self._at, begin + _MAX_GLOBAL)].partition(b"\n")
        self._stack.append(self._named(module, name.rstrip(b"\n")))

    def _named(self, module: object, name: object) -> str:
        """The class or function of this name, which is nowhere looked for."""
        if type(module) is not bytes or type(name) is not bytes:
            raise UnsafePickleError("pickle with a global whose name is no string")
        full = f"{module.decode()[:200]}.{name.decode()[:200]}"
        root = full.partition(".")[0]
        harmless = root in _ROOTS and (root != "builtins" or full[9:] in _BUILTINS)
        if not harmless and len(self.foreign) < MAX_FOREIGN:
            self.foreign[full] = None
        return full

    def _append(self, code: int, begin: int) -> None:
        del self._stack[-1]
        self._stack[-1] = None

    def _set_item(self, code: int, begin: int) -> None:
        del self._stack[-2:]
        self._stack[-1] = None

    def _pop(self, code: int, begin: int) -> None:
        self._stack.pop()

    def _drop_marked(self, code: int, begin: int) -> None:
        del self._stack[self._marks.pop() :]

    def _long(self, code: int, begin: int) -> None:
        short = self._at - begin <= 8
        raw = self.data[begin : self._at] if short else b""
        self._stack.append(int.from_bytes(raw, "little", signed=True) if short else None)

    def _idle(self, code: int, begin: int) -> None:
        pass

    def _refuse(self, code: int, begin: int) -> None:
        raise UnsafePickleError(f"pickle with opcode {NAMES.get(code, hex(code))} at {begin - 1:,}")


Handler = Callable[[Records, int, int], None]
_RARE: list[Handler] = by_code(
    {
        "NONE NEWTRUE NEWFALSE EMPTY_LIST EMPTY_DICT EMPTY_SET BINFLOAT SHORT_BINBYTES BINBYTES "
        "BINBYTES8 BYTEARRAY8 SHORT_BINSTRING BINSTRING": Records._any,
        "EMPTY_TUPLE": Records._empty_tuple,
        "MARK": Records._mark,
        "TUPLE1 TUPLE2 TUPLE3": Records._short_tuple,
        "TUPLE LIST DICT FROZENSET": Records._marked,
        "REDUCE NEWOBJ": Records._call,
        "NEWOBJ_EX": Records._call_with_names,
        "STACK_GLOBAL": Records._stack_global,
        "GLOBAL": Records._global,
        "APPEND": Records._append,
        "SETITEM": Records._set_item,
        "POP": Records._pop,
        "POP_MARK": Records._drop_marked,
        "LONG1 LONG4": Records._long,
        "PROTO FRAME": Records._idle,
    },
    Records._refuse,
)
_HANDLERS: list[Handler] = by_code(
    {
        "BINGET LONG_BINGET": Records._get,
        "SHORT_BINUNICODE BINUNICODE BINUNICODE8": Records._text,
        "MEMOIZE": Records._memoize,
        "BINPUT LONG_BINPUT": Records._put,
        "BININT BININT1 BININT2": Records._integer,
        "SETITEMS APPENDS ADDITEMS": Records._fill,
        "BUILD": Records._build,
    },
    Records._rare,
)
_REFUSED = frozenset(
    code
    for code in range(256)
    if _HANDLERS[code] is Records._rare and _RARE[code] is Records._refuse
)


def _number(opcode: bytes) -> int:
    """The number behind an opcode; behind LONG1 it has a length of one byte."""
    return int.from_bytes(opcode[1 + (opcode[0] == _LONG1) :], "little", signed=opcode[0] in _SIGNED)


def _called(called: object, args: object) -> bytes | None:
    """What a call gives: a path its parts, all else nothing."""
    if type(called) is str and called.startswith("pathlib") and type(args) is tuple:
        parts = [part for part in args if type(part) is bytes]
        return b"/".join(part.rstrip(b"/") for part in parts)[:_MAX_TEXT]
    return None
