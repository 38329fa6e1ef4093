"""The bytes that usual records of a `.metadata` file have, of any protocol from 2 on."""

from __future__ import annotations

import re
from collections.abc import Callable

from diagnose.lazy import compiled
from diagnose.parse.opcodes import CODES

_LONG1, _SIGNED = CODES["LONG1"], (CODES["BININT"], CODES["LONG1"])


def _pattern(text: bytes) -> Callable[[bytes, int], re.Match[bytes] | None]:
    """What matches opcodes where they begin; capital words stand for what several records have."""
    for name, pattern in {
        b"PARTS": rb"(?:(?!SIZE)(?:GET|NUMBER|N)){0,6}+",
        b"SIZE": rb"(?:NUMBER{1,3}+[\x85-\x87]|\(NUMBER{4,64}+t)PUT\x85PUTRPUT",
        # Atomic: hostile texts are not tried at every end. One with `q` in it takes the long way
        # up to protocol 3.
        b"TEXT": rb"(?>GET|(?:\x8c.|X....)[ -~]{1,512}?PUT)",
        b"LONG": rb"(?:NUMBER|\x8a\x05.{5}|\x8a\x06.{6})",
        b"NUMBER": rb"(?:K.|M..|J....)",
        b"GET": rb"(?:h.|j....)",
        b"PUT": rb"(?:\x94|q.|r....)",
    }.items():
        text = text.replace(name, pattern)
    return compiled(text, re.DOTALL).match


# Behind its class, a new record: (), NEWOBJ, memo, {}, memo, MARK; and a torch.Size: a tuple of
# numbers in a tuple, a call, three memo slots.
NEW_RECORD = _pattern(rb"\)\x81PUT\}PUT\(")
NEW_SIZE = _pattern(rb"SIZE")
# The states of records as far as the BUILD: of a chunk offsets and sizes, of an item what WHERE
# says, of the key of an item its tensor, perhaps offsets, and a number.
CHUNK_STATE = _pattern(rb"(?:GETGETSIZE){2}ub")
ITEM_STATE = _pattern(rb"(GET)(TEXT)(GET)(LONG)(GET)(LONG)ub")
KEY_STATE = _pattern(rb"GET(TEXT)PARTS(SIZE)?PARTSub")


def number_of(opcode: bytes) -> int:
    """The number behind an opcode; behind LONG1 it has a length of one byte."""
    return int.from_bytes(
        opcode[1 + (opcode[0] == _LONG1) :], "little", signed=opcode[0] in _SIGNED
    )
