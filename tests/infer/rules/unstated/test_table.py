"""The table of predicates, and the classes that they show."""

from __future__ import annotations

from typing import Any

from diagnose.catalog.load import load_catalog
from diagnose.infer.rules import INFERRED, KNOWN, STATED
from diagnose.infer.rules.unstated import PREDICATES, RULES

from ...rows import context


def test_each_predicate_shows_one_class() -> None:
    shown = [name for one in load_catalog().classes.values() for name in one.shown_by]
    assert sorted(shown) == sorted(PREDICATES)


def test_each_predicate_is_a_rule_of_its_own_name() -> None:
    assert RULES.keys() == PREDICATES.keys()
    assert RULES.items() <= INFERRED.items()
    assert not RULES.keys() & {*STATED, *KNOWN}


def test_nothing_holds_of_a_job_that_did_nothing(make: Any) -> None:
    assert not [one for rule in RULES.values() for one in rule(context(make()))]
