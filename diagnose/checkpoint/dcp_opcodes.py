"""Follows the opcodes of a `.metadata` file.

Nothing is imported, called or kept that the answer does not need: a call gives nothing, a record
is its class's name, containers are forgotten once closed. So a pickle of 64 MB takes less than
200 MB. There are short cuts for what hundreds of thousands of chunks (tensors times ranks) repeat.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from diagnose.checkpoint import dcp_patterns as patterns
from diagnose.checkpoint.dcp_records import (
    BLOB,
    CHUNK,
    ITEM,
    MAX_TEXT,
    SAVE,
    WHERE,
    Records,
    called_with,
)
from diagnose.parse.opcodes import (
    CODES,
    NAMES,
    STOP,
    TruncatedPickleError,
    UnsafePickleError,
    by_code,
    opcode_at,
)

MAX_STRINGS = 700_000  # strings and classes that the memo keeps
MAX_STACK = 1 << 18
MAX_RARE = 8 << 20  # opcodes of the kinds that make up little of a real file
_MAX_PARTS = 64  # of a tuple or a record that are looked at
_MAX_GLOBAL = 1024  # bytes of a global's module and name

_LOOKED = (f".{ITEM}", f".{SAVE}")  # records whose state is looked at
_PUTS = (CODES["MEMOIZE"], CODES["BINPUT"], CODES["LONG_BINPUT"])
_APPEND, _BININT, _NEWOBJ = CODES["APPEND"], CODES["BININT"], CODES["NEWOBJ"]
_EMPTY_TUPLE, _BEFORE_TUPLE1 = CODES["EMPTY_TUPLE"], CODES["TUPLE1"] - 1


def follow(data: bytes) -> Records:
    """What the pickle says, up to its STOP.

    Raises PickleError, ValueError; IndexError, KeyError, TypeError for a damaged one.
    """
    return _Machine(data).run()


@dataclass(slots=True)
class _Machine:
    """Follows `data` and fills `records`.

    On the stack are numbers as int, strings as bytes, classes and records as the class's name
    (str), the parts of a small tuple or of a record's state as a tuple, all else as None. Handlers
    take an opcode and where its argument begins; that ends at `at`.
    """

    data: bytes
    records: Records = field(default_factory=Records)
    _at: int = 2
    _stack: list[Any] = field(default_factory=list)
    _marks: list[int] = field(default_factory=list)
    _memo: dict[int, bytes | str] = field(default_factory=dict)
    _slot: int = 0  # that the next MEMOIZE fills
    _rares: int = 0

    def run(self) -> Records:
        data, size, stack, handlers = self.data, len(self.data), self._stack, _HANDLERS
        while True:
            code, begin, self._at = opcode_at(data, self._at)
            if self._at > size and code not in _REFUSED:
                raise TruncatedPickleError
            if code == STOP:
                outermost = stack[-1]
                self.records.genuine = type(outermost) is str and outermost.endswith(".Metadata")
                return self.records
            handlers[code](self, code, begin)
            if len(stack) > MAX_STACK:
                raise UnsafePickleError(f"pickle with a stack of more than {MAX_STACK:,}")

    def _get(self, code: int, begin: int) -> None:
        value = self._memo.get(int.from_bytes(self.data[begin : self._at], "little"))
        self._stack.append(value)
        if type(value) is not str:
            return
        if new := patterns.NEW_RECORD(self.data, self._at):
            self._at = new.end()
            self._slot += 2
            if not self._whole_record(value):
                self._marks.append(len(self._stack) + 1)
                self._stack.append(None)
        elif value == "torch.Size" and (size := patterns.NEW_SIZE(self.data, self._at)):
            self._at = size.end()
            self._slot += 3
            self._stack[-1] = None

    def _whole_record(self, kind: str) -> bool:
        """Step over the state of a usual record; whether it is one."""
        state, step = None, None
        if kind.endswith(CHUNK):
            state, step = patterns.CHUNK_STATE(self.data, self._at), self._usual_chunk
        elif kind.endswith(f".{ITEM}"):
            state, step = patterns.ITEM_STATE(self.data, self._at), self._usual_item
        elif kind.endswith(".MetadataIndex"):
            state, step = patterns.KEY_STATE(self.data, self._at), self._usual_key
        if state is None or step is None or not step(state):
            return False
        self._at = state.end()
        return True

    def _usual_chunk(self, state: re.Match[bytes]) -> bool:
        self._slot += 6
        self.records.count(CHUNK)
        return True

    def _usual_item(self, state: re.Match[bytes]) -> bool:
        path_key, path, offset_key, offset, length_key, length = state.groups()
        memo = self._memo
        keys = (memo.get(patterns.number_of(path_key)), memo.get(patterns.number_of(offset_key)),
                memo.get(patterns.number_of(length_key)))  # fmt: skip
        if keys != WHERE or not self._usual_text(path):
            return False
        self.records.add(self._stack.pop(), patterns.number_of(offset), patterns.number_of(length))
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
            self._stack.append(self._memo.get(patterns.number_of(raw)))
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
        short = self._at - begin <= MAX_TEXT
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
        self.records.build(self._stack[-1].rpartition(".")[2], state)

    def _rare(self, code: int, begin: int) -> None:
        self._rares += 1
        if self._rares > MAX_RARE:
            raise UnsafePickleError("pickle of very many opcodes")
        _RARE[code](self, code, begin)

    def _any(self, code: int, begin: int) -> None:
        self._stack.append(() if code == _EMPTY_TUPLE else None)

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
        self._stack.append(called if record else called_with(called, args))
        if record and called.endswith(BLOB):  # it has no state
            self.records.count(BLOB)

    def _call_with_names(self, code: int, begin: int) -> None:
        del self._stack[-2:]

    def _stack_global(self, code: int, begin: int) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._stack.append(self.records.named(module, name))

    def _global(self, code: int, begin: int) -> None:
        module, _, name = self.data[begin : min(self._at, begin + _MAX_GLOBAL)].partition(b"\n")
        self._stack.append(self.records.named(module, name.rstrip(b"\n")))

    def _fill_one(self, code: int, begin: int) -> None:
        del self._stack[-1 if code == _APPEND else -2 :]
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


Handler = Callable[[_Machine, int, int], None]
_RARE: list[Handler] = by_code(
    {
        "EMPTY_TUPLE NONE NEWTRUE NEWFALSE EMPTY_LIST EMPTY_DICT EMPTY_SET BINFLOAT SHORT_BINBYTES "
        "BINBYTES BINBYTES8 BYTEARRAY8 SHORT_BINSTRING BINSTRING": _Machine._any,
        "MARK": _Machine._mark,
        "TUPLE1 TUPLE2 TUPLE3": _Machine._short_tuple,
        "TUPLE LIST DICT FROZENSET": _Machine._marked,
        "REDUCE NEWOBJ": _Machine._call,
        "NEWOBJ_EX": _Machine._call_with_names,
        "STACK_GLOBAL": _Machine._stack_global,
        "GLOBAL": _Machine._global,
        "APPEND SETITEM": _Machine._fill_one,
        "POP": _Machine._pop,
        "POP_MARK": _Machine._drop_marked,
        "LONG1 LONG4": _Machine._long,
        "PROTO FRAME": _Machine._idle,
    },
    _Machine._refuse,
)
_HANDLERS: list[Handler] = by_code(
    {
        "BINGET LONG_BINGET": _Machine._get,
        "SHORT_BINUNICODE BINUNICODE BINUNICODE8": _Machine._text,
        "MEMOIZE": _Machine._memoize,
        "BINPUT LONG_BINPUT": _Machine._put,
        "BININT BININT1 BININT2": _Machine._integer,
        "SETITEMS APPENDS ADDITEMS": _Machine._fill,
        "BUILD": _Machine._build,
    },
    _Machine._rare,
)
_BOTH = enumerate(zip(_HANDLERS, _RARE, strict=True))
_REFUSED = frozenset(code for code, both in _BOTH if both == (_Machine._rare, _Machine._refuse))
