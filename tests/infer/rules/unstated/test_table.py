"""The table of predicates, and the classes that they show."""

from __future__ import annotations

from typing import Any, get_args

from diagnose.catalog.load import load_catalog
from diagnose.infer.rules import (
    INFERRED,
    KNOWN,
    STATED,
    collectives,
    exit_codes,
    node_signs,
    stalls,
)
from diagnose.infer.rules.unstated import PREDICATES, RULES

from ...rows import context


def test_all_that_rules_find_shows_one_class() -> None:
    shown = [name for one in load_catalog().classes.values() for name in one.shown_by]
    found = [
        *PREDICATES,
        *(f"exit.{name}" for name in (*exit_codes.SIGNALS, "status")),
        *(f"node.{kind}" for kind in node_signs.WHY),
        *(f"dump.{kind}" for kind in collectives.TIERS),
        *(f"wait.{finding}" for finding in get_args(stalls.Finding)),
        *(f"resume.{state}" for state in ("partial", "corrupt")),
        *("rendezvous.incomplete", "rendezvous.equal_ranks", "store.wait", "exception"),
    ]
    assert sorted(shown) == sorted(found)


def test_each_predicate_is_a_rule_of_its_own_name() -> None:
    assert RULES.keys() == PREDICATES.keys()
    assert RULES.items() <= INFERRED.items()
    assert not RULES.keys() & {*STATED, *KNOWN}


def test_nothing_holds_of_a_job_that_did_nothing(make: Any) -> None:
    assert not [one for rule in RULES.values() for one in rule(context(make()))]
