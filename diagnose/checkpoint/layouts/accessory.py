"""LLaMA2-Accessory (accessory/util/misc.py), and the files of Meta's own LLaMA that it starts from.

`epoch<E>[-iter<I>]/consolidated.<mp>-of-<MP>.{model,optimizer,other}.pth`, written in this order,
then `rank-specific-<rank>-of-<world>.pth` by every rank; earlier versions wrote none of the latter.
Meta's weights are `consolidated.<mp>.pth`, listed in `checklist.chk`.
"""

from __future__ import annotations

import re
from collections import defaultdict

from diagnose.checkpoint.layouts import Layout
from diagnose.checkpoint.layouts.contents import number, stated
from diagnose.checkpoint.layouts.numbered import MOST_NAMED, add_missing, gaps
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder

_FOLDER = re.compile(r"epoch(\d{1,9})(?:-iter(\d{1,15}))?")
_SHARD = re.compile(r"consolidated\.(\d{2,5})-of-(\d{2,5})\.(model|optimizer|other)\.pth")
_RANK = re.compile(r"rank-specific-(\d{5,7})-of-(\d{5,7})\.pth")
_META = re.compile(r"consolidated\.(\d{2,4})\.pth")
_LISTED = re.compile(r"[0-9a-f]{32}\s+\*?(consolidated\.\d{2,4}\.pth)")
_CHECKLIST = "checklist.chk"
_KINDS = ("model", "optimizer", "other")  # in the order of writing
_STOPPED = {
    "model": "the save stopped in or before it",
    "optimizer": (
        "the model was saved and the optimizer was not; such a save has stopped in "
        "FSDP.full_optim_state_dict, where all ranks wait for each other"
    ),
    "other": "the save stopped after the optimizer",
}
_LIST_SIZE = 1 << 16  # bytes of checklist.chk that are read

_Sets = dict[int, dict[str, set[int]]]  # by number of all: kind → numbers that are there


def read(folder: Folder, look: Looker) -> Found | None:
    """The checkpoint that a folder is."""
    shards: _Sets = defaultdict(lambda: defaultdict(set))
    ranks: dict[int, set[int]] = defaultdict(set)
    meta: set[int] = set()
    for name in folder.files:
        if m := _SHARD.fullmatch(name):
            shards[int(m[2])][m[3]].add(int(m[1]))
        elif m := _RANK.fullmatch(name):
            ranks[int(m[2])].add(int(m[1]))
        elif m := _META.fullmatch(name):
            meta.add(int(m[1]))
    if not shards and not ranks:
        return _read_meta(folder, meta, look) if meta else None
    named = _FOLDER.fullmatch(folder.name)
    trained = ranks or any(there.keys() != {"model"} for there in shards.values())
    found = Found(
        folder.path, "LLaMA2-Accessory", dict(folder.leaves()),
        framework="llama2-accessory" if named or trained else "",
    )  # fmt: skip
    if named and named[1] == "0" and named[2]:
        found.step = int(named[2])  # counts anew in each epoch
    look.check(found)
    size = max(shards, key=lambda size: sum(map(len, shards[size].values())), default=1)
    found.notes += [f"also has files of {n} model parallel ranks" for n in shards if n != size]
    _check_shards(found, shards.get(size, {}), size, _KINDS if found.framework else ("model",))
    _check_specific(found, ranks)
    if named and named[2]:
        _check_count(folder, found, named[2], size)
    return found


def _check_shards(
    found: Found, there: dict[str, set[int]], size: int, kinds: tuple[str, ...]
) -> None:
    """Every kind of file from every model parallel rank."""
    for place, kind in enumerate(kinds):
        have = there.get(kind, set())
        some, total = gaps(have, size)
        why = f"missing: {size - total} of {size} {kind} files exist"
        if not have and not any(there.get(later) for later in kinds[place + 1 :]):
            why = f"missing: {_STOPPED[kind]}"
        add_missing(
            found, why, (f"consolidated.{n:02d}-of-{size:02d}.{kind}.pth" for n in some), total
        )


def _check_specific(found: Found, ranks: dict[int, set[int]]) -> None:
    """The states of all ranks, whose number is in every name."""
    world = max(ranks, key=lambda world: len(ranks[world]), default=0)
    if not world:
        if found.framework and not found.flaws:
            why = "missing: no rank saved its own state; earlier versions wrote none"
            found.flaw("unknown", why, "rank-specific-*.pth")
        return
    found.ranks = world
    found.notes += [f"also has files of a world size of {n}" for n in ranks if n != world]
    some, total = gaps(ranks[world], world)
    why = f"missing: {world - total} of {world} ranks saved their own state"
    add_missing(found, why, (f"rank-specific-{n:05d}-of-{world:05d}.pth" for n in some), total)


def _check_count(folder: Folder, found: Found, count: str, size: int) -> None:
    """The iteration that the other states say against that of the folder's name."""
    for n in range(min(size, MOST_NAMED)):
        name = f"consolidated.{n:02d}-of-{size:02d}.other.pth"
        says = number(stated(folder.files.get(name), ("iter",)), "iter")
        if says is not None and says != int(count):
            found.flaw("corrupt", f"says iteration {says}", name)


def _read_meta(folder: Folder, have: set[int], look: Looker) -> Found:
    """Weights as Meta distributes them."""
    found = Found(folder.path, "LLaMA (Meta)", dict(folder.leaves()))
    look.check(found)
    some, total = gaps(have, max(have) + 1)
    why = f"missing: {len(have)} of at least {max(have) + 1} shards exist"
    add_missing(found, why, (f"consolidated.{n:02d}.pth" for n in some), total)
    if _CHECKLIST in folder.files:
        try:
            text = folder.files[_CHECKLIST].text(_LIST_SIZE)
        except OSError:
            return found
        above = {m[1] for m in _LISTED.finditer(text) if int(m[1][13:-4]) > max(have)}
        why = f"missing: {_CHECKLIST} lists it"
        add_missing(found, why, sorted(above - folder.files.keys()), len(above))
    return found


def compare(run: Folder, found: list[Found]) -> None:
    """Iterations count anew in each epoch: no order of steps where there are several epochs."""
    if any(one.step is None for one in found):
        for one in found:
            one.step = None


ACCESSORY = Layout("LLaMA2-Accessory", read, compare)
