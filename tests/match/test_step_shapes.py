"""Thin patterns by the shape of lines: what is told is what a search finds."""

from hypothesis import given
from hypothesis import strategies as st

from diagnose.catalog.schema import Catalog, Signature
from diagnose.match.compile import Matcher, matcher_of
from diagnose.match.steps import _MOST_AT_ONCE, present

SIGNATURES = [
    Signature("t.step", "A step", "progress", [r"step (?P<step>\d+) loss"], per_step=True),
    Signature("t.first", "The first step", "progress", [r"step 1 of \d+"], per_step=True),
    Signature("t.saved", "A save", "progress", [r"^saved at (?P<step>\d+)$"], per_step=True),
]
CATALOG = Catalog(SIGNATURES, [], {}, "step-shapes")
MATCHER = matcher_of(CATALOG)
LINES = [b"step %d loss 2.%d", b"step %d of %d", b"saved at %d%d", b"it was saved at %d%d", b"%d%d"]


def searched(data: bytes) -> frozenset[int]:
    return frozenset(number for number, _ in MATCHER.scan_steps(data))


def fresh() -> Matcher:
    """The matcher without what it knows of lines."""
    MATCHER.__dict__.pop("shapes", None)
    return MATCHER


def test_lines_of_a_shape_are_known_after_the_second() -> None:
    matcher = fresh()
    assert present(b"step 17 loss 2.1\n", matcher) is None
    assert present(b"step 18 loss 2.0\n", matcher) is None
    assert present(b"step 29 loss 9.9\nstep 30 loss 8.1\n", matcher) == {0}
    assert present(b"step 29 loss 9.9\nstep 130 loss 8.1\n", matcher) is None  # a digit more


def test_where_digits_matter_nothing_is_told() -> None:
    matcher = fresh()
    for step in range(1, 9):
        assert present(b"step %d of 9" % step, matcher) is None


def test_a_line_as_long_as_a_log_is_not_remembered() -> None:
    matcher = fresh()
    for _ in range(4):
        assert present(b"step 17 loss 2.1" + b" " * _MOST_AT_ONCE, matcher) is None


@given(st.lists(st.lists(st.tuples(st.sampled_from(LINES), st.integers(1, 120)), max_size=4)))
def test_what_is_told_is_what_a_search_finds(pieces: list[list[tuple[bytes, int]]]) -> None:
    matcher = fresh()
    for piece in pieces * 3:
        data = b"\n".join(line % (number, number % 7) for line, number in piece)
        told = present(data, matcher)
        assert told is None or told == searched(data)
