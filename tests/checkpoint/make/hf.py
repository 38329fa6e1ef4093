"""Models and checkpoints of transformers' Trainer, in the order in which it writes them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.checkpoint.make import dcp, deepspeed
from tests.checkpoint.make.base import (
    Tensor,
    filler,
    json_bytes,
    safetensors_file,
    torch_file,
    write,
)

# Names and shapes of a small causal model, in the order of their layers.
MODEL = {
    "model.embed_tokens.weight": ("BF16", (64, 16)),
    "model.layers.0.mlp.up_proj.weight": ("BF16", (32, 16)),
    "model.layers.1.mlp.up_proj.weight": ("BF16", (32, 16)),
    "model.norm.weight": ("BF16", (16,)),
    "lm_head.weight": ("BF16", (64, 16)),
}
LORA = {
    f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{side}.weight": ("F32", shape)
    for layer in range(2)
    for side, shape in (("A", (4, 16)), ("B", (16, 4)))
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 16, "model_type": "llama",
    "num_hidden_layers": 2, "torch_dtype": "bfloat16", "transformers_version": "4.57.1",
    "vocab_size": 64,
}  # fmt: skip
ADAPTER_CONFIG = {
    "base_model_name_or_path": "meta-llama/Llama-3.2-1B", "lora_alpha": 16, "peft_type": "LORA",
    "r": 4, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM",
}  # fmt: skip
TOKENIZER_CONFIG = {"model_max_length": 4096, "tokenizer_class": "PreTrainedTokenizerFast"}
TOKENIZER = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {"a": 0}}}


def tensor(shape: tuple[int, ...], seed: str, dtype: str = "float32") -> Tensor:
    """A tensor whose bytes differ with the seed."""
    size = {"float32": 4, "bfloat16": 2, "uint8": 1}[dtype]
    return Tensor(shape, dtype, filler(Tensor(shape).numel * size, seed))


def state_dict(seed: str) -> dict[str, Tensor]:
    """The weights as torch.save gets them."""
    return {name: tensor(shape, f"{seed} {name}", "bfloat16") for name, (_, shape) in MODEL.items()}


def optimizer_state(step: int) -> dict[str, Any]:
    """An AdamW state_dict."""
    moments = {
        number: {
            "step": tensor((1,), f"step {step}"),
            "exp_avg": tensor((16, 8), f"m {number} {step}"),
            "exp_avg_sq": tensor((16, 8), f"v {number} {step}"),
        }
        for number in range(3)
    }
    return {"state": moments, "param_groups": [{"lr": 1e-4 / (step + 1), "params": [0, 1, 2]}]}


def scheduler_state(step: int) -> dict[str, Any]:
    """A LambdaLR state_dict."""
    return {
        "base_lrs": [1e-4], "last_epoch": step, "_step_count": step + 1,
        "_last_lr": [1e-4 / (step + 1)], "lr_lambdas": [None],
    }  # fmt: skip


def rng_state(step: int, rank: int) -> dict[str, Any]:
    """Random states of one rank."""
    return {
        "python": (3, tuple(range(step, step + 30)), None),
        "cpu": tensor((632,), f"rng {rank} {step}", "uint8"),
        "cuda": tensor((16,), f"cuda rng {rank} {step}", "uint8"),
    }


def shard_names(count: int, kind: str = "safetensors", stem: str = "model") -> list[str]:
    """Names of numbered shards."""
    return [f"{stem}-{number:05d}-of-{count:05d}.{kind}" for number in range(1, count + 1)]


def weights(
    folder: Path,
    *,
    step: int,
    start: float,
    shards: int = 1,
    kind: str = "safetensors",
    stem: str = "",
    index: str = "",
) -> float:
    """The weights of a model, in shards and an index where there are several; gives the time."""
    stem = stem or ("model" if kind == "safetensors" else "pytorch_model")
    names = list(MODEL)
    cut = [names[part::shards] for part in range(shards)]
    files = [f"{stem}.{kind}"] if shards == 1 else shard_names(shards, kind, stem)
    for number, (file, inside) in enumerate(zip(files, cut, strict=True)):
        if kind == "safetensors":
            data = safetensors_file({name: MODEL[name] for name in inside}, seed=f"{file} {step}")
        else:
            held = state_dict(str(step))
            data = torch_file(content={name: held[name] for name in inside}, archive=file)
        write(folder / file, data, start + 0.5 * number)
    done = start + 0.5 * shards
    if shards > 1:
        mapping = {name: file for file, inside in zip(files, cut, strict=True) for name in inside}
        size = sum(2 * Tensor(shape).numel for _, shape in MODEL.values())
        data = json_bytes({"metadata": {"total_size": size}, "weight_map": mapping})
        write(folder / (index or f"{stem}.{kind}.index.json"), data, done)
    return done


def model(
    folder: Path,
    *,
    step: int,
    world: int = 1,
    start: float,
    shards: int = 1,
    kind: str = "safetensors",
    tokenizer: bool = True,
) -> None:
    """What save_pretrained of a model and of a tokenizer write."""
    write(folder / "config.json", json_bytes(CONFIG), start)
    write(folder / "generation_config.json", json_bytes({"bos_token_id": 1}), start)
    done = weights(folder, step=step, start=start + 1, shards=shards, kind=kind)
    if tokenizer:
        write(folder / "tokenizer_config.json", json_bytes(TOKENIZER_CONFIG), done + 0.1)
        write(folder / "tokenizer.json", json_bytes(TOKENIZER), done + 0.2)


def adapter(
    folder: Path, *, step: int, world: int = 1, start: float, kind: str = "safetensors"
) -> None:
    """What save_pretrained of PEFT writes."""
    if kind == "safetensors":
        data = safetensors_file(LORA, seed=str(step))
    else:
        content = {name: tensor(shape, f"{name} {step}") for name, (_, shape) in LORA.items()}
        data = torch_file(content=content, archive="adapter_model")
    write(folder / f"adapter_model.{kind}", data, start + 1)
    write(folder / "adapter_config.json", json_bytes(ADAPTER_CONFIG), start + 1.1)


def training_args(folder: Path, start: float, world: int) -> None:
    """`training_args.bin`, the same in all checkpoints; accelerate's PartialState is in it."""
    state = {"backend": "nccl", "num_processes": world, "process_index": 0}
    content = {"output_dir": "out", "learning_rate": 1e-4, "distributed_state": state}
    write(folder / "training_args.bin", torch_file(content=content, archive="training_args"), start)


def rng_states(folder: Path, *, step: int, world: int, start: float) -> None:
    """Random states of all ranks."""
    for rank in range(world):
        name = "rng_state.pth" if world == 1 else f"rng_state_{rank}.pth"
        data = torch_file(content=rng_state(step, rank), archive=name.removesuffix(".pth"))
        write(folder / name, data, start + 0.1 * rank)


def trainer_state(step: int, *, best: str | None = None, max_steps: int = 1000) -> bytes:
    """`trainer_state.json`."""
    history = [{"epoch": at / 500, "loss": 2.0 / at, "step": at} for at in range(10, step + 1, 10)]
    return json_bytes({
        "best_global_step": None, "best_metric": None, "best_model_checkpoint": best,
        "epoch": step / 500, "eval_steps": 500, "global_step": step,
        "is_hyper_param_search": False, "is_local_process_zero": True,
        "is_world_process_zero": True, "log_history": history, "max_steps": max_steps,
        "num_train_epochs": 2, "save_steps": 100, "train_batch_size": 4, "trial_name": None,
    })  # fmt: skip


def trainer(
    folder: Path,
    *,
    step: int,
    world: int,
    start: float,
    what: Callable[..., None] = model,
    optimizer: str = "optimizer.pt",
    only_model: bool = False,
    best: str | None = None,
    max_steps: int = 1000,
    **options: Any,
) -> None:
    """`checkpoint-<step>` of plain data parallel training; `what` writes the model."""
    what(folder, step=step, start=start, **options)
    training_args(folder, start + 5, world)
    if not only_model:
        data = torch_file(content=optimizer_state(step), archive="optimizer")
        write(folder / optimizer, data, start + 8)
        data = torch_file(content=scheduler_state(step), archive="scheduler")
        write(folder / "scheduler.pt", data, start + 8.1)
        rng_states(folder, step=step, world=world, start=start + 8.2)
    done = start + 8.4 + 0.1 * world
    write(folder / "trainer_state.json", trainer_state(step, best=best, max_steps=max_steps), done)


def trainer_deepspeed(
    folder: Path, *, step: int, world: int, start: float, stage: int = 2, gathered: bool = True
) -> None:
    """With DeepSpeed; `gathered`: ZeRO 3 was told to gather the weights."""
    if gathered:
        model(folder, step=step, start=start)
    else:
        write(folder / "config.json", json_bytes(CONFIG), start)
        write(folder / "generation_config.json", json_bytes({"bos_token_id": 1}), start)
    training_args(folder, start + 5, world)
    tag = folder / f"global_step{step}"
    deepspeed.zero(tag, step=step, world=world, start=start + 6, stage=stage)
    rng_states(folder, step=step, world=world, start=start + 16)
    done = start + 17 + 0.1 * world
    write(folder / "trainer_state.json", trainer_state(step), done)


def trainer_fsdp(
    folder: Path, *, step: int, world: int, start: float, sharded: bool = True
) -> None:
    """With FSDP: SHARDED_STATE_DICT, or FULL_STATE_DICT where not `sharded`."""
    if sharded:
        for number, name in enumerate(("pytorch_model_fsdp_0", "optimizer_0")):
            begin = start + 6 * number
            dcp.make(folder / name, step=step, world=world, start=begin, blobs={})
    else:
        model(folder, step=step, start=start)
        training_args(folder, start + 5, world)
        data = torch_file(content=state_dict(str(step)), archive="pytorch_model_fsdp")
        write(folder / "pytorch_model_fsdp.bin", data, start + 6)
        data = torch_file(content=optimizer_state(step), archive="optimizer")
        write(folder / "optimizer.bin", data, start + 8)
    begin = start + 12 + 0.5 * world
    data = torch_file(content=scheduler_state(step), archive="scheduler")
    write(folder / "scheduler.pt", data, begin)
    rng_states(folder, step=step, world=world, start=begin + 0.1)
    write(folder / "trainer_state.json", trainer_state(step), begin + 0.2 + 0.1 * world)


# Files that nothing needs which loads the model or goes on with the training.
OPTIONAL = frozenset({"generation_config.json", "training_args.bin", "zero_to_fp32.py"})
_TRAINERS: dict[str, Callable[..., None]] = {
    "hf-trainer": trainer,
    "hf-trainer-sharded": partial(trainer, shards=3),
    "hf-trainer-bin": partial(trainer, shards=2, kind="bin"),
    "hf-trainer-lora": partial(trainer, what=adapter),
    "hf-trainer-model-only": partial(trainer, only_model=True),
    "hf-trainer-deepspeed-zero2": trainer_deepspeed,
    "hf-trainer-deepspeed-zero3": partial(trainer_deepspeed, stage=3, gathered=False),
    "hf-trainer-fsdp-sharded": trainer_fsdp,
    "hf-trainer-fsdp-full": partial(trainer_fsdp, sharded=False),
}
_MODELS: dict[str, Callable[..., None]] = {
    "hf-model": model,
    "hf-model-sharded": partial(model, shards=4),
    "hf-model-bin": partial(model, shards=2, kind="bin"),
    "peft-adapter": adapter,
}
# By name: what the folder of a step is called.
FOLDERS = dict.fromkeys(_TRAINERS, "checkpoint-{step}") | dict.fromkeys(_MODELS, "step_{step}")
MAKERS = _TRAINERS | _MODELS
