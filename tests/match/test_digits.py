"""Which digits expressions tell apart, and where these stand in lines."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from diagnose.match.build import digits_in, words_around_digits
from diagnose.match.rows import shape


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (r"rank (?P<rank>\d+) of [0-9]+ in [\w.]+ at 0?x", {b" at 0"}),
        (r"no digit (?:at|all)[a-f]{1,300}\b.*$", set()),
        (r"via P2P/(?P<value>\S+)", {b"via p0p/"}),
        (r"\[Errno (?:39|66)\]", {b"[errno 00"}),
        (r"stage [1-3]x", {b"stage 0x"}),
        (r"hfi1?\b", {b"hfi0"}),
        (r"(?:ab1){2}", {b"ab0"}),
        (r"(?<=a1)b", {b"a0"}),
        (r"a[^3]b", {b"a0b"}),
        (r"\d\D\w\W\s\S[^\d][\s\S][^0-9]", set()),
        (r"\u00e91", {b"0"}),
        (r"(\d)-\1", None),
        (r"[[:digit:]]", None),
        (r"\p{L}1", None),
    ],
)
def test_words_around_digits(expression: str, words: set[bytes] | None) -> None:
    assert words_around_digits(expression) == (None if words is None else frozenset(words))


def test_the_places_of_words() -> None:
    assert digits_in(shape(b"A1 a2 b3 a10"), [b"a0"]) == [(0, 2), (3, 5), (9, 11)]
    assert digits_in(b"nothing", [b"a0"]) == []


PIECES = st.sampled_from(
    ["a", "1", "2", r"\d", "[1-3]", "[^2]", ".", "(?:a1|b2)", "a?", "1?", "[12a]+", "(?P<x>", ")",
     r"\b", "(?=1)", "(?!a2)", "(?:b1){2}", "|", "^", "$", "2{1,2}", r"\w*"]
)  # fmt: skip


@given(st.lists(PIECES, min_size=1, max_size=6), st.text("ab12 ", max_size=8), st.data())
def test_lines_alike_in_these_places_match_alike(
    pieces: list[str], line: str, data: st.DataObject
) -> None:
    expression = "".join(pieces)
    try:
        pattern = re.compile(expression)
    except re.error:
        assume(False)
    words = words_around_digits(expression)
    assert words is not None
    kept = {at for start, end in digits_in(shape(line.encode()), words) for at in range(start, end)}
    other = "".join(
        data.draw(st.sampled_from("0123456789")) if char.isdigit() and at not in kept else char
        for at, char in enumerate(line)
    )
    found, same = pattern.search(line), pattern.search(other)
    assert (found and found.regs) == (same and same.regs)
