"""Folders named like checkpoints whose layout is not known, and such as mix two layouts."""

from __future__ import annotations

import re

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder

NAME = "unknown"

_NAMED = re.compile(
    r"(?:checkpoint|ckpt|global_?step|step|iter(?:ation)?|epoch)[-_=]?(\d{1,15})", re.IGNORECASE
)
# States of frameworks beyond the layouts: JAX, Flax, TensorFlow, Paddle, ONNX Runtime, arrays.
_STATES = re.compile(
    r"\.(?:pt|pth|ckpt|bin|safetensors|distcp|pkl|npz?|h5|msgpack|gguf|pdparams|pdopt|ocdbt|zarray|"
    r"index|data-\d+-of-\d+|dat|params|states|opt)$"
)
# Files that only one of the layouts has, and that no other one stores beside its own.
_FAMILIES = {
    "PyTorch DCP": re.compile(r"__\d+_\d+\.distcp"),
    "DeepSpeed": re.compile(r"(?:bf16_)?(?:mp|zero_pp)_rank_\d+.*_(?:model|optim)_states\.pt"),
    "LLaMA2-Accessory": re.compile(r"(?:consolidated|rank-specific-)\S*\d+-of-\d+\S*\.pth"),
    "verl": re.compile(r"(?:model|optim|extra_state)_world_size_\d+_rank_\d+\.pt"),
}


def unknown(folder: Folder, look: Looker) -> Found | None:
    """The checkpoint that a folder is by its name and suffixes alone; None for other folders."""
    named = _NAMED.fullmatch(folder.name)
    parts = dict(folder.leaves())
    if named is None or not any(_STATES.search(path) for path in parts):
        return None
    found = Found(folder.path, NAME, parts, step=int(named[1]))
    look.check(found)
    found.flaw("unknown", "unknown layout: what is missing cannot be determined")
    return found


def check_mixed(found: Found) -> None:
    """A flaw where files of two layouts lie in one folder: two saves went to the same place."""
    names = [path for path in found.parts if "/" not in path]
    mixed = [
        layout
        for layout, files in _FAMILIES.items()
        if any(files.fullmatch(name) for name in names)
    ]
    if len(mixed) > 1:
        found.flaw(
            "unknown", f"mixes files of {' and '.join(mixed)}: unclear which save they belong to"
        )
