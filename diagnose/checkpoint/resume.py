"""From which checkpoint to resume, and how each framework is told to."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from diagnose.checkpoint.model import Checkpoint, Resume

# `path`: the checkpoint, `parent`: the folder it lies in, `name`: its last part, `step`: its step.
# Sources: the frameworks' documentation and argument parsers.
_HOW = {
    "transformers": "--resume_from_checkpoint {path}",
    "accelerate": "accelerator.load_state({quoted})",
    "deepspeed": "model_engine.load_checkpoint({parent_quoted}, tag={name_quoted})",
    "megatron": "--load {parent} --ckpt-step {step}",
    "nemo": "nl.AutoResume(resume_from_path={quoted})",
    "lightning": "trainer.fit(model, ckpt_path={quoted})",
    "llama2-accessory": "--resume {path}",
    "verl": "trainer.resume_mode=resume_path trainer.resume_from_path={path}",
    "torchtitan": "--checkpoint.folder {parent} --checkpoint.load_step {step}",
    "torchtune": "resume_from_checkpoint=True checkpointer.checkpoint_dir={path}",
    "dcp": "torch.distributed.checkpoint.load(state_dict, checkpoint_id={quoted})",
    "peft": "PeftModel.from_pretrained(base_model, {quoted}, is_trainable=True) (weights only)",
}
_FILE = "torch.load({quoted}, map_location='cpu', mmap=True)"
_WEIGHTS = "from_pretrained({quoted}) (weights only: the optimizer starts anew)"


def resume(checkpoints: Sequence[Checkpoint]) -> Resume | None:
    """The checkpoint to go on from: the last whole one of the run that was written to last.

    One with optimizer and counters is preferred to mere weights. None when no checkpoint is whole.
    """
    whole = [one for one in checkpoints if one.state == "whole"]
    if not whole:
        return None
    written = _written(checkpoints)

    def worth(one: Checkpoint) -> tuple[bool, float, int, float, str]:
        step = -1 if one.step is None else one.step
        trained = one.framework not in ("", "peft")
        return trained, written[_parent(one.path)], step, one.written, one.path

    best = max(whole, key=worth)
    return Resume(best.path, best.step, how(best))


def newest(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The last checkpoint of the run that was written to last, in whatever state it is."""
    written = _written(checkpoints)
    return max(
        checkpoints,
        key=lambda one: (written[_parent(one.path)], one.step or -1, one.written, one.path),
        default=None,
    )


def _written(checkpoints: Sequence[Checkpoint]) -> dict[str, float]:
    """When each run, the folder of its checkpoints, was last written to."""
    written: dict[str, float] = {}
    for one in checkpoints:
        run = _parent(one.path)
        written[run] = max(written.get(run, 0.0), one.written)
    return written


def how(checkpoint: Checkpoint) -> str:
    """The command, call or setting that resumes from a checkpoint."""
    path, name = checkpoint.path, checkpoint.path.rstrip("/").rsplit("/", 1)[-1]
    parent = _parent(path)
    pattern = _HOW.get(checkpoint.framework)
    if pattern is None:
        pattern = _FILE if checkpoint.files == 1 else _WEIGHTS
    shell: Callable[[str], str] = shlex.quote
    return pattern.format(
        path=shell(path), parent=shell(parent), quoted=repr(path), parent_quoted=repr(parent),
        name_quoted=repr(name), step="" if checkpoint.step is None else checkpoint.step,
    )  # fmt: skip


def _parent(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0]
