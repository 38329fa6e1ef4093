"""DeepSpeed: `<run>/latest` and a folder per tag with the states of all ranks.

Names as deepspeed/runtime/engine.py (0.16.4) makes them. ZeRO 0–2 write the model once per model
parallel rank (`mp_rank_00_model_states.pt`), ZeRO 3 on every rank (`zero_pp_rank_<dp>_…`); the
optimizer is in pieces of all data parallel ranks; pipelines write a file per layer, mixtures of
experts one per expert. Universal checkpoints (ds_to_universal.py) have a folder per parameter.
Model states are pickled with `dp_world_size` and `mp_world_size`, so the last rank is missed too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice, pairwise
from statistics import median

from diagnose.checkpoint.layouts import Layout
from diagnose.checkpoint.layouts.contents import number, stated
from diagnose.checkpoint.layouts.deepspeed_names import PIECE, SHARD, WHOLE, Names, names_of
from diagnose.checkpoint.layouts.numbered import (
    MOST_NAMED,
    add_common,
    add_missing,
    check_names,
    gaps,
    mark,
)
from diagnose.checkpoint.look import Look, Looker
from diagnose.checkpoint.model import Flaw, FlawKind, Found
from diagnose.checkpoint.tree import Folder, Leaf

LATEST = "latest"
LATEST_UNIVERSAL = "latest_universal"
ZERO_TO_FP32 = "zero_to_fp32.py"  # copied beside the marker when optimizer states are saved
_OWN_TAG = re.compile(r"global_step(\d{1,15})(?:_universal)?")
_TAG = re.compile(
    r"(?:.*[^a-z0-9])?(?:step|iter|iteration|checkpoint|ckpt)[-_=]?(\d{1,15})(?:_universal)?", re.I
)
# Of which neither names nor contents tell how many there are.
_UNCOUNTED = re.compile(r"(?:layer_|expp_rank_|expert_|mp_rank_)[^/]*\.pt|zero/[^/]+/[^/]+\.pt")
_PARAM_FILES = ("fp32.pt", "exp_avg.pt", "exp_avg_sq.pt")
_UNIVERSAL = "DeepSpeed universal"

_MOST_RANKS = 1 << 17  # more is no claim to be believed
_ALIKE = 0.02  # share by which layers of the same kind differ in bytes at the most
_SMALL = 0.5  # of the median of all pieces of the optimizer


def read(folder: Folder, look: Looker) -> Found | None:
    """The checkpoint that a tag's folder is."""
    names = names_of(folder.files)
    universal = _is_universal(folder)
    if not names and not universal and not _bare(folder):
        return None
    tag = _OWN_TAG.fullmatch(folder.name) or _TAG.fullmatch(folder.name)
    found = Found(
        folder.path,
        _UNIVERSAL if universal else "DeepSpeed ZeRO-3" if names.sharded else "DeepSpeed",
        dict(folder.leaves()),
        step=int(tag[1]) if tag else None,
        framework="deepspeed",
    )
    looks = look.check(found)
    if not names and not universal:
        found.flaw("partial", "nothing was written to it")
        return found
    _check_steps(found, looks)
    if universal:
        _check_universal(found, names, folder.folders["zero"])
    else:
        _check_ranks(found, names, _claims(folder.files, names))
        _check_sizes(found, names)
    _check_layers(found, names)
    _check_experts(found, names)
    return found


def _is_universal(folder: Folder) -> bool:
    zero = folder.folders.get("zero")
    return zero is not None and (
        "optimizer_state.pt" in zero.files
        or any("fp32.pt" in inside.files for inside in zero.folders.values())
    )


def _read_universal(folder: Folder, look: Looker) -> Found | None:
    return read(folder, look) if _is_universal(folder) else None


def _bare(folder: Folder) -> bool:
    """Whether a folder has a tag's name and nothing in it but what a save had begun with."""
    empty = not folder.files and all(not inside.files for inside in folder.folders.values())
    return empty and _OWN_TAG.fullmatch(folder.name) is not None and not folder.problem


@dataclass(frozen=True, slots=True)
class _Claims:
    """What model states say of the job that saved them; 0 where they do not."""

    dp: int = 0
    mp: int = 0
    stage: int = 0
    mics: bool = False  # copies of the shards in several groups, of which one is saved


_KEYS = (
    "dp_world_size", "mp_world_size", "ds_config", "zero_optimization", "stage", "mics_shard_size",
)  # fmt: skip


def _claims(files: Mapping[str, Leaf], names: Names) -> _Claims:
    """What the first model states that tell it say."""
    sharded = [(mp, dp) for mp, ranks in names.sharded.items() for dp in ranks]
    model = sorted(names.model.values()) or [
        SHARD.format(mp=mp, dp=dp) for mp, dp in sorted(sharded)
    ]
    for name in model[:4]:
        items = stated(files.get(name), _KEYS)
        dp, mp = (number(items, key) or 0 for key in _KEYS[:2])
        if 0 < dp <= _MOST_RANKS and 0 < mp <= _MOST_RANKS:
            zero = ("ds_config", "zero_optimization")
            mics = number(items, *zero, "mics_shard_size") or 0
            return _Claims(dp, mp, number(items, *zero, "stage") or 0, mics > 0)
    return _Claims()


def _check_steps(found: Found, looks: Mapping[str, Look]) -> None:
    """Content of another step than the tag's, where DeepSpeed made the tag itself."""
    if not _OWN_TAG.fullmatch(found.name):
        if found.step is None:  # a tag of the user's own
            steps = Counter(look.step for look in looks.values() if look.step is not None)
            found.step = max(steps, key=lambda step: steps[step], default=None)
        return
    for name, look in looks.items():
        if look.step is not None and look.step != found.step:
            found.flaw("corrupt", f"says step {look.step}", name, FlawKind.STEP)


def _check_ranks(found: Found, names: Names, claims: _Claims) -> None:
    """Every model parallel rank, and every data parallel rank of each."""
    mp = max(names.mp, claims.mp)
    dp = names.dp if claims.mics else max(names.dp, claims.dp)
    found.ranks = dp * mp or None
    if names.sharded:
        why = "missing: model states of {have} of {all} ranks exist"
        _product(found, names.sharded, mp, dp, why, SHARD)
    else:
        why = "missing: model states of {have} of {all} model parallel ranks exist"
        _product(found, {n: {0} for n in names.model}, mp, 1, why, WHOLE)
    # Stage 0 keeps the optimizer with the model.
    if names.optim or names.sharded or claims.stage:
        why = "missing: optimizer states of {have} of {all} ranks exist"
        have = {n: set(pieces) for n, pieces in names.optim.items()}
        _product(found, have, mp, dp, why, names.prefix + PIECE)


def _product(
    found: Found, have: Mapping[int, set[int]], mp: int, dp: int, why: str, form: str
) -> None:
    """Files of all pairs of model and data parallel ranks."""
    names: list[str] = []
    total = 0
    for m in range(mp):
        some, missing = gaps(have.get(m, set()), dp)
        total += missing
        names += (form.format(dp=d, mp=m) for d in islice(some, MOST_NAMED - len(names)))
    add_missing(found, why.format(have=f"{mp * dp - total:,}", all=f"{mp * dp:,}"), names, total)


def _check_sizes(found: Found, names: Names) -> None:
    """Pieces of the optimizer are equal but for the last one, which has no padding."""
    for pieces in names.optim.values():
        sizes = {rank: found.parts[name].size for rank, name in pieces.items()}
        if len(sizes) < 3:
            continue
        usual, last = median(sizes.values()), max(sizes)
        for rank, size in sizes.items():
            if 0 < size < _SMALL * usual and rank != last and usual > 4096:
                why = f"has {size:,} bytes, those of other ranks about {usual:,.0f}"
                found.flaw("unknown", why, pieces[rank])


def _check_layers(found: Found, names: Names) -> None:
    """Files of a pipeline's layers. Layers without parameters have none, so gaps are normal.

    A layer is missed where those around the gap are of one size, as the blocks of a model are, and
    where only some of the tensor parallel ranks have it.
    """
    layers = names.layers
    slices = sorted({slice_ for there in layers.values() for slice_ in there})
    absent = (
        f"layer_{number:02d}{slice_}-model_states.pt"
        for number, there in sorted(layers.items())
        for slice_ in slices
        if slice_ not in there
    )
    total = len(layers) * len(slices) - sum(map(len, layers.values()))
    add_missing(found, "missing: other slices of the layer exist", absent, total)
    lost: list[str] = []
    total = 0
    for before, after in pairwise(sorted(layers)):
        for slice_ in layers[before] if after - before > 1 else ():
            if _blocks(found, layers[before], layers[after], slice_):
                total += after - before - 1
                lost += [
                    f"layer_{number:02d}{slice_}-model_states.pt"
                    for number in range(before + 1, min(after, before + 1 + MOST_NAMED))
                ]
    add_missing(found, "missing: the layers before and after exist", lost, total)


def _blocks(found: Found, before: dict[str, str], after: dict[str, str], slice_: str) -> bool:
    if slice_ not in after:
        return False
    one, other = (found.parts[names[slice_]].size for names in (before, after))
    return min(one, other) > 0 and abs(one - other) <= _ALIKE * max(one, other)


def _check_experts(found: Found, names: Names) -> None:
    """Every expert of every layer, and the states of every expert parallel rank."""
    lost: list[str] = []
    total = 0
    ranks = 1 + max((r for there in names.expert_optim.values() for r in there), default=-1)
    count = 1 + max((n for layers in names.experts.values() for n in layers), default=-1)
    for mp, layers in sorted(names.experts.items()):
        most = 1 + max(n for there in layers.values() for n in there)
        for layer in range(min(count, len(layers) + MOST_NAMED)):
            there = layers.get(layer, set())
            size = 1 + max(there, default=-1)
            if not size or most % size or size % max(1, ranks):
                size = most  # unlike pyramids of experts, with half or a quarter as many below
            some, missing = gaps(there, size)
            total += missing
            form = f"layer_{layer}_expert_{{}}_mp_rank_{mp:02d}_model_states.pt"
            lost += map(form.format, islice(some, MOST_NAMED))
    add_missing(found, "missing: the other experts exist", lost, total)
    for mp, have in sorted(names.expert_optim.items()):
        some, missing = gaps(have, ranks)
        form = f"expp_rank_{{}}_mp_rank_{mp:02d}_optim_states.pt"
        why = f"missing: {ranks - missing} of {ranks} expert parallel ranks exist"
        add_missing(found, why, map(form.format, some), missing)


def _check_universal(found: Found, names: Names, zero: Folder) -> None:
    """Every parameter has the same files; common states and the model's lie beside."""
    params = {name: inside for name, inside in zero.folders.items() if not name.startswith(".")}
    if "optimizer_state.pt" not in zero.files:
        found.flaw("partial", "missing: the conversion ended before it", "zero/optimizer_state.pt")
    kinds = Counter(name for inside in params.values() for name in inside.files)
    needed = {*_PARAM_FILES} | {
        kind for kind, number in kinds.items() if kind.endswith(".pt") and number * 2 > len(params)
    }
    lost = [
        f"zero/{param}/{kind}"
        for param, inside in params.items()
        for kind in sorted(needed - inside.files.keys())
    ]
    there = sum(needed <= inside.files.keys() for inside in params.values())
    why = f"missing: {there} of {len(params)} parameters are complete"
    add_missing(found, why, lost, len(lost))
    if not names.sharded:
        why = "missing: model states of {have} of {all} model parallel ranks exist"
        _product(found, {n: {0} for n in names.model}, max(1, names.mp), 1, why, WHOLE)


def check_marker(folder: Folder, tags: Collection[str], marker: str = LATEST) -> list[Flaw]:
    """What is wrong with the marker in a folder whose DeepSpeed checkpoints are called `tags`.

    Flaws name the marker relative to `folder`: for frameworks that keep both in a checkpoint of
    their own.
    """
    name, flaw = check_names(folder, marker, _tag_named)
    if flaw:
        return [flaw]
    named = _OWN_TAG.fullmatch(name)
    steps = [int(m[1]) for tag in tags if (m := _OWN_TAG.fullmatch(tag))]
    if named and steps and max(steps) > int(named[1]):
        why = f"names {name}, and global_step{max(steps)} exists: it was never committed"
        return [Flaw("partial", why, marker)]
    return []


def _tag_named(text: str) -> str:
    return "" if "/" in text else text


def compare(run: Folder, found: list[Found]) -> None:
    """The run's markers, files that only this one lacks, and tags with a count of their own."""
    plain = [one for one in found if one.layout != _UNIVERSAL]
    mark(run, plain, LATEST, _tag_named)
    add_common(plain, _UNCOUNTED)
    _own_counting(plain)
    _compare_pieces(plain)
    _compare_universal(run, [one for one in found if one.layout == _UNIVERSAL])


def _compare_universal(run: Folder, found: list[Found]) -> None:
    mark(run, found, LATEST_UNIVERSAL, _tag_named, needed=False)
    add_common(found, _UNCOUNTED)


def _own_counting(found: list[Found]) -> None:
    """Tags that never equal the engine's step are the user's, and no sign of damage.

    Megatron-DeepSpeed and GPT-NeoX tag by iterations, which start anew in a fine-tuning.
    """
    wrong = [[flaw for flaw in one.flaws if flaw.kind is FlawKind.STEP] for one in found]
    if len(found) < 2 or not all(wrong):
        return
    for one, flaws in zip(found, wrong, strict=True):
        one.notes.append(f"its content {flaws[0].why}, as in all checkpoints here")
        one.flaws = [flaw for flaw in one.flaws if flaw not in flaws]


def _compare_pieces(found: list[Found]) -> None:
    """The last pieces of the optimizer, where only other checkpoints tell that there were more.

    A job that went on with fewer ranks has fewer pieces, but larger ones: the same optimizer is cut
    into less. So pieces of the same size, and fewer of them, are not all.
    """
    read_ = [(names_of(path for path in one.parts if "/" not in path), one) for one in found]
    reference, full = max(read_, key=lambda pair: pair[0].dp, default=(Names(), None))
    for place, (names, one) in enumerate(read_):
        if full is None or not names.optim or names.dp >= reference.dp or names.mp != reference.mp:
            continue
        beside = read_[max(0, place - 1) : place] + read_[place + 1 : place + 2]
        if any(other.dp == names.dp for other, _ in beside):
            continue  # the job went on with fewer ranks
        grown = _piece(one, names) / max(1.0, _piece(full, reference))
        if grown**2 < reference.dp / names.dp and not _claims(one.parts, names).dp:
            why = "missing: {have} of {all} optimizer states exist, of the size they have in "
            have = {mp: set(pieces) for mp, pieces in names.optim.items()}
            form = names.prefix + PIECE
            _product(one, have, names.mp, reference.dp, why + full.name, form)


def _piece(found: Found, names: Names) -> float:
    """Bytes of a usual piece of the optimizer."""
    return median(
        found.parts[name].size for ranks in names.optim.values() for name in ranks.values()
    )


DEEPSPEED = Layout("DeepSpeed", read, compare)
# To be asked first: such a checkpoint lies beside the one it was made of, and is no sibling of it.
DEEPSPEED_UNIVERSAL = Layout(_UNIVERSAL, _read_universal, _compare_universal)
