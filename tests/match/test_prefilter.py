"""Literals that announce expressions, and the lines that hold them."""

from __future__ import annotations

import pytest

from diagnose.catalog.load import load_catalog
from diagnose.match.compile import Matcher, compile_matcher
from diagnose.match.literals import required
from diagnose.parse.prefix import peel

FILLER = b"[default3]:step 12/99 loss 2.4900 lr 1e-05\n" * 400


@pytest.mark.parametrize(
    ("expression", "literals"),
    [
        ("Watchdog caught", {"Watchdog caught"}),
        (r"error: (?:\d+) lines", {"error: "}),
        (r"\b(?:opened|closed) by", {"opened", "closed"}),
        (r"(?:a|opened)x", None),  # one way has only a short one
        (r"(?:opened)?ab", None),  # may be left out
        (r"(?:opened)+ab", {"opened"}),
        (r"[Cc]onnected", {"onnected"}),
        (r"failed.*NCCL WARN", {"NCCL WARN"}),  # the longer
        (r"\d+ of \d+", None),
        (r"(?i)was opened", None),  # in any case
        (r"(?i:was opened) by (?:me|you)", {" by me", " by you"}),
        (r"[[:upper:]]+ was opened", None),  # `re` reads it as something else
        (r"state[:=] \w was opened", {" was opened"}),
        (r"\b(?:a|it) (?:hangs?|\b(?:stops|waits) now)", {" hang", " stops", " waits"}),
        (r"not (?:in|x+|(?i:on)) use", None),  # "not " is what they have
        (r"\p{Lu} was opened", None),  # or not at all
        (
            r"NCCL INFO Using network \w+",
            {"NCCL INFO Using network "},
        ),  # not what each call line has
        (r"(?:AllGather|Broadcast)\w*::\d", None),
        ("|".join(f"{chr(0x4E00 + number)}words" for number in range(65)), None),  # too many
    ],
)
def test_every_match_has_one_of_the_literals(expression: str, literals: set[str] | None) -> None:
    assert required(expression) == (None if literals is None else frozenset(literals))


@pytest.fixture(scope="module")
def matcher() -> Matcher:
    return compile_matcher(load_catalog())


@pytest.fixture(scope="module")
def examples(matcher: Matcher) -> list[tuple[str, set[int]]]:
    """The lines of all examples, and which patterns of their signatures they match."""
    catalog = load_catalog(examples=True)
    patterns: dict[str, list[int]] = {}
    for number, pattern in enumerate(matcher.patterns):
        patterns.setdefault(matcher.signatures[pattern.signature].id, []).append(number)
    return [
        (
            line,
            {
                number
                for number in patterns[signature.id]
                if matcher.confirm(number, line, peel(line).message) is not None
            },
        )
        for signature in catalog.signatures
        if not signature.per_step
        for example in signature.examples
        for line in example.line.strip("\n").replace("\r", "\n").split("\n")
    ]


@pytest.mark.parametrize("filler", [FILLER, b""], ids=["few lines have one", "all have one"])
@pytest.mark.slow
def test_nothing_that_matches_is_overlooked(
    matcher: Matcher, examples: list[tuple[str, set[int]]], filler: bytes
) -> None:
    assert len(examples) > 1500
    for at in range(0, len(examples), 100):
        part = examples[at : at + 100]
        data = filler + b"\n".join(line.encode() for line, _ in part)
        first = filler.count(b"\n")
        found = {(number, data.count(b"\n", 0, to - 1)) for number, to in matcher.scan(data)[0]}
        missed = [
            (number, line)
            for row, (line, numbers) in enumerate(part, start=first)
            for number in numbers
            if (number, row) not in found
        ]
        assert missed == []
