"""The forms in which an entry writes its expressions."""

import pytest
import regex

from diagnose.catalog.matches import (
    expression_of,
    parts_of,
    type_near_misses,
    typed_match,
)
from diagnose.catalog.remedies import FieldError
from diagnose.catalog.schema import Example, Match


def test_literals_are_searched_as_they_stand_between_two_expressions() -> None:
    match = Match(any_of=["a+b (c)", "d|e"], after=r"rank \d: |all: ", before=r"\.$")
    expression = expression_of(match)
    assert expression == r"(?:rank \d: |all: )(?:a\+b \(c\)|d\|e)\.$"
    found = [line for line in ("rank 3: a+b (c).", "all: d|e.", "all: d.") if _in(expression, line)]
    assert found == ["rank 3: a+b (c).", "all: d|e."]


def _in(expression: str, line: str) -> bool:
    return regex.search(expression, line) is not None


def test_only_bars_of_the_whole_expression_need_a_group() -> None:
    match = Match(any_of=["x y"], after="^(?:a|b) ")
    assert expression_of(match) == "^(?:a|b) (?:x y)"


def test_an_example_stands_for_all_literals() -> None:
    match = typed_match(
        {
            "any_of": ["one is lost", "Two are lost", "three"],
            "example": {"line": "[rank1]: One is lost!", "captures": {"rank": "1"}},
        },
        [],
    )
    assert match.examples == [
        Example("[rank1]: One is lost!", {"rank": "1"}),
        Example("[rank1]: Two are lost!"),
        Example("[rank1]: three!"),
    ]


def test_a_literal_with_an_example_of_its_own_needs_no_other() -> None:
    match = typed_match({"any_of": ["one", "two"], "examples": ["one.", "two!"]}, [])
    assert [example.line for example in match.examples] == ["one.", "two!"]


def test_one_example_and_several_are_written_alike() -> None:
    assert typed_match({"regex": "a", "example": "a"}, []) == Match(["a"], examples=[Example("a")])
    assert typed_match({"regex": "a", "examples": ["a", {"line": "ab"}]}, []) == Match(
        ["a"], examples=[Example("a"), Example("ab")]
    )


def test_a_near_miss_of_a_known_issue_may_differ_in_its_first_line() -> None:
    item = {"examples": ["v1\nlost\n"], "near_miss": [{"first_line": "v2"}, "none"]}
    type_near_misses(item)
    assert item["near_miss"] == ["v2\nlost\n", "none"]
    with pytest.raises(FieldError, match="expected a text, or first_line"):
        type_near_misses({"examples": ["v1\nlost\n"], "near_miss": [{"first": "v2"}]})


def test_variants_of_a_line() -> None:
    match = typed_match({"regex": "x", "variants": ["{a|b|c} lost {d|e}: {0}"]}, [])
    lines = [example.line for example in match.examples]
    assert lines == ["a lost d: {0}", "b lost e: {0}", "c lost e: {0}"]
    assert typed_match({"regex": "x", "variants": "an{ new|} x"}, []).examples == [
        Example("an new x"), Example("an x")
    ]  # fmt: skip
    with pytest.raises(FieldError, match="make it an example"):
        typed_match({"regex": "x", "variants": ["a lost"]}, [])
    with pytest.raises(FieldError, match="a text or a list of texts"):
        typed_match({"regex": "x", "variants": [{"line": "a"}]}, [])


def test_a_long_expression_is_written_in_parts() -> None:
    match = typed_match({"regex": [r"rank (?P<rank>\d+)", " is lost"], "example": "x"}, [])
    assert expression_of(match) == r"rank (?P<rank>\d+) is lost"
    assert parts_of(match) == match.regex
