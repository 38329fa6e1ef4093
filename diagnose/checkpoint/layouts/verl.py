"""verl: `global_step_<N>/` with a folder per role, or in fine-tuning the files of the only model.

Names as verl/utils/checkpoint/fsdp_checkpoint_manager.py and the trainers make them (0.9.1):
`{model,optim,extra_state}_world_size_<W>_rank_<r>.pt` of every rank, `fsdp_config.json` with the
world, `huggingface/` with configuration and tokenizer (and weights, if they are asked for), then
`data.pt` with the data loader's state, then `latest_checkpointed_iteration.txt` in the run's
folder. With Megatron a role has `dist_ckpt` folders and, in schema 2, `ckpt_contents.json` last.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from diagnose.checkpoint.layouts import Layout
from diagnose.checkpoint.layouts.contents import number
from diagnose.checkpoint.layouts.dcp import DCP
from diagnose.checkpoint.layouts.hf_model import HF_MODEL
from diagnose.checkpoint.layouts.hf_weights import weights_of
from diagnose.checkpoint.layouts.numbered import add_common, add_missing, gaps, mark
from diagnose.checkpoint.look import Look, Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder

TRACKER = "latest_checkpointed_iteration.txt"
MANIFEST = "ckpt_contents.json"
FSDP_CONFIG = "fsdp_config.json"
_FOLDER = re.compile(r"global_step_(\d{1,15})")
_SHARD = re.compile(r"(model|optim|extra_state)_world_size_(\d{1,7})_rank_(\d{1,7})\.pt")
_LOADER = re.compile(r"data(?:loader)?(?:_(\d{1,6}))?\.pt")
_ROLES = ("actor", "critic")
_HF = "huggingface"
_HF_FOLDERS = (_HF, "lora_adapter")
_DIST = "dist_ckpt"
_MEGATRON = ("model", "optimizer", "extra")  # folders of schema 2
# Files that every save of a run writes, and that neither names nor numbers tell of.
_STEADY = re.compile(
    r"(?:actor/|critic/)?(?:fsdp_config\.json|huggingface/tokenizer(?:_config)?\.json)|data_\d+\.pt"
)
_MOST_RANKS = 1 << 17  # more is no world to be believed


def read(folder: Folder, look: Looker) -> Found | None:
    """The checkpoint that a step's folder is, or that of one role."""
    named = _FOLDER.fullmatch(folder.name)
    roles = [name for name, inside in folder.folders.items() if _is_role(inside, name)]
    loaders = [m for name in folder.files if (m := _LOADER.fullmatch(name))]
    alone = _is_role(folder, folder.name)
    if not (alone or (named and (roles or loaders or _is_empty(folder)))):
        return None
    found = Found(
        folder.path, "verl", dict(folder.leaves()),
        step=int(named[1]) if named else None, framework="verl",
    )  # fmt: skip
    if not found.parts:
        found.flaw("partial", "nothing was written to it")
        return found
    taken = _absorb_inner(found, folder, look)
    looks = look.check(found, [path for path in found.parts if path not in taken])
    worlds = [_check_role(found, folder.folders[name], f"{name}/", looks) for name in roles]
    if alone:
        worlds.append(_check_role(found, folder, "", looks))
    found.ranks = max(filter(None, worlds), default=None)
    if named and not alone:
        if not roles:
            why = "missing: there is no model; rotation deletes only actor and critic of old steps"
            found.flaw("partial", why, _ROLES[0])
        if not loaders:
            why = "missing: the data loader's state is saved after all models"
            found.flaw("partial", why, "data.pt")
    have = {int(m[1]) for m in loaders if m[1] is not None}
    some, total = gaps(have, max(have, default=-1) + 1)
    why = "missing: the data loaders of other ranks exist"
    add_missing(found, why, (f"data_{n}.pt" for n in some), total)
    return found


def _is_role(folder: Folder, name: str) -> bool:
    """Whether a folder holds the states of one model, or what is left of them."""
    if FSDP_CONFIG in folder.files or any(_SHARD.fullmatch(file) for file in folder.files):
        return True
    if name not in _ROLES:
        return False
    return MANIFEST in folder.files or bool(
        {_HF, _DIST, *_MEGATRON} & folder.folders.keys() or _is_empty(folder)
    )


def _is_empty(folder: Folder) -> bool:
    return not folder.problem and next(folder.leaves(), None) is None


def _absorb_inner(found: Found, folder: Folder, look: Looker) -> set[str]:
    """Judge what other layouts know below; gives the paths of all of it."""
    taken: set[str] = set()
    for path, inside in _inner(folder, "", 4):
        inner = (DCP if inside.name == _DIST else HF_MODEL).read(inside, look)
        if inner is not None:
            found.absorb(path, inner)
            taken |= {f"{path}/{part}" for part in inner.parts}
    return taken


def _inner(folder: Folder, prefix: str, depth: int) -> Iterator[tuple[str, Folder]]:
    """Folders of other layouts in the folders of roles, with their paths."""
    for name, inside in folder.folders.items():
        if name == _DIST or (name in _HF_FOLDERS and weights_of(inside.files)):
            yield prefix + name, inside
        elif depth and (depth == 4 or name in _MEGATRON):
            yield from _inner(inside, f"{prefix}{name}/", depth - 1)


def _check_role(found: Found, folder: Folder, prefix: str, looks: Mapping[str, Look]) -> int | None:
    """Every kind of file from every rank; gives how many ranks there are."""
    worlds: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for name in folder.files:
        if m := _SHARD.fullmatch(name):
            worlds[int(m[2])][m[1]].add(int(m[3]))
    world = number(_json(looks.get(prefix + FSDP_CONFIG)), "world_size") or 0
    if not 0 < world <= _MOST_RANKS:
        world = max(worlds, key=lambda w: sum(map(len, worlds[w].values())), default=0)
    found.notes += [
        f"{prefix or folder.name + '/'} also has files of a world size of {other}"
        for other in worlds
        if other != world
    ]
    inner = weights_of(folder.folders[_HF].files) if _HF in folder.folders else None
    kinds = set(worlds[world]) if world else set()
    if not inner and _DIST not in folder.folders and not {*_MEGATRON} & folder.folders.keys():
        kinds.add("model")
    for kind in sorted(kinds):
        have = worlds[world][kind]
        some, total = gaps(have, world or 1)
        why = f"missing: {(world or 1) - total} of {world or 1} ranks wrote theirs"
        form = f"{prefix}{kind}_world_size_{world or 1}_rank_{{}}.pt"
        add_missing(found, why, map(form.format, some), total)
    if FSDP_CONFIG in folder.files or _HF in folder.folders:
        _check_config(found, folder, prefix)
    _check_manifest(found, folder, prefix, looks)
    return world or None


def _check_config(found: Found, folder: Folder, prefix: str) -> None:
    """The configuration that rank 0 saves beside the states, which merging them needs."""
    inside = folder.folders.get(_HF)
    named = {flaw.file for flaw in found.flaws}
    path = f"{prefix}{_HF}/config.json"
    if (inside is None or "config.json" not in inside.files) and path not in named:
        found.flaw("partial", "missing: rank 0 saves it beside the states of its model", path)


def _check_manifest(found: Found, folder: Folder, prefix: str, looks: Mapping[str, Look]) -> None:
    """Megatron's table of contents, written last."""
    path = prefix + MANIFEST
    if MANIFEST not in folder.files:
        if any(_DIST in folder.folders[name].folders for name in {*_MEGATRON} & {*folder.folders}):
            found.flaw("partial", "missing: it is written when a save is complete", path)
        return
    contents = _json(looks.get(path)).get("contents")
    for entry in list(contents.values())[:64] if isinstance(contents, dict) else ():
        place = entry.get("path") if isinstance(entry, dict) else None
        if isinstance(place, str) and not _there(folder, place):
            found.flaw("partial", f"missing: {MANIFEST} lists it", prefix + place[:200])


def _there(folder: Folder, path: str) -> bool:
    *above, last = path.strip("/").split("/")
    for name in above[:8]:
        if name not in folder.folders:
            return False
        folder = folder.folders[name]
    return last in folder.folders or last in folder.files


def _json(look: Look | None) -> Mapping[str, Any]:
    return look.data if look is not None and isinstance(look.data, dict) else {}


def compare(run: Folder, found: list[Found]) -> None:
    """What the run's tracker says, and small files that all others of the same world have."""
    mark(run, [one for one in found if one.step is not None], TRACKER, _named)
    add_common(found, _STEADY)


def _named(text: str) -> str:
    return f"global_step_{int(text)}" if re.fullmatch(r"[0-9]{1,15}", text) else ""


VERL = Layout("verl", read, compare)
