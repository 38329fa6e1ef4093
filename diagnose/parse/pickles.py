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
import pickletools
import re
from typing import Any, NoReturn

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
    return re.compile(
        rb"(?:h.(?:" + _SCALAR + rb"|" + listed + rb"|(?=h.[^\x86])|" + _PAIRED + rb")"
        rb"|" + _SCALAR + rb"|[as)]|\((?![eu])|[eu]" + put + rb"|](?:\(e)?" + put + rb"(?!\x94)"
        rb"|}(?:\(u)?" + put + rb"(?!\x94)|j...." + _PAIRED + rb"|" + _LONGS + rb"|G........)*+",
        re.DOTALL,
    )  # fmt: skip


# Up to protocol 3 the memo is filled by PUT, from 4 on by MEMOIZE, which counts: never both.
_RUN_PUT, _RUN_MEMOIZE = _run(rb"(?:q.|r..[\x00-\x0f]\x00)?"), _run(b"")
# Bytes of what may stand cut off at the end (of an integer: as far as its size).
_WIDTHS = dict(zip(b"hjqrKMJGX\x8c\x8a\x95", (2, 5, 2, 5, 2, 3, 5, 9, 5, 2, 10, 9), strict=True))
_CONTAINERS = b"]})\x86("
_STOP, _STRING, _SHORT_STRING, _GET, _LONG_GET = b".X\x8chj"
_PAIR, _MEMOIZE, _FRAME, _BINPUT, _LONG_BINPUT = b"\x86\x94\x95qr"
_NAMES = {ord(op.code): op.name for op in pickletools.opcodes}
_CUTS = 32  # places tried to cut a truncated list of entries at
_CUT_BYTES = 4 * MAX_BYTES  # that are looked at for that


class UnsafePickleError(ValueError):
    """The pickle holds more than plain data, or more of it than allowed; one line says what."""


class TruncatedPickleError(ValueError):
    """The pickle ends before its STOP."""


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


def _check(data: bytes) -> int:
    """Where the STOP ends; raises before anything is built."""
    if len(data) > MAX_BYTES:
        raise UnsafePickleError(f"pickle of {len(data):,} bytes, more than {MAX_BYTES:,}")
    if len(data) < 2 or data[0] != 0x80:
        raise ValueError("not a pickle of protocol 2 or later")
    if data[1] > 5:
        raise UnsafePickleError(f"pickle protocol {data[1]}")
    if len(data) - len(data.translate(None, _CONTAINERS)) > MAX_CONTAINERS:
        raise UnsafePickleError(f"pickle with more than {MAX_CONTAINERS:,} containers")
    counts = data[1] >= 4
    at, size, scan = 2, len(data), (_RUN_MEMOIZE if counts else _RUN_PUT).match
    texts: set[int] = set()  # memo slots that hold a string
    memoized = 0 if counts else -1
    fresh = 0  # how many strings were pushed last, one behind the other
    while True:
        run = scan(data, at)
        assert run is not None  # it matches the empty string
        if run.end() != at:
            at, fresh = run.end(), 0
        if at >= size:
            raise TruncatedPickleError("truncated pickle")
        op = data[at]
        if op == _GET and data[at + 2 : at + 5 : 2] == b"h\x86":
            if data[at + 1] not in texts or data[at + 3] not in texts:
                raise UnsafePickleError(_ODD_TUPLE)
            at, slot, memoized = _stored(data, at + 5, memoized)
            texts.discard(slot)
            fresh = 0
        elif op == _STOP:
            return at + 1
        elif op in (_STRING, _SHORT_STRING):
            head = 5 if op == _STRING else 2
            length = int.from_bytes(data[at + 1 : at + head], "little")
            if length > MAX_STRING:
                raise UnsafePickleError(f"pickle claims a string of {length:,} bytes")
            at, slot, memoized = _stored(data, at + head + length, memoized)
            texts.add(slot)
            fresh += 1
        elif op in (_GET, _LONG_GET) and at + (2 if op == _GET else 5) <= size:
            width = 1 if op == _GET else 4
            slot = int.from_bytes(data[at + 1 : at + 1 + width], "little")
            fresh = fresh + 1 if slot in texts else 0
            at += 1 + width
        elif op == _PAIR or (op in b"]}" and data[at + 1 : at + 2] == b"\x94" and counts):
            if op == _PAIR and fresh < 2:
                raise UnsafePickleError(_ODD_TUPLE)
            at, slot, memoized = _stored(data, at + 1, memoized)
            texts.discard(slot)
            fresh = 0
        elif op == _FRAME and at + 9 <= size:
            at += 9
            if data[at : at + 1] in (b"e", b"u"):
                raise UnsafePickleError(f"pickle with an odd frame at byte {at:,}")
        elif at + _WIDTHS.get(op, 1) > size:
            raise TruncatedPickleError("truncated pickle")
        else:
            raise UnsafePickleError(f"pickle with opcode {_NAMES.get(op, hex(op))} at byte {at:,}")
        if at > size:
            raise TruncatedPickleError("truncated pickle")


_ODD_TUPLE = "pickle with a tuple of other things than two strings"
_NOWHERE = -1


def _stored(data: bytes, at: int, memoized: int) -> tuple[int, int, int]:
    """Step over a PUT or MEMOIZE at `at`: (behind it, its slot, MEMOIZEs so far).

    `memoized` is -1 where the memo is filled by PUT. What is not one of them is left alone.
    """
    op = data[at] if at < len(data) else None
    if memoized >= 0:
        return (at + 1, memoized, memoized + 1) if op == _MEMOIZE else (at, _NOWHERE, memoized)
    if op == _BINPUT:
        return at + 2, data[at + 1] if at + 1 < len(data) else _NOWHERE, memoized
    if op == _LONG_BINPUT:
        slot = int.from_bytes(data[at + 1 : at + 5], "little")
        if slot >= MAX_MEMO:
            raise UnsafePickleError(f"pickle stores into memo slot {slot:,}")
        return at + 5, slot, memoized
    return at, _NOWHERE, memoized
