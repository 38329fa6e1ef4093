"""Literals that announce expressions, and the lines that hold them."""

from __future__ import annotations

import pytest

from diagnose.catalog.load import load_catalog
from diagnose.match.compile import Matcher, build_database, compile_matcher
from diagnose.match.prefilter import lines_with, required

FILLER = b"[default3]:step 12/99 loss 2.4900 lr 1e-05\n" * 400


@pytest.mark.parametrize(
    ("expression", "literals"),
    [
        ("Watchdog caught", {"Watchdog"}),
        (r"error: (?:\d+) lines", {"error: "}),
        (r"\b(?:opened|closed) by", {"opened", "closed"}),
        (r"(?:a|opened)x", None),  # one way has only a short one
        (r"(?:opened)?ab", None),  # may be left out
        (r"(?:opened)+ab", {"opened"}),
        (r"[Cc]onnected", {"onnected"}),
        (r"failed.*NCCL WARN", {"NCCL WAR"}),  # the longer, of it what is rare
        (r"\d+ of \d+", None),
        (r"NCCL INFO Using network \w+", {"L INFO U"}),  # not what each call line has
        (r"(?:AllGather|Broadcast)\w*::\d", None),
        ("|".join(f"{chr(0x4E00 + number)}words" for number in range(65)), None),  # too many
    ],
)
def test_every_match_has_one_of_the_literals(expression: str, literals: set[str] | None) -> None:
    assert required(expression) == (None if literals is None else frozenset(literals))


def test_lines_are_those_around_the_offsets() -> None:
    data = b"one\ntwo two\n\nfour"
    assert lines_with(data, [1, 3, 5, 9, 14, 17]) == [(0, 3), (4, 11), (13, 17)]
    assert lines_with(data, []) == []


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return compile_matcher(load_catalog())


def test_lines_alone_give_what_the_whole_gives(matcher: Matcher) -> None:
    catalog = load_catalog(examples=True)
    examples = [
        example.line
        for signature in catalog.signatures
        if signature.examples is not None and not signature.thin
        for example in signature.examples.match
    ]
    assert len(examples) > 1500
    for at in range(0, len(examples), 100):
        text = "".join(f"{line}\n".replace("\r", "\n") for line in examples[at : at + 100])
        data = FILLER * (1 + len(text) // len(FILLER)) * 2 + text.encode() + FILLER
        hits = found_in(matcher, data)
        assert hits == found_in(whole(matcher), data), examples[at : at + 100]


def found_in(matcher: Matcher, data: bytes) -> set[tuple[int, int]]:
    """Pattern and line of each hit."""
    return {(number, data.count(b"\n", 0, to - 1)) for number, to in matcher.scan(data)[0]}


def whole(matcher: Matcher) -> Matcher:
    """One that searches everything for all expressions."""
    catalog = load_catalog()
    bulk = matcher._bulk
    never = build_database(type(catalog)([], [], {}, ""), "words")
    return Matcher(catalog, [bulk, bulk, matcher._thin_first, matcher._thin_all, never])
