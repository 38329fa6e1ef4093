"""Vocabularies: how they are read, kept and checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.catalog.check import check
from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Near, Word
from diagnose.errors import CatalogError

GOOD = """\
about: words of our own
references: [https://example.org/words]
words:
  - {word: [EOURS, Our own trouble], class: env.config, strength: medium, not: "a typo", \
near: [{text: disk, class: slow.storage}]}
"""


def folder(tmp_path: Path, text: str) -> Path:
    (tmp_path / "own").mkdir(exist_ok=True)
    (tmp_path / "own" / "ours.yaml").write_text(text)
    return tmp_path / "own"


def test_a_file_becomes_a_vocabulary(tmp_path: Path) -> None:
    own = next(v for v in load_catalog([folder(tmp_path, GOOD)]).vocabularies if v.id == "ours")
    assert own.words == [
        Word(
            ["EOURS", "Our own trouble"], "env.config", "medium", "cause",
            [Near("disk", "slow.storage")], "a typo",
        )
    ]  # fmt: skip


def test_what_is_kept_is_what_was_read() -> None:
    assert [*load_catalog().vocabularies] == load_catalog(examples=True).vocabularies


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("class: env.config", "class: no.such"), "unknown class no.such"),
        (("Our own trouble", "--"), "'--' is never found"),
        (("text: disk", "text: '['"), "unterminated character set"),
        (("references: [https://example.org/words]\n", ""), "references: needed"),
        (("about:", "pattern: 'Own (?P<word>x)'\nabout:"), "a pattern needs triggers and a noun"),
    ],
)
def test_wrong_words_are_told(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    found = check([folder(tmp_path, GOOD.replace(*change))])
    assert any(problem in line for line in found), found


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("strength: medium", "strength: decisive"), r":4: ours: words\.0\.strength: .* 'weak'"),
        (("not:", "colour: red, not:"), r"words\.0\.colour: "),
        (("about:", "colour: red\nabout:"), "ours: colour: "),
        (("[EOURS, Our own trouble]", "{a: b}"), r"words\.0\.word: "),
        (("[EOURS, Our own trouble]", "79"), "as a text it needs quotes"),
        (("near: [", "near: [{text: x}, "), r"words\.0\.near\.0\.class: "),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, change: tuple[str, str], problem: str) -> None:
    with pytest.raises(CatalogError, match=problem):
        load_catalog([folder(tmp_path, GOOD.replace(*change))])
