"""Sequences and mappings whose items are made when they are asked for."""

import copy
import re
from pathlib import Path

import pytest

import diagnose
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


# A quantifier of a group that gives nothing back, or a group that does not.
_POSSESSIVE_GROUP = re.compile(r"\)(?:[*+?]|\{+[\d,]*\}+)\+|\(\?>")


def test_possessive_groups_are_compiled_by_what_matches_them_right_everywhere() -> None:
    """`re` before 3.11.5 does not (CPython gh-106052), and no such version runs these tests."""
    root = Path(diagnose.__file__).parent
    texts = {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*.py")}
    rows = {path.name: path.read_text() for path in root.glob("formats/secrets/*.json")}
    assert [name for name, text in rows.items() if _POSSESSIVE_GROUP.search(text)] == []
    found = {name for name, text in texts.items() if _POSSESSIVE_GROUP.search(text)}
    assert "parse/pickles.py" in found
    assert [name for name in sorted(found) if "lazy import compiled" not in texts[name]] == []
