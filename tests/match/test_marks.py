"""What of the texts that announce something is searched for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.catalog.expressions import HOSTS
from diagnose.catalog.load import load_catalog
from diagnose.match.build import rows_of
from diagnose.match.literals import fewest, marks_of, rarest

TEXTS = st.tuples(st.text("aB :0é", min_size=1, max_size=20), st.booleans())


@pytest.mark.parametrize(
    ("texts", "marks"),
    [
        ({"Watchdog caught"}, {"Watchdog"}),  # what is rare
        ({"Watchdog caught", "was caught up"}, {"Watchdog", "s caught"}),
        ({"is not caught up", "was caught up"}, {" caught "}),  # what several have
        ({"not caught up", "was caught up", "Caught up"}, {"aught up"}),
        ({"elapsed time per iteration is long"}, {"ration i"}),  # not what each step prints
        ({"opCount 12"}, {"Count 12"}),  # nor what each call does
        ({"opCount "}, {"opCount "}),  # but where there is nothing else
        ({"EI0007", "EI00077"}, {"EI0007"}),  # of seven characters six
        ({"oom", "down"}, {"oom", "down"}),
    ],
)
def test_what_is_searched_for(texts: set[str], marks: set[str]) -> None:
    assert marks_of({(text, False) for text in texts}) == {(mark, False) for mark in marks}


@given(st.sets(TEXTS, max_size=12), st.data())
def test_whatever_holds_a_text_holds_a_mark(
    texts: set[tuple[str, bool]], data: st.DataObject
) -> None:
    marks = marks_of(texts)
    for text, ignored in texts:
        flips = data.draw(st.lists(st.booleans(), min_size=len(text), max_size=len(text)))
        pairs = zip(text, flips, strict=True)
        line = "".join(c.swapcase() if flip and c.isascii() else c for c, flip in pairs)
        line = line if ignored else text
        assert any(
            mark.lower() in line.lower() if any_case else mark in line for mark, any_case in marks
        )


def test_the_rarest_part_of_a_text() -> None:
    assert rarest("was caught by Watchdog") == "by Watch"
    assert rarest("loss") == "loss"


@pytest.mark.slow
def test_the_marks_are_of_few_lengths_and_one_is_short() -> None:
    """Each other length, or none below three, would make the search of all bytes slower."""
    sizes = {min(len(form), 8) for form, _, _ in rows_of(load_catalog(), "marks")}
    assert sizes == {2, 3, 4, 5, 6, 8}


@pytest.mark.parametrize(
    ("literals", "kept"),
    [
        ({("failed", False), (" failed", False)}, {("failed", False)}),
        ({("failed", False), ("Failed", False)}, {("failed", False), ("Failed", False)}),
        ({("failed", True), ("Failed", False), ("afailed", True)}, {("failed", True)}),
        ({("failed", False), ("failed t", True)}, {("failed", False), ("failed t", True)}),
        ({("\xe9chec", True), ("\xc9chec", False)}, {("\xe9chec", True), ("\xc9chec", False)}),
    ],
)
def test_a_literal_in_another_is_enough(
    literals: set[tuple[str, bool]], kept: set[tuple[str, bool]]
) -> None:
    assert fewest(literals) == kept


@given(st.sets(st.tuples(st.text("aAbÄ", min_size=1, max_size=5), st.booleans()), max_size=12))
def test_just_those_are_left_out_that_hold_another(literals: set[tuple[str, bool]]) -> None:
    def holds(one: tuple[str, bool], other: tuple[str, bool]) -> bool:
        (literal, ignored), (within, any_case) = one, other
        if any_case:
            # a caseless literal is searched for in ASCII alone
            shorter = len(within) < len(literal) or not ignored
            return shorter and within.isascii() and within.lower() in literal.lower()
        return one != other and not ignored and within in literal

    kept = fewest(literals)
    assert kept <= literals
    assert kept == {one for one in literals if not any(holds(one, other) for other in literals)}


def test_no_mark_is_in_the_name_of_a_host() -> None:
    """Each line of that host would be searched by all automata."""
    marks = [row[0].decode() for row in rows_of(load_catalog(), "marks")]
    assert [mark for mark in marks if any(mark in host for host in HOSTS)] == []
