"""What the engine assumes of a cause class is checked like any other entry."""

from dataclasses import replace
from typing import Any

import pytest

from diagnose.catalog.check import class_problems
from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Catalog, CauseClass, Remedy

ONE = CauseClass(
    "slow.one",
    "t",
    "e",
    [Remedy("now", "do")],
    "retry",
    "why",
    "yes",
    busy=["checkpoint"],
    shown_by=["silence"],
)
TWO = replace(ONE, id="slow.two", busy=[], shown_by=[])


def found(**changes: Any) -> list[str]:
    catalog = Catalog([], [], {"slow.one": ONE, "slow.two": replace(TWO, **changes)}, "test")
    return list(class_problems(catalog, ["mine.entry"]))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"remedies": []}, "a cause class needs remedies"),
        ({"explains": ["fast.*"]}, "explains: fast.* names no entry and no class"),
        ({"explains": ["slow.*", "slow.*"]}, "explains: something is there twice"),
        ({"phase": "init", "usual_phase": "init"}, "usual_phase: never used"),
        ({"moving": True, "longer_timeout": "no"}, "moving: only says when longer_timeout: yes"),
        ({"busy": ["checkpoint"]}, "busy: checkpoint is already that of slow.one"),
        ({"shown_by": ["silence"]}, "shown_by: silence is already that of slow.one"),
    ],
)
def test_each_rule_finds_its_breach(changes: dict[str, Any], problem: str) -> None:
    (line,) = found(**changes)
    assert line.startswith(f"slow.two: {problem}")


def test_what_a_good_class_says() -> None:
    good = {"explains": ["mine.entry", "slow.*"], "phase": "init", "moving": True}
    assert found(**good, busy=["evaluation"]) == []


def test_the_shipped_classes_tell_what_the_engine_asks_for() -> None:
    classes = load_catalog().classes
    saving = classes["slow.checkpoint"]
    assert (saving.phase, saving.hang, saving.culprit_kind) == ("checkpoint", "hangs", "slow")
    assert saving.moving
    assert saving.busy == ["checkpoint"]
    killed = classes["crash.killed"]
    assert (killed.hang, killed.usual_phase, killed.culprit_kind) == (
        "fails",
        "training",
        "crashed",
    )
    assert (killed.ending, killed.retrospective, killed.final) == (True, False, False)
    assert killed.strikes_one_process
    assert classes["scheduler.limit"].hang == "either"
    assert "scheduler.preempted" in classes["hw.node"].explains


def test_whether_a_longer_timeout_helps_is_answered_in_one_place() -> None:
    told = [issue.id for issue in load_catalog().known_issues if "longer timeout" in issue.summary]
    assert told == []
