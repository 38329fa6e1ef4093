"""Cuts a pickle into its opcodes and their arguments; nothing is built, imported or run.

The opcodes and the sizes of their arguments are those of `pickletools`, whose own `genops` decodes
each argument and takes twice as long.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Mapping
from typing import TypeVar

from diagnose.lazy import compiled

Handler = TypeVar("Handler")


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


def by_code(handlers: Mapping[str, Handler], other: Handler) -> list[Handler]:
    """What handles each of the 256 codes; the keys are names of opcodes, with spaces between."""
    table = [other] * 256
    for names, handler in handlers.items():
        for name in names.split():
            table[CODES[name]] = handler
    return table
