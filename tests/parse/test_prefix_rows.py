"""The samples of the rows of prefixes."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from diagnose.formats import data, table
from diagnose.match.build import blind
from diagnose.parse.prefix import Prefix, Row, peel
from diagnose.parse.repeated import peel_repeated, way_of

from .said import said

ROWS = table.written()
SAMPLES = [(row, sample) for row in ROWS for sample in row["samples"]]


@pytest.mark.parametrize(("row", "sample"), SAMPLES, ids=[one["line"] for _, one in SAMPLES])
def test_sample(row: dict[str, Any], sample: dict[str, Any], filled: list[str]) -> None:
    assert said(sample["line"]) == sample
    assert row["match"] in filled or row.get("decode") == "json"


@pytest.fixture
def filled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The expressions of the rows that filled a prefix."""
    found: list[str] = []
    fill = Row._fill
    monkeypatch.setattr(Row, "_fill", lambda row, *of: found.append(row.pattern) or fill(row, *of))
    return found


@pytest.mark.parametrize("line", [line for row in ROWS for line in row.get("refused", ())])
def test_refused(line: str) -> None:
    assert peel(line) == Prefix(line)


@pytest.mark.parametrize(("row", "sample"), SAMPLES, ids=[one["line"] for _, one in SAMPLES])
def test_lines_with_other_numbers_are_peeled_alike(
    row: dict[str, Any], sample: dict[str, Any]
) -> None:
    line, seed = sample["line"], random.Random(3)
    way = way_of(line)
    for _ in range(30 if way else 0):
        other = re.sub("[0-9]", lambda old: seed.choice("0123456789" + 40 * old[0]), line)
        assert peel_repeated(other, way) in (None, replace(peel(other), message=""))


def test_no_row_tells_digits_apart() -> None:
    assert [row["match"] for row in ROWS if not blind(row["match"])] == []


def test_the_table_is_that_of_the_files() -> None:
    """Else `python -m diagnose.formats.table` was not run."""
    assert table.kept() == table._made(table.PREFIXES)
    assert table.read().tags == data("secrets/tags")


def test_an_installed_package_looks_at_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "checksum", lambda folder: -1)
    assert table.kept() is None
    monkeypatch.setattr(table, "_IN_A_CHECKOUT", False)
    assert table.kept() is not None


def test_a_new_file_is_read_without_the_table(tmp_path: Path) -> None:
    (tmp_path / "acme.yaml").write_text("- {name: acme, match: 'acme#(?P<rank>\\d+) '}\n")
    row = {"name": "acme", "match": r"acme#(?P<rank>\d+) ", "starts": ["a", ""]}
    assert table.read(tmp_path) == ([row], r"acme#(?:\d+) ", [])


def test_no_group_of_an_expression_is_possessive() -> None:
    """`re` before 3.11.5 does not match these right (CPython gh-106052)."""
    found = [text for row in ROWS for text in (row["match"], row.get("tag", ""))]
    assert [text for text in found if re.search(r"\)(?:[*+?]|\{[\d,]*\})\+|\(\?>", text)] == []


@pytest.mark.parametrize(
    ("row", "unknown"),
    [("{name: acme, match: acme, rank: 3}", "rank"), ("{match: (?P<rnak>3)}", "rnak")],
)
def test_an_unknown_key_or_group_is_named(tmp_path: Path, row: str, unknown: str) -> None:
    (tmp_path / "acme.yaml").write_text(f"- {row}\n")
    with pytest.raises(ValueError, match=unknown):
        table.read(tmp_path)
