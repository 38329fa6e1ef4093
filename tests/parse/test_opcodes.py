"""Pickles are cut into opcodes where pickletools cuts them."""

from __future__ import annotations

import pickle
import pickletools
from collections import OrderedDict
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.parse.pickles import (
    CODES,
    NAMES,
    STOP,
    NoPickleError,
    TruncatedPickleError,
    by_code,
    end_of,
    opcode_at,
)

CONTENT: list[Any] = [
    None, True, [1, -5, 300, 70_000, 2**40, 2**3000, 1.5], "text", "x" * 70_000, b"bytes",
    b"y" * 300, bytearray(b"array"), ({1, 2}, frozenset("x")), OrderedDict(a=Fraction(1, 3)),
]  # fmt: skip


@pytest.mark.parametrize("protocol", range(6))
def test_opcodes_and_arguments(protocol: int) -> None:
    data = pickle.dumps(CONTENT, protocol)
    expected = [(NAMES[ord(op.code)], at) for op, _, at in pickletools.genops(data)]
    found, at = [], 0
    while at < len(data):
        code, begin, end = opcode_at(data, at)
        assert at < begin <= end <= len(data)
        found.append((NAMES[code], at))
        at = end
    assert found == expected
    assert end_of(data + b"behind") == len(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"N", (CODES["NONE"], 1, 1)),
        (b"M\x01\x02", (CODES["BININT2"], 1, 3)),
        (b"\x8c\x03abc", (CODES["SHORT_BINUNICODE"], 2, 5)),
        (b"cos\nsystem\nN", (CODES["GLOBAL"], 1, 11)),
        (b"I12\nN", (CODES["INT"], 1, 4)),
        (b"\xffN", (0xFF, 1, 1)),
    ],
)
def test_one_opcode(data: bytes, expected: tuple[int, int, int]) -> None:
    assert opcode_at(b".." + data, 2) == tuple(
        number + 2 if place else number for place, number in enumerate(expected)
    )


@pytest.mark.parametrize(
    "data",
    [b"M\1", b"\x8c", b"\x8c\x05abc", b"X\xff\xff\xff\x7fabc", b"\x8e\0\0", b"I12", b"cos\nsystem",
     b"\x8b\xff\xff\xff\xff"],
)  # fmt: skip
def test_what_is_cut_off_ends_behind_the_data(data: bytes) -> None:
    assert opcode_at(data, 0)[2] > len(data)
    with pytest.raises(TruncatedPickleError):
        end_of(data)


def test_nothing_is_truncated_and_no_opcode_is_no_pickle() -> None:
    with pytest.raises(TruncatedPickleError, match="truncated pickle"):
        opcode_at(b"N", 1)
    with pytest.raises(TruncatedPickleError):
        end_of(b"N")
    with pytest.raises(NoPickleError, match="byte 1"):
        end_of(b"N\xff.")


@given(st.binary(max_size=60))
def test_noise_has_an_end(noise: bytes) -> None:
    at = 0
    while at < len(noise):
        _, begin, end = opcode_at(noise, at)
        assert at < begin
        assert end >= at + 1
        at = end


def test_handlers_by_code() -> None:
    table = by_code({"MARK STOP": "both", "NONE": "none"}, "other")
    assert len(table) == 256
    assert (table[STOP], table[CODES["MARK"]], table[CODES["NONE"]]) == ("both", "both", "none")
    assert table.count("other") == 253
    with pytest.raises(KeyError):
        by_code({"NOTHING": 1}, 0)
