"""What nodes say of themselves, beside stacks in which every rank waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose.diagnosis import Diagnosis
from diagnose.infer.rules import node_signs
from diagnose.infer.rules.node_signs import cut_off
from diagnose.parse.probes import Sign

STEADY = [{"voluntary": 5, "involuntary": 1}] * 2
MOVING = [{"voluntary": 5, "involuntary": 1}, {"voluntary": 900, "involuntary": 1}]
STACK = """Process {pid}: python train.py
Python v3.11.2 (/usr/bin/python3)

Thread {pid} (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    step (train.py:41)
    <module> (train.py:60)
"""


def bundle(
    folder: Path,
    documents: dict[str, dict[str, Any]],
    *,
    samples: list[dict[str, int]] = STEADY,
    absent: tuple[int, ...] = (),
) -> Diagnosis:
    """Two nodes of two ranks, all in one collective, and what their documents say."""
    for node in (0, 1):
        here = folder / "nodes" / f"gpu{node}"
        processes = []
        for local in (0, 1):
            rank = 2 * node + local
            if rank in absent:
                continue
            pid = 100 + rank
            told = {"pid": pid, "rank": rank, "role": "rank"}
            place = here / f"rank-{rank}"
            place.mkdir(parents=True)
            processes.append(
                {**told, "local_rank": local, "world": 4, "local_world": 2, "parent": 1}
            )
            write(place / "activity.json", "activity",
                  {**told, "activity": "waiting", "cpu": 0.0, "samples": samples})  # fmt: skip
            for number in (1, 2):
                (place / f"stack-{number}.txt").write_text(STACK.format(pid=pid))
        write(here / "node.json", "node", {"host": f"gpu{node}", "processes": processes})
    for name, told in documents.items():
        write(folder / "nodes" / name, Path(name).stem, told)
    return diagnose.diagnose(diagnose.load(folder))


def write(path: Path, kind: str, told: dict[str, Any]) -> None:
    path.write_text(json.dumps({"diagnose": f"{kind}/1", **told}))


LOST = {"said": {"gpus": ["index, name", "1, [GPU is lost]"]}}
PORTS = {
    f"gpu{node}/rdma.json": {
        "ports": [
            {"device": "mlx5_0", "port": "1", "state": "4: ACTIVE"},
            {"device": "mlx5_9", "port": "1", "state": "1: DOWN"},
        ]
    }
    for node in (0, 2, 3)
}
DOWN = {"ports": [{"device": "mlx5_0", "port": "1", "state": "1: DOWN"}]}
KILLED = {"groups": {":/job": {"memory.events": "oom 1\noom_kill 1"}}}
RESENDS = {
    "processes": [{"sockets": [{"remote": "10.0.0.7:29500", "state": "established", "resends": 6}]}]
}


@pytest.mark.parametrize(
    ("documents", "cause", "confidence", "hosts"),
    [
        ({"gpu1/gpus.json": LOST}, "hw.gpu", "medium", ["gpu1"]),
        ({**PORTS, "gpu1/rdma.json": DOWN}, "net.fabric", "low", ["gpu1"]),
        ({"gpu0/sockets.json": RESENDS}, "net.socket", "low", []),
    ],
)
def test_a_node_in_trouble_while_all_ranks_wait(
    documents: dict[str, dict[str, Any]],
    cause: str,
    confidence: str,
    hosts: list[str],
    tmp_path: Path,
) -> None:
    for name in documents:
        (tmp_path / "nodes" / name).parent.mkdir(parents=True, exist_ok=True)
    told = bundle(tmp_path, documents)
    assert (told.verdict, told.root_cause.cause, told.root_cause.confidence) == (
        "hung", cause, confidence,
    )  # fmt: skip
    assert (told.culprits.hosts, told.culprits.ranks) == (hosts, [])
    assert any(line.source.endswith(".json") and line.why for line in told.evidence)


def waiting(local: str, *remotes: str) -> dict[str, Any]:
    ends = [{"local": f"{local}:400{n}", "remote": f"{r}:42"} for n, r in enumerate(remotes)]
    sockets = [{**end, "state": "established", "resends": 5} for end in ends]
    return {"processes": [{"sockets": sockets}]}


def test_the_node_that_all_connections_without_an_answer_share_is_cut_off(tmp_path: Path) -> None:
    for node in (0, 1):
        (tmp_path / "nodes" / f"gpu{node}").mkdir(parents=True)
    told = bundle(
        tmp_path,
        {
            "gpu0/sockets.json": waiting("10.0.0.1", "10.0.0.2"),
            "gpu1/sockets.json": waiting("10.0.0.2", "10.0.0.1", "10.0.0.3"),
        },
    )
    assert (told.root_cause.cause, told.root_cause.confidence) == ("net.socket", "medium")
    assert (told.culprits.hosts, told.culprits.ranks) == (["gpu1"], [2, 3])
    assert "No packet gets through from or to gpu1." in told.root_cause.summary


@pytest.mark.parametrize(
    ("pairs", "address"),
    [
        ([("10.0.0.1", "10.0.0.2"), ("10.0.0.3", "10.0.0.2")], "10.0.0.2"),  # it left no bundle
        ([("10.0.0.1", "10.0.0.2"), ("10.0.0.2", "10.0.0.1")], None),  # either of the two
        ([("10.0.0.1", "10.0.0.2"), ("10.0.0.3", "10.0.0.4")], None),
        ([("10.0.0.1", "10.0.0.2"), ("", "10.0.0.2")], None),
    ],
)
def test_which_address_they_share(pairs: list[tuple[str, str]], address: str | None) -> None:
    signs = [
        Sign("s", "n", "unanswered", f"{remote}:1", "", local=f"{local}:2" if local else "")
        for local, remote in pairs
    ]
    found = cut_off(signs)
    assert (found.address if found else None) == address


def test_a_port_that_no_node_uses_is_nothing(tmp_path: Path) -> None:
    for name in PORTS:
        (tmp_path / "nodes" / name).parent.mkdir(parents=True, exist_ok=True)
    told = bundle(tmp_path, PORTS)
    assert (told.verdict, told.root_cause.cause) == ("hung", "unknown")


@pytest.mark.parametrize("document", [LOST, RESENDS])
def test_a_job_at_work_has_no_trouble(document: dict[str, Any], tmp_path: Path) -> None:
    name = "gpu1/gpus.json" if document is LOST else "gpu1/sockets.json"
    told = bundle(tmp_path, {name: document}, samples=MOVING)
    assert (told.verdict, told.root_cause.cause) == ("running", "none")


def test_a_missing_rank_whose_memory_group_was_killed_in(tmp_path: Path) -> None:
    told = bundle(tmp_path, {"gpu1/cgroup.json": KILLED}, absent=(3,))
    assert (told.root_cause.cause, told.root_cause.confidence) == ("crash.host_oom", "medium")
    assert (told.culprits.ranks, told.culprits.hosts, told.culprits.kind) == (
        [3], ["gpu1"], "crashed",
    )  # fmt: skip


def test_a_kill_where_nobody_is_missing_is_nothing(tmp_path: Path) -> None:
    told = bundle(tmp_path, {"gpu0/cgroup.json": KILLED}, absent=(3,))
    assert (told.root_cause.cause, told.culprits.ranks) == ("desync.missing_rank", [3])


def test_a_rank_whose_nccl_reports_invalid_usage_called_something_else() -> None:
    sign = Sign("ras.json", None, "nccl_error", "rank 1", "Invalid usage", rank=1, line=36)
    assert node_signs.hang([sign], [])


@pytest.mark.parametrize("rank", [None, 0])
def test_who_is_dead_for_a_job_that_ended_hangs_it_only_by_rank(rank: int | None) -> None:
    """A rank that left early says that it ended well; a report by ranks comes from the others."""
    dead = Sign("ras.txt", "n1", "dead", "rank 0", "its process is considered dead", rank=rank)
    assert node_signs.hang([dead], [], ended=True) is (rank is not None)
    assert node_signs.hang([dead], [])
