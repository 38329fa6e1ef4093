"""Sequences and mappings whose items are made when they are asked for."""

import copy
import re

import pytest

from diagnose.lazy import Lazy, Named, expression


class Squares(Lazy[int]):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.made: list[int] = []

    def make(self, index: int) -> int:
        self.made.append(index)
        return index * index


def test_an_item_is_made_once_when_it_is_asked_for() -> None:
    squares = Squares(100)
    assert squares[3] == squares[-97] == squares[3] == 9
    assert squares.made == [3]
    assert squares[97:] == [97 * 97, 98 * 98, 99 * 99]
    assert list(squares) == [number * number for number in range(100)]
    assert len(squares.made) == len(squares) == 100
    with pytest.raises(IndexError):
        squares[100]


def test_items_by_name() -> None:
    squares = Squares(3)
    named = Named(["nought", "one", "two"], squares)
    assert "two" in named
    assert list(named) == ["nought", "one", "two"]
    assert squares.made == []
    assert named["two"] == 4
    assert named.get("three") is None
    assert squares.made == [2]


def test_an_expression_is_compiled_when_it_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    compile_ = re.compile
    monkeypatch.setattr(re, "compile", lambda *given: compiled.append(given) or compile_(*given))
    word = expression(rb"(?P<one>[a-z])\Z", re.IGNORECASE)
    assert word.pattern == rb"(?P<one>[a-z])\Z"
    assert compiled == []
    found = word.search(b"1X")
    assert found is not None
    assert found["one"] == b"X"
    assert word.search(b"x1") is word.match(b"1") is None
    assert word.groups == 1
    assert compiled == [(rb"(?P<one>[a-z])\Z", re.IGNORECASE)] * 3  # once a method
    assert copy.copy(word).pattern == word.pattern
