"""Who of a job's frameworks is told a setting first."""

import pytest

from diagnose.infer.advise.remedies import layers


@pytest.mark.parametrize(
    ("frameworks", "others", "first"),
    [
        ([], [], ["torch"]),
        ([], ["torchrun"], ["torchrun", "torch"]),
        (["mine"], ["slurm"], ["mine", "slurm", "torch"]),
        (["deepspeed", "transformers"], [], ["transformers", "deepspeed", "accelerate", "torch"]),
        (["torch", "deepspeed", "Axolotl"], [], ["axolotl", "deepspeed", "torch", "trl"]),
        (["vllm", "verl"], [], ["verl", "vllm", "megatron", "sglang"]),
        (["openmmlab"], [], ["openmmlab", "mmengine", "torch"]),
        (["mindspore"], [], ["mindspore", "hccl"]),
        (["jax"], ["slurm"], ["jax", "slurm"]),
    ],
)
def test_the_outermost_comes_first(
    frameworks: list[str], others: list[str], first: list[str]
) -> None:
    found = layers(frameworks, others)
    assert found[: len(first)] == first
    assert len(set(found)) == len(found)
    assert ("torch" in found) == (not {"jax", "mindspore"} & set(frameworks))
