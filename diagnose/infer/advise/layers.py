"""The frameworks of a job from the outermost to the innermost: who is told a setting first."""

from __future__ import annotations

from collections.abc import Iterable

_TRAINER = ("transformers", "accelerate", "deepspeed", "torch")
# What each is built on. Where two of a job are here, the user sets things in the outer one.
_BUILT_ON = {
    "axolotl": ("trl", *_TRAINER), "llama-factory": ("trl", *_TRAINER),
    "ms-swift": ("trl", *_TRAINER), "trl": _TRAINER, "transformers": _TRAINER[1:],
    "diffusers": _TRAINER[1:], "accelerate": _TRAINER[2:], "deepspeed": ("torch",),
    "nemo": ("lightning", "megatron", "torch"), "lightning": ("deepspeed", "torch"),
    "verl": ("megatron", "vllm", "sglang", "ray", "transformers", "torch"),
    "openrlhf": ("deepspeed", "vllm", "ray", "transformers", "torch"),
    "vllm": ("ray", "torch"), "sglang": ("torch",), "megatron": ("torch",),
    "openmmlab": ("mmengine", "torch"), "rllib": ("ray", "torch"),
    "nccl-tests": ("mpi",), "osu-benchmarks": ("mpi",), "horovod": ("mpi",),
    "mindspore": ("hccl",),
}  # fmt: skip
_NOT_ON_TORCH = {
    "dask", "horovod", "jax", "kaldi", "mindspore", "mxnet", "nccl-tests", "osu-benchmarks",
    "paddle", "ray", "spark", "tensorflow",
}  # fmt: skip


def layers(frameworks: Iterable[str], others: Iterable[str] = ()) -> list[str]:
    """Frameworks, the outer ones first, then launchers and the like, then what they are built on.

    One that is not known is taken to be built on torch; so is a job that names none.
    """
    named = [name.lower() for name in frameworks]
    below = {name: _BUILT_ON.get(name, ()) for name in named}
    outer = sorted(named, key=lambda name: sum(name in below[other] for other in named))
    bases = [base for name in outer for base in below[name]]
    if not any(name in _NOT_ON_TORCH for name in named):
        bases.append("torch")
    return list(dict.fromkeys([*outer, *(name.lower() for name in others), *bases]))
