"""`checkpoint-<step>` of transformers' Trainer, with what DeepSpeed or FSDP put into it.

Order of writing (transformers 4.37–5, trainer.py `_save_checkpoint`): model, tokenizer and
`training_args.bin`; the optimizer (`optimizer.pt`, or the files of DeepSpeed or FSDP) and
`scheduler.pt`; the random states of every rank; `trainer_state.json` of rank 0 last (before 4.37
ahead of the random states). `save_only_model` leaves out the optimizer, the schedule and the random
states. 4.36 to 4.38 wrote into `tmp-checkpoint-<step>` and renamed that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from diagnose.checkpoint.layouts import Layout
from diagnose.checkpoint.layouts.dcp import DCP
from diagnose.checkpoint.layouts.deepspeed import DEEPSPEED, LATEST, ZERO_TO_FP32, check_marker
from diagnose.checkpoint.layouts.hf_model import (
    ADAPTER_CONFIG,
    CONFIG,
    NO_CONFIG,
    TRAINER_STATE,
    TRAINING_ARGS,
    check_adapters,
    check_model,
    model_files,
    says,
)
from diagnose.checkpoint.layouts.hf_weights import weights_of
from diagnose.checkpoint.layouts.worlds import (
    check_pieces,
    check_ranks,
    lost_ranks,
    numbers,
    processes,
)
from diagnose.checkpoint.look import Look, Looker
from diagnose.checkpoint.model import Flaw, Found
from diagnose.checkpoint.tree import Folder
from diagnose.text.ranks import counted

RNG = "rng_state.pth"
OPTIMIZER = "optimizer.pt"
SCHEDULER = "scheduler.pt"
FSDP_MODEL = "pytorch_model_fsdp.bin"  # FULL_STATE_DICT; the next one is written along with it
FSDP_OPTIMIZER = "optimizer.bin"

_NAME = re.compile(r"(tmp-)?checkpoint-(\d{1,15})")
_RANK_RNG = re.compile(r"rng_state_(\d{1,7})\.pth")
_DEEPSPEED = re.compile(r"global_step\d{1,15}(?:_universal)?")
FSDP_FOLDER = re.compile(r"(pytorch_model_fsdp|optimizer)_(\d{1,4})")
FSDP_RANK = re.compile(r"(pytorch_model_fsdp(?:_\d{1,4})?|optimizer_\d{1,4})_rank(\d{1,7})\.bin")
_XLA = re.compile(r"rank(\d{1,7})-of-(\d{1,7})-(optimizer|pytorch_model)\.(?:pt|bin)")
_SAGEMAKER = re.compile(r"optimizer\.pt_\d+(?:_\d+)*")
_ACCELERATE = re.compile(r"random_states_\d+\.pkl|scheduler(?:_\d+)?\.bin|sampler(?:_\d+)?\.bin")
SHARD_RANK = re.compile(r".*/(?:\w*zero_pp_rank_|__)(\d{1,7})_.*")  # DeepSpeed, DCP
_ZERO3 = re.compile(r".*/zero_pp_rank_\d+_mp_rank_\d+_model_states\.pt")
_UNSURE_CONFIG = Flaw("unknown", NO_CONFIG, CONFIG)


@dataclass(frozen=True, slots=True)
class _Rests:
    """What of a Trainer's checkpoint is in a folder, by the names alone."""

    tag_folders: list[str]
    fsdp_folders: list[str]
    deepspeed: bool
    full_fsdp: bool
    optimizer: bool
    scheduler: bool
    ranks: set[int]
    rng: bool

    @property
    def resumable(self) -> bool:
        """Whether it was to hold more than the model."""
        return self.optimizer or self.scheduler or self.rng or self.deepspeed


def _rests(folder: Folder) -> _Rests:
    files = folder.files
    tags = [name for name in folder.folders if _DEEPSPEED.fullmatch(name)]
    fsdp = [name for name in folder.folders if FSDP_FOLDER.fullmatch(name)]
    ranks = numbers(files, _RANK_RNG)
    deepspeed = bool(tags) or LATEST in files or ZERO_TO_FP32 in files
    optimizer = (
        OPTIMIZER in files
        or FSDP_OPTIMIZER in files
        or any(name.startswith("optimizer_") for name in fsdp)
        or any((m := FSDP_RANK.fullmatch(n)) and m[1].startswith("optimizer") for n in files)
        or any((m := _XLA.fullmatch(n)) and m[3] == "optimizer" for n in files)
        or any(_SAGEMAKER.fullmatch(name) for name in files)
    )
    return _Rests(
        tags, fsdp, deepspeed, FSDP_MODEL in files or FSDP_OPTIMIZER in files, optimizer,
        SCHEDULER in files, ranks, bool(ranks) or RNG in files,
    )  # fmt: skip


def read(folder: Folder, look: Looker) -> Found | None:
    """The checkpoint that a folder is."""
    name = _NAME.fullmatch(folder.name)
    rests = _rests(folder)
    if not _is_one(folder, rests, name):
        return None
    found = Found(
        folder.path, "Hugging Face Trainer", _parts(folder), step=int(name[2]) if name else None,
        framework="transformers",
    )  # fmt: skip
    if folder.problem:
        found.flaw("unknown", folder.problem)
        return found
    if name and name[1]:
        found.flaw("partial", "temporary name: the save ended before the final rename")
    if not found.parts and not folder.folders:
        found.flaw("partial", "nothing was written to it")
        return found
    looks = look.check(found)
    _check_state(found, looks)
    inner = _inside(found, folder, rests, look)
    check_model(found, folder, looks, trained=True)
    _check_weights(found, folder, rests, check_adapters(found, folder, look))
    if rests.resumable:
        _check_resumable(found, folder, rests, inner)
    elif TRAINER_STATE in folder.files:
        found.notes.append("only the model was saved: the optimizer would start from scratch")
    return found


def _is_one(folder: Folder, rests: _Rests, name: re.Match[str] | None) -> bool:
    names = (TRAINER_STATE, TRAINING_ARGS, OPTIMIZER, SCHEDULER, FSDP_OPTIMIZER)
    marks = [mark for mark in names if mark in folder.files]
    if name is None:
        # The model that a run ends with has the state of the Trainer beside it, too.
        return TRAINER_STATE in marks and rests.resumable
    if any(_ACCELERATE.fullmatch(file) for file in folder.files):
        return TRAINER_STATE in marks
    if marks or rests.rng or rests.deepspeed or rests.fsdp_folders or rests.full_fsdp:
        return True
    known = bool(name[1]) and bool(_parts(folder))
    return known or folder.problem != "" or not (folder.files or folder.folders)


def _parts(folder: Folder) -> dict[str, Any]:
    parts = model_files(folder)
    for name, leaf in folder.files.items():
        if (
            name in (RNG, OPTIMIZER, SCHEDULER, "scaler.pt", FSDP_MODEL, FSDP_OPTIMIZER, LATEST,
                     ZERO_TO_FP32)
            or _RANK_RNG.fullmatch(name) or FSDP_RANK.fullmatch(name) or _XLA.fullmatch(name)
            or _SAGEMAKER.fullmatch(name)
        ):  # fmt: skip
            parts[name] = leaf
    return parts


def _check_state(found: Found, looks: Mapping[str, Look]) -> None:
    """The state of the Trainer: the last file, and the only one that says the step."""
    look = looks.get(TRAINER_STATE)
    if look is None:
        found.flaw("partial", "missing: it is written last", TRAINER_STATE)
        return
    if look.flaw is not None or look.data is None:
        return
    step = says(looks, TRAINER_STATE, "global_step")
    if step is None:
        found.flaw("corrupt", "has no global_step", TRAINER_STATE)
    elif found.step is None:
        found.step = step
    elif step != found.step:
        found.flaw("corrupt", f"says step {step}", TRAINER_STATE)


def _inside(found: Found, folder: Folder, rests: _Rests, look: Looker) -> dict[str, Found]:
    """What other layouts say of the folders inside, which are taken over."""
    inner: dict[str, Found] = {}
    for name in rests.tag_folders:
        if one := DEEPSPEED.read(folder.folders[name], look):
            inner[name] = one
    if rests.deepspeed:
        if not inner:
            name = next(iter(rests.tag_folders), f"global_step{found.step or 0}")
            found.flaw("partial", "missing: DeepSpeed keeps the optimizer there", name)
        else:
            found.flaws += check_marker(folder, rests.tag_folders)
    for name in rests.fsdp_folders:
        if one := DCP.read(folder.folders[name], look):
            inner[name] = one
        else:
            found.flaw("partial", "it contains no sharded state", f"{name}/.metadata")
    for name, one in inner.items():
        found.absorb(name, one)
    return inner


def _check_weights(found: Found, folder: Folder, rests: _Rests, adapters: int) -> None:
    """The model itself, in whatever form."""
    check_fsdp(found, folder)
    xla: dict[tuple[str, int], set[int]] = {}
    for name in folder.files:
        if match := _XLA.fullmatch(name):
            kind = name.partition("-of-")[2].partition("-")[2]
            xla.setdefault((kind, int(match[2])), set()).add(int(match[1]))
    for (kind, world), have in islice(xla.items(), 16):
        check_ranks(found, have, world, lambda r, k=kind, w=world: f"rank{r}-of-{w}-{k}")  # type: ignore[misc]
    weights = weights_of(folder.files)
    if weights or xla or rests.fsdp_folders or any(FSDP_RANK.fullmatch(n) for n in folder.files):
        return
    if adapters:
        return
    if any(weights_of(inside.files).full for inside in folder.folders.values()):
        return  # modules of sentence-transformers, for one
    # The settings of a run are written behind the weights: without these, FSDP's are the only ones.
    fsdp_only = rests.full_fsdp and not {CONFIG, TRAINING_ARGS} <= folder.files.keys()
    if fsdp_only or any(_ZERO3.fullmatch(path) for path in found.parts):
        return  # ZeRO 3 gathers the model on request only
    if ADAPTER_CONFIG not in folder.files:  # told of already
        found.flaw("partial", "missing: there are no model weights", "model.safetensors")


def check_fsdp(found: Found, folder: Folder) -> None:
    """Model and optimizer of FSDP come in pairs: as files, as folders, or as a file per rank.

    Names of accelerate's save_fsdp_model and save_fsdp_optimizer (utils/fsdp_utils.py).
    """
    files = folder.files
    why = "missing: FSDP's {} exists"
    if FSDP_MODEL in files and FSDP_OPTIMIZER not in files:
        found.flaw("partial", why.format("model"), FSDP_OPTIMIZER)
    pairs: dict[str, set[int]] = {}
    for name in folder.folders:
        if match := FSDP_FOLDER.fullmatch(name):
            pairs.setdefault(match[1], set()).add(int(match[2]))
    models, optimizers = (pairs.get(kind, set()) for kind in ("pytorch_model_fsdp", "optimizer"))
    if models and FSDP_OPTIMIZER not in files:
        for number in sorted(models - optimizers)[:8]:
            found.flaw("partial", why.format("model"), f"optimizer_{number}")
    for number in sorted(optimizers - models)[:8]:
        found.flaw("partial", why.format("optimizer"), f"pytorch_model_fsdp_{number}")
    by_kind: dict[str, set[int]] = {}
    for name in files:
        if match := FSDP_RANK.fullmatch(name):
            by_kind.setdefault(match[1], set()).add(int(match[2]))
    world = 1 + max((rank for ranks in by_kind.values() for rank in ranks), default=-1)
    for kind, ranks in by_kind.items():
        check_ranks(found, ranks, world, lambda rank, kind=kind: f"{kind}_rank{rank}.bin")  # type: ignore[misc]


def _check_resumable(
    found: Found, folder: Folder, rests: _Rests, inner: Mapping[str, Found]
) -> None:
    """Optimizer, schedule and random states, which only save_only_model leaves out together."""
    if not rests.optimizer and not rests.deepspeed and not (
        FSDP_MODEL in folder.files or rests.fsdp_folders
    ):  # fmt: skip
        found.flaw("partial", "missing: without it training restarts from scratch", OPTIMIZER)
    if not rests.scheduler and not rests.deepspeed:
        found.flaw(
            "partial", "missing: the learning-rate schedule restarts from scratch", SCHEDULER
        )
    if FSDP_OPTIMIZER in folder.files and not (
        FSDP_MODEL in folder.files or rests.fsdp_folders or weights_of(folder.files).full
    ):
        found.flaw("partial", "missing: FSDP's optimizer exists", FSDP_MODEL)
    world = max((one.ranks or 0 for one in inner.values()), default=0)
    world = max(world, processes(folder.files.get(TRAINING_ARGS)) or 0)
    if rests.ranks:
        world = max(world, 2, 1 + max(rests.ranks))  # a single process has another file
        check_ranks(found, rests.ranks, world, "rng_state_{}.pth".format)
        found.ranks = world
        for name, one in inner.items():
            check_pieces(found, name, one, world)
        if 1 < len(rests.ranks) < world and world % len(rests.ranks) == 0:
            found.notes.append("hosts that save to a local disk keep their own ranks' files")
    elif RNG in folder.files:
        found.ranks = max(world, 1)
    elif world > 1:
        check_ranks(found, set(), world, "rng_state_{}.pth".format)
        found.ranks = world
    else:
        found.flaw("partial", "missing: no rank has written its random state", RNG)


def compare(run: Folder, found: list[Found]) -> None:
    """Ranks lost at the end, settings that no checkpoint has, and the best one being gone."""
    several = [one for one in found if RNG not in one.parts]  # the file of a single process
    for one, world, other in lost_ranks(several, _restarted):
        have = numbers(one.parts, _RANK_RNG)
        check_ranks(one, have, world, "rng_state_{}.pth".format)
        one.notes.append(
            f"{other.name} was saved by {counted(world, 'rank')}, this one by {len(have)}"
        )
    _no_rng(found)
    if len(found) > 1 and all(_UNSURE_CONFIG in one.flaws for one in found):
        for one in found:
            one.flaws.remove(_UNSURE_CONFIG)
            one.notes.append(f"no {CONFIG}: this is not a transformers model")
    if found:
        best = _state(found[-1]).get("best_model_checkpoint")
        name = best.rstrip("/").rpartition("/")[2] if isinstance(best, str) else ""
        if name and _NAME.fullmatch(name) and name not in run.folders:
            found[-1].notes.append(f"the best checkpoint was {name}, which is gone")


def _no_rng(found: list[Found]) -> None:
    """Name the random states that are missing as the others of the run are named."""
    worlds = {one.ranks for one in found if one.ranks}
    for one in found:
        if one.ranks is None and len(worlds) == 1 and (world := max(worlds)) > 1:
            none = [flaw for flaw in one.flaws if flaw.file == RNG]
            one.flaws = [flaw for flaw in one.flaws if flaw not in none]
            if none:
                check_ranks(one, set(), world, "rng_state_{}.pth".format)


def _restarted(before: Found, found: Found) -> bool:
    """Whether a checkpoint shows that its job runs on another number of ranks on purpose."""
    sharded = numbers(found.parts, SHARD_RANK)
    if found.ranks in (processes(found.parts.get(TRAINING_ARGS)), max(sharded, default=-1) + 1):
        return True
    steps = {_state(one).get("max_steps") for one in (before, found)}
    return len(steps - {None}) > 1  # counted from epochs, these depend on how many ranks share one


def _state(found: Found) -> dict[str, Any]:
    leaf = found.parts.get(TRAINER_STATE)
    try:
        data = json.loads(leaf.text()) if leaf and leaf.size >= 0 else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


HF_TRAINER = Layout("Hugging Face Trainer", read, compare)
