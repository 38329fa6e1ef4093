"""Checkpoints of a run that are called alike but for a number, of whatever layout each seems to be.

What is left of a cut-off one may be too little to tell its layout by itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from diagnose.checkpoint.compare.pairing import STATE
from diagnose.checkpoint.layouts.checks import add_missing
from diagnose.checkpoint.layouts.rows import layouts
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.tree import Folder

_NUMBER = re.compile(r"\d{1,18}")
_MOST = 4096  # files of one folder that are looked at


def in_order(several: Sequence[Found]) -> list[Found]:
    """By step; where names tell no step but differ in numbers only, by these; else by time."""
    same = len({alike(one.name) for one in several}) == 1

    def place(one: Found) -> tuple[bool, int, list[int], float, str]:
        written = max((leaf.mtime for leaf in one.parts.values()), default=0.0)
        numbers = [int(number) for number in _NUMBER.findall(one.name)] if same else []
        return one.step is None, one.step or 0, numbers, written, one.path

    return sorted(several, key=place)


def begun_beside(folder: Folder, found: Sequence[Found]) -> Found | None:
    """What a folder was to become that is called like checkpoints beside it, and holds no more.

    None where it has files that they do not have.
    """
    step = layouts("Hugging Face model")[0].step_of(folder.name)
    likes = [one for one in found if alike(one.name) == alike(folder.name)]
    numbered = _NUMBER.search(folder.name) is not None
    if not likes or not numbered or (len(likes) == 1 and step is None):
        return None
    parts = {}
    for path, leaf in folder.leaves():
        parts[path] = leaf
        if len(parts) > _MOST:
            return None
    if any(inside.problem for inside in folder.below()):
        return None
    known = {alike(path) for one in likes for path in one.parts}
    if not {alike(path) for path in parts} <= known:
        return None
    like = likes[-1]
    one = Found(folder.path, like.layout, parts, step=step, framework=like.framework)
    if not parts:
        one.flaw("partial", "nothing was written to it")
    else:
        _add_absent(one, likes)
        if not one.flaws:
            one.flaw("partial", f"only a small part of what {like.name} contains was written")
    return one


def unlike(found: Sequence[Found]) -> None:
    """Add what those lack that seem to be of another layout than all others called alike."""
    families: dict[str, list[Found]] = {}
    for one in found:
        if _NUMBER.search(one.name):
            families.setdefault(alike(one.name), []).append(one)
    for family in families.values():
        layouts = Counter(one.layout for one in family)
        layout, number = layouts.most_common(1)[0]
        if number < 2 or len(family) - number > 1:
            continue
        likes = [one for one in family if one.layout == layout]
        for one in family:
            if one.layout != layout:
                _add_absent(one, likes)


def _add_absent(one: Found, likes: Sequence[Found]) -> None:
    """The states that all of the others have."""
    named = {flaw.file for flaw in one.flaws} | set(one.parts)
    common = set.intersection(*(set(like.parts) for like in likes))
    lost = sorted(path for path in common - named if STATE.search(path))
    add_missing(one, f"missing: {likes[-1].name} has it", lost, len(lost))


def alike(name: str) -> str:
    """A name without its numbers."""
    return _NUMBER.sub("#", name)
