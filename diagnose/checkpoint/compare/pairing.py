"""The same files in other checkpoints of a run, whatever their step is called there."""

from __future__ import annotations

import re

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Leaf

# What holds weights and states, and the files that commit a save; others are copied at will.
STATE = re.compile(
    r"(?:\.(?:pt|pth|bin|ckpt|safetensors|distcp|pkl|nemo)|(?:^|/)\.metadata|/?trainer_state\.json"
    r"|\.index\.json|/\d+(?:\.\d+)*)$"  # the last are pieces of arrays of zarr
)
NUMBER = re.compile(r"\d+")
SAMPLE = 4096  # bytes
_SAMPLES = 16
_STEPPED = re.compile(r"((?:step|iter|iteration|epoch)[-_=]?)(\d+)")


def numberless(path: str) -> str:
    """A path with a sign for each number, the same for all ranks, shards and steps."""
    return NUMBER.sub("#", path)


def states_of(found: Found) -> dict[str, Leaf]:
    """Files that hold states, by path."""
    return {path: leaf for path, leaf in found.parts.items() if STATE.search(path)}


def pairs_of(found: Found, before: Found) -> dict[str, Leaf]:
    """Files that hold states, with the same file of the checkpoint before."""
    states = states_of(found)
    twins = counterparts(found, before)
    return {path: before.parts[twins[path]] for path in states if path in twins}


def counterparts(found: Found, other: Found) -> dict[str, str]:
    """Paths of a checkpoint and what the same files are called in another one of the run."""
    pairs = {path: path for path in found.parts if path in other.parts}
    others = {key_of(path, other): path for path in other.parts if path not in pairs}
    for path in found.parts:
        if path not in pairs and (old := others.get(key_of(path, found))) is not None:
            pairs[path] = old
    return pairs


def key_of(path: str, found: Found) -> str:
    """What a file is called whatever the step is."""
    if len(found.parts) == 1:  # a file of its own, with the step in its name
        return numberless(path)
    return renamed(path, found.step, "#")


def renamed(path: str, step: int | None, new: str) -> str:
    """A path with another step wherever it names this one. Ranks are numbers, too."""
    if step is None:
        return path
    return _STEPPED.sub(lambda m: m[1] + new if int(m[2][:18]) == step else m[0], path)


def same_content(leaf: Leaf, other: Leaf, look: Looker) -> bool:
    """Whether two files hold the same, by their checksums or by samples of their bytes."""
    if leaf.size != other.size or leaf.size <= 0:
        return False
    mine, its = look(leaf), look(other)
    if mine.digest or its.digest:
        return mine.digest == its.digest
    step = max(1, (leaf.size - SAMPLE) // (_SAMPLES - 1))
    try:
        with leaf.open() as one, other.open() as two:
            return all(
                one.read_at(at, SAMPLE) == two.read_at(at, SAMPLE)
                for at in range(0, leaf.size, step)
            )
    except OSError:
        return False
