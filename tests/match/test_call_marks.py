"""What the automaton of the marks tells of NCCL's call lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Catalog
from diagnose.match.calls import CallMarks, marks_in, with_init
from diagnose.match.compile import compile_matcher
from tests.match.matchers import matcher_of

PIECES = (
    b"- Init START",
    b"- Init COMPLETE",
    b"- Init ",
    b"opCount ",
    b" AllReduce: opCount 0 ",
    b"Reduce: opCount 1f ",
    b"Send: opCount ",
    b"Recv: opCount ",
    b"Send: ",
    b"x",
    b"\n",
    b"- ",
)


def as_found_one_by_one(data: bytes) -> CallMarks:
    begins = (b"- Init S", b"- Init C", b" AllReduce: opCount 0 ")
    places = range(len(data))
    inits = [at + len(text) for at in places for text in begins if data.startswith(text, at)]
    p2p = b"Send: opCount " in data or b"Recv: opCount " in data
    return CallMarks(inits, b"opCount " in data, p2p)


@given(st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join))
def test_call_lines_are_told_as_if_looked_for_one_by_one(data: bytes) -> None:
    assert compile_matcher(load_catalog()).scan(data).calls == as_found_one_by_one(data)
    lines = data.split(b"\n")
    starts = [0, *(at + 1 for at, char in enumerate(data) if char == ord("\n"))]
    begun = with_init({*lines})
    inits = [(at, line) for at, line in zip(starts, lines, strict=True) if line in begun]
    assert marks_in({*lines}, inits) == as_found_one_by_one(data)


def test_a_catalog_without_entries_tells_of_them_too() -> None:
    assert matcher_of(Catalog([], [], {}, "t")).scan(b"a - Init START opCount ").calls == CallMarks(
        [10], True, False
    )
