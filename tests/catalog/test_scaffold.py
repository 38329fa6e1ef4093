"""A new entry in its place."""

from pathlib import Path

import pytest

from diagnose.catalog.authoring import TODO, add, entry_in
from diagnose.catalog.check import check_entry
from diagnose.catalog.document import read_files
from diagnose.catalog.load import catalog_files
from diagnose.errors import InputError

LINE = "[rank3]: acme's store (v1.2) lost 7 tokens"

FIRST = "id: acme.store.first, title: F, role: effect, match: [{regex: first, example: first}]"


def filled(path: Path, title: str) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in (
        (f"title: {TODO}", f"title: {title}"),
        (f"near_miss: [{TODO}]", "near_miss: [none is lost]"),
        (f"not_evidence_of: {TODO}", "not_evidence_of: a fault of the network"),
        (f"do: {TODO}", "do: Mount it again"),
        (f"references: [{TODO}]", "references: ['https://example.org']"),
    ):
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def test_an_entry_is_begun_in_the_file_of_its_id_and_passes_once_filled_in(tmp_path: Path) -> None:
    path, number = add("acme.store.lost", tmp_path, role="cause", cause="slow.storage", line=LINE)
    assert (path, number) == (tmp_path / "acme" / "store.yaml", 2)
    assert path.read_text(encoding="utf-8").splitlines()[number - 1] == "  - id: acme.store.lost"
    problems = check_entry(entry_in("acme.store.lost", [tmp_path]))
    assert f"acme.store.lost: {TODO}: something is still to be filled in" in problems
    assert not any("does not match" in problem for problem in problems)
    filled(path, "The store lost tokens")
    found = entry_in("acme.store.lost", [tmp_path])
    assert check_entry(found) == []
    assert found.entry.match == [r"acme's store \(v\d+\.\d+\) lost \d+ tokens"]
    assert [example.line for example in found.entry.examples] == [LINE]


def test_it_joins_the_signatures_that_are_there(tmp_path: Path) -> None:
    add("acme.store.first", tmp_path, role="effect", cause="", line="first")
    path, _ = add("acme.store.second", tmp_path, role="effect", cause="", line="second")
    issues = "\n# Known ones.\nknown_issues: []\n"
    path.write_text(path.read_text(encoding="utf-8") + issues, encoding="utf-8")
    _, number = add("acme.store.third", tmp_path, role="effect", cause="", line="third\x1b[0m")
    found = [one.entry.id for one in read_files([*catalog_files([path])])]
    assert found == ["acme.store.first", "acme.store.second", "acme.store.third"]
    text = path.read_text(encoding="utf-8")
    assert text.splitlines()[number - 1] == "  - id: acme.store.third"
    assert text.endswith("known_issues: []\n")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("signatures: []\n", 2),
        ("# Ours.\nsignatures: []  # none yet\nknown_issues: []\n", 3),
        ("known_issues: []\nsignatures: []\n", 3),
        (f"signatures:\n- {{{FIRST}}}\nknown_issues: []\n", 4),
        (f"signatures:\n  - {{{FIRST}}}\n", 4),
        ("known_issues: []\n", 4),
    ],
)
def test_it_joins_a_file_that_somebody_wrote(tmp_path: Path, text: str, number: int) -> None:
    path = tmp_path / "acme" / "store.yaml"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    assert add("acme.store.lost", tmp_path, role="effect", cause="", line="x") == (path, number)
    found = [one.entry.id for one in read_files([*catalog_files([path])])]
    assert found == [*(["acme.store.first"] if FIRST in text else []), "acme.store.lost"]
    after = path.read_text(encoding="utf-8")
    assert after.splitlines()[number - 1].strip() == "- id: acme.store.lost"
    assert ("# none yet" in after, "known_issues" in after) == (
        "# none yet" in text,
        "known_issues" in text,
    )


def test_a_list_on_one_line_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "acme" / "store.yaml"
    path.parent.mkdir()
    text = f"signatures: [{{{FIRST}}}]\n"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="each on its own lines"):
        add("acme.store.lost", tmp_path, role="effect", cause="", line="x")
    assert path.read_text(encoding="utf-8") == text


def test_a_class_of_what_is_no_cause_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave out --class"):
        add("acme.store.lost", tmp_path, role="effect", cause="slow.storage", line="x")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("id_", "cause", "problem"),
    [
        ("acme.lost", "", "three parts"),
        ("../acme.store.lost", "", "three parts"),
        ("Acme.store.lost", "", "three parts"),
        ("acme.store.lost", "slow.disk", "unknown cause class 'slow.disk'"),
        ("nccl.ib.retry-exceeded", "", "the id is taken"),
    ],
)
def test_what_is_refused(tmp_path: Path, id_: str, cause: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        add(id_, tmp_path, role="cause", cause=cause, line="")
    assert [*tmp_path.iterdir()] == []


def test_an_entry_that_is_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("signatures: []\n")
    with pytest.raises(InputError, match=r"unknown id 'acme\.store\.lost'"):
        entry_in("acme.store.lost", [tmp_path])
