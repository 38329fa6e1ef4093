"""What dumps say, told as a stall, a hypothesis, evidence and an onset."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnose.catalog.load import load_catalog
from diagnose.diagnosis import Collective, Evidence
from diagnose.infer.collectives.verdict import DumpVerdict, Kind, Sign
from diagnose.infer.judge.stall import Stall
from diagnose.infer.rules import collectives as held_up
from diagnose.infer.tiers import Tier
from diagnose.timeline.event import Timeline

from ..rows import Row, at, context

VERDICT = DumpVerdict(
    kind="stuck_host",
    ranks=(2,),
    group="mesh_dp (5)",
    op="all_reduce",
    seq=7,
    joined=(0, 1),
    missing=(2,),
    why="rank 2 has nothing pending",
    evidence=(Sign("fr_2", 0, 2, "rank 2 has nothing pending"), Sign("fr_0", 0, 0, "rank 0 waits")),
    site="train.py:141",
    sure=True,
    roles={0: "waiting", 1: "waiting", 2: "culprit", 3: "no dump"},
    edges=((0, 2, "all_reduce seq 7"),),
)


def operation(source: str, rank: int, tells: str, op: str, seq: int, clock: str) -> Row:
    return {
        "source": source, "rank": rank, "tells": tells, "op": op, "seq": seq, "time": at(clock),
        "kind": "collective", "role": None, "group": "mesh_dp (5)", "timeout_ms": 600_000,
    }  # fmt: skip


@pytest.fixture
def timeline(make: Any) -> Timeline:
    return make(
        operation("fr_1", 1, "pending", "all_reduce", 7, "12:00:03"),
        operation("fr_0", 0, "pending", "all_reduce", 7, "12:00:01"),
        operation("fr_0", 0, "pending", "broadcast", 9, "12:00:00"),
        operation("fr_2", 2, "idle", "all_reduce", 6, "11:00:00") | {"host": "node7"},
    )


def test_the_stall_has_who_waits_and_the_rows_that_show_it(timeline: Timeline) -> None:
    stall = held_up.stall_of(VERDICT, timeline)
    assert (stall.shape, stall.missing, stall.joined) == ("missing", [2], [0, 1])
    assert stall.rows == [3, 1, 0]  # the culprit's, then evidence, then who joined
    assert stall.waits[0].timeout_ms == 600_000


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
def test_the_candidate_by_kind(
    timeline: Timeline,
    kind: Kind,
    sure: bool,
    cause: str,
    tier: Tier,
    culprit_kind: str,
    decisive: bool,
) -> None:
    verdict = replace(VERDICT, kind=kind, sure=sure)
    stall = held_up.stall_of(verdict, timeline)
    found = held_up.blamed(verdict, stall, load_catalog(), {2: "node7", 0: "node1"})
    assert (found.cause, found.tier, found.kind) == (cause, tier, culprit_kind)
    assert (found.ranks, found.hosts, found.sure) == ([2], ["node7"], decisive)


@pytest.mark.parametrize(
    ("hosts", "cause"),
    [({0: "a", 1: "b"}, "net.fabric"), ({0: "a", 1: "a"}, "unknown"), ({}, "net.fabric")],
)
def test_nobody_behind_is_a_matter_of_the_network_only_between_hosts(
    timeline: Timeline, hosts: dict[int, str], cause: str
) -> None:
    verdict = replace(VERDICT, kind="network", ranks=())
    found = held_up.blamed(verdict, held_up.stall_of(verdict, timeline), load_catalog(), hosts)
    assert (found.cause, found.ranks, found.kind, found.why) == (cause, [], None, "")


def test_a_tie_names_nobody(timeline: Timeline) -> None:
    verdict = replace(VERDICT, kind="mismatched", ranks=(), tie=True, suspects=(0, 1), sure=False)
    stall = held_up.stall_of(verdict, timeline)
    found = held_up.blamed(verdict, stall, load_catalog(), {})
    assert (found.cause, found.ranks, found.kind, stall.proven) == (
        "desync.mismatch",
        [],
        None,
        False,
    )


def test_collective_evidence_and_graph() -> None:
    assert held_up.collective(VERDICT) == Collective(
        "mesh_dp (5)", "all_reduce", 7, [0, 1], [2], "train.py:141"
    )
    assert held_up.evidence(VERDICT) == [
        Evidence("fr_2", 0, "rank 2 has nothing pending", "State of the blocking rank"),
        Evidence("fr_0", 0, "rank 0 waits", "State of a waiting rank"),
    ]
    graph = held_up.graph(VERDICT)
    assert graph.edges == [(0, 2, "all_reduce seq 7")]
    assert graph.state[2] == "culprit"
    assert held_up.undumped(VERDICT) == [3]


def test_the_onset_is_when_the_first_rank_came_to_that_operation(timeline: Timeline) -> None:
    start = held_up.onset(VERDICT, timeline)
    assert (start.time, start.row) == (at("12:00:01"), 1)
    other = held_up.onset(replace(VERDICT, seq=8), timeline)
    assert (other.time, other.row) == (at("12:00:00"), 2), (
        "of any operation, where none is that one"
    )
    assert held_up.onset(VERDICT, Timeline()).time is None


def test_a_conflict_is_told_only_where_the_logs_name_others() -> None:
    other = Stall(None, "missing", missing=[5], proven=True, why="the log names rank 5")
    assert held_up.conflict(VERDICT, [other]) == (
        "the logs and the dumps disagree: according to the logs, the log names rank 5; "
        "according to the dumps, "
        "rank 2 has nothing pending"
    )
    same = replace(other, missing=[2, 3])
    guess = replace(other, proven=False)
    assert held_up.conflict(VERDICT, [same, guess]) is None


def test_without_dumps_nothing_is_proposed(timeline: Timeline) -> None:
    stall = held_up.stall_of(VERDICT, timeline)
    assert [*held_up.propose(context(timeline, stalls=[stall]))] == []
    (found,) = held_up.propose(context(timeline, stalls=[stall], blocked=VERDICT, alive=True))
    assert (found.cause, found.ranks, found.hosts) == ("stall.host", [2], ["node7"])


def test_who_only_stopped_to_log_calls_is_missing(timeline: Timeline) -> None:
    """Whoever wrote a dump was alive then; of lines of calls nothing of the kind is known."""
    stall = held_up.stall_of(VERDICT, timeline)
    (found,) = held_up.propose(context(timeline, stalls=[stall], blocked=VERDICT))
    assert (found.cause, found.why) == (
        "desync.missing_rank", "it never made the call its peers are waiting in",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stall", "answer"),
    [
        (Stall(None, "missing", missing=[2], proven=True), True),
        (Stall(None, "missing", missing=[2]), False),
        (Stall(None, "missing", missing=[2, 3], proven=True), False),
        (Stall(None, "missing", proven=True), False),
        (Stall(None, "mismatch", odd=[2], proven=True), False),
    ],
)
def test_logs_agree_that_prove_the_same(stall: Stall, answer: bool) -> None:
    assert held_up.agrees(VERDICT, stall) is answer


def test_a_branch_agrees_with_a_mismatch() -> None:
    branch = Stall(None, "conditional", odd=[2], proven=True)
    assert held_up.agrees(replace(VERDICT, kind="mismatched"), branch)
