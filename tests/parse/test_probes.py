from __future__ import annotations

import json
from typing import Any

import pytest

from diagnose.ingest.sniff import sniff
from diagnose.parse.path import read_path
from diagnose.parse.probes import Look, Wait, is_probe, read_probe

NAME = "nodes/gpu7/rank-3/activity.json"


def data(document: Any) -> bytes:
    return json.dumps(document, indent=1).encode()


def test_what_a_process_did() -> None:
    told = read_probe(
        data(
            {
                "diagnose": "activity/1", "pid": 77, "rank": 3, "role": "rank",
                "activity": "stuck", "cpu": 0.01,
                "samples": [{"voluntary": 5, "involuntary": 1}, {"voluntary": 6, "involuntary": 1}],
                "waits": [
                    {"thread": 77, "state": "D", "wchan": "rpc_wait", "call": "read",
                     "file": "/data/x", "mount": "/data", "type": "nfs4", "source": "s:/"},
                    {"thread": "no"}, 5,
                ],
            }
        ),
        NAME,
    )  # fmt: skip
    assert told.looks == [
        Look(
            NAME, "gpu7", 77, rank=3, role="rank", activity="stuck", cpu=0.01, switches=1,
            waits=(Wait(77, "D", "rpc_wait", "read", "/data/x", "nfs4", "/data"),),
        )
    ]  # fmt: skip


@pytest.mark.parametrize("samples", [[], [{}, {}], [{"voluntary": 3}, None], "x"])
def test_samples_that_say_nothing(samples: object) -> None:
    document = {"diagnose": "activity/1", "pid": 1, "samples": samples}
    assert read_probe(data(document), NAME).looks[0].switches is None


def test_the_processes_of_a_node_and_what_became_of_its_probes() -> None:
    told = read_probe(
        data(
            {
                "diagnose": "node/1", "host": "gpu7",
                "processes": [
                    {"pid": 9, "role": "rank", "rank": 0, "local_rank": 0, "world": 8,
                     "local_world": 4, "parent": 1, "command": "python"},
                    {"pid": None}, {"pid": True}, "x",
                ],
                "probes": [
                    {"name": "rank-0/stack-2", "status": "ok", "problem": "no native stacks"},
                    {"name": "rank-1/stack-2", "status": "failed", "problem": "no native stacks"},
                    {"name": "gpus", "status": "not available", "problem": "no nvidia-smi"},
                    {"name": "rdma", "status": "ok", "problem": ""},
                ],
                "problems": ["clock: none"],
            }
        ),
        "nodes/gpu7/node.json",
    )  # fmt: skip
    assert told.looks == [
        Look(
            "nodes/gpu7/node.json", "gpu7", 9, rank=0, local_rank=0, role="rank", parent=1,
            world=8, ranks_here=4, command="python",
        )
    ]  # fmt: skip
    assert told.notes == [
        "gpu7: clock: none", "gpu7: rank-0/stack-2, rank-1/stack-2: no native stacks",
    ]  # fmt: skip


def test_mounts_without_an_answer_and_nodes_that_were_not_reached() -> None:
    mounts = [{"point": "/a", "answers": True}, {"point": "/b", "answers": False}, {"point": "/c"}]
    told = read_probe(data({"diagnose": "filesystems/1", "mounts": mounts}), "filesystems.json")
    assert told.silent_mounts == ["/b"]
    manifest = {"schema": "diagnose-bundle/1", "problems": ["n2: no route to host", 7]}
    assert read_probe(data(manifest), "manifest.json").notes == ["n2: no route to host", ""]
    other = read_probe(data({"diagnose": "pressure/1"}), "pressure.json")
    assert (other.looks, other.notes, other.silent_mounts) == ([], [], [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"diagnose": "node/1"', "damaged"),
        (b"[" * 100_000, "damaged"),
        (b"[1]", "no document of a bundle"),
        (b'{"diagnose": "activity/1"}', "does not say of which process"),
    ],
)
def test_damage_is_one_line(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=f"a.json: .*{why}"):
        read_probe(text, "a.json")


def test_documents_are_known_by_their_first_key() -> None:
    assert is_probe(b'{\n "diagnose": "activity/1",')
    assert is_probe(b'{"schema":"diagnose-bundle/1"}')
    assert not is_probe(b'{"schema": "diagnosis/2"}')
    assert not is_probe(b'{"event": "x", "diagnose": "activity/1"}')
    assert sniff(b'{\n "diagnose": "process/1",\n "SIGQUIT": 1}', "process.json") == "probe"
    assert sniff(b'{"diagnose": 5}', "log.json") == "text"


def test_the_folder_of_a_node_names_its_host() -> None:
    told = read_path("bundle/nodes/train-0.svc/rank-3/stack-1.txt")
    assert (told.host, told.rank) == ("train-0.svc", 3)
    assert read_path("nodes/gpu7/pid-77/stack-1.txt").pid == 77
    assert read_path("logs/nodes.txt").host is None
