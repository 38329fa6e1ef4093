"""Where digits of a line matter to the patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.catalog import stored
from diagnose.catalog.load import load_catalog
from diagnose.match.build import Doubt, Doubts, doubts_of
from diagnose.match.rows import name_of


def test_digits_matter_in_the_words_that_an_expression_knows() -> None:
    doubts = Doubts([Doubt(False, [["P0P level"]], ["p0p"])])
    same = b"0:0 P0P level 0 on 00"
    assert [same[start:end] for start, end in doubts.fixed(same)] == [b"P0P"]
    assert doubts.fixed(b"0:0 P0P is 0") == []


@pytest.mark.parametrize("literal", ["P0", "P0P", "P0P l", "P0P level"])
def test_literals_of_any_length_are_found(literal: str) -> None:
    assert Doubts([Doubt(False, [[literal]], ["p0"])]).fixed(b"00 P0P level") == [(3, 5)]


@pytest.mark.parametrize("data", [b"", b"[[1", b'{"a": 1}', b"[7]", b"\xff"])
def test_what_cannot_be_read_is_worked_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    catalog = load_catalog()
    same = b"node0:00:00 [0] NCCL INFO Channel 00/0 : 0[0] -> 0[0] via P0P/IPC"
    expected = doubts_of(catalog).fixed(same)
    assert expected
    monkeypatch.setattr(stored, "PACKAGE", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    stored.keep(name_of(catalog.revision), {"digits": data})
    assert doubts_of(catalog).fixed(same) == expected
