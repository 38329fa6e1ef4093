"""Phrases that stand for an expression."""

from __future__ import annotations

import pytest
import regex

from diagnose.match.literals import simpler


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        (r"Rank \d+ has left the group", [" has left the group"]),
        (r"Rank \d+ left", [r"Rank \d+ left"]),  # words too short to tell
        (r"torch/distributed/run\.py:\d+", [r"torch/distributed/run\.py:\d+"]),  # no words
        (r"no such port \(\S+\)", [r"no such port \("]),
        (r"lost it: .{0,60}\bGPU\b", [r"lost it: .*\bGPU\b"]),
        (r"\d{1,3} x \d{2,} y{,4} \{0,9}", [r"\d+ x \d{2,} y* \{0,9}"]),
        (r"took a long time|slow \w+", ["took a long time", r"(?:slow \w+)"]),
        (
            r"srun: .*(?:job env is missing|slow [\w|)]+|(?:a|b)c|het group is missing)\b",
            ["het group is missing", "job env is missing", r"srun: .*(?:slow [\w|)]+|(?:a|b)c)\b"],
        ),
        (r"(?:took a long time|slow)? to end", [r"(?:took a long time|slow)? to end"]),
    ],
)
def test_what_is_searched_instead(expression: str, found: list[str]) -> None:
    assert simpler(expression) == found


def test_all_that_matches_is_found() -> None:
    expression = r"E\d+: .{0,9}(?:out of time and space|short \d{1,2}|in (?:a|b) long wait)"
    for line in ("E1: out of time and space", "E1: x short 12", "E22: in b long wait"):
        assert regex.search(expression, line)
        assert any(regex.search(one, line) for one in simpler(expression))
