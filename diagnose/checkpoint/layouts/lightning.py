"""Checkpoints of Lightning and Fabric that are folders, as their sharded strategies write them.

FSDP and ModelParallel (lightning 2.6, strategies/fsdp.py): a checkpoint of torch's DCP, and
`meta.pt` with the rest of the state, by rank 0, last. DeepSpeed (strategies/deepspeed.py): the tag
`checkpoint` and the marker `latest`. Single files `*.ckpt` are judged by `single.py`.
"""

from __future__ import annotations

import re

from diagnose.checkpoint.layouts import Layout
from diagnose.checkpoint.layouts.dcp import METADATA, TEMPORARY, check, is_dcp
from diagnose.checkpoint.layouts.deepspeed import DEEPSPEED, LATEST, ZERO_TO_FP32, check_marker
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder, Leaf

META = "meta.pt"
TAG = "checkpoint"
STEP = re.compile(r"step=(\d{1,15})")

_DATA = re.compile(r"__\d{1,7}_\d{1,7}\.distcp|(?:\.metadata|__\d{1,7}\.metadata)(?:\.tmp)?")


def read(folder: Folder, look: Looker) -> Found | None:
    """The checkpoint that a folder is."""
    files = folder.files
    named = folder.name.endswith(".ckpt")
    dcp = is_dcp(folder) or (named and (METADATA in files or TEMPORARY in files))
    deepspeed = TAG in folder.folders or LATEST in files or ZERO_TO_FP32 in files
    empty = not files and not folder.folders
    if not (dcp and META in files) and not (named and (dcp or deepspeed or META in files or empty)):
        return None
    step = STEP.search(folder.name)
    found = Found(
        folder.path, "Lightning", _parts(folder), step=int(step[1]) if step else None,
        framework="lightning",
    )  # fmt: skip
    if folder.problem:
        found.flaw("unknown", folder.problem)
    elif empty:
        found.flaw("partial", "nothing was written to it")
    elif dcp or META in files:
        _check_sharded(found, look)
    else:
        _check_deepspeed(found, folder, look)
    return found


def _parts(folder: Folder) -> dict[str, Leaf]:
    names = (META, LATEST, ZERO_TO_FP32)
    return {
        name: leaf for name, leaf in folder.files.items() if name in names or _DATA.fullmatch(name)
    }


def _check_sharded(found: Found, look: Looker) -> None:
    check(found, look)
    if META not in found.parts:
        found.flaw("partial", "missing: it is written last", META)
        return
    says = look.check(found, [META])[META].step
    if says is not None:
        check_step(found, says, META)


def check_step(found: Found, says: int, file: str) -> None:
    """Compare the step of the name with that of the content.

    Lightning before 1.6 saved `global_step + 1`.
    """
    if found.step is None:
        found.step = says
    elif says not in (found.step, found.step + 1):
        found.flaw("corrupt", f"says step {says}", file)


def _check_deepspeed(found: Found, folder: Folder, look: Looker) -> None:
    inside = folder.folders.get(TAG)
    inner = DEEPSPEED.read(inside, look) if inside else None
    if inner is None:
        found.flaw("partial", "missing: DeepSpeed keeps the model and optimizer there", TAG)
        return
    found.absorb(TAG, inner)
    found.ranks = inner.ranks
    if found.step is None:
        found.step = inner.step
    found.flaws += check_marker(folder, [TAG])


LIGHTNING = Layout("Lightning", read)
