"""Reads pickles that hold plain data, and nothing else, without ever running code.

A pickle is a program. Refusing every global keeps it from calling anything, but leaves room for
harm: a five-byte PUT makes the C unpickler allocate 32 GB, a byte array is allocated before its
bytes are looked at, and a dict key of tuples inside tuples takes for ever (or all of the C stack)
to hash. So every opcode is checked before the first object exists:

* only opcodes that genuine Flight Recorder dumps use (and what Python's own pickler writes for the
  same data) pass; GLOBAL, STACK_GLOBAL, REDUCE, BUILD, INST, OBJ, NEWOBJ, EXT*, PERSID and all
  others end the reading with their name;
* a PUT stands right behind what it stores (so no tuple gets into the memo unseen: closing nothing
  into what lies below, `(e`, is only allowed on a new list) and below `MAX_MEMO`;
* integers have at most 8 bytes;
* a tuple is empty or a pair of strings, hence never nested; its strings may come from the memo;
* bytes, strings and containers are counted (`MAX_BYTES`, `MAX_STRING`, `MAX_CONTAINERS`).

One regular expression runs over the fixed-size opcodes, strings and pairs are looked at one by
one (a dump keeps a string once, in the memo), then the C unpickler builds the data. That costs
about as much again as the C unpickler alone; an interpreter in Python costs five times as much.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Callable
from typing import Any, NoReturn

from diagnose.lazy import compiled
from diagnose.parse.opcodes import (
    CODES,
    NAMES,
    STOP,
    TruncatedPickleError,
    UnsafePickleError,
    by_code,
    opcode_at,
)

MAX_BYTES = 64 << 20
MAX_STRING = 1 << 20
MAX_CONTAINERS = 2 << 20
MAX_MEMO = 1 << 20

_PAIRED = rb"(?!X|\x8c|\x86|h.\x86|j....\x86)"  # a GET that may belong to a pair stays out
_LONGS = b"|".join(rb"\x8a" + re.escape(bytes([size])) + b".{%d}" % size for size in range(9))
_SCALAR = rb"[N\x88\x89]|K.|M..|J....|\x8a\x08........"


def _run(put: bytes) -> re.Pattern[bytes]:
    """Opcodes of fixed size, as many as possible at once; `put` may stand behind a container.

    What comes often in a dump is taken together: a key from the memo and its number; a list of
    lists of numbers; a list from the memo.
    """
    listed = rb"]\((?:]\((?:K.|M..|J....)++e|h.(?=[he]))*+e" + put
    return compiled(
        rb"(?:h.(?:" + _SCALAR + rb"|" + listed + rb"|(?=h.[^\x86])|" + _PAIRED + rb")"
        rb"|" + _SCALAR + rb"|[as)]|\((?![eu])|[eu]" + put + rb"|](?:\(e)?" + put + rb"(?!\x94)"
        rb"|}(?:\(u)?" + put + rb"(?!\x94)|j...." + _PAIRED + rb"|" + _LONGS + rb"|G........)*+",
        re.DOTALL,
    )  # fmt: skip


# Up to protocol 3 the memo is filled by PUT, from 4 on by MEMOIZE, which counts: never both.
_RUN_PUT, _RUN_MEMOIZE = _run(rb"(?:q.|r..[\x00-\x0f]\x00)?"), _run(b"")
_CONTAINERS = b"]})\x86("
_CUTS = 32  # places tried to cut a truncated list of entries at
_CUT_BYTES = 4 * MAX_BYTES  # that are looked at for that


class _NoGlobals(pickle.Unpickler):
    """The second lock: `_check` has already refused every opcode that would come here."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise UnsafePickleError(f"pickle names the global {module[:80]!r}.{name[:80]!r}")

    def persistent_load(self, pid: object) -> NoReturn:
        raise UnsafePickleError("pickle asks for a persistent object")


def load(data: bytes) -> Any:
    """The plain data (dict, list, pair of strings, str, int, float, bool, None) in `data`.

    What follows the first STOP is ignored. Raises UnsafePickleError, TruncatedPickleError, or
    ValueError for a pickle that makes no sense; nothing is built or run in the first two cases.
    """
    end = _check(data)
    try:
        # Buffered: with peek() the unpickler reads ahead, else it calls read() for every opcode.
        return _NoGlobals(io.BufferedReader(io.BytesIO(data[:end]), 1 << 20)).load()
    except UnsafePickleError:
        raise
    except Exception as error:
        # A stack underflow, a list as a key, text that is not UTF-8: the unpickler has many names.
        raise ValueError(f"damaged pickle: {str(error)[:120]}") from None


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
        except TruncatedPickleError:
            continue
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


def _check(data: bytes) -> int:
    """Where the STOP ends; raises before anything is built."""
    if len(data) > MAX_BYTES:
        raise UnsafePickleError(f"pickle of {len(data):,} bytes, more than {MAX_BYTES:,}")
    if len(data) < 2 or data[0] != CODES["PROTO"]:
        raise ValueError("not a pickle of protocol 2 or later")
    if data[1] > 5:
        raise UnsafePickleError(f"pickle protocol {data[1]}")
    if not bounded(data):
        raise UnsafePickleError(f"pickle with more than {MAX_CONTAINERS:,} containers")
    return _Checker(data, counts=data[1] >= 4).run()


class _Checker:
    """Goes through a pickle. Its methods take an opcode at `at`, and where its argument begins.

    They leave `at` where the next opcode is, which may be behind the end.
    """

    def __init__(self, data: bytes, *, counts: bool) -> None:
        self.data, self.at, self.end = data, 2, 2
        self.counts = counts  # the memo is filled by MEMOIZE
        self.memoized = 0
        self.texts: set[int] = set()  # memo slots that hold a string
        self.fresh = 0  # how many strings were pushed last, one behind the other

    def run(self) -> int:
        """Where the STOP ends."""
        data, size = self.data, len(self.data)
        scan = (_RUN_MEMOIZE if self.counts else _RUN_PUT).match
        while True:
            run = scan(data, self.at)
            assert run is not None  # it matches the empty string
            if run.end() != self.at:
                self.at, self.fresh = run.end(), 0
            code, begin, self.end = opcode_at(data, self.at)
            if code == STOP:
                return self.end
            _HANDLERS[code](self, code, begin)
            if self.at > size:
                raise TruncatedPickleError

    def _get(self, code: int, begin: int) -> None:
        data, at = self.data, self.at
        if code == _GET and data[at + 2 : at + 5 : 2] == b"h\x86":  # a pair, all at once
            if data[at + 1] not in self.texts or data[at + 3] not in self.texts:
                raise UnsafePickleError(_ODD_TUPLE)
            self._no_text(at + 5)
            return
        slot = int.from_bytes(data[begin : self.end], "little")
        self.at, self.fresh = self.end, self.fresh + 1 if slot in self.texts else 0

    def _string(self, code: int, begin: int) -> None:
        length = self.end - begin
        if length > MAX_STRING:
            raise UnsafePickleError(f"pickle claims a string of {length:,} bytes")
        self.texts.add(self._stored(self.end))
        self.fresh += 1

    def _pair(self, code: int, begin: int) -> None:
        if self.fresh < 2:
            raise UnsafePickleError(_ODD_TUPLE)
        self._no_text(begin)

    def _container(self, code: int, begin: int) -> None:
        """The pattern of what comes often has taken all others."""
        if not self.counts or self.data[begin : begin + 1] != _MEMOIZE:
            self._refuse(code, begin)
        self._no_text(begin)

    def _no_text(self, at: int) -> None:
        """Something else than a string ends at `at`."""
        self.texts.discard(self._stored(at))
        self.fresh = 0

    def _frame(self, code: int, begin: int) -> None:
        self.at = self.end
        if self.data[self.at : self.at + 1] in (b"e", b"u"):
            raise UnsafePickleError(f"pickle with an odd frame at byte {self.at:,}")

    def _refuse(self, code: int, begin: int) -> None:
        if self.end > len(self.data) and code in _CUT_OFF and self.end - begin <= 8:
            raise TruncatedPickleError
        name = NAMES.get(code, hex(code))
        raise UnsafePickleError(f"pickle with opcode {name} at byte {self.at:,}")

    def _stored(self, at: int) -> int:
        """Step over the PUT or MEMOIZE at `at`, if there is one; gives its slot."""
        self.at = at
        if self.counts:
            if self.data[at : at + 1] != _MEMOIZE:
                return _NOWHERE
            self.at += 1
            self.memoized += 1
            return self.memoized - 1
        if self.data[at : at + 1] not in _PUTS:
            return _NOWHERE
        _, begin, self.at = opcode_at(self.data, at)
        slot = int.from_bytes(self.data[begin : self.at], "little")
        if slot >= MAX_MEMO:
            raise UnsafePickleError(f"pickle stores into memo slot {slot:,}")
        return slot


_ODD_TUPLE = "pickle with a tuple of other things than two strings"
_NOWHERE = -1
_GET, _MEMOIZE = CODES["BINGET"], bytes([CODES["MEMOIZE"]])
_PUTS = (bytes([CODES["BINPUT"]]), bytes([CODES["LONG_BINPUT"]]))
# What is allowed elsewhere, or taken at once where it is whole.
_CUT_OFF = frozenset(b"qrKMJG\x8a")
_HANDLERS: list[Callable[[_Checker, int, int], None]] = by_code(
    {
        "BINGET LONG_BINGET": _Checker._get,
        "BINUNICODE SHORT_BINUNICODE": _Checker._string,
        "TUPLE2": _Checker._pair,
        "EMPTY_LIST EMPTY_DICT": _Checker._container,
        "FRAME": _Checker._frame,
    },
    _Checker._refuse,
)
