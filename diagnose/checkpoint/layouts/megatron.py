"""Megatron-LM: its formats, and how many ranks folders and the saved arguments tell of.

A tensor of zarr (specification, version 2) is a folder with a file for every chunk (`0.0`, `0.1` …)
and `.zarray`, a JSON that says how large the tensor and its chunks are.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import product
from typing import Any, TypeGuard

from diagnose.checkpoint.contents import SMALL, DamagedError, parse
from diagnose.checkpoint.layouts import dcp
from diagnose.checkpoint.layouts.checks import add_missing, holes, pickled
from diagnose.checkpoint.layouts.rows import View
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder, Leaf
from diagnose.ingest.raw import reason

_MODELS = ("model_optim_rng.pt", "model_rng.pt")
_OPTIMIZER = "distrib_optim.pt"
_MAX_GRID = 1 << 20
_SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size",
          "expert_model_parallel_size")  # fmt: skip
# Settings inside a pickle of protocol 2, as torch.save writes it: a key and what stands behind it.
_SETTING = re.compile(
    rb"(?:X(.)\0\0\0|[\x8cU](.))(" + "|".join(_SIZES).encode() + rb"|world_size|no_save_optim"
    rb"|use_distributed_optimizer)(?:q.|r....|\x94)?(?:K(.)|M(..)|J(....)|([N\x88\x89]))",
    re.DOTALL,
)
ARRAY = ".zarray"
_MAX_CHUNKS = 1 << 20
_CHUNK = re.compile(r"\d{1,9}(?:[./]\d{1,9})*")
_ITEM_SIZE = re.compile(r"[<>|]?[a-z](\d)")


def check_dist(view: View) -> None:
    """Megatron's `torch_dist` or `zarr`: the shared state, the format, and the tensors."""
    found = view.found
    backend = _backend(view)
    if "common.pt" not in found.parts:
        view.flaw("partial", "missing: the state shared by all ranks", "common.pt")
    _check_step(view, "common.pt")
    if backend == "zarr" or (has_arrays(view) and not dcp.is_dcp(view)):
        found.layout = found.layout.replace("torch_dist", "zarr")
        for name, inside in view.folder.folders.items():
            check_array(found, name, inside)
    else:
        dcp.check(view)


def _backend(view: View) -> str:
    """The format that `metadata.json` names; adds what is wrong with it."""
    name = "metadata.json"
    if name not in view.found.parts:
        view.flaw("partial", "missing: it is written last, so this save never finished", name)
        return ""
    look = view.looks.get(name)
    if look is None or look.flaw:
        return ""
    backend: Any = look.data.get("sharded_backend") if isinstance(look.data, dict) else None
    if not isinstance(backend, str) or not backend:
        view.flaw("corrupt", "does not state the format of the tensors", name)
        return ""
    return backend


def _check_step(view: View, path: str) -> None:
    look, step = view.looks.get(path), view.found.step
    if look is None or look.step is None or step is None:
        return
    if look.step - step not in view.row.get("slack", (0,)):
        view.flaw("corrupt", f"holds step {look.step}, the folder is for {step}", path)


def check_ranks(view: View) -> None:
    """The format with a folder per model parallel rank."""
    found, folders = view.found, view.folder.folders
    ranks = {
        match.string: tuple(int(number) for number in match.groups() if number is not None)
        for match in view.matches("ranks")
    }
    every = [set(folders[name].files) for name in ranks]
    models = [model for model in _MODELS if any(model in files for files in every)]
    model = (models or _MODELS)[0]
    for name in ranks:
        _check_step(view, f"{name}/{model}")
    settings = next(
        (stated for name in ranks if (stated := _settings(folders[name].files.get(model)))), {}
    )
    found.ranks = settings.get("world_size")
    length = Counter(len(numbers) for numbers in ranks.values()).most_common(1)[0][0]
    have = {numbers for numbers in ranks.values() if len(numbers) == length}
    sizes = [max(axis) + 1 for axis in zip(*have, strict=True)]
    split = [settings.get(_SIZES[0], 1), *(s for k in _SIZES[1:] if (s := settings.get(k, 1)) > 1)]
    if len(split) == length:
        sizes = [max(pair) for pair in zip(sizes, split, strict=True)]
    some, count = holes(have, sizes)
    why = f"missing: {len(have)} of {len(have) + count} model parallel ranks exist"
    add_missing(found, why, (f"{_folder(numbers)}/{model}" for numbers in some), count)
    needed = {model}
    if any(_OPTIMIZER in files for files in every) or (
        settings.get("use_distributed_optimizer") and not settings.get("no_save_optim")
    ):
        needed.add(_OPTIMIZER)
    lost = [f"{n}/{file}" for n in ranks for file in sorted(needed - set(folders[n].files))]
    add_missing(found, "missing: every model parallel rank writes it", lost, len(lost))


def _folder(numbers: tuple[int, ...]) -> str:
    return f"mp_rank_{numbers[0]:02d}" + "".join(f"_{number:03d}" for number in numbers[1:])


def _settings(leaf: Leaf | None) -> dict[str, int]:
    """The arguments of the job, saved with the model; None and False are 0."""
    found: dict[str, int] = {}
    for match in _SETTING.finditer(pickled(leaf)):
        if len(match[3]) == (match[1] or match[2])[0]:
            number = match[4] or match[5] or match[6]
            value = int(match[7] == b"\x88") if number is None else int.from_bytes(number, "little")
            found.setdefault(match[3].decode(), value)
    return {key: value for key, value in found.items() if value <= _MAX_GRID}


def has_arrays(view: View) -> bool:
    """Whether a folder holds tensors."""
    return any(map(is_array, view.folder.folders.values()))


def is_array(folder: Folder) -> bool:
    """Whether a folder is a tensor, or what is left of one."""
    return ARRAY in folder.files or any(map(is_chunk, folder.files))


def is_chunk(name: str) -> bool:
    """Whether a file is called like a chunk."""
    return _CHUNK.fullmatch(name) is not None


def check_array(found: Found, name: str, folder: Folder) -> None:
    """Add what is missing of the tensor in the folder of this name."""
    if not is_array(folder):
        return
    leaf = folder.files.get(ARRAY)
    path = f"{name}/{ARRAY}"
    if leaf is None:
        found.flaw("partial", "missing: it describes the tensor", path)
        return
    try:
        with leaf.open() as reader:
            data = parse(reader.read_at(0, SMALL))
    except OSError as error:
        found.flaw("unknown", f"not read: {reason(error)}", path)
        return
    except DamagedError as error:
        found.flaw(error.flaw.state, error.flaw.why, path)
        return
    data = data if isinstance(data, dict) else {}
    shape, chunks = data.get("shape"), data.get("chunks")
    if not (_sizes(shape) and _sizes(chunks) and len(shape) == len(chunks)):
        found.flaw("corrupt", "does not describe a tensor", path)
        return
    grid = [-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)]
    total = math.prod(grid)
    if total > _MAX_CHUNKS:
        found.notes.append(f"{path}: {total:,} chunks, not checked")
        return
    separator = "/" if data.get("dimension_separator") == "/" else "."
    inside = dict(folder.leaves())
    keys = (separator.join(map(str, numbers)) or "0" for numbers in product(*map(range, grid)))
    missing = [key for key in keys if key not in inside]
    why = f"missing: {total - len(missing)} of {total} chunks of the tensor exist"
    add_missing(found, why, (f"{name}/{key}" for key in missing), len(missing))
    size = _bytes(data, chunks)
    for key, chunk in inside.items():
        if is_chunk(key) and (chunk.size <= 0 or chunk.size != (size or chunk.size)):
            why = f"has {max(0, chunk.size):,} of {size:,} bytes" if size else "is empty"
            found.flaw("partial", why, f"{name}/{key}")


def _bytes(data: dict[str, Any], chunks: list[int]) -> int | None:
    """Bytes of each chunk; None where it is compressed, or of an unknown kind of numbers."""
    kind = data.get("dtype")
    if data.get("compressor") is not None or data.get("filters") or not isinstance(kind, str):
        return None
    known = _ITEM_SIZE.fullmatch(kind[:8])
    width = 2 if kind == "bfloat16" else int(known[1]) if known else 0
    return math.prod(chunks) * width or None


def _sizes(value: object) -> TypeGuard[list[int]]:
    """Whether it is a list of positive sizes."""
    return (
        isinstance(value, list)
        and len(value) <= 32
        and all(type(size) is int and 0 < size < 1 << 53 for size in value)
    )
