"""Megatron-LM: `iter_0000500/` in one of four formats, and a tracker file beside it.

Names as megatron/training/checkpointing.py and core/dist_checkpointing make them: `torch` has a
folder per model parallel rank, `mp_rank_<tp>[_<pp>][_<ep>]/model_optim_rng.pt`, with the
distributed optimizer also `distrib_optim.pt`; `torch_dist` is DCP with `common.pt` (written first)
and `metadata.json` (last, and read first); `zarr` has a folder of chunks per tensor instead;
`torch_dcp` and `fsdp_dtensor` are DCP alone. When all is done
`latest_checkpointed_iteration.txt` gets the iteration. Megatron-Bridge adds `run_config.yaml` and
`train_state.pt`, NeMo uses `torch_dist` (`read_dist`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice, product

from diagnose.checkpoint.damaged import DamagedError
from diagnose.checkpoint.layouts import Layout, dcp
from diagnose.checkpoint.layouts.numbered import MOST_NAMED, add_missing, mark
from diagnose.checkpoint.layouts.zarr import check_array, is_array
from diagnose.checkpoint.look import Look, Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.torch_bytes import read_pickle
from diagnose.checkpoint.torch_zip import read_archive
from diagnose.checkpoint.tree import Folder, Leaf

NAME = "Megatron-LM"
TRACKER = "latest_checkpointed_iteration.txt"
COMMON, CONFIG = "common.pt", "metadata.json"

_ITERATION = re.compile(r"iter_(\d{7,15})")
_RELEASE = "release"
_MODEL_RANK = re.compile(r"mp_rank_(\d{2,5})(?:_(\d{3,5}))?(?:_(\d{3,5}))?")
_MODELS = ("model_optim_rng.pt", "model_rng.pt")
_OPTIMIZER = "distrib_optim.pt"
_SETTINGS, _STATE = "run_config.yaml", "train_state.pt"
_MAX_GRID = 1 << 20
_MAX_PICKLE = 16 << 20
_SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size",
          "expert_model_parallel_size")  # fmt: skip
# Settings inside a pickle of protocol 2, as torch.save writes it: a key and what stands behind it.
_SETTING = re.compile(
    rb"(?:X(.)\0\0\0|[\x8cU](.))(" + "|".join(_SIZES).encode() + rb"|world_size|no_save_optim"
    rb"|use_distributed_optimizer)(?:q.|r....|\x94)?(?:K(.)|M(..)|J(....)|([N\x88\x89]))",
    re.DOTALL,
)


def read(folder: Folder, look: Looker) -> Found | None:
    """The checkpoint of Megatron-LM that a folder holds; see Layout."""
    match = _ITERATION.fullmatch(folder.name)
    named = match is not None or folder.name == _RELEASE
    step = int(match[1]) if match else None
    if any(_MODEL_RANK.fullmatch(name) for name in folder.folders):
        found = _read_torch(folder, look, step)
        if found is None:
            return None
    elif is_dist(folder):
        found = read_dist(folder, look, step)
    elif named and dcp.is_dcp(folder):
        found = Found(folder.path, f"{NAME} DCP", dict(folder.leaves()), step)
        dcp.check(found, look)
        look.check(found, [path for path in found.parts if not dcp.is_part(path)])
    elif match and not folder.folders and not folder.files:
        found = Found(folder.path, NAME, {}, step)
        found.flaw("partial", "is empty: the save wrote nothing")
    else:
        return None
    found.framework = "megatron"
    if _SETTINGS in folder.files and _STATE not in folder.files:
        found.flaw("partial", f"missing: {_SETTINGS} exists", _STATE)
    return found


def compare(run: Folder, found: list[Found]) -> None:
    """What the tracker tells."""
    mark(run, found, TRACKER, _named)


def _named(text: str) -> str:
    """The folder of what the tracker says."""
    if text == _RELEASE:
        return text
    return f"iter_{int(text):07d}" if text.isascii() and text.isdecimal() and len(text) < 16 else ""


def is_dist(folder: Folder) -> bool:
    """Whether a folder holds a checkpoint of Megatron's `torch_dist` or `zarr`, or its rests."""
    tensors = dcp.is_dcp(folder) or any(is_array(inside) for inside in folder.folders.values())
    if COMMON in folder.files and (tensors or CONFIG in folder.files):
        return True
    if CONFIG not in folder.files:
        return COMMON in folder.files and _ITERATION.fullmatch(folder.name) is not None
    return tensors or dcp.step_of(folder.name) is not None or folder.name == "weights"


def read_dist(folder: Folder, look: Looker, step: int | None, slack: int = 0) -> Found:
    """The checkpoint of a folder that `is_dist`. `step`: what its name tells; see check_step."""
    found = Found(folder.path, f"{NAME} torch_dist", dict(folder.leaves()), step)
    looks = look.check(found, [path for path in found.parts if not dcp.is_part(path)])
    backend = _backend(found, looks)
    if COMMON not in found.parts:
        found.flaw("partial", "missing: the state shared by all ranks", COMMON)
    check_step(found, looks, COMMON, slack)
    arrays = {name for name, inside in folder.folders.items() if is_array(inside)}
    if backend == "zarr" or (arrays and not dcp.is_dcp(folder)):
        found.layout = f"{NAME} zarr"
        for name, inside in folder.folders.items():
            check_array(found, name, inside)
        return found
    dcp.check(found, look)
    return found


def _backend(found: Found, looks: Mapping[str, Look]) -> str:
    """The format that `metadata.json` names; adds what is wrong with it."""
    if CONFIG not in found.parts:
        found.flaw("partial", "missing: it is written last, so this save never finished", CONFIG)
        return ""
    look = looks.get(CONFIG)
    if look is None or look.flaw:
        return ""
    data = look.data if isinstance(look.data, dict) else {}
    backend = data.get("sharded_backend")
    if not isinstance(backend, str) or not backend:
        found.flaw("corrupt", "does not state the format of the tensors", CONFIG)
        return ""
    return backend


def check_step(found: Found, looks: Mapping[str, Look], path: str, slack: int = 0) -> None:
    """The step inside a file has to be that of the name, give or take `slack`."""
    look = looks.get(path)
    if look is None or look.step is None or found.step is None:
        return
    if abs(look.step - found.step) > slack:
        found.flaw("corrupt", f"holds step {look.step}, the folder is for {found.step}", path)


def _read_torch(folder: Folder, look: Looker, step: int | None) -> Found | None:
    """The format with a folder per model parallel rank."""
    ranks = {
        name: tuple(int(number) for number in match.groups() if number is not None)
        for name in folder.folders
        if (match := _MODEL_RANK.fullmatch(name))
    }
    every = [set(folder.folders[name].files) for name in ranks]
    models = [model for model in _MODELS if any(model in files for files in every)]
    if not models and step is None:
        return None
    model = (models or _MODELS)[0]
    found = Found(folder.path, f"{NAME} torch", dict(folder.leaves()), step)
    looks = look.check(found)
    for path in (f"{name}/{model}" for name in ranks):
        check_step(found, looks, path)
    settings = next(
        (stated for name in ranks if (stated := _settings(folder.folders[name].files.get(model)))),
        {},
    )
    found.ranks = settings.get("world_size")
    length = Counter(len(numbers) for numbers in ranks.values()).most_common(1)[0][0]
    have = {numbers for numbers in ranks.values() if len(numbers) == length}
    sizes = [max(axis) + 1 for axis in zip(*have, strict=True)]
    split = [settings.get(_SIZES[0], 1), *(s for k in _SIZES[1:] if (s := settings.get(k, 1)) > 1)]
    if len(split) == length:
        sizes = [max(pair) for pair in zip(sizes, split, strict=True)]
    some, count = absent(have, sizes)
    why = f"missing: {len(have)} of {len(have) + count} model parallel ranks exist"
    add_missing(found, why, [f"{_folder(numbers)}/{model}" for numbers in some], count)
    needed = {model}
    if any(_OPTIMIZER in files for files in every) or (
        settings.get("use_distributed_optimizer") and not settings.get("no_save_optim")
    ):
        needed.add(_OPTIMIZER)
    lost = [f"{n}/{file}" for n in ranks for file in sorted(needed - set(folder.folders[n].files))]
    add_missing(found, "missing: every model parallel rank writes it", lost, len(lost))
    return found


def absent(have: set[tuple[int, ...]], sizes: Sequence[int]) -> tuple[list[tuple[int, ...]], int]:
    """The first places of a grid of ranks that are not there, and how many are not."""
    total = math.prod(sizes)
    if not have or total > _MAX_GRID:
        return [], 0
    missing = (numbers for numbers in product(*map(range, sizes)) if numbers not in have)
    return list(islice(missing, MOST_NAMED)), total - len(have)


def _folder(numbers: tuple[int, ...]) -> str:
    return f"mp_rank_{numbers[0]:02d}" + "".join(f"_{number:03d}" for number in numbers[1:])


def _settings(leaf: Leaf | None) -> dict[str, int]:
    """The arguments of the job, saved with the model; None and False are 0."""
    if leaf is None:
        return {}
    try:
        with leaf.open() as reader:
            data = read_pickle(reader, read_archive(reader), _MAX_PICKLE)
    except (OSError, DamagedError):
        return {}
    found: dict[str, int] = {}
    for match in _SETTING.finditer(data):
        if len(match[3]) == (match[1] or match[2])[0]:
            number = match[4] or match[5] or match[6]
            value = int(match[7] == b"\x88") if number is None else int.from_bytes(number, "little")
            found.setdefault(match[3].decode(), value)
    return {key: value for key, value in found.items() if value <= _MAX_GRID}


MEGATRON = Layout(NAME, read, compare)
