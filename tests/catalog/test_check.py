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
    Examples,
    KnownIssue,
    Remedy,
    Signature,
)

CLASS = CauseClass("env.config", "t", "e", [Remedy("now", "do")], "fix_first", "why")
ENTRY = Signature(
    id="mine.entry",
    title="title",
    role="cause",
    cause="env.config",
    match=[r"value=(?P<value>\d+) is wrong"],
    remedies=[Remedy("now", "Set it right")],
    restart="fix_first",
    references=["https://example.org/"],
    examples=Examples([Example("value=12 is wrong", {"value": "12"})], ["value=12 is right"]),
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
        ({"id": "Mine"}, "ids are dotted"),
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
        ({"examples": None}, "examples: needed"),
        ({"examples": Examples([], ["x"])}, "at least one match and one near miss"),
        ({"examples": Examples([Example("value=x is wrong")], ["x"])}, "does not match"),
        (
            {"examples": Examples([Example("value=1 is wrong", {"value": "2"})], ["x"])},
            "expected '2', got '1'",
        ),
        (
            {"examples": Examples([Example("value=1 is wrong")], ["value=3 is wrong"])},
            "near miss matches",
        ),
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
  - id: mine.fact
    title: t
    role: context
    match: [some fact]
    examples: {match: [{line: some fact}], near_miss: [x]}
"""
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(text)
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    assert check([tmp_path]) == [f"{second}: mine.fact: the id is taken in {first}"]


def test_own_entries_are_checked_against_the_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.yaml").write_text(
        """signatures:
  - id: mine.fact
    title: t
    role: effect
    match: ['some fact']
    explains: [net.fabric, 'nccl.*', nothing.*]
    examples: {match: [{line: some fact}], near_miss: [x]}
"""
    )
    checked = []
    monkeypatch.setattr("diagnose.catalog.check.unusable", lambda found, **_: checked.append(found))
    assert check([tmp_path]) == [
        "mine.fact: explains: nothing.* names no entry and no class",
    ]
    assert checked == ["some fact"]
