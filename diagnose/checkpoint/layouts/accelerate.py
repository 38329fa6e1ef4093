"""What accelerate's `Accelerator.save_state` writes, also through the plugins DeepSpeed and FSDP.

Order of writing (accelerate 1.15, checkpointing.py `save_accelerator_state`): models, optimizers,
schedulers, samplers, and the random states of every rank; then objects registered by the user. The
second and further ones of a kind have their number in the name. With DeepSpeed, models and
optimizers are in the tag `pytorch_model`; with FSDP, in `pytorch_model_fsdp_0` and `optimizer_0` or
in files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from diagnose.checkpoint.layouts import Layout
from diagnose.checkpoint.layouts.dcp import DCP
from diagnose.checkpoint.layouts.deepspeed import DEEPSPEED, LATEST, ZERO_TO_FP32, check_marker
from diagnose.checkpoint.layouts.hf_model import (
    HF_MODEL,
    SIDE,
    TRAINER_STATE,
    check_model,
    model_files,
    step_named,
)
from diagnose.checkpoint.layouts.hf_trainer import (
    FSDP_FOLDER,
    FSDP_MODEL,
    FSDP_RANK,
    SHARD_RANK,
    check_fsdp,
)
from diagnose.checkpoint.layouts.hf_weights import left_overs
from diagnose.checkpoint.layouts.numbered import add_missing, gaps
from diagnose.checkpoint.layouts.worlds import check_pieces, check_ranks, lost_ranks, numbers
from diagnose.checkpoint.look import Look, Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder, Leaf
from diagnose.text.ranks import counted

_NAME = re.compile(r"checkpoint_(\d{1,15})")
_RANDOM = re.compile(r"random_states_(\d{1,7})\.pkl")
# What save_state numbers, from the second one on.
_KINDS = {
    "model": re.compile(r"model(?:_(\d{1,4}))?\.safetensors"),
    "pytorch_model": re.compile(r"pytorch_model(?:_(\d{1,4}))?\.bin"),
    "optimizer": re.compile(r"optimizer(?:_(\d{1,4}))?\.bin"),
    "scheduler": re.compile(r"scheduler(?:_(\d{1,4}))?\.bin"),
    "sampler": re.compile(r"sampler(?:_(\d{1,4}))?\.bin"),
    "dl_state_dict": re.compile(r"dl_state_dict(?:_(\d{1,4}))?\.bin"),
    "pytorch_model_fsdp": re.compile(r"pytorch_model_fsdp(?:_(\d{1,4}))?\.bin"),
}
_CUSTOM = re.compile(r"custom_checkpoint_(\d{1,4})\.pkl")
_TAG = re.compile(r"pytorch_model(?:_\d{1,4})?")
_RESUMED = ("optimizer", "scheduler", "sampler", "dl_state_dict")
_TRAINER = re.compile(r"training_args\.bin|trainer_state\.json|rng_state(?:_\d+)?\.pth")


def read(folder: Folder, look: Looker) -> Found | None:
    """The saved state that a folder is."""
    kinds = {kind: _numbers(folder, pattern) for kind, pattern in _KINDS.items()}
    tags = [name for name in folder.folders if _TAG.fullmatch(name)]
    fsdp = [name for name in folder.folders if FSDP_FOLDER.fullmatch(name)]
    if not _is_one(folder, kinds, fsdp):
        return None
    found = Found(
        folder.path, "accelerate", _parts(folder), step=step_named(folder.name),
        framework="accelerate",
    )  # fmt: skip
    if folder.problem:
        found.flaw("unknown", folder.problem)
        return found
    if not folder.files and not folder.folders:
        found.flaw("partial", "nothing was written to it")
        return found
    looks = look.check(found)
    _check_pickles(found, looks)
    for kind, have in kinds.items():
        _check_numbers(found, have, *_named(kind))
    custom = numbers(folder.files, _CUSTOM)
    _check_numbers(found, custom, "", "custom_checkpoint_{}.pkl")
    inner = _inside(found, folder, [*tags, *fsdp], look)
    deepspeed = LATEST in folder.files or ZERO_TO_FP32 in folder.files or any(
        one.framework == "deepspeed" for one in inner.values()
    )  # fmt: skip
    if deepspeed:
        there = [tag for tag in tags if tag in inner]
        if not there:
            why = "missing: DeepSpeed keeps the model and optimizer there"
            found.flaw("partial", why, "pytorch_model")
        else:
            found.flaws += check_marker(folder, there)
    check_fsdp(found, folder)
    check_model(found, folder, looks)
    _check_kinds(found, folder, kinds, deepspeed or bool(fsdp), inner)
    _check_random(found, folder, inner)
    left_overs(found, folder, found.parts.keys() | SIDE)
    return found


def _numbers(folder: Folder, pattern: re.Pattern[str]) -> set[int]:
    matches = (pattern.fullmatch(name) for name in folder.files)
    return {int(match[1] or 0) for match in matches if match}


def _is_one(folder: Folder, kinds: Mapping[str, set[int]], fsdp: list[str]) -> bool:
    files = folder.files
    if numbers(files, _RANDOM):
        return TRAINER_STATE not in files
    if any(_TRAINER.fullmatch(name) for name in files):
        return False
    if any(kinds[kind] for kind in _RESUMED) or fsdp or FSDP_MODEL in files:
        return True
    if _NAME.fullmatch(folder.name) is None:
        return False
    begun = bool(kinds["model"] or kinds["pytorch_model"]) and "config.json" not in files
    return begun or folder.problem != "" or not (files or folder.folders)


def _parts(folder: Folder) -> dict[str, Leaf]:
    parts = model_files(folder)
    for name, leaf in folder.files.items():
        if (
            any(pattern.fullmatch(name) for pattern in _KINDS.values())
            or _RANDOM.fullmatch(name) or _CUSTOM.fullmatch(name) or FSDP_RANK.fullmatch(name)
            or name in ("scaler.pt", LATEST, ZERO_TO_FP32)
        ):  # fmt: skip
            parts[name] = leaf
    return parts


def _named(kind: str) -> tuple[str, str]:
    end = "safetensors" if kind == "model" else "bin"
    return f"{kind}.{end}", f"{kind}_{{}}.{end}"


def _check_pickles(found: Found, looks: Mapping[str, Look]) -> None:
    """What is called `.pkl` was written by torch.save, too."""
    for name, look in looks.items():
        if name.endswith(".pkl") and look.flaw is None and not _is_pickled(found.parts[name]):
            short = found.parts[name].size < 4
            why = "is truncated within its first bytes" if short else "is not a torch.save file"
            found.flaw("partial" if short else "corrupt", why, name)


def _is_pickled(leaf: Leaf) -> bool:
    try:
        with leaf.open() as reader:
            return reader.read_at(0, 4).startswith((b"PK\3\4", b"\x80"))
    except OSError:
        return True  # told of already


def _check_numbers(found: Found, have: set[int], first: str, other: str) -> None:
    """Of a kind that save_state counts through, none is left out."""
    some, total = gaps(have, max(have, default=-1) + 1)
    names = (first if first and number == 0 else other.format(number) for number in some)
    add_missing(found, "missing: later files of the same kind exist", names, total)


def _inside(found: Found, folder: Folder, names: list[str], look: Looker) -> dict[str, Found]:
    """What other layouts say of the folders inside, which are taken over.

    Hooks of the user (those of diffusers' scripts do) save models as folders of their own.
    """
    inner: dict[str, Found] = {}
    for name, inside in folder.folders.items():
        layout = (DCP if FSDP_FOLDER.fullmatch(name) else DEEPSPEED) if name in names else None
        one = layout.read(inside, look) if layout else HF_MODEL.read(inside, look)
        if one is not None:
            inner[name] = one
            found.absorb(name, one)
        elif layout is DCP:
            found.flaw("partial", "it contains no sharded state", f"{name}/.metadata")
    return inner


def _check_kinds(
    found: Found,
    folder: Folder,
    kinds: Mapping[str, set[int]],
    plugin: bool,
    inner: Mapping[str, Found],
) -> None:
    """The model, and the optimizer that a scheduler or random states tell of."""
    model = (
        plugin or inner or kinds["model"] or kinds["pytorch_model"] or kinds["pytorch_model_fsdp"]
        or any(name.endswith(".safetensors") or FSDP_RANK.fullmatch(name) for name in folder.files)
    )  # fmt: skip
    if not model:
        name = "pytorch_model_fsdp.bin" if FSDP_MODEL in folder.files else "model.safetensors"
        found.flaw("partial", "missing: there is no model", name)
    optimizer = plugin or kinds["optimizer"] or any(
        (match := FSDP_RANK.fullmatch(name)) and match[1].startswith("optimizer")
        for name in folder.files
    )  # fmt: skip
    if not optimizer and kinds["scheduler"]:
        found.flaw("partial", "missing: its scheduler exists", "optimizer.bin")


def _check_random(found: Found, folder: Folder, inner: Mapping[str, Found]) -> None:
    """The random states, which every rank writes last."""
    have = numbers(folder.files, _RANDOM)
    world = max((one.ranks or 0 for one in inner.values()), default=0)
    world = max(world, max(have, default=0) + 1)
    found.ranks = world
    check_ranks(found, have, world, "random_states_{}.pkl".format)
    for name, one in inner.items():
        check_pieces(found, name, one, world)


def compare(run: Folder, found: list[Found]) -> None:
    """Random states of ranks at the end that others of the run have."""
    for one, world, other in lost_ranks(found, _restarted):
        have = numbers(one.parts, _RANDOM)
        check_ranks(one, have, world, "random_states_{}.pkl".format)
        one.notes.append(
            f"{other.name} was saved by {counted(world, 'rank')}, this one by {len(have)}"
        )


def _restarted(before: Found, found: Found) -> bool:
    sharded = numbers(found.parts, SHARD_RANK)
    return bool(sharded) and max(sharded) + 1 == found.ranks


ACCELERATE = Layout("accelerate", read, compare)
