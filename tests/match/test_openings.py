"""Texts that announce expressions which have no long word."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.catalog.load import load_catalog
from diagnose.match.build import announced, database_of
from diagnose.match.literals import openings
from diagnose.match.rows import hyperscan_form, patterns_of


@pytest.mark.parametrize(
    ("expression", "texts"),
    [
        (r"\boom[ -]?kill(?:ed|er)?\b", {"oomkill", "oom kill", "oom-kill"}),
        (r"ERR0[02]\d{3} \w+ ", {"ERR00", "ERR02"}),
        (r"\d+ +(?:on|off)\]", {" on]", " off]"}),
        (r"(?i:hb)m", {"hbm", "hBm", "Hbm", "HBm"}),
        (r"(?i)h=b", {"h=b", "h=B", "H=b", "H=B"}),
        (r"\S+ (?:down|up)\b", {" down", " up"}),
        (r"\S+ (?:down|x)\b", set()),  # " x" is too short
        (r"\|.*[ |]ERR!.*\|", {" ERR!", "|ERR!"}),
        (r"\^C", {"^C"}),
        (r"\w+\d", set()),
        (r"\p{Lu} at", set()),  # `re` does not know that
        (r"(?:AllGather|Send): ", set()),  # lines of calls have it
        (r"x{2,}y?z", {"xxz", "xxyz", "xxxx", "xxxy", "xxxz"}),
    ],
)
def test_the_texts_of_an_expression(expression: str, texts: set[str]) -> None:
    assert openings(expression) == texts


@cache  # not while tests are collected, which every worker does
def short() -> list[str]:
    """Expressions of the catalog that only such texts announce."""
    return sorted(
        hyperscan_form(pattern.expression).decode()
        for pattern in patterns_of(load_catalog().signatures)
        if not pattern.ignore_case and database_of(pattern) == "rest"
    )


@given(st.data())
@settings(deadline=None, max_examples=100)
@pytest.mark.slow
def test_every_match_has_one_of_the_texts(data: st.DataObject) -> None:
    expression = data.draw(st.sampled_from(short()))
    match = data.draw(st.from_regex(re.compile(expression, re.ASCII)))
    found = re.search(expression, match, re.ASCII)
    assert found is not None
    assert any(text in found.group() for text in openings(expression))


def test_something_announces_every_pattern_of_the_catalog() -> None:
    """Else every byte of every log would be searched for it."""
    catalog = load_catalog()
    assert [
        pattern.expression
        for pattern in patterns_of(catalog.signatures)
        if not catalog.signatures[pattern.signature].per_step and not announced(pattern)
    ] == []
