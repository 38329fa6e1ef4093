"""Which alternatives of an expression no example shows."""

from __future__ import annotations

import pytest
import regex

from diagnose.catalog.matches import alternatives, uncovered


@pytest.mark.parametrize(
    ("expression", "lines", "missing"),
    [
        ("peer lost", ["peer lost"], []),
        ("peer lost", ["peer found"], ["peer lost"]),  # no alternatives: all of it
        ("peer lost", [], ["peer lost"]),
        ("peer lost|peer closed", ["peer lost"], ["peer closed"]),
        ("peer (?:lost|closed) it", ["peer lost it"], ["peer closed it"]),
        ("peer (?P<name>lost|closed)", ["peer lost"], ["peer (?P<name>closed)"]),
        ("peer (lost|closed)", ["peer lost"], ["peer (closed)"]),
        # each of two needs a line, not each of their four ways to go together
        ("(?:peer|host) (?:lost|closed)", ["peer lost", "host closed"], []),
        ("(?:peer|tcp) (?:lost|gone)", ["peer lost"], ["tcp (?:lost|gone)", "(?:peer|tcp) gone"]),
        # one inside another needs the outer one
        ("(?:peer (?:lost|closed)|end of file)", ["end of file"], ["peer lost", "peer closed"]),
        ("(?:peer (?:lost|closed)|end of file)", ["peer lost", "peer closed"], ["end of file"]),
        # what may be left out shows nothing where it is
        ("lost(?: by (?:peer|host))?", ["lost"], ["lost by peer", "lost by host"]),
        ("lost(?: by (?:peer|host))?", ["lost by host"], ["lost by peer"]),
        ("lost(?: by peer)?", ["lost"], []),
        ("lost(?: peer| host)*", ["lost host peer"], []),
        ("lost(?: peer| host)+", ["lost host host"], ["lost(?: peer)+"]),
        # single characters and what has none do not count
        ("[Ll]ost|lo(?:s|o)t too|(?:F|f)ound", ["lost"], ["lo(?:s|o)t too", "(?:F|f)ound"]),
        ("los(?:t|\\d|[ab])", ["lost"], []),
        ("lost(?:$|: peer)", ["lost: peer"], []),
        ("lost(?:| peer)", ["lost peer"], []),
        # what another alternative matches, too, is shown
        ("error|errors", ["errors"], []),
        ("a bracket \\(or|a class [(|]", ["a bracket (or"], ["a class [(|]"]),
        ("lost[|)(]|found", ["lost("], ["found"]),
        ("[^]|]lost|[]|]found", ["xlost"], ["[]|]found"]),
        ("lost [[:alpha:]|]+|found", ["found"], ["lost [[:alpha:]|]+"]),
        ("(?i)lost|found", ["FOUND"], ["(?i)lost"]),
    ],
)  # fmt: skip
def test_what_no_line_matches(expression: str, lines: list[str], missing: list[str]) -> None:
    assert uncovered(expression, lines) == missing


def test_a_missing_one_matches_what_would_show_it() -> None:
    expression = (
        r"(?:(?:rank|peer) \d+|host (?:\S+ )?(?:is|was)) (?:lost|gone(?: for (?:good|ever))?)"
    )
    lines = ["rank 3 lost", "peer 3 gone for good", "host a is gone for ever", "host was lost"]
    assert uncovered(expression, lines) == []
    for line in lines:
        others = [one for one in lines if one != line]
        (missing, *_) = uncovered(expression, others)
        assert regex.search(missing, line)
        assert not any(regex.search(missing, one) for one in others)


def test_case_is_ignored_where_the_entry_does() -> None:
    assert uncovered("lost|found", ["LOST", "Found"]) == ["lost", "found"]
    assert uncovered("lost|found", ["LOST", "Found"], ignore_case=True) == []


def test_a_caret_is_the_start_of_the_message() -> None:
    assert uncovered("^peer lost|^host lost", ["[rank3]: peer lost"]) == ["^host lost"]


def test_texts_are_searched_line_by_line() -> None:
    assert uncovered("lost.*peer|found", ["lost\npeer\nfound\n"]) == ["lost.*peer"]


def test_they_are_in_the_order_of_the_text() -> None:
    expression = "(?:aa|bb(?:cc|dd)) ee|ff"
    texts = [expression[slice(*one.span)] for one in alternatives(expression)]
    assert texts == ["aa", "cc", "dd", "ff"]
