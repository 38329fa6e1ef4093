"""The lines with a mark, and what marks tell of NCCL's calls."""

from __future__ import annotations

from diagnose.match.calls import CallMarks
from diagnose.match.compile import marked_lines
from diagnose.match.rows import call_rows
from diagnose.search import compile_database

MARKS = compile_database([b"wo", b"ou", b"tw"], [0, 1, 2], [0, 0, 0], literal=True)


def test_each_line_with_a_mark_is_told_once() -> None:
    data = b"one\ntwo two\n\nfour"
    assert marked_lines(MARKS, data)[0] == [(4, 11), (13, 17)]
    assert marked_lines(MARKS, b"two\nno") == ([(0, 3)], CallMarks())
    assert marked_lines(MARKS, b"\none\n")[0] == []


def test_a_mark_behind_the_first_of_its_line_tells_of_calls_too() -> None:
    rows = [(b"AllReduce", 0, 0), *call_rows()]
    expressions, numbers, flags = zip(*rows, strict=True)
    marks = compile_database(expressions, numbers, flags, literal=True)
    lines, told = marked_lines(marks, b"x\nAllReduce: opCount 1f\nAllReduce comm - Init START\n")
    assert lines == [(2, 23), (24, 51)]
    assert told == CallMarks(inits=[24 + len(b"AllReduce comm - Init S")], calls=True, p2p=False)
    assert marked_lines(marks, b"Send: opCount 1f\n")[1] == CallMarks(calls=True, p2p=True)
