"""Reads pickles without unpickling: no name is imported, nothing is called, no object is made.

A pickle is a program. The C unpickler, every global refused, still leaves room for harm: a PUT of
five bytes makes it allocate 32 GB, a byte array is allocated before its bytes are looked at, and a
key of tuples inside tuples takes for ever to hash. So the opcodes are followed here, one by one,
and give plain values only: dict, list, tuple of values that are no tuples, str, int, float, bool,
None. What else there is becomes OPAQUE, or what `Names` makes of it.

`load` is for Flight Recorder dumps, which hold plain data and nothing else: any opcode that such a
dump does not need ends the reading with its name. `walk` is for the pickles of torch.save and of
DCP, of which only some values are asked for.
"""

from __future__ import annotations

import pickletools
import re
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from diagnose.lazy import compiled

MAX_BYTES = 64 << 20
MAX_CONTAINERS = 2 << 20
_MAX_STRING = 1 << 20
_MAX_LONG = 16  # bytes of integers that are kept
_MAX_NAME = 1024  # bytes of a global that are kept
_MAX_PARTS = 64  # of a tuple that is kept
_MADE = 64  # bytes of a text made by a call that count as one object
_FILLED = 3  # objects that a dict with items counts as
_COUNTED = 1024  # opcodes from one count of what is held to the next
_CONTAINERS = b"]})\x86("
_CUTS = 16  # places tried to cut a truncated list of entries at
_CUT_BYTES = 2 * MAX_BYTES  # that are looked at for that

T = TypeVar("T")


class PickleError(ValueError):
    """A pickle that is not read to its end."""


class TruncatedPickleError(PickleError):
    """The pickle ends before its STOP."""

    def __init__(self) -> None:
        super().__init__("truncated pickle")


class NoPickleError(PickleError):
    """The bytes make no sense as a pickle."""


class UnsafePickleError(PickleError):
    """The pickle holds more than its reader allows; one line says what."""


class TooLongError(UnsafePickleError):
    """The pickle has more opcodes or objects than are looked at."""


NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
CODES = {name: code for code, name in NAMES.items()}
STOP = CODES["STOP"]


def _arguments() -> tuple[list[int], bytes, bytes]:
    """What each opcode takes, and those that take one line and two.

    With its argument it takes so many bytes, or, where that is negative, so many less one up to the
    end of the length of its argument; 0 for lines and for what is no opcode.
    """
    widths = {
        pickletools.TAKEN_FROM_ARGUMENT1: 1,
        pickletools.TAKEN_FROM_ARGUMENT4: 4,
        pickletools.TAKEN_FROM_ARGUMENT4U: 4,
        pickletools.TAKEN_FROM_ARGUMENT8U: 8,
    }
    sizes, line, lines = [0] * 256, bytearray(), bytearray()
    for opcode in pickletools.opcodes:
        code, size = ord(opcode.code), 0 if opcode.arg is None else opcode.arg.n
        if size >= 0:
            sizes[code] = 1 + size
        elif size in widths:
            sizes[code] = -1 - widths[size]
        elif opcode.arg is pickletools.stringnl_noescape_pair:
            lines.append(code)
        else:
            line.append(code)
    return sizes, bytes(line), bytes(lines)


SIZES, _LINE, _LINES = _arguments()


def opcode_at(data: bytes, at: int) -> tuple[int, int, int]:
    """The opcode at `at`, where its argument begins (behind a length) and where that ends.

    The end of what is cut off lies beyond that of `data`. What is no opcode has no argument.
    Raises TruncatedPickleError where there is nothing at `at`.
    """
    try:
        code = data[at]
    except IndexError:
        raise TruncatedPickleError from None
    size = SIZES[code]
    if size > 0:
        return code, at + 1, at + size
    if size:
        begin = at - size
        return code, begin, begin + int.from_bytes(data[at + 1 : begin], "little")
    end = at + 1
    for _ in range((code in _LINE) + 2 * (code in _LINES)):
        end = data.find(b"\n", end) + 1 or len(data) + 1
    return code, at + 1, end


def _run() -> re.Pattern[bytes]:
    """As many opcodes as possible but STOP and those with a length."""
    sized: dict[int, bytearray] = {}
    for code in NAMES:
        if SIZES[code] > 0 and code != STOP:
            sized.setdefault(SIZES[code] - 1, bytearray()).append(code)
    parts = [
        b"[%b]" % re.escape(bytes(codes)) + b"." * size for size, codes in sorted(sized.items())
    ]
    parts += [b"[%b][^\n]*+\n" % re.escape(_LINE), b"[%b][^\n]*+\n[^\n]*+\n" % re.escape(_LINES)]
    return compiled(b"(?:" + b"|".join(parts) + b")*+", re.DOTALL)


_RUN = _run().match


def end_of(data: bytes, at: int = 0) -> int:
    """Where the pickle that begins at `at` ends, behind its STOP.

    Raises TruncatedPickleError where `data` ends before it, NoPickleError.
    """
    size = len(data)
    while True:
        run = _RUN(data, at)
        assert run is not None  # it matches the empty string
        code, _, end = opcode_at(data, run.end())
        if end > size:
            raise TruncatedPickleError
        if code == STOP:
            return end
        if SIZES[code] == 0:
            raise NoPickleError(f"no pickle at byte {run.end():,}")
        at = end


def by_code(handlers: Mapping[str, T], other: T) -> list[T]:
    """What handles each of the 256 codes; the keys are names of opcodes, with spaces between."""
    table = [other] * 256
    for names, handler in handlers.items():
        for name in names.split():
            table[CODES[name]] = handler
    return table


@dataclass(frozen=True, slots=True)
class Global:
    """A name that the pickle imports; here only text."""

    module: str
    name: str


class _Opaque:
    """Stands for all objects that nobody asks for."""


OPAQUE: Final = _Opaque()
_ORDERED = Global("collections", "OrderedDict")


class Names:
    """What becomes of the names that a pickle imports, and of what it makes with them."""

    def named(self, module: object, name: object) -> object:
        """The value of a name."""
        known = isinstance(name, str) and isinstance(module, str)
        return Global(module, name) if known else OPAQUE  # type: ignore[arg-type]

    def called(self, what: object, args: object, *, new: bool) -> object:
        """The value of calling it; `new`: an instance of the class is made, without its state."""
        return {} if what == _ORDERED else OPAQUE

    def built(self, what: object, state: object) -> None:
        """An instance gets its state."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is looked at and kept of one pickle.

    `opcodes`; `held`: objects in stack, memo and lists; `text`: bytes of a string that is kept.
    `memo`: types of values that the memo keeps, all if empty; `items`: those of all dicts are kept.
    """

    opcodes: int = 2_000_000  # 60,000 tensors or so
    held: int = 400_000
    text: int = 128
    memo: frozenset[type] = frozenset()
    items: bool = True


@dataclass(slots=True)
class Walk:
    """What one pickle says about its persistent ids and outermost object.

    `value` is that object: of dicts it has only the items under the `keys` asked for. `items` are
    those under these keys in all dicts, `ids` the persistent ids, `end` is where the pickle ends.
    """

    value: Any = OPAQUE
    items: list[tuple[str, Any]] = field(default_factory=list)
    ids: list[tuple[Any, ...]] = field(default_factory=list)
    end: int = 0


_WALKED = Bounds()
_PLAIN = Bounds(opcodes=16_000_000, held=4 << 20, text=_MAX_STRING)


def walk(
    data: bytes,
    at: int = 0,
    keys: Collection[str] = (),
    *,
    names: Names | None = None,
    bounds: Bounds = _WALKED,
    refused: frozenset[int] = frozenset(),
) -> Walk:
    """Follow the pickle that begins at `at`; of dicts only items under `keys` are kept.

    Raises TruncatedPickleError, NoPickleError, TooLongError, and UnsafePickleError for an opcode
    that is `refused`.
    """
    table = [_Machine.refuse if code in refused else _HANDLERS[code] for code in range(256)]
    machine = _Machine(data, at, table if refused else _HANDLERS, names or Names(), bounds)
    machine.keys = frozenset(keys)
    return _followed(machine)


def load(data: bytes) -> Any:
    """The plain data (dict, list, pair of strings, str, int, float, bool, None) in `data`.

    What follows the first STOP is ignored. Raises UnsafePickleError, TruncatedPickleError, or
    ValueError for a pickle that makes no sense.
    """
    if len(data) > MAX_BYTES:
        raise UnsafePickleError(f"pickle of {len(data):,} bytes, more than {MAX_BYTES:,}")
    if len(data) < 2 or data[0] != CODES["PROTO"]:
        raise NoPickleError("not a pickle of protocol 2 or later")
    if data[1] > 5:
        raise UnsafePickleError(f"pickle protocol {data[1]}")
    if not bounded(data):
        raise UnsafePickleError(f"pickle with more than {MAX_CONTAINERS:,} containers")
    return _followed(_Machine(data, 2, _PLAIN_HANDLERS, Names(), _PLAIN)).value


def load_truncated(data: bytes) -> Any:
    """What a truncated dump holds up to its last whole entry; the last is the one cut off.

    The recorder writes the top dict with the list of entries as its last value, so closing both
    behind a whole entry gives a whole dump. Raises ValueError where no entry is complete.
    """
    end, left = len(data), _CUT_BYTES
    for _ in range(_CUTS):
        end = data.rfind(b"u}", 0, end)
        left -= end
        if end < 0 or left < 0:
            break
        try:
            found = load(data[: end + 1] + b"eu.")
        except UnsafePickleError:
            raise
        except ValueError:
            continue
        if isinstance(found, dict) and isinstance(found.get("entries"), list):
            return found
    raise ValueError("nothing whole in a truncated pickle")


def bounded(data: bytes) -> bool:
    """Whether a pickle is as small as `load` asks for."""
    containers = len(data) - len(data.translate(None, _CONTAINERS))
    return len(data) <= MAX_BYTES and containers <= MAX_CONTAINERS


def _followed(machine: _Machine) -> Walk:
    try:
        return machine.run()
    except (IndexError, KeyError, TypeError):
        raise NoPickleError("damaged pickle") from None


_CONSTANTS = {CODES["NONE"]: None, CODES["NEWTRUE"]: True, CODES["NEWFALSE"]: False}
_CALLS = {CODES["REDUCE"]: 2, CODES["NEWOBJ"]: 2, CODES["NEWOBJ_EX"]: 3}
_REDUCE, _BININT, _BEFORE_TUPLE1 = CODES["REDUCE"], CODES["BININT"], CODES["TUPLE1"] - 1


class _Machine:
    """Its methods take an opcode and where its argument begins; that ends at `at`.

    With `keys` None all items of dicts are kept.
    """

    def __init__(
        self, data: bytes, at: int, handlers: list[Handler], names: Names, bounds: Bounds
    ) -> None:
        self.data, self.at, self.handlers = data, at, handlers
        self.names, self.bounds = names, bounds
        self.keys: frozenset[str] | None = None
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.slot = 0  # that the next MEMOIZE fills
        self.kept = 0
        self.found = Walk()

    def run(self) -> Walk:
        data, size, handlers, sizes = self.data, len(self.data), self.handlers, SIZES
        bounds, refuse, at = self.bounds, _Machine.refuse, self.at
        for _ in range(0, bounds.opcodes, _COUNTED):
            for _ in range(_COUNTED):
                if at >= size:
                    raise TruncatedPickleError
                code = data[at]
                if sizes[code] > 0:  # most are, and a call would take as long as all the rest
                    begin, at = at + 1, at + sizes[code]
                else:
                    code, begin, at = opcode_at(data, at)
                self.at, handler = at, handlers[code]
                if at > size and handler is not refuse:
                    raise TruncatedPickleError
                if code == STOP:
                    self.found.value = self.stack.pop()
                    self.found.end = at
                    return self.found
                handler(self, code, begin)
            if self._held() > bounds.held:
                raise TooLongError(f"pickle with more than {bounds.held:,} objects at once")
        raise TooLongError(f"pickle of more than {bounds.opcodes:,} opcodes")

    def _held(self) -> int:
        return len(self.stack) + len(self.marks) + len(self.memo) + self.kept

    def put(self, code: int, begin: int) -> None:
        self._store(int.from_bytes(self.data[begin : self.at], "little"))

    def memoize(self, code: int, begin: int) -> None:
        self._store(self.slot)

    def _store(self, slot: int) -> None:
        value = self.stack[-1]
        if not self.bounds.memo or type(value) in self.bounds.memo:
            self.memo[slot] = value
        else:
            self.memo.pop(slot, None)
        self.slot += 1

    def get(self, code: int, begin: int) -> None:
        slot = int.from_bytes(self.data[begin : self.at], "little")
        self.stack.append(self.memo.get(slot, OPAQUE))

    def text(self, code: int, begin: int) -> None:
        short = self.at - begin <= self.bounds.text
        text = self.data[begin : self.at].decode("utf-8", "replace") if short else OPAQUE
        self.stack.append(text)

    def integer(self, code: int, begin: int) -> None:
        raw = self.data[begin : self.at]
        self.stack.append(int.from_bytes(raw, "little", signed=code == _BININT))

    def long(self, code: int, begin: int) -> None:
        short = self.at - begin <= _MAX_LONG
        raw = self.data[begin : self.at]
        self.stack.append(int.from_bytes(raw, "little", signed=True) if short else OPAQUE)

    def float(self, code: int, begin: int) -> None:
        self.stack.append(struct.unpack(">d", self.data[begin : self.at])[0])

    def constant(self, code: int, begin: int) -> None:
        self.stack.append(_CONSTANTS[code])

    def any(self, code: int, begin: int) -> None:
        self.stack.append(OPAQUE)

    def empty_tuple(self, code: int, begin: int) -> None:
        self.stack.append(())

    def empty_list(self, code: int, begin: int) -> None:
        self.stack.append([])

    def empty_dict(self, code: int, begin: int) -> None:
        self.stack.append({})

    def mark(self, code: int, begin: int) -> None:
        self.marks.append(len(self.stack))

    def tuple(self, code: int, begin: int) -> None:
        self._close(self.marks.pop())

    def short_tuple(self, code: int, begin: int) -> None:
        self._close(len(self.stack) - (code - _BEFORE_TUPLE1))

    def pair(self, code: int, begin: int) -> None:
        if any(type(part) is not str for part in self.stack[-2:]):
            raise UnsafePickleError("pickle with a tuple of other things than two strings")
        self._close(len(self.stack) - 2)

    def _close(self, start: int) -> None:
        if start < 0:
            raise NoPickleError("damaged pickle: a tuple of nothing")
        items = self.stack[start:]
        # Tuples inside tuples would take memory that nobody counts, and time to hash.
        flat = tuple([OPAQUE if isinstance(item, tuple) else item for item in items])
        self.stack[start:] = [flat if len(items) <= _MAX_PARTS else OPAQUE]

    def marked(self, code: int, begin: int) -> None:
        """Make one object of all behind the mark."""
        del self.stack[self.marks.pop() :]
        self.stack.append(OPAQUE)

    def imported(self, code: int, begin: int) -> None:
        raw = self.data[begin : min(self.at, begin + _MAX_NAME)].decode("latin-1")
        module, _, name = raw.partition("\n")
        self.stack.append(self.names.named(module, name.rstrip("\n")))

    def imported_from_stack(self, code: int, begin: int) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self.names.named(module, name))

    def persistent(self, code: int, begin: int) -> None:
        pid = self.stack.pop()
        if isinstance(pid, tuple):
            self.found.ids.append(pid)
            self.kept += 1
        self.stack.append(OPAQUE)

    def call(self, code: int, begin: int) -> None:
        *args, what = [self.stack.pop() for _ in range(_CALLS[code])]
        made = self.names.called(what, args[-1], new=code != _REDUCE)
        if isinstance(made, str):  # a few bytes of opcodes give one of any length
            self.kept += len(made) // _MADE
        self.stack.append(made)

    def build(self, code: int, begin: int) -> None:
        state = self.stack.pop()
        self.names.built(self.stack[-1], state)

    def set_item(self, code: int, begin: int) -> None:
        self._fill(len(self.stack) - 2)

    def set_items(self, code: int, begin: int) -> None:
        self._fill(self.marks.pop())

    def _fill(self, start: int) -> None:
        if start < 1:
            raise NoPickleError("damaged pickle: items of nothing")
        to, keys, values = self.stack[start - 1], self.stack[start::2], self.stack[start + 1 :: 2]
        if not isinstance(to, dict):
            pass
        elif self.keys is None:
            to.update(zip(keys, values, strict=True))
            self.kept += _FILLED
        else:
            for key, value in zip(keys, values, strict=False):
                if isinstance(key, str) and key in self.keys:
                    to[key] = value
                    if self.bounds.items:
                        self.found.items.append((key, value))
                        self.kept += 1
        del self.stack[start:]

    def append(self, code: int, begin: int) -> None:
        self._extend(len(self.stack) - 1)

    def appends(self, code: int, begin: int) -> None:
        self._extend(self.marks.pop())

    def _extend(self, start: int) -> None:
        if start < 1:
            raise NoPickleError("damaged pickle: items of nothing")
        to = self.stack[start - 1]
        if isinstance(to, list):
            to += self.stack[start:]
            self.kept += len(self.stack) - start
        del self.stack[start:]

    def pop(self, code: int, begin: int) -> None:
        if self.marks and self.marks[-1] == len(self.stack):
            self.marks.pop()
        else:
            self.stack.pop()

    def drop_marked(self, code: int, begin: int) -> None:
        del self.stack[self.marks.pop() :]

    def duplicate(self, code: int, begin: int) -> None:
        self.stack.append(self.stack[-1])

    def idle(self, code: int, begin: int) -> None:
        pass

    def refuse(self, code: int, begin: int) -> None:
        name = NAMES.get(code, hex(code))
        raise UnsafePickleError(f"pickle with opcode {name} at byte {begin - 1:,}")

    def nothing(self, code: int, begin: int) -> None:
        raise NoPickleError(f"no pickle at byte {begin - 1:,}")


Handler = Callable[[_Machine, int, int], None]
_DATA: dict[str, Handler] = {
    "BINPUT LONG_BINPUT": _Machine.put,
    "BINGET LONG_BINGET": _Machine.get,
    "MEMOIZE": _Machine.memoize,
    "BINUNICODE SHORT_BINUNICODE": _Machine.text,
    "BININT BININT1 BININT2": _Machine.integer,
    "LONG1": _Machine.long,
    "BINFLOAT": _Machine.float,
    "NONE NEWTRUE NEWFALSE": _Machine.constant,
    "MARK": _Machine.mark,
    "EMPTY_TUPLE": _Machine.empty_tuple,
    "EMPTY_LIST": _Machine.empty_list,
    "EMPTY_DICT": _Machine.empty_dict,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "PROTO FRAME STOP": _Machine.idle,
}
_PLAIN_HANDLERS = by_code({**_DATA, "TUPLE2": _Machine.pair}, _Machine.refuse)
_HANDLERS = by_code(
    {
        **_DATA,
        "SHORT_BINSTRING BINUNICODE8": _Machine.text,
        "TUPLE": _Machine.tuple,
        "TUPLE1 TUPLE2 TUPLE3": _Machine.short_tuple,
        "GLOBAL": _Machine.imported,
        "STACK_GLOBAL": _Machine.imported_from_stack,
        "BINPERSID": _Machine.persistent,
        "REDUCE NEWOBJ NEWOBJ_EX": _Machine.call,
        "BUILD": _Machine.build,
        "LIST DICT FROZENSET INST OBJ": _Machine.marked,
        "POP": _Machine.pop,
        "POP_MARK ADDITEMS": _Machine.drop_marked,
        "DUP": _Machine.duplicate,
        # Slots of PUT are those of old text pickles, which nobody asks for.
        "PUT READONLY_BUFFER": _Machine.idle,
        "GET INT LONG LONG4 FLOAT STRING BINSTRING UNICODE BINBYTES SHORT_BINBYTES BINBYTES8 "
        "BYTEARRAY8 NEXT_BUFFER EMPTY_SET EXT1 EXT2 EXT4 PERSID": _Machine.any,
    },
    _Machine.nothing,
)
