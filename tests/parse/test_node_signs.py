from __future__ import annotations

import json
from typing import Any

import pytest

from diagnose.parse.probes import Sign, read_probe, remarks, signs_of

HEADER = "index, name, ecc.errors.uncorrected.volatile.total, retired_pages.pending"


def signs(kind: str, told: dict[str, Any]) -> list[tuple[object, ...]]:
    return [(s.kind, s.what, s.text, s.up) for s in signs_of(kind, told, "s", "n")]


@pytest.mark.parametrize(
    "line",
    [
        "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error",
        "1, [GPU is lost], [GPU is lost], [GPU is lost]",
        "1, H100, [GPU requires reset], [GPU requires reset]",
    ],
)
def test_a_gpu_that_the_driver_gave_up(line: str) -> None:
    told = {"said": {"gpus": [HEADER, "0, H100, 0, No", line]}}
    assert signs("gpus", told) == [("gpu_lost", "GPU", line, None)]


def test_uncorrectable_errors_of_one_gpu() -> None:
    rows = [HEADER, "0, H100, 0, No", "1, H100, 3, No", "2, A10, [N/A], [N/A]", "3, cut"]
    assert signs("gpus", {"said": {"gpus": rows}}) == [
        ("gpu_errors", "GPU 1", "3 uncorrectable memory errors", None)
    ]


def test_ports_and_what_their_counters_did() -> None:
    ports = [
        {"device": "mlx5_0", "port": "1", "state": "4: ACTIVE", "grew": {"port_rcv_data": 9}},
        {"device": "mlx5_1", "port": "1", "state": "1: DOWN"},
        {"device": "mlx5_2", "port": "1", "grew": {"symbol_error": 2, "link_downed": 1}},
    ]
    assert signs("rdma", {"ports": ports}) == [
        ("port", "mlx5_0/1", "state ACTIVE", True),
        ("port", "mlx5_1/1", "state DOWN", False),
        ("port_errors", "mlx5_2/1", "link_downed +1, symbol_error +2 within a second", None),
    ]


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ({"memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 1"}, "memory.events"),
        ({"memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2"}, "memory.oom"),
        ({"memory.events": "oom 3\noom_kill 0\noom_group_kill 1"}, None),
    ],
)
def test_processes_killed_for_the_memory_of_their_group(
    group: dict[str, str], said: str | None
) -> None:
    found = signs("cgroup", {"groups": {":/job": group, "bad": 5}})
    if said is None:
        assert found == []
    else:
        ((kind, what, text, _),) = found
        assert (kind, what) == ("oom_kill", "group /job")
        assert str(text).startswith(said)
        assert str(text).endswith("oom_kill 2")


def test_connections_without_an_answer() -> None:
    def socket(remote: str, state: str, resends: int) -> dict[str, object]:
        return {"remote": remote, "state": state, "resends": resends}

    sockets = [
        socket("10.0.0.7:29500", "established", 4), socket("10.0.0.8:29500", "established", 3),
        socket("10.0.0.9:29500", "syn-sent", 5), socket("10.0.0.7:1", "time-wait", 9),
        socket("127.0.0.1:2", "syn-sent", 6),
        socket("[0000:0000:0000:0000:0000:0000:0000:0001]:2", "syn-sent", 6),
    ]  # fmt: skip
    assert signs("sockets", {"processes": [{"pid": 1, "sockets": sockets}]}) == [
        ("unanswered", "10.0.0.7:29500",
         "established, sent again 4 times without an answer", None),
        ("unanswered", "10.0.0.9:29500", "syn-sent, sent again 5 times without an answer", None),
    ]  # fmt: skip


def test_mounts_that_are_full() -> None:
    mounts = [
        {"point": "/", "type": "overlay", "source": "o", "size": 9, "free": 0},
        {"point": "/etc/hosts", "type": "overlay", "source": "o", "size": 9, "free": 0},
        {"point": "/iso", "type": "iso9660", "source": "i", "size": 9, "free": 0, "read_only": 1},
        {"point": "/data", "type": "lustre", "source": "d", "size": 9, "free": 5, "inodes": 7,
         "inodes_free": 0},
        {"point": "/x", "type": "btrfs", "source": "x", "size": 9, "free": 5, "inodes": 0,
         "inodes_free": 0},
        {"point": "/auto", "type": "auto", "source": "a", "size": 0, "free": 0},
    ]  # fmt: skip
    assert remarks("filesystems", {"mounts": mounts}, "n") == [
        "n: no space left on / (overlay)", "n: no inodes left on /data (lustre)",
    ]  # fmt: skip


def test_tasks_that_all_waited_for_the_node() -> None:
    def lines(share: str) -> list[str]:
        return ["some avg10=99.00 avg60=99.00", f"full avg10=1.00 avg60={share} avg300=0.00"]

    told = {"memory": lines("34.20"), "io": lines("19.99"), "cpu": lines("90.00")}
    assert remarks("pressure", told, "n") == [
        "n: for 34 % of a minute all its tasks waited for memory"
    ]


@pytest.mark.parametrize("kind", ["gpus", "rdma", "cgroup", "sockets", "filesystems", "pressure"])
@pytest.mark.parametrize("inside", [None, 5, "x", [], ["x", None], {"gpus": 5}, [{"sockets": 5}]])
def test_documents_that_hold_something_else(kind: str, inside: object) -> None:
    names = ("said", "ports", "groups", "processes", "mounts", "memory", "io")
    document = {"diagnose": f"{kind}/1", **dict.fromkeys(names, inside)}
    told = read_probe(json.dumps(document).encode(), "nodes/n/x.json")
    assert (told.signs, told.notes) == ([], [])


def test_a_document_of_a_bundle_tells_its_node() -> None:
    document = {"diagnose": "gpus/1", "said": {"gpus": ["GPU is lost"]}}
    told = read_probe(json.dumps(document).encode(), "nodes/gpu7/gpus.json")
    assert told.signs == [Sign("nodes/gpu7/gpus.json", "gpu7", "gpu_lost", "GPU", "GPU is lost")]
