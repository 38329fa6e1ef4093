"""NeMo: Megatron's distributed checkpoints, and a marker beside each that is not finished.

NeMo 2 (nemo/lightning) saves `<name>/weights/` in Megatron's `torch_dist` format, or as DCP, and
often `<name>/context/` with what is needed to build the model again; the name has `step=` and may
end in `-last`. NeMo 1 has the same files right in `<name>/`, or older a folder per model parallel
rank with a `<name>.ckpt` of each checkpoint; an unpacked `.nemo` has them in `model_weights/`.
While it saves, an empty file `<name>-unfinished` lies beside: start-up removes checkpoints that
have one (callbacks/model_checkpoint.py).
"""

from __future__ import annotations

import re

from diagnose.checkpoint.layouts import Layout, dcp, megatron
from diagnose.checkpoint.layouts.numbered import add_missing
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder

NAME = "NeMo"
UNFINISHED = "-unfinished"
WEIGHTS, CONTEXT, UNPACKED = "weights", "context", "model_weights"
_IO, _CONFIG = "io.json", "model_config.yaml"

_STEP = re.compile(r"(?:^|[^a-z])step=(\d{1,15})(?!\d)")
_NAMED = re.compile(r"consumed_samples=|(?:^|[^a-z])step=\d|-last(?:-v\d+)?$")
_RANK = re.compile(r"(?:mp_rank_(\d{2,5})|tp_rank_(\d{2,5})_pp_rank_(\d{3,5}))")
_COPY = re.compile(r"(?:\.nemo|\.ckpt)?(?:-EMA)?$")
# `step=` in a name counts from 0 where the state inside has the number of steps done.
_SLACK = 1


def read(folder: Folder, look: Looker) -> Found | None:
    """The checkpoint of NeMo that a folder holds; see Layout."""
    if WEIGHTS in folder.folders or CONTEXT in folder.folders:
        return _read_2(folder, look)
    if UNPACKED in folder.folders and _CONFIG in folder.files:
        found = _found(folder, f"{NAME} 1")
        _absorb(found, folder, UNPACKED, look)
        return found
    if any(_RANK.fullmatch(name) for name in folder.folders):
        return _read_ranks(folder, look)
    if _NAMED.search(folder.name) and megatron.is_dist(folder):
        found = megatron.read_dist(folder, look, step_of(folder.name), _SLACK)
        found.layout, found.framework = f"{NAME} 1", "nemo"
        return found
    return None


def compare(run: Folder, found: list[Found]) -> None:
    """The markers of checkpoints that were begun."""
    for one in found:
        for name in dict.fromkeys((one.name, _COPY.sub("", one.name))):
            if f"{name}{UNFINISHED}" in run.files:
                why = "exists: the save did not finish, and NeMo removes it at its next start"
                one.flaw("partial", why, f"../{name}{UNFINISHED}")
                break


def step_of(name: str) -> int | None:
    """The step that a name tells."""
    match = _STEP.search(name)
    return int(match[1]) if match else None


def _found(folder: Folder, layout: str) -> Found:
    return Found(folder.path, layout, dict(folder.leaves()), step_of(folder.name), framework="nemo")


def _read_2(folder: Folder, look: Looker) -> Found | None:
    weights = folder.folders.get(WEIGHTS)
    context = folder.folders.get(CONTEXT)
    known = weights is not None and (megatron.is_dist(weights) or dcp.is_dcp(weights))
    if not (
        known
        or (context is not None and _IO in context.files)
        or (_NAMED.search(folder.name) and not folder.files)
    ):
        return None
    found = _found(folder, f"{NAME} 2")
    if known:
        _absorb(found, folder, WEIGHTS, look)
    else:
        found.flaw("partial", "missing: it contains no weights", WEIGHTS)
        look.check(found, [path for path in found.parts if path.startswith(f"{WEIGHTS}/")])
    look.check(found, [path for path in found.parts if not path.startswith(f"{WEIGHTS}/")])
    if context is not None and _IO not in context.files:
        found.flaw("partial", "missing: what the model is built from", f"{CONTEXT}/{_IO}")
    return found


def _absorb(found: Found, folder: Folder, name: str, look: Looker) -> None:
    """Take over what Megatron or DCP say of the folder inside."""
    inside = folder.folders[name]
    if megatron.is_dist(inside):
        inner: Found | None = megatron.read_dist(inside, look, found.step, _SLACK)
    else:
        inner = dcp.read(inside, look)
    if inner is None:
        found.flaw("partial", "missing: it contains no weights", name)
        return
    found.absorb(name, inner)
    found.ranks = inner.ranks


def _read_ranks(folder: Folder, look: Looker) -> Found | None:
    """NeMo 1 without distributed checkpoints: all checkpoints of a run share the rank folders."""
    ranks = {
        name: tuple(int(number) for number in match.groups() if number is not None)
        for name in folder.folders
        if (match := _RANK.fullmatch(name))
    }
    every = {
        name: {file for file in folder.folders[name].files if file.endswith(".ckpt")}
        for name in ranks
    }
    names = sorted(set().union(*every.values()))
    if not names:
        return None
    found = Found(
        folder.path, f"{NAME} 1 (mp_rank)", dict(folder.leaves()), framework="nemo",
        step=max((step for name in names if (step := step_of(name)) is not None), default=None),
    )  # fmt: skip
    look.check(found)
    for length, pattern in ((1, "mp_rank_{:02d}"), (2, "tp_rank_{:02d}_pp_rank_{:03d}")):
        have = {numbers for numbers in ranks.values() if len(numbers) == length}
        sizes = [max(axis) + 1 for axis in zip(*have, strict=True)]
        every |= {pattern.format(*numbers): set() for numbers in megatron.absent(have, sizes)[0]}
    lost = [f"{rank}/{name}" for rank, have in sorted(every.items()) for name in names
            if name not in have]  # fmt: skip
    add_missing(found, "missing: other model parallel ranks have it", lost, len(lost))
    for name in names:
        marker = f"{_COPY.sub('', name)}{UNFINISHED}"
        if marker in folder.files:
            found.flaw("partial", "exists: its save did not finish", marker)
    return found


NEMO = Layout(NAME, read, compare)
