"""What dumps say, told as a stall, a candidate, evidence and an onset."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from diagnose.catalog.load import load_catalog
from diagnose.diagnosis import Collective, Evidence
from diagnose.infer.collectives.verdict import DumpVerdict, Kind, Sign
from diagnose.infer.events.watchdogs import Stall
from diagnose.infer.rules import collectives as held_up

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
ROWS = [
    ("fr_1", 1, "pending", "all_reduce", 7, "12:00:03"),
    ("fr_0", 0, "pending", "all_reduce", 7, "12:00:01"),
    ("fr_0", 0, "pending", "broadcast", 9, "12:00:00"),
    ("fr_2", 2, "idle", "all_reduce", 6, "11:00:00"),
]


def frame() -> pd.DataFrame:
    columns = ["source", "rank", "tells", "op", "seq", "time"]
    table = pd.DataFrame(ROWS, columns=columns)
    table["time"] = pd.to_datetime("2025-03-08 " + table["time"])
    return table.assign(group="mesh_dp (5)", timeout_ms=600_000)


def test_the_stall_has_who_waits_and_the_rows_that_show_it() -> None:
    stall = held_up.stall_of(VERDICT, frame())
    assert (stall.shape, stall.missing, stall.joined) == ("missing", [2], [0, 1])
    assert stall.rows == [3, 1, 0]  # the culprit's, then evidence, then who joined
    assert stall.waits[0].timeout_ms == 600_000


@pytest.mark.parametrize(
    ("kind", "sure", "cause", "score", "culprit_kind", "decisive"),
    [
        ("stuck_host", True, "stall.host", 4.25, "stuck_host", False),
        ("stuck_host", False, "stall.host", 3.5, "stuck_host", False),
        ("stuck_device", True, "hw.gpu", 4.25, "stuck_device", False),
        ("missing", True, "desync.missing_rank", 4.0, "missing", False),
        ("mismatched", True, "desync.mismatch", 5.0, "mismatched", True),
        ("mismatched", False, "desync.mismatch", 4.25, "mismatched", False),
    ],
)
def test_the_candidate_by_kind(
    kind: Kind, sure: bool, cause: str, score: float, culprit_kind: str, decisive: bool
) -> None:
    verdict = replace(VERDICT, kind=kind, sure=sure)
    stall = held_up.stall_of(verdict, frame())
    found = held_up.blamed(verdict, stall, load_catalog(), {2: "node7", 0: "node1"})
    assert (found.cause, found.score, found.kind) == (cause, score, culprit_kind)
    assert (found.ranks, found.hosts, found.sure) == ([2], ["node7"], decisive)


@pytest.mark.parametrize(
    ("hosts", "cause"),
    [({0: "a", 1: "b"}, "net.fabric"), ({0: "a", 1: "a"}, "unknown"), ({}, "net.fabric")],
)
def test_nobody_behind_is_a_matter_of_the_network_only_between_hosts(
    hosts: dict[int, str], cause: str
) -> None:
    verdict = replace(VERDICT, kind="network", ranks=())
    found = held_up.blamed(verdict, held_up.stall_of(verdict, frame()), load_catalog(), hosts)
    assert (found.cause, found.ranks, found.kind, found.why) == (cause, [], None, "")


def test_a_tie_names_nobody() -> None:
    verdict = replace(VERDICT, kind="mismatched", ranks=(), tie=True, suspects=(0, 1), sure=False)
    stall = held_up.stall_of(verdict, frame())
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
        Evidence("fr_2", 0, "rank 2 has nothing pending", "the rank that the others wait for"),
        Evidence("fr_0", 0, "rank 0 waits", "one of the ranks that wait"),
    ]
    graph = held_up.graph(VERDICT)
    assert graph.edges == [(0, 2, "all_reduce seq 7")]
    assert graph.state[2] == "culprit"
    assert held_up.undumped(VERDICT) == [3]


def test_the_onset_is_when_the_first_rank_came_to_that_operation() -> None:
    start = held_up.onset(VERDICT, frame())
    assert (start.time, start.row) == (pd.Timestamp("2025-03-08 12:00:01"), 1)


def test_a_conflict_is_told_only_where_the_logs_name_others() -> None:
    other = Stall(None, "missing", missing=[5], proven=True, why="the log names rank 5")
    assert held_up.conflict(VERDICT, [other]) == (
        "the logs and the dumps disagree: by the logs the log names rank 5; by the dumps "
        "rank 2 has nothing pending"
    )
    same = replace(other, missing=[2, 3])
    guess = replace(other, proven=False)
    assert held_up.conflict(VERDICT, [same, guess]) is None
