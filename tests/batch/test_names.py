"""Names of files in the results: any name as UTF-8, no two alike, and back."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.batch.names import restored, shown, stored

TRICKY = st.text(st.sampled_from("\\x5cud8f\udcff\ud800/aé"), max_size=20)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("/a/b c", "/a/b c"),
        ("é\\n", "é\\n"),
        (os.fsdecode(b"x\xff"), r"x\udcff"),
        (r"x\udcff", r"x\x5cudcff"),
        (r"x\x5cudcff", r"x\x5cx5cudcff"),
        (r"C:\x5c\users", r"C:\x5c\users"),
    ],
)
def test_examples(name: str, kept: str) -> None:
    assert stored(name) == kept
    assert restored(kept) == name


@given(TRICKY)
def test_there_and_back(name: str) -> None:
    stored(name).encode()
    assert restored(stored(name)) == name


@given(st.lists(TRICKY, unique=True))
def test_no_two_names_are_stored_alike(names: list[str]) -> None:
    assert len(set(map(stored, names))) == len(names)


def test_what_is_shown_can_be_written_and_shown_again() -> None:
    value = {"\udcff": ["a\ud800", 1, None, {"x": r"\udcff"}]}
    once = {r"\udcff": [r"a\ud800", 1, None, {"x": r"\udcff"}]}
    assert shown(value) == once
    assert shown(once) == once
