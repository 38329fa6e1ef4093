"""Only those known issues are looked at of which a job has what they need."""

from typing import Any

import pytest

from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Condition, KnownIssue
from diagnose.infer.events.facts import Facts
from diagnose.infer.rules.known_issues import possible

from ..rows import catalog

FACTS = Facts({"framework": ["Axolotl"], "setting.zero_stage": ["3"]})
SIGNATURES = ["axolotl.drop-long", "program.crash.segfault"]
TEXT = "RuntimeError: selected index 17 out of range\nKeyError: '_orig_mod'\n"


def found(*conditions: dict[str, Any]) -> bool:
    """Whether an issue that asks for all of this may hold."""
    asked = [Condition(**condition) for condition in conditions]
    issue = KnownIssue("t.issue", "title", "env.config", "summary", "high", all=asked)
    return possible(catalog(issues=(issue,)), FACTS, SIGNATURES, TEXT) == [issue]


@pytest.mark.parametrize(
    ("condition", "answer"),
    [
        ({"signature": ["program.crash.segfault"]}, True),
        ({"signature": ["native.abort"]}, False),
        ({"signature": ["native.abort", "axolotl.drop-long"]}, True),  # any of them
        ({"signature": ["native.abort", "axolotl.*"]}, True),
        ({"framework": ["axolotl"]}, True),  # whatever the case
        ({"framework": ["verl"]}, False),
        ({"fact": ["setting.zero_stage=3"]}, True),
        ({"fact": ["setting.zero_stage=2"]}, False),
        ({"fact": ["setting.other"]}, True),  # not asked for by a value
        ({"wording": ["selected index 4 out of range"]}, True),  # whatever the numbers
        ({"wording": ["selected item 4 out of range"]}, False),
        ({"wording": ["KeyError: '_orig_mod'"]}, True),
        ({"wording": ["KeyError: 'other'"]}, False),
        ({"wording": ["ed index 17 o"]}, True),  # it may begin and end amid words
        ({"wording": ["elected ind"]}, True),
        ({"wording": ["select*of ran", "sel*out of ran"]}, True),
        ({"state": ["timeout"]}, True),
        ({"version": ["torch <2"]}, True),
    ],
)
def test_what_an_issue_needs(condition: dict[str, Any], answer: bool) -> None:
    assert found(condition) is answer


def test_one_thing_that_is_missing_is_enough() -> None:
    assert found({"framework": ["axolotl"]}, {"signature": ["program.crash.segfault"]})
    assert not found({"framework": ["axolotl"]}, {"signature": ["native.abort"]})
    assert not found({"state": ["timeout"], "framework": ["verl"]})


def test_few_of_the_shipped_issues_are_looked_at_for_an_empty_job() -> None:
    shipped = load_catalog()
    assert len(possible(shipped, Facts(), [], "")) < len(shipped.known_issues) / 10
