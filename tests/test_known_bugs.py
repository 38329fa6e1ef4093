"""Bugs of public projects by version: the version decides whether the verdict names one."""

from __future__ import annotations

import pytest

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import KnownIssue

BUGS = [
    issue
    for issue in load_catalog(examples=True).known_issues
    if any(condition.version for condition in (*issue.all, *issue.any))
]


def texts(issue: KnownIssue) -> tuple[str, str]:
    """The example and its near miss."""
    return issue.examples[0], issue.near_miss[0]


def test_there_are_many() -> None:
    assert len(BUGS) >= 150


@pytest.mark.parametrize("issue", BUGS, ids=lambda issue: issue.id)
def test_only_the_version_differs(issue: KnownIssue) -> None:
    bad, fixed = (text.splitlines() for text in texts(issue))
    assert bad[1:] == fixed[1:]
    assert bad[0] != fixed[0]


@pytest.mark.parametrize(
    "issue", [one for one in BUGS if one.confidence != "low"], ids=lambda issue: issue.id
)
def test_the_verdict_names_the_bug_of_the_version(issue: KnownIssue) -> None:
    bad, fixed = (diagnose.diagnose(diagnose.load_text(text)) for text in texts(issue))
    assert (bad.root_cause.signature, bad.root_cause.title) == (issue.id, issue.title)
    assert fixed.root_cause.signature != issue.id
    assert not any(issue.title in other.why_not for other in fixed.alternatives)


def test_without_a_version_it_is_an_alternative_to_be_checked() -> None:
    (issue,) = (one for one in BUGS if one.id == "deepspeed.bugs.zero3-late-module")
    text = texts(issue)[0].partition("\n")[2]
    result = diagnose.diagnose(diagnose.load_text(text))
    assert result.root_cause.signature == "python.exception.any"
    said = [(other.cause, other.confidence, other.why_not) for other in result.alternatives]
    assert said == [
        (
            "crash.exception",
            "low",
            f"known issue of deepspeed <0.19.1 ({issue.title}), and the log does not say the "
            "version; check with: pip show deepspeed",
        )
    ]
