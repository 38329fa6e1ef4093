"""Recurring failures, and the versions they began with."""

from typing import Any

import pytest

from diagnose.fleet.recurring import Recurring, order, recurring

from .frames import failed, frame, row, typed


def story(failing: dict[int, str], *, switch: int = 100, count: int = 200) -> list[dict[str, Any]]:
    """Jobs on torch 2.6.0, from `switch` on 2.7.1; those in `failing` fail, on that version."""
    rows = []
    for number in range(count):
        torch = failing.get(number) or ("2.7.1" if number >= switch else "2.6.0")
        values = {"versions": {"torch": torch, "python": "3.11"}, "hosts": [f"n{number}"]}
        make = failed if number in failing else row
        rows.append(make(f"j{number}", number / 10, **values))
    return rows


def only(rows: list[dict[str, Any]]) -> Recurring:
    [found] = recurring(typed(frame(*rows)))
    return found


def test_a_version_that_all_failures_have_and_no_earlier_job() -> None:
    found = only(story(dict.fromkeys(range(110, 200, 9), "2.7.1")))
    [began] = found.began_with
    assert (began.package, began.version, began.or_later) == ("torch", "2.7.1", False)
    assert began.before == 100
    assert began.p < 0.01
    assert (found.jobs, found.incidents) == (10, 10)
    assert found.first_seen == "2025-06-13T00:00:00+00:00"
    assert found.last_seen == "2025-06-21T02:24:00+00:00"
    assert found.examples == ["j191", "j182", "j173", "j164", "j155"]


def test_later_versions_that_fail_too() -> None:
    failing = dict.fromkeys(range(110, 150, 5), "2.7.1") | dict.fromkeys(
        range(150, 200, 5), "2.10.0"
    )
    [began] = only(story(failing)).began_with
    assert (began.version, began.or_later) == ("2.7.1", True)


@pytest.mark.parametrize(
    "failing",
    [
        dict.fromkeys(range(5, 200, 9), ""),  # with the old one too
        dict.fromkeys((110, 120), "2.7.1"),  # twice may be chance
    ],
    ids=["both", "twice"],
)
def test_no_version_is_to_blame(failing: dict[int, str]) -> None:
    assert only(story(failing)).began_with == []


def test_retries_of_one_job_prove_nothing() -> None:
    rows = story({})
    rows += [
        failed(f"r{n}", 15 + n / 100, versions={"torch": "2.7.1"}, hosts=["n1"]) for n in range(30)
    ]
    found = only(rows)
    assert (found.jobs, found.incidents) == (30, 1)
    assert found.began_with == []


def test_once_is_not_again_and_unknown_is_no_failure() -> None:
    unknown = {"verdict": "unknown", "class": "unknown", "fingerprint": "u"}
    jobs = typed(frame(failed("a"), row("b", **unknown), row("c", **unknown)))
    assert recurring(jobs) == []


def test_versions_sort_as_numbers() -> None:
    versions = ["2.10.0", "2.9.1+cu128", "2.9", "2.9.1", "nightly"]
    assert sorted(versions, key=order) == ["nightly", "2.9", "2.9.1", "2.9.1+cu128", "2.10.0"]
