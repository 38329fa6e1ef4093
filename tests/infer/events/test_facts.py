"""What the log says about the job: values, versions, world size."""

from typing import Any

import pytest

from diagnose.infer.events.facts import Facts, gather
from diagnose.timeline.event import Timeline

from ..rows import matched, signature, wait

TORCH = signature(
    "t.torch", "", role="context", facts={"version.torch": "{version}", "framework": "torch"}
)
WORLD = signature("t.world", "", role="context", facts={"world_size": "{value}"})


def gathered(timeline: Timeline) -> Facts:
    return gather(timeline, {entry.id: entry for entry in (TORCH, WORLD)})


def test_values_come_most_frequent_first(make: Any) -> None:
    versions = ["2.3.1", "2.4.0", "2.4.0"]
    facts = gathered(make(*[matched(TORCH, fields={"version": v}) for v in versions]))
    assert facts.get("version.torch") == ["2.4.0", "2.3.1"]
    assert facts.first("framework") == "torch"
    assert facts.versions == {"torch": "2.4.0"}


def test_a_fact_whose_capture_is_absent_is_unknown(make: Any) -> None:
    facts = gathered(make(matched(TORCH)))
    assert (facts.get("version.torch"), facts.get("framework")) == ([], ["torch"])
    assert facts.first("version.torch") is None


@pytest.mark.parametrize(
    ("claims", "world"),
    [
        ([], None),
        (["8"], 8),
        (["4", "16", "4", "4"], 16),  # sub-groups are smaller than the job
        (["0"], None),
        (["99999999"], None),  # nobody has that many ranks
        (["many"], None),
    ],
)
def test_the_largest_claim_is_the_world_size(make: Any, claims: list[str], world: int) -> None:
    facts = gathered(make(wait(1), *[matched(WORLD, fields={"value": c}) for c in claims]))
    assert facts.world_size == world


def test_a_captured_world_size_needs_no_fact(make: Any) -> None:
    assert gathered(make(wait(0, fields={"world_size": "12"}))).world_size == 12


def test_a_claim_below_a_rank_that_was_seen_is_wrong(make: Any) -> None:
    facts = gathered(make(wait(9), matched(WORLD, fields={"value": "8"})))
    assert facts.world_size == 10


def test_ranks_named_as_missing_bound_the_world_size(make: Any) -> None:
    row = {"signal": "missing", "fields": {"missing": "3, 5-6"}}
    assert gathered(make(wait(0), row)).world_size == 7


def test_ranks_alone_are_no_claim(make: Any) -> None:
    facts = gathered(make(wait(3, host="b"), wait(0, host="a"), wait(3, host="a")))
    assert (facts.world_size, facts.ranks_seen, facts.hosts) == (None, [0, 3], ["a", "b"])
