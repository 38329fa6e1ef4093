"""What the content of a file of torch.save says of itself, found without unpickling it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from diagnose.checkpoint.damaged import DamagedError
from diagnose.checkpoint.torch_bytes import read_pickle
from diagnose.checkpoint.torch_zip import read_archive
from diagnose.checkpoint.tree import Leaf
from diagnose.parse.pickles import PickleError, walk

MAX_PICKLE = 16 << 20  # bytes of data.pkl; larger ones, of very many tensors, are not looked at


def stated(leaf: Leaf | None, keys: Collection[str]) -> dict[str, Any]:
    """Those items of the dict in the file, and of dicts inside it, whose keys are asked for.

    Empty where the file is damaged, has another format, or holds no dict.
    """
    if leaf is None:
        return {}
    try:
        with leaf.open() as reader:
            data = read_pickle(reader, read_archive(reader), MAX_PICKLE)
            value = walk(data, 0, keys).value
    except (OSError, DamagedError, PickleError):
        return {}
    return value if isinstance(value, dict) else {}


def number(items: object, *path: str) -> int | None:
    """The integer at a path of keys through dicts inside each other; None where there is none."""
    for key in path:
        items = items.get(key) if isinstance(items, dict) else None
    return items if type(items) is int else None
