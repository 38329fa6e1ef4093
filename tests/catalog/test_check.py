"""The shipped catalog is clean, and the check finds what is wrong with an entry."""

from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.catalog.check import check, problems
from diagnose.catalog.schema import (
    Catalog,
    CauseClass,
    Condition,
    Example,
    KnownIssue,
    Match,
    Remedy,
    Signature,
)

CLASS = CauseClass("env.config", "t", "e", [Remedy("now", "do")], "fix_first", "why")
ENTRY = Signature(
    id="mine.own.entry",
    title="title",
    role="cause",
    cause="env.config",
    match=[r"value=(?P<value>\d+) is wrong"],
    remedies=[Remedy("now", "Set it right")],
    restart="fix_first",
    references=["https://example.org/"],
    written=[Match(examples=[Example("value=12 is wrong", {"value": "12"})])],
    near_miss=["value=12 is right"],
)


def found(**changes: object) -> list[str]:
    entry = replace(ENTRY, **changes)  # type: ignore[arg-type]
    return list(problems(Catalog([entry], [], {"env.config": CLASS}, "test")))


@pytest.mark.slow
def test_the_shipped_catalog_is_clean() -> None:
    assert check() == []


def test_a_good_entry_has_no_problems() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"id": "Mine.Own.Entry"}, "ids are in lower case"),
        ({"id": "mine.entry"}, "three parts"),
        ({"match": []}, "at least one pattern"),
        ({"match": [r"value=(?P<value>\d+) is wrong(?=x)"]}, "not linear-time"),
        ({"match": [r"value=(?P<value>(\d)\2) is wrong"]}, "not linear-time"),
        ({"match": [r"\S+ is (?P<value>\d+)"]}, "begins with a repeat and has no text of 5"),
        ({"match": [r"value=(?P<vaule>\d+) is wrong"]}, "unknown capture vaule"),
        ({"match": [r"value=(?P<value>\d+ is wrong"]}, "does not compile"),
        ({"match": [r"(?:^|x)value=(?P<value>\d+) is wrong"]}, "^ only at the start"),
        ({"cause": "env.nothing"}, "unknown class"),
        ({"cause": ""}, "class: needed for role cause"),
        ({"role": "phase"}, "phase: needed"),
        ({"remedies": []}, "a cause needs remedies"),
        ({"references": []}, "a cause needs a reference"),
        ({"references": ["see the docs"]}, "is not a URL"),
        ({"restart": None}, "a cause needs restart advice"),
        ({"explains": ["no.such.*"]}, "names no entry and no class"),
        ({"facts": {"framework": "{name}"}}, "no pattern captures name"),
        ({"near_miss": []}, "near_miss: at least one line"),
        ({"written": []}, "no example: value="),
        ({"written": [Match(examples=[Example("value=x is wrong")])]}, "does not match"),
        (
            {"written": [Match(examples=[Example("value=1 is wrong", {"value": "2"})])]},
            "expected '2', got '1'",
        ),
        ({"near_miss": ["value=3 is wrong"]}, "near_miss: matches value="),
        ({"match": [r"value=(?P<value>\d+) is (?:wrong|lost)"]}, "no example shows: value="),
        ({"match": [*ENTRY.match, *ENTRY.match]}, "match: is that of mine.own.entry too"),
        (
            {"written": [Match(regex=["x" * 201], examples=[Example("value=1 is wrong")])]},
            "longer than 200",
        ),
        ({"where": "in a log"}, "is neither a URL nor a file"),
        ({"unless": ["is wrong"]}, "does not match"),
    ],
)
def test_each_rule_finds_its_breach(changes: dict[str, object], problem: str) -> None:
    assert any(problem in line for line in found(**changes)), found(**changes)


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        (
            {"version": ["torch 2.1"], "fact": ["x"]},
            "torch 2.1 is not of the form: torch >=2.1,<2.3",
        ),
        ({"wording": ["short*long enough"]}, "begins with less than 8 characters"),
        ({"signature": ["no.such.*"]}, "signature: no.such.* names no entry"),
        ({"cause": ["no.such.*"]}, "cause: no.such.* names no class"),
        ({"version": ["torch <2.3"], "phase": ["init"]}, "needs the bug's own wording"),
        ({"version": ["torch >=2.1,<2.3"], "wording": ["long enough*x"]}, None),
    ],
)
def test_the_conditions_of_known_issues(
    condition: dict[str, list[str]], problem: str | None
) -> None:
    issue = KnownIssue(
        "t.issue", "title", "env.config", "summary", "low", all=[Condition(**condition)],
        remedies=[Remedy("now", "look")], references=["https://example.org"],
    )  # fmt: skip
    said = list(problems(Catalog([ENTRY], [issue], {"env.config": CLASS}, "test")))
    assert [str(problem) in line for line in said] == [True] * bool(problem)


def test_an_id_given_twice_in_one_directory_is_found(tmp_path: Path) -> None:
    text = """signatures:
  - id: mine.own.fact
    title: t
    role: context
    match: [{regex: some fact, example: some fact}]
    near_miss: [x]
"""
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(text)
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    assert check([tmp_path]) == [f"{second}: mine.own.fact: the id is taken in {first}"]


def test_an_entry_in_a_folder_is_in_the_file_of_its_id(tmp_path: Path) -> None:
    text = """signatures:
  - id: mine.own.fact
    title: t
    role: context
    match: [{regex: some fact, example: some fact}]
    near_miss: [x]
"""
    for name in ("mine/own.yaml", "mine/other.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        wrong = [line.rpartition(": ")[2] for line in check([tmp_path])]
        move = "the id is not the path; move it to mine/own.yaml"
        assert wrong == ([move] if "other" in name else [])
        (tmp_path / name).unlink()


def test_own_entries_are_checked_against_the_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.yaml").write_text(
        """signatures:
  - id: mine.own.fact
    title: t
    role: effect
    match: [{regex: some fact, example: some fact}]
    near_miss: [x]
    explains: [net.fabric, 'nccl.*', nothing.*]
"""
    )
    checked = []
    monkeypatch.setattr("diagnose.catalog.check.malformed", checked.append)
    assert check([tmp_path]) == [
        "mine.own.fact: explains: nothing.* names no entry and no class",
    ]
    assert checked == ["some fact"]
