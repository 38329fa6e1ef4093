"""Walks over pickles without building the objects they describe: no name is ever imported.

Opcodes and the sizes of their arguments are those of `pickletools`.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

MAX_OPCODES = 2_000_000  # of one pickle that is walked over with its stack: 60,000 tensors or so
MAX_KEPT = 400_000  # objects that stack, memo and lists hold
MAX_STRING = 128  # bytes of strings that are kept


class CutOffError(ValueError):
    """The pickle ends before its STOP."""


class NoPickleError(ValueError):
    """The bytes make no sense as a pickle."""


class TooLongError(ValueError):
    """The pickle has more opcodes or objects than are looked at."""


def _arguments() -> tuple[dict[int, int], dict[int, int], bytes, bytes]:
    """Bytes of arguments by opcode; widths of their lengths; opcodes with one and two lines."""
    widths = {
        pickletools.TAKEN_FROM_ARGUMENT1: 1,
        pickletools.TAKEN_FROM_ARGUMENT4: 4,
        pickletools.TAKEN_FROM_ARGUMENT4U: 4,
        pickletools.TAKEN_FROM_ARGUMENT8U: 8,
    }
    fixed, counted, line, lines = {}, {}, bytearray(), bytearray()
    for opcode in pickletools.opcodes:
        code, size = ord(opcode.code), 0 if opcode.arg is None else opcode.arg.n
        if size >= 0:
            fixed[code] = size
        elif size in widths:
            counted[code] = widths[size]
        elif opcode.arg is pickletools.stringnl_noescape_pair:
            lines.append(code)
        else:
            line.append(code)
    return fixed, counted, bytes(line), bytes(lines)


_FIXED, _COUNTED, _LINE, _LINES = _arguments()
_STOP = ord(".")


def _run() -> re.Pattern[bytes]:
    """As many opcodes as possible whose arguments have a size of their own, STOP not among them."""
    sized: dict[int, bytearray] = {}
    for code, size in _FIXED.items():
        if code != _STOP:
            sized.setdefault(size, bytearray()).append(code)
    parts = [
        b"[%b]" % re.escape(bytes(codes)) + b"." * size for size, codes in sorted(sized.items())
    ]
    parts += [b"[%b][^\n]*+\n" % re.escape(_LINE), b"[%b][^\n]*+\n[^\n]*+\n" % re.escape(_LINES)]
    return re.compile(b"(?:" + b"|".join(parts) + b")*+", re.DOTALL)


_RUN = _run().match


def end_of(data: bytes, at: int = 0) -> int:
    """Where the pickle that begins at `at` ends, behind its STOP.

    Raises CutOffError where `data` ends before it, NoPickleError.
    """
    size = len(data)
    while True:
        run = _RUN(data, at)
        assert run is not None  # it matches the empty string
        at = run.end()
        if at >= size:
            raise CutOffError
        code = data[at]
        if code == _STOP:
            return at + 1
        if code in _COUNTED:
            at = _behind(data, at, _COUNTED[code])
        elif code in _FIXED or code in _LINE or code in _LINES:
            raise CutOffError
        else:
            raise NoPickleError(f"no pickle at byte {at:,}")


def _behind(data: bytes, at: int, width: int) -> int:
    """Behind the opcode at `at`, whose argument is a length of `width` bytes and that many more."""
    start = at + 1 + width
    end = start + int.from_bytes(data[at + 1 : start], "little")
    if start > len(data) or end > len(data):
        raise CutOffError
    return end


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

    Raises CutOffError, NoPickleError, TooLongError.
    """
    machine = _Machine(data, at, frozenset(keys))
    try:
        return machine.run()
    except IndexError:
        # Of the data (it ends inside an argument), or of a stack that has nothing left.
        raise (CutOffError if machine.at >= len(data) else NoPickleError)() from None


_MARKED = {ord("t"), ord("l"), ord("d"), ord("i"), ord("o"), 0x91}  # make one of what they take
_PUSHED = frozenset(b"FGLVSBCPIT\x82\x83\x84\x8b\x8d\x8e\x8f\x96\x97")  # whatever it is
_IDLE = frozenset(b"\x80\x95\x98")
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_CALLS = {ord("R"): 2, 0x81: 2, 0x92: 3}
_INTS = {ord("K"): 1, ord("M"): 2, ord("J"): 4}
_SIGNED = ord("J")
_CONSTANTS = {ord("N"): None, 0x88: True, 0x89: False}
_ORDERED = Global("collections", "OrderedDict")


class _Machine:
    def __init__(self, data: bytes, at: int, keys: frozenset[str]) -> None:
        self.data, self.at, self.keys = data, at, keys
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.kept = 0
        self.found = Walk()

    def run(self) -> Walk:
        data = self.data
        stack = self.stack
        for _ in range(MAX_OPCODES):
            start = self.at
            code = data[start]
            if code in _FIXED:
                self.at = start + 1 + _FIXED[code]
            elif code in _COUNTED:
                self.at = _behind(data, start, _COUNTED[code])
            else:
                self._lines(code)
            if self.at > len(data):
                raise CutOffError
            if code == _STOP:
                self.found.value = stack.pop()
                self.found.end = self.at
                return self.found
            self._step(code, start)
            if len(stack) + len(self.marks) + len(self.memo) + self.kept > MAX_KEPT:
                break
        raise TooLongError

    def _lines(self, code: int) -> None:
        if code not in _LINE and code not in _LINES:
            raise NoPickleError(f"no pickle at byte {self.at:,}")
        for _ in range(2 if code in _LINES else 1):
            self.at = self.data.find(b"\n", self.at) + 1
            if not self.at:
                raise CutOffError

    def _step(self, code: int, start: int) -> None:
        stack, data = self.stack, self.data
        match code:
            case 0x71 | 0x72:  # BINPUT, LONG_BINPUT
                self.memo[int.from_bytes(data[start + 1 : self.at], "little")] = stack[-1]
            case 0x68 | 0x6A:  # BINGET, LONG_BINGET
                slot = int.from_bytes(data[start + 1 : self.at], "little")
                stack.append(self.memo.get(slot, OPAQUE))
            case 0x94:  # MEMOIZE
                self.memo[len(self.memo)] = stack[-1]
            case 0x58 | 0x8C | 0x55:  # BINUNICODE, SHORT_BINUNICODE, SHORT_BINSTRING
                text = data[start + 1 + _COUNTED[code] : self.at]
                short = len(text) <= MAX_STRING
                stack.append(text.decode("utf-8", "replace") if short else OPAQUE)
            case 0x4B | 0x4D | 0x4A:  # BININT1, BININT2, BININT
                text = data[start + 1 : self.at]
                stack.append(int.from_bytes(text, "little", signed=code == _SIGNED))
            case 0x8A:  # LONG1
                text = data[start + 2 : self.at]
                short = len(text) <= 16
                stack.append(int.from_bytes(text, "little", signed=True) if short else OPAQUE)
            case 0x28:  # MARK
                self.marks.append(len(stack))
            case 0x85 | 0x86 | 0x87:  # TUPLE1 to TUPLE3
                self._tuple(len(stack) - _TUPLES[code])
            case 0x4E | 0x88 | 0x89:  # NONE, NEWTRUE, NEWFALSE
                stack.append(_CONSTANTS[code])
            case 0x74:  # TUPLE
                self._tuple(self.marks.pop())
            case 0x29:  # EMPTY_TUPLE
                stack.append(())
            case 0x63:  # GLOBAL
                module, _, name = data[start + 1 : min(self.at, start + 1024)].partition(b"\n")
                stack.append(Global(module.decode("latin-1"), name.rstrip().decode("latin-1")))
            case 0x93:  # STACK_GLOBAL
                name, module = stack.pop(), stack.pop()
                known = isinstance(name, str) and isinstance(module, str)
                stack.append(Global(module, name) if known else OPAQUE)
            case 0x51:  # BINPERSID
                pid = stack.pop()
                if isinstance(pid, tuple):
                    self.found.ids.append(pid)
                    self.kept += 1
                stack.append(OPAQUE)
            case 0x52 | 0x81 | 0x92:  # REDUCE, NEWOBJ, NEWOBJ_EX
                of = [stack.pop() for _ in range(_CALLS[code])]
                stack.append({} if of[-1] == _ORDERED else OPAQUE)
            case 0x7D:  # EMPTY_DICT
                stack.append({})
            case 0x5D:  # EMPTY_LIST
                stack.append([])
            case 0x75 | 0x73:  # SETITEMS, SETITEM
                self._items(self.marks.pop() if code == 0x75 else len(stack) - 2)
            case 0x65 | 0x61:  # APPENDS, APPEND
                self._append(self.marks.pop() if code == 0x65 else len(stack) - 1)
            case 0x62:  # BUILD
                stack.pop()
            case _:
                self._rare(code)

    def _rare(self, code: int) -> None:
        stack = self.stack
        if code in _MARKED:
            del stack[self.marks.pop() :]
            stack.append(OPAQUE)
        elif code in _PUSHED:
            stack.append(OPAQUE)
        elif code == 0x30 and self.marks and self.marks[-1] == len(stack):  # POP
            self.marks.pop()
        elif code == 0x30:
            stack.pop()
        elif code in b"1\x90":  # POP_MARK, ADDITEMS
            del stack[self.marks.pop() :]
        elif code == 0x32:  # DUP
            stack.append(stack[-1])
        elif code == 0x67:  # GET
            stack.append(OPAQUE)
        elif code == 0x70:  # PUT: its slots are those of old text pickles, which nobody asks for
            pass
        elif code not in _IDLE:
            raise NoPickleError(f"no pickle at byte {self.at:,}")

    def _tuple(self, start: int) -> None:
        if start < 0:
            raise NoPickleError("a tuple of nothing")
        items = self.stack[start:]
        if len(items) > 8:
            self.stack[start:] = [OPAQUE]
            return
        # Tuples inside tuples would take memory that nobody counts.
        flat = tuple(OPAQUE if isinstance(item, tuple) else item for item in items)
        self.stack[start:] = [flat]

    def _items(self, start: int) -> None:
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

    def _append(self, start: int) -> None:
        if start < 1:
            raise NoPickleError("items of nothing")
        to = self.stack[start - 1]
        if isinstance(to, list):
            to += self.stack[start:]
            self.kept += len(self.stack) - start
        del self.stack[start:]
