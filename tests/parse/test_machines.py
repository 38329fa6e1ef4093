"""What looks like the name of a machine."""

from __future__ import annotations

import pytest

from diagnose.parse.path import node_like


@pytest.mark.parametrize(
    "token",
    ["node01", "worker-0", "ip-10-0-5-7", "c000001", "trn123", "dgx39", "192.168.0.1", "host2",
     "compute-0-1", "train-job-worker-2", "mycluster-gpu-12", "nid001234", "gpu12.example.org",
     "ip-10-0-5-7.ec2.internal", "algo-1", "v100x16-2", "a100-01", "h100-sxm-3"],
)  # fmt: skip
def test_node_like(token: str) -> None:
    assert node_like(token)


@pytest.mark.parametrize(
    "token",
    ["gpu0", "step-100", "checkpoint-500", "cu118", "torch-2.1", "libnccl.so.2", "python3.10",
     "layer.0.weight", "fp16", "H100", "bert-base-12", "md0", "nvme0n1", "mlx5_0", "Error", "",
     "node", "seed1234", "llama-3", "a100-40gb"],
)  # fmt: skip
def test_not_node_like(token: str) -> None:
    assert not node_like(token)
