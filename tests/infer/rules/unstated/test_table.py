"""The table of predicates, and the classes that they show."""

from __future__ import annotations

from typing import Any, get_args

from diagnose.catalog.load import load_catalog
from diagnose.infer.judge.values import SIGNS
from diagnose.infer.pace import PARTS
from diagnose.infer.rules import INFERRED, KNOWN, STATED, node_signs
from diagnose.infer.rules.endings import SIGNALS
from diagnose.infer.rules.learned import FINDING
from diagnose.infer.rules.stalls import Finding
from diagnose.infer.rules.unstated import PREDICATES, RULES

from ...rows import context


def test_all_that_rules_find_shows_one_class() -> None:
    findings = [kind for part in get_args(Finding) for kind in get_args(part)]
    shown = [name for one in load_catalog().classes.values() for name in one.shown_by]
    found = [
        *PREDICATES,
        *(f"exit.{name}" for name in (*SIGNALS, "status", "watchdog")),
        *(f"node.{kind}" for kind in node_signs.WHY),
        *(f"wait.{finding}" for finding in findings if finding != "unclear"),
        *(f"resume.{state}" for state in ("partial", "corrupt")),
        *(f"rendezvous.{finding}" for finding in ("incomplete", "equal_ranks", "beyond")),
        *("store.wait", "exception", "wait.setting"),
        "stack.own_way",
        *(f"pace.{part}" for part in (*PARTS, "late")),
        *(f"values.{sign}" for sign in SIGNS),
        FINDING,
    ]
    assert sorted(shown) == sorted(found)


def test_each_predicate_is_a_rule_of_its_own_name() -> None:
    assert RULES.keys() == PREDICATES.keys()
    assert RULES.items() <= INFERRED.items()
    assert not RULES.keys() & {*STATED, *KNOWN}


def test_nothing_holds_of_a_job_that_did_nothing(make: Any) -> None:
    assert not [one for rule in RULES.values() for one in rule(context(make()))]
