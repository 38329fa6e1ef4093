"""What dumps show of who waits for whom: a hypothesis, and when it began."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnose.catalog.load import load_catalog
from diagnose.infer.events.onset import pending_since
from diagnose.infer.judge.verdict import Kind, Verdict
from diagnose.infer.rules.base import Hypothesis, Tier
from diagnose.infer.rules.stalls import propose
from diagnose.timeline.event import Timeline

from ..rows import Row, at, context, finished, wait

VERDICT = Verdict(
    kind="stuck_host", ranks=(2,), group="mesh_dp (5)", op="all_reduce", seq=7, joined=(0, 1),
    missing=(2,), why="rank 2 has nothing pending", sure=True, by_dumps=True, rows=(3, 1, 0),
)  # fmt: skip


def operation(source: str, rank: int, tells: str, op: str, seq: int, clock: str) -> Row:
    return {
        "source": source, "rank": rank, "signal": tells, "op": op, "seq": seq, "time": at(clock),
        "kind": "collective", "role": None, "group": "mesh_dp (5)", "timeout_ms": 600_000,
    }  # fmt: skip


@pytest.fixture
def timeline(make: Any) -> Timeline:
    return make(
        operation("fr_1", 1, "pending", "all_reduce", 7, "12:00:03") | {"host": "node1"},
        operation("fr_0", 0, "pending", "all_reduce", 7, "12:00:01") | {"host": "node1"},
        operation("fr_0", 0, "pending", "broadcast", 9, "12:00:00"),
        operation("fr_2", 2, "idle", "all_reduce", 6, "11:00:00") | {"host": "node7"},
    )


def shown(timeline: Timeline, *, alive: bool = True, **given: Any) -> Hypothesis:
    seen = context(timeline, load_catalog(), stalls=[replace(VERDICT, **given)], alive=alive)
    (found,) = propose(seen)
    return found


@pytest.mark.parametrize(
    ("kind", "sure", "cause", "tier", "culprit_kind", "decisive"),
    [
        ("stuck_host", True, "stall.host", Tier.STRONG, "stuck_host", False),
        ("stuck_host", False, "stall.host", Tier.LIKELY, "stuck_host", False),
        ("stuck_device", True, "hw.gpu", Tier.STRONG, "stuck_device", False),
        ("missing", True, "desync.missing_rank", Tier.STRONG, "missing", False),
        ("mismatched", True, "desync.mismatch", Tier.OBSERVED, "mismatched", True),
        ("mismatched", False, "desync.mismatch", Tier.STRONG, "mismatched", False),
    ],
)
def test_the_hypothesis_by_kind(
    timeline: Timeline,
    kind: Kind,
    sure: bool,
    cause: str,
    tier: Tier,
    culprit_kind: str,
    decisive: bool,
) -> None:
    found = shown(timeline, kind=kind, sure=sure)
    assert (found.cause, found.tier, found.kind, found.basis) == (cause, tier, culprit_kind, "dump")
    assert (found.ranks, found.hosts, found.sure) == ([2], ["node7"], decisive)
    assert found.rows == [3, 1, 0]


def test_nobody_behind_is_a_matter_of_the_network_only_between_hosts(
    timeline: Timeline, make: Any
) -> None:
    found = shown(timeline, kind="network", ranks=())
    assert (found.cause, found.ranks, found.kind, found.why) == ("net.fabric", [], None, "")
    one_host = make(*(operation(f"fr_{r}", r, "pending", "x", 7, "12:00:00") for r in (0, 1)))
    assert shown(one_host, kind="network", ranks=()).cause == "net.fabric", "none is known"
    one_host = make(
        *(operation(f"fr_{r}", r, "pending", "x", 7, "12:00:00") | {"host": "a"} for r in (0, 1))
    )
    assert shown(one_host, kind="network", ranks=()).cause == "unknown"


def test_a_tie_names_nobody(timeline: Timeline) -> None:
    found = shown(timeline, kind="mismatched", ranks=(), suspects=(0, 1), sure=False)
    assert (found.cause, found.ranks, found.kind) == ("desync.mismatch", [], None)


def test_who_only_stopped_to_log_calls_is_missing(timeline: Timeline) -> None:
    """Whoever wrote a dump was alive then; of lines of calls nothing of the kind is known."""
    found = shown(timeline, alive=False)
    assert (found.cause, found.why) == (
        "desync.missing_rank", "it never made the call its peers are waiting in",
    )  # fmt: skip


def test_what_the_rank_was_at_lines_show_beside_dumps(make: Any) -> None:
    timeline = make(finished(2), wait(0), wait(1))
    seen = context(timeline, load_catalog(), stalls=[replace(VERDICT, rows=())], alive=True)
    by_lines, by_dumps = propose(seen)
    assert (by_lines.cause, by_lines.ranks, by_lines.basis) == ("desync.uneven_work", [2], "wait")
    assert (by_dumps.cause, by_dumps.ranks, by_dumps.basis) == ("stall.host", [2], "dump")


def test_the_onset_is_when_the_first_rank_came_to_that_operation(timeline: Timeline) -> None:
    start = pending_since(timeline, "mesh_dp (5)", 7)
    assert (start.time, start.row) == (at("12:00:01"), 1)
    other = pending_since(timeline, "mesh_dp (5)", 8)
    assert (other.time, other.row) == (at("12:00:00"), 2), "of any, where none is that one"
    none = pending_since(Timeline(), "mesh_dp (5)", 7)
    assert (none.time, none.why) == (None, "no dump says when an operation began")
