"""Tensors of zarr (specification, version 2), as old Megatron-LM saved them.

A tensor is a folder with a file for every chunk (`0.0`, `0.1` …) and `.zarray`, a JSON that says
how large the tensor and its chunks are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import product
from typing import Any, TypeGuard

from diagnose.checkpoint.damaged import DamagedError
from diagnose.checkpoint.json_text import SMALL, parse
from diagnose.checkpoint.layouts.checks import add_missing
from diagnose.checkpoint.layouts.rows import View
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder, Leaf
from diagnose.ingest.raw import reason

ARRAY = ".zarray"
_MAX_CHUNKS = 1 << 20
_CHUNK = re.compile(r"\d{1,9}(?:[./]\d{1,9})*")
_ITEM_SIZE = re.compile(r"[<>|]?[a-z](\d)")


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
        data = _described(leaf)
    except OSError as error:
        found.flaw("unknown", f"not read: {reason(error)}", path)
        return
    except DamagedError as error:
        found.flaw(error.flaw.state, error.flaw.why, path)
        return
    shape, chunks = data.get("shape"), data.get("chunks")
    if not (_sizes(shape) and _sizes(chunks) and len(shape) == len(chunks)):
        found.flaw("corrupt", "does not describe a tensor", path)
        return
    grid = [-(-size // chunk) for size, chunk in zip(shape, chunks, strict=True)]
    total = math.prod(grid)
    if total > _MAX_CHUNKS:
        found.notes.append(f"{path}: {total:,} chunks, not checked")
        return
    keys = _keys(grid, "/" if data.get("dimension_separator") == "/" else ".")
    inside = dict(folder.leaves())
    missing = [key for key in keys if key not in inside]
    why = f"missing: {total - len(missing)} of {total} chunks of the tensor exist"
    add_missing(found, why, (f"{name}/{key}" for key in missing), len(missing))
    size = _bytes(data, chunks)
    for key, chunk in inside.items():
        if is_chunk(key) and (chunk.size <= 0 or chunk.size != (size or chunk.size)):
            why = f"has {max(0, chunk.size):,} of {size:,} bytes" if size else "is empty"
            found.flaw("partial", why, f"{name}/{key}")


def _described(leaf: Leaf) -> dict[str, Any]:
    with leaf.open() as reader:
        data = parse(reader.read_at(0, SMALL))
    return data if isinstance(data, dict) else {}


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


def _keys(grid: list[int], separator: str) -> Iterator[str]:
    """Names of the chunks; that of a single number is `0`."""
    for numbers in product(*map(range, grid)):
        yield separator.join(map(str, numbers)) or "0"
