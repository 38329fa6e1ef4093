"""A walk over a pickle finds its end and its plain values, and imports nothing."""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import OrderedDict
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.parse.pickles import (
    OPAQUE,
    Bounds,
    NoPickleError,
    TooLongError,
    TruncatedPickleError,
    end_of,
    walk,
)

CONTENTS: list[Any] = [
    None,
    [1, -5, 2**40, 2**3000, 1.5, "text", b"bytes", bytearray(b"array"), True],
    {"a": {"b": ({1, 2}, frozenset("x"))}, "c": OrderedDict(d=1)},
    Fraction(1, 3),
    ["x" * 300, b"y" * 300, "z" * 70_000],
    [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
    list(range(3000)),
    range(5),
]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("content", CONTENTS, ids=range(len(CONTENTS)))
def test_the_end_is_found(content: Any, protocol: int) -> None:
    data = pickle.dumps(content, protocol)
    assert end_of(data + b"behind") == len(data)
    assert walk(data + b"behind").end == len(data)
    assert end_of(b"before" + data, 6) == 6 + len(data)
    for length in [*range(min(400, len(data))), len(data) - 1]:
        with pytest.raises(TruncatedPickleError):
            end_of(data[:length])
        with pytest.raises((TruncatedPickleError, NoPickleError)):
            walk(data[:length])


def test_every_opcode_is_known() -> None:
    """What pickletools can step over, the walks can, too."""
    for opcode in pickletools.opcodes:
        if opcode.name == "STOP":
            continue
        argument = b"1\n1\n" if opcode.arg else b""
        if opcode.arg and opcode.arg.n >= 0:
            argument = b"\1" * opcode.arg.n
        elif opcode.arg and opcode.arg.n < -1:
            width = {-2: 1, -3: 4, -4: 4, -5: 8}[opcode.arg.n]
            argument = (2).to_bytes(width, "little") + b"ab"
        elif opcode.arg and opcode.arg is not pickletools.stringnl_noescape_pair:
            argument = b"1\n"
        data = opcode.code.encode("latin-1") + argument + b"."
        assert end_of(data) == len(data), opcode.name
        # On a stack with all that any of them takes.
        below = b"}(NNNN" if opcode.name in ("SETITEMS", "DICT") else b"(](NNN("
        walk(below + opcode.code.encode("latin-1") + argument + b"N.")


def test_values_and_persistent_ids() -> None:
    class Kept:
        """Written as a persistent id."""

    class Pickler(pickle.Pickler):
        def persistent_id(self, item: Any) -> Any:
            return ("storage", Fraction, "7", ("deep", ("er",))) if isinstance(item, Kept) else None

    sink = io.BytesIO()
    Pickler(sink, 2).dump({"w": Kept(), "n": 5, "skip": 6, "list": ["a", -1, None, False]})
    found = walk(sink.getvalue(), keys=("n", "list"))
    assert found.value == {"n": 5, "list": ["a", -1, None, False]}
    ((kind, named, key, deep),) = found.ids
    assert (kind, key) == ("storage", "7")
    assert (named.module, named.name) == ("fractions", "Fraction")
    assert deep is OPAQUE


def test_what_is_no_pickle() -> None:
    for data in (b"\xff", b"\x80\2]\xff.", b"\x80\2s.", b"\x80\2]t."):
        with pytest.raises(NoPickleError):
            walk(data)
    with pytest.raises(NoPickleError):
        end_of(b"]\xff.")


@pytest.mark.parametrize("unit", [b"]", b"(", b"X\1\0\0\0a", b"2"])
@pytest.mark.slow
def test_memory_is_bounded(unit: bytes) -> None:
    with pytest.raises(TooLongError):
        walk(b"\x80\2]" + unit * (2 * Bounds().held) + b".")


@given(st.binary(max_size=60))
def test_noise(noise: bytes) -> None:
    for reads in (end_of, walk):
        try:
            reads(b"\x80\2" + noise)
        except (TruncatedPickleError, NoPickleError, TooLongError):
            continue
