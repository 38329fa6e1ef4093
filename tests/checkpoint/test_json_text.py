"""JSON is told cut off or wrong, and takes no more memory than allowed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.checkpoint.contents import MAX_JSON, TOO_HEAVY, DamagedError, parse
from diagnose.checkpoint.model import Flaw

CUT_OFF = Flaw("partial", "ends in the middle of its JSON text")
VALUES = {
    "text": 'quote " back\\slash \u00e9\u4e2d\U0001f600', "words": [True, False, None],
    "numbers": [0, -1, 1.5, -2.5e-10, 1e300, float("inf"), float("-inf"), float("nan")],
    "empty": [{}, [], ""],
}  # fmt: skip


def damage(data: bytes) -> Flaw:
    with pytest.raises(DamagedError) as caught:
        parse(data)
    return caught.value.flaw


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("indent", [None, 2])
def test_text_cut_off_anywhere_is_partial(ascii_only: bool, indent: int | None) -> None:
    whole = json.dumps(VALUES, indent=indent, ensure_ascii=ascii_only).encode()
    assert str(parse(whole)) == str(VALUES)
    for length in range(len(whole)):
        if length:
            assert damage(whole[:length]) == CUT_OFF, whole[:length]


@pytest.mark.parametrize(
    ("data", "flaw"),
    [
        (b"  \n", Flaw("partial", "is blank where JSON should be")),
        (b'{"a": 1}\0\0', Flaw("partial", "ends in 2 zero bytes: its end was never written")),
        (b'{"a": 1}}', Flaw("corrupt", "is not valid JSON: extra data (line 1)")),
        (b'{"a": 1}\n\n{"b', Flaw("corrupt", "is not valid JSON: extra data (line 3)")),
        (
            b'{\n"a": oops and more of it}',
            Flaw("corrupt", "is not valid JSON: expecting value (line 2)"),
        ),
        (b'{"a" 1}', Flaw("corrupt", "is not valid JSON: expecting ':' delimiter (line 1)")),
        (b'{"a": \xff}', Flaw("corrupt", "is not valid JSON: invalid start byte at byte 6")),
        (b"[" * 100_000, Flaw("unknown", "is nested too deeply to check")),
        (b"[" + b"1" * 5000 + b"]", Flaw("corrupt", "has an unreadable number")),
    ],
)  # fmt: skip
def test_what_is_wrong(data: bytes, flaw: Flaw) -> None:
    assert damage(data) == flaw


def test_a_byte_order_mark_is_no_flaw() -> None:
    assert parse(b"\xef\xbb\xbf[1]") == [1]


def test_json_lines_under_the_name_of_json() -> None:
    assert parse(b'{"step": 1}\n{"step": 2}\n') is TOO_HEAVY
    assert parse(b'{"step": 1}\n{"st') is TOO_HEAVY  # still written to


def test_too_many_bytes_are_not_read() -> None:
    assert damage(bytes(MAX_JSON + 1)).why == "has 67,108,865 bytes: too many to check"


HEAVY = b"[" + b'{"a,]}": 0},' * 700_000


@pytest.mark.slow
def test_heavy_text_is_checked_without_building_it() -> None:
    assert parse(HEAVY + b"0]") is TOO_HEAVY
    assert damage(HEAVY) == CUT_OFF
    assert damage(HEAVY + b'"abc') == CUT_OFF
    assert damage(HEAVY + b"0]]") == Flaw(
        "corrupt", "is not valid JSON: it closes more brackets than it opens"
    )


def test_large_text_of_little_weight_is_built() -> None:
    text = 'brackets [{, and quotes \\" do not weigh in strings' * 60_000
    whole = json.dumps({"a": text, "b": text}).encode()
    assert len(whole) > 2 << 20
    assert parse(whole) == {"a": text, "b": text}
    assert damage(whole[:-3]) == CUT_OFF


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("run", [2 << 20, (2 << 20) + 1])
@pytest.mark.parametrize("before", [0, 1])
def test_escapes_across_pieces(run: int, before: int) -> None:
    text = b'["' + b"x" * (before + (1 << 20) - 500) + b"\\" * run
    assert parse(text + (b'"' if run % 2 else b"") + b'"]') is not None
    assert damage(text + (b"" if run % 2 else b"\\") + b'"]') == CUT_OFF


@given(st.dictionaries(st.text(max_size=5), JSON, min_size=1), st.integers(1, 10_000))
def test_every_prefix_of_an_object_is_partial(value: Any, at: int) -> None:
    whole = json.dumps(value, ensure_ascii=at % 2 == 0).encode()
    assert parse(whole) == value
    assert damage(whole[: at % (len(whole) - 1) + 1][:-1] or b" ").state == "partial"
