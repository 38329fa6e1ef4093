"""Pods and their nodes: whom commands for a node name."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagnose

ECC = (
    "2026-11-28T02:11:05.520Z [rank1]: torch.AcceleratorError: CUDA error: "
    "uncorrectable ECC error encountered\n"
)
STEP = "2026-11-28T02:11:01.100Z step 3000 loss 2.01\n"
ASSIGNED = (
    "31m  Normal  Scheduled  pod/pt-worker-1  Successfully assigned ml/pt-worker-1 to gpu-34\n"
)
WIDE = "pt-worker-1   1/1   Running   2 (4m ago)   31m   10.244.3.17   gpu-34   <none>   <none>\n"
FIND = "kubectl get pod pt-worker-1 -o jsonpath='{.spec.nodeName}'"
BY_KUBECTL = f"[pod/pt-worker-0/pytorch] {STEP}[pod/pt-worker-1/pytorch] {ECC}"
BY_STERN = f"pt-worker-0 pytorch {STEP}pt-worker-1 pytorch {ECC}"


def commands(result: diagnose.Diagnosis) -> list[str]:
    return [line for step in result.remedies for run in step.run for line in run.lines]


@pytest.mark.parametrize("log", [BY_KUBECTL, BY_STERN])
def test_a_pod_is_no_node_and_its_node_is_to_be_found(log: str) -> None:
    result = diagnose.diagnose(diagnose.load_text(log))
    assert result.culprits.hosts == ["pt-worker-1"]
    assert result.restart.exclude_hosts == []
    assert commands(result)[0] == FIND
    assert "kubectl cordon <node>" in commands(result)
    assert not [line for line in commands(result)[1:] if "pt-worker" in line or "scontrol" in line]


@pytest.mark.parametrize("placed", [ASSIGNED, WIDE])
def test_a_node_is_named_where_a_line_says_on_which_one_its_pod_is(placed: str) -> None:
    result = diagnose.diagnose(diagnose.load_text(placed + BY_KUBECTL))
    assert (result.culprits.ranks, result.culprits.hosts) == ([1], ["gpu-34"])
    assert result.culprits.why == "it printed the error; pod pt-worker-1 was assigned to gpu-34"
    assert result.restart.exclude_hosts == ["gpu-34"]
    assert "kubectl cordon gpu-34" in commands(result)
    assert FIND not in commands(result)


def test_a_pod_that_moved_is_on_no_certain_node() -> None:
    moved = ASSIGNED + ASSIGNED.replace("gpu-34", "gpu-35")
    result = diagnose.diagnose(diagnose.load_text(moved + BY_KUBECTL))
    assert (result.culprits.hosts, commands(result)[0]) == (["pt-worker-1"], FIND)


def test_files_named_after_pods_are_put_on_nodes_by_the_events(tmp_path: Path) -> None:
    (tmp_path / "pt-worker-0.log").write_text(STEP)
    (tmp_path / "pt-worker-1.log").write_text(ECC)
    (tmp_path / "events.txt").write_text(ASSIGNED)
    result = diagnose.diagnose(diagnose.load(tmp_path))
    assert (result.culprits.ranks, result.culprits.hosts) == ([1], ["gpu-34"])


def test_a_kubelet_folder_names_a_pod(tmp_path: Path) -> None:
    folder = tmp_path / "ml_pt-worker-1_0e1d2c3b-1111-2222-3333-444455556666" / "pytorch"
    folder.mkdir(parents=True)
    (folder / "0.log").write_text(ECC)
    result = diagnose.diagnose(diagnose.load(tmp_path))
    assert (result.culprits.hosts, commands(result)[0]) == (["pt-worker-1"], FIND)


def test_a_machine_that_the_cloud_reclaims_did_not_fail() -> None:
    log = (
        "9m  Warning  SpotInterruption  node/ip-10-0-7-12  Spot Interruption event received.\n"
        "9m  Normal  TaintManagerEviction  pod/sft-4  Marking for deletion Pod ml/sft-4\n"
        "7m  Normal  NodeNotReady  node/ip-10-0-7-12  Node status is now: NodeNotReady\n"
    )
    result = diagnose.diagnose(diagnose.load_text(log))
    assert (result.root_cause.cause, result.culprits.hosts) == (
        "scheduler.preempted",
        ["ip-10-0-7-12"],
    )
    assert result.restart.advice == "retry"
    assert [one.cause for one in result.alternatives] == ["hw.node"]


def test_a_machine_is_named_in_commands_as_before() -> None:
    result = diagnose.diagnose(diagnose.load_text(f"node-1: {ECC}"))
    assert result.culprits.hosts == ["node-1"]
    assert "kubectl cordon node-1" in commands(result)
