"""Walks over pickles without building the objects they describe: no name is ever imported."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from diagnose.parse.opcodes import (
    CODES,
    STOP,
    NoPickleError,
    PickleError,
    TruncatedPickleError,
    by_code,
    opcode_at,
)

MAX_OPCODES = 2_000_000  # of one pickle that is walked over with its stack: 60,000 tensors or so
MAX_KEPT = 400_000  # objects that stack, memo and lists hold
MAX_STRING = 128  # bytes of strings that are kept
_MAX_LONG = 16  # bytes of integers that are kept
_MAX_NAME = 1024  # bytes of a global that are kept
_MAX_PARTS = 8  # of a tuple that is kept
_COUNTED = 1024  # opcodes from one count of what is kept to the next


class TooLongError(PickleError):
    """The pickle has more opcodes or objects than are looked at."""


@dataclass(frozen=True, slots=True)
class Global:
    """A name that the pickle imports; here only text."""

    module: str
    name: str


class _Opaque:
    """Stands for all objects that nobody asks for."""


OPAQUE = _Opaque()


@dataclass(slots=True)
class Walk:
    """What one pickle says about its persistent ids and outermost object.

    `value` is that object: a str, int, bool, None, tuple, a list of these, or of a dict only the
    items under the `keys` asked for; OPAQUE for anything else and inside. `items` are those under
    these keys in all dicts, `ids` the persistent ids, `end` is where the pickle ends.
    """

    value: Any = OPAQUE
    items: list[tuple[str, Any]] = field(default_factory=list)
    ids: list[tuple[Any, ...]] = field(default_factory=list)
    end: int = 0


def walk(data: bytes, at: int = 0, keys: Collection[str] = ()) -> Walk:
    """Follow the pickle that begins at `at` with its stack, building nothing but plain values.

    Raises TruncatedPickleError, NoPickleError, TooLongError.
    """
    machine = _Machine(data, at, frozenset(keys))
    try:
        return machine.run()
    except IndexError:
        raise NoPickleError("a stack that has nothing left") from None


_ORDERED = Global("collections", "OrderedDict")
_CONSTANTS = {CODES["NONE"]: None, CODES["NEWTRUE"]: True, CODES["NEWFALSE"]: False}
_CALLS = {CODES["REDUCE"]: 2, CODES["NEWOBJ"]: 2, CODES["NEWOBJ_EX"]: 3}
_BININT, _BEFORE_TUPLE1 = CODES["BININT"], CODES["TUPLE1"] - 1


class _Machine:
    """Its methods take an opcode and where its argument begins; that ends at `at`."""

    def __init__(self, data: bytes, at: int, keys: frozenset[str]) -> None:
        self.data, self.at, self.keys = data, at, keys
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.kept = 0
        self.found = Walk()

    def run(self) -> Walk:
        data, size, handlers = self.data, len(self.data), _HANDLERS
        for number in range(MAX_OPCODES):
            code, begin, self.at = opcode_at(data, self.at)
            if self.at > size:
                raise TruncatedPickleError
            if code == STOP:
                self.found.value = self.stack.pop()
                self.found.end = self.at
                return self.found
            handlers[code](self, code, begin)
            if not number % _COUNTED and self._held() > MAX_KEPT:
                break
        raise TooLongError

    def _held(self) -> int:
        return len(self.stack) + len(self.marks) + len(self.memo) + self.kept

    def _put(self, code: int, begin: int) -> None:
        self.memo[int.from_bytes(self.data[begin : self.at], "little")] = self.stack[-1]

    def _get(self, code: int, begin: int) -> None:
        slot = int.from_bytes(self.data[begin : self.at], "little")
        self.stack.append(self.memo.get(slot, OPAQUE))

    def _memoize(self, code: int, begin: int) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def _text(self, code: int, begin: int) -> None:
        short = self.at - begin <= MAX_STRING
        text = self.data[begin : self.at].decode("utf-8", "replace") if short else OPAQUE
        self.stack.append(text)

    def _integer(self, code: int, begin: int) -> None:
        raw = self.data[begin : self.at]
        self.stack.append(int.from_bytes(raw, "little", signed=code == _BININT))

    def _long(self, code: int, begin: int) -> None:
        short = self.at - begin <= _MAX_LONG
        raw = self.data[begin : self.at]
        self.stack.append(int.from_bytes(raw, "little", signed=True) if short else OPAQUE)

    def _constant(self, code: int, begin: int) -> None:
        self.stack.append(_CONSTANTS[code])

    def _any(self, code: int, begin: int) -> None:
        self.stack.append(OPAQUE)

    def _empty_tuple(self, code: int, begin: int) -> None:
        self.stack.append(())

    def _empty_list(self, code: int, begin: int) -> None:
        self.stack.append([])

    def _empty_dict(self, code: int, begin: int) -> None:
        self.stack.append({})

    def _mark(self, code: int, begin: int) -> None:
        self.marks.append(len(self.stack))

    def _tuple(self, code: int, begin: int) -> None:
        self._close(self.marks.pop())

    def _short_tuple(self, code: int, begin: int) -> None:
        self._close(len(self.stack) - (code - _BEFORE_TUPLE1))

    def _close(self, start: int) -> None:
        if start < 0:
            raise NoPickleError("a tuple of nothing")
        items = self.stack[start:]
        if len(items) > _MAX_PARTS:
            self.stack[start:] = [OPAQUE]
            return
        # Tuples inside tuples would take memory that nobody counts.
        flat = tuple(OPAQUE if isinstance(item, tuple) else item for item in items)
        self.stack[start:] = [flat]

    def _marked(self, code: int, begin: int) -> None:
        """Make one object of all behind the mark."""
        del self.stack[self.marks.pop() :]
        self.stack.append(OPAQUE)

    def _global(self, code: int, begin: int) -> None:
        raw = self.data[begin : min(self.at, begin + _MAX_NAME)].decode("latin-1")
        module, _, name = raw.partition("\n")
        self.stack.append(Global(module, name.rstrip()))

    def _stack_global(self, code: int, begin: int) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        known = isinstance(name, str) and isinstance(module, str)
        self.stack.append(Global(module, name) if known else OPAQUE)

    def _persistent(self, code: int, begin: int) -> None:
        pid = self.stack.pop()
        if isinstance(pid, tuple):
            self.found.ids.append(pid)
            self.kept += 1
        self.stack.append(OPAQUE)

    def _call(self, code: int, begin: int) -> None:
        of = [self.stack.pop() for _ in range(_CALLS[code])]
        self.stack.append({} if of[-1] == _ORDERED else OPAQUE)

    def _set_item(self, code: int, begin: int) -> None:
        self._fill(len(self.stack) - 2)

    def _set_items(self, code: int, begin: int) -> None:
        self._fill(self.marks.pop())

    def _fill(self, start: int) -> None:
        if start < 1:
            raise NoPickleError("items of nothing")
        to = self.stack[start - 1]
        if isinstance(to, dict):
            for key, value in zip(self.stack[start::2], self.stack[start + 1 :: 2], strict=False):
                if isinstance(key, str) and key in self.keys:
                    to[key] = value
                    self.found.items.append((key, value))
                    self.kept += 1
        del self.stack[start:]

    def _append(self, code: int, begin: int) -> None:
        self._extend(len(self.stack) - 1)

    def _appends(self, code: int, begin: int) -> None:
        self._extend(self.marks.pop())

    def _extend(self, start: int) -> None:
        if start < 1:
            raise NoPickleError("items of nothing")
        to = self.stack[start - 1]
        if isinstance(to, list):
            to += self.stack[start:]
            self.kept += len(self.stack) - start
        del self.stack[start:]

    def _pop(self, code: int, begin: int) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.stack.pop()

    def _drop(self, code: int, begin: int) -> None:
        self.stack.pop()

    def _drop_marked(self, code: int, begin: int) -> None:
        del self.stack[self.marks.pop() :]

    def _duplicate(self, code: int, begin: int) -> None:
        self.stack.append(self.stack[-1])

    def _idle(self, code: int, begin: int) -> None:
        pass

    def _nothing(self, code: int, begin: int) -> None:
        raise NoPickleError(f"no pickle at byte {begin - 1:,}")


_HANDLERS: list[Callable[[_Machine, int, int], None]] = by_code(
    {
        "BINPUT LONG_BINPUT": _Machine._put,
        "BINGET LONG_BINGET": _Machine._get,
        "MEMOIZE": _Machine._memoize,
        "BINUNICODE SHORT_BINUNICODE SHORT_BINSTRING": _Machine._text,
        "BININT BININT1 BININT2": _Machine._integer,
        "LONG1": _Machine._long,
        "NONE NEWTRUE NEWFALSE": _Machine._constant,
        "MARK": _Machine._mark,
        "TUPLE": _Machine._tuple,
        "TUPLE1 TUPLE2 TUPLE3": _Machine._short_tuple,
        "EMPTY_TUPLE": _Machine._empty_tuple,
        "EMPTY_LIST": _Machine._empty_list,
        "EMPTY_DICT": _Machine._empty_dict,
        "GLOBAL": _Machine._global,
        "STACK_GLOBAL": _Machine._stack_global,
        "BINPERSID": _Machine._persistent,
        "REDUCE NEWOBJ NEWOBJ_EX": _Machine._call,
        "SETITEM": _Machine._set_item,
        "SETITEMS": _Machine._set_items,
        "APPEND": _Machine._append,
        "APPENDS": _Machine._appends,
        "LIST DICT FROZENSET INST OBJ": _Machine._marked,
        "POP": _Machine._pop,
        "BUILD": _Machine._drop,
        "POP_MARK ADDITEMS": _Machine._drop_marked,
        "DUP": _Machine._duplicate,
        # Slots of PUT are those of old text pickles, which nobody asks for.
        "PUT PROTO FRAME READONLY_BUFFER": _Machine._idle,
        "GET INT LONG LONG4 FLOAT BINFLOAT STRING BINSTRING UNICODE BINUNICODE8 BINBYTES "
        "SHORT_BINBYTES BINBYTES8 BYTEARRAY8 NEXT_BUFFER EMPTY_SET EXT1 EXT2 EXT4 PERSID":
            _Machine._any,
    },
    _Machine._nothing,
)  # fmt: skip
