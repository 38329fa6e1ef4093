"""What the other checkpoints of a run tell: files left from another save, missing or small ones.

Times of changes prove little by themselves: copying and downloading scramble them. So a claim needs
a few files that differ from most others of the same checkpoint.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Found, State
from diagnose.checkpoint.tree import Leaf

# What holds weights and states, and the files that commit a save; others are copied at will.
_STATE = re.compile(
    r"(?:\.(?:pt|pth|bin|ckpt|safetensors|distcp|pkl|nemo)|(?:^|/)\.metadata|/?trainer_state\.json"
    r"|\.index\.json)$"
)
# Of those, what says where states lie and not what they are: the same at every step.
_ALIKE = re.compile(r"(?:(?:^|/)\.metadata|\.index\.json|training_args\.bin)$")
_LEFTOVER = re.compile(r"\.(?:tmp|incomplete|partial|part|swp)$|(?:^|/)(?:\.nfs|tmp)[\w-]*$")
_NUMBER = re.compile(r"\d+")
_STEPPED = re.compile(r"((?:step|iter|iteration|epoch)[-_=]?)(\d+)")
# Settings and tokenizers, which a save writes always or never.
_SETTINGS = re.compile(
    r"(?:.*/)?(?:(?:generation_|tokenizer_|adapter_)?config|meta|params|tokenizer|vocab)\.json"
    r"|(?:.*/)?(?:tokenizer\.model|vocab\.txt|merges\.txt)"
)
# Random numbers, samplers and counters may stay as they are for a whole epoch.
_SELDOM = re.compile(
    r"rng_state|random_states|sampler|scaler|custom_checkpoint|extra_state|dl_state|rank-specific"
)

LATE = 600.0  # seconds between a file and all others before it counts as of another save
SLOW_WRITE = 10e6  # bytes a second that writing and copying reach at the least
_SAMPLE = 4096
_SAMPLES = 16
_MIN_SHARE = 0.5  # of a file's size in the checkpoints beside it


def compare(run: Sequence[Found], look: Looker) -> None:
    """Add what checkpoints of one run and layout, in order of step, tell of each other."""
    if not run:
        return
    repeats = _repeats(run, look)
    settings = Counter(path for one in run for path in one.parts if _SETTINGS.fullmatch(path))
    common = {path for path, number in settings.items() if number == len(run) - 1 > 1}
    for number, found in enumerate(run):
        before = run[number - 1] if number else None
        after = run[number + 1] if number + 1 < len(run) else None
        _left_overs(found)
        _other_saves(found, before)
        if before is not None:
            _repeated(found, before, repeats[number])
            _absent(found, before, after, common)
            _small(found, before, after)
        elif len(run) > 2:
            _absent(found, run[1], run[2], common)


def _left_overs(found: Found) -> None:
    named = {flaw.file for flaw in found.flaws}
    for path in found.parts:
        if _LEFTOVER.search(path) and path not in named:
            found.flaw("partial", "a left-over of writing that did not end", path)


def _other_saves(found: Found, before: Found | None) -> None:
    """Files of another save: as old as in the checkpoint before, or far from all others in time."""
    parts = _states(found)
    named = {flaw.file for flaw in found.flaws}
    if before is not None:
        old = _kept(found, before)
        for path in sorted(old - named):
            found.flaw("partial", f"as old as in {before.name}: not written by this save", path)
            named.add(path)
    for path, apart in _out_of_time(parts).items():
        if path in named or (before is not None and _usual(path, found, before)):
            continue
        sense = "after" if apart > 0 else "before"
        why = f"changed {_span(abs(apart))} {sense} all other files"
        if apart > 0 and (before is None or path not in _counterparts(found, before)):
            found.notes.append(f"{path} {why}: added to it")  # converted weights, for one
            continue
        state: State = "unknown" if before is None else "partial"
        found.flaw(state, f"{why}: not written by this save", path)


def _kept(found: Found, before: Found) -> set[str]:
    """Files that already lay there, in the same place or another one, at the save before.

    That of the checkpoint before is older than all else here: else it was changed since.
    """
    parts, pairs = found.parts, _pairs(found, before)
    old = {path for path, leaf in pairs.items() if 0 < parts[path].mtime <= leaf.mtime}
    if len(old) * 2 > len(pairs) or len(pairs) < 2:
        return set()
    begin = min(parts[path].mtime for path in pairs.keys() - old)
    return {path for path in old if pairs[path].mtime < begin}


def _repeats(run: Sequence[Found], look: Looker) -> list[set[str]]:
    """For each checkpoint the files with the content that they have in the one before.

    Only those that are known to change: elsewhere in the run the same file does.
    """
    same: list[set[str]] = [set()]
    changing: set[str] = set()
    for before, found in pairwise(run):
        parts = found.parts
        pairs = _pairs(found, before)
        pairs = {path: leaf for path, leaf in pairs.items() if not _ALIKE.search(path)}
        equal = {path for path, leaf in pairs.items() if _same(parts[path], leaf, look)}
        # Of a damaged file it is not known whether it would have changed.
        broken = {_key(flaw.file, one) for one in (before, found) for flaw in one.flaws}
        changing |= {_key(path, found) for path in pairs.keys() - equal} - broken
        alike = Counter(_NUMBER.sub("#", path) for path in pairs)
        stayed = Counter(_NUMBER.sub("#", path) for path in equal)
        same.append({
            path for path in equal
            if not _SELDOM.search(path)
            or stayed[kind := _NUMBER.sub("#", path)] * 2 <= alike[kind] > 1
        })  # fmt: skip
    return [
        {path for path in equal if _key(path, found) in changing}
        for found, equal in zip(run, same, strict=True)
    ]


def _repeated(found: Found, before: Found, same: set[str]) -> None:
    named = {flaw.file for flaw in found.flaws}
    states = [path for path in _states(found) if not _ALIKE.search(path)]
    numbered = _NUMBER.sub("#", found.name) == _NUMBER.sub("#", before.name)
    # Else it is a copy, or nothing was learnt.
    if len(same) * 2 <= len(states) or (len(states) == 1 and numbered):
        for path in sorted(same - named):
            found.flaw("corrupt", f"has the content that it has in {before.name}", path)


def _states(found: Found) -> dict[str, Leaf]:
    return {path: leaf for path, leaf in found.parts.items() if _STATE.search(path)}


def _pairs(found: Found, before: Found) -> dict[str, Leaf]:
    """Files that hold states, with the same file of the checkpoint before."""
    states = _states(found)
    twins = _counterparts(found, before)
    return {path: before.parts[twins[path]] for path in states if path in twins}


def _counterparts(found: Found, other: Found) -> dict[str, str]:
    """Paths of a checkpoint and what the same files are called in another one of the run."""
    pairs = {path: path for path in found.parts if path in other.parts}
    renamed = {_key(path, other): path for path in other.parts if path not in pairs}
    for path in found.parts:
        if path not in pairs and (old := renamed.get(_key(path, found))) is not None:
            pairs[path] = old
    return pairs


def _key(path: str, found: Found) -> str:
    """What a file is called whatever the step is."""
    if len(found.parts) == 1:  # a file of its own, with the step in its name
        return _NUMBER.sub("#", path)
    return _renamed(path, found.step, "#")


def _renamed(path: str, step: int | None, new: str) -> str:
    """A path with another step wherever it names this one. Ranks are numbers, too."""
    if step is None:
        return path
    return _STEPPED.sub(lambda m: m[1] + new if int(m[2][:18]) == step else m[0], path)


def _same(leaf: Leaf, other: Leaf, look: Looker) -> bool:
    """Whether two files hold the same, by their checksums or by samples of their bytes."""
    if leaf.size != other.size or leaf.size <= 0:
        return False
    mine, its = look(leaf), look(other)
    if mine.digest or its.digest:
        return mine.digest == its.digest
    step = max(1, (leaf.size - _SAMPLE) // (_SAMPLES - 1))
    try:
        with leaf.open() as one, other.open() as two:
            return all(
                one.read_at(at, _SAMPLE) == two.read_at(at, _SAMPLE)
                for at in range(0, leaf.size, step)
            )
    except OSError:
        return False


def _out_of_time(parts: dict[str, Leaf]) -> dict[str, float]:
    """Few files far from most others in time: path → seconds after (negative: before) them."""
    timed = sorted((leaf.mtime, path) for path, leaf in parts.items() if leaf.mtime > 0)
    if len(timed) < 3:
        return {}
    gaps = [(b[0] - a[0], i + 1) for i, (a, b) in enumerate(pairwise(timed))]
    gap, cut = max(gaps)
    early, late = timed[:cut], timed[cut:]
    few, most = (early, late) if len(early) < len(late) else (late, early)
    # The file behind the gap may have taken that long to write.
    writing = max(parts[path].size for _, path in late) / SLOW_WRITE
    spread = most[-1][0] - most[0][0]
    if len(few) * 3 > len(timed) or gap < LATE + writing or gap < 3 * spread:
        return {}
    sign = -1.0 if few is early else 1.0
    return {path: sign * gap for _, path in few}


def _usual(path: str, found: Found, before: Found) -> bool:
    """Whether the file stood as far from the others in the checkpoint before, too."""
    return _counterparts(found, before).get(path) in _out_of_time(_states(before))


def _absent(found: Found, before: Found, after: Found | None, common: set[str]) -> None:
    """Files that the checkpoints around it have, and no like one here.

    Of numbered files (ranks, shards) the layouts know how many there have to be, unless there were
    as many ranks before and after. `common` are settings that all others of the run have.
    """
    if len(found.parts) == 1 == len(before.parts):
        return  # each a file of its own, called as people like
    likes = {_NUMBER.sub("#", path) for path in found.parts}
    named = {flaw.file for flaw in found.flaws if flaw.state != "unknown"}
    theirs = set(_counterparts(before, found))
    kept = None if after is None else set(_counterparts(before, after))
    ranks = after is not None and found.ranks is not None
    ranks = ranks and found.ranks == before.ranks == (after.ranks if after else None)
    for path in before.parts:
        if path in theirs or (kept is not None and path not in kept):
            continue
        if _SETTINGS.fullmatch(path):
            if path not in common:
                continue
        elif not _STATE.search(path) or (not ranks and _NUMBER.sub("#", path) in likes):
            continue
        mine = path if found.step is None else _renamed(path, before.step, str(found.step))
        if mine not in named:
            found.flaws = [flaw for flaw in found.flaws if flaw.file != mine]
            found.flaw("partial", f"missing: {before.name} has it", mine)


def _small(found: Found, before: Found, after: Found | None) -> None:
    """Files much smaller than the same ones before and after."""
    named = {flaw.file for flaw in found.flaws}
    later = _counterparts(found, after) if after is not None else {}
    for path, old in _counterparts(found, before).items():
        if path in named or not _STATE.search(path):
            continue
        sizes = [before.parts[old].size]
        if after is not None:
            if path not in later:
                continue
            sizes.append(after.parts[later[path]].size)
        size = found.parts[path].size
        if 0 < size < _MIN_SHARE * min(sizes) and min(sizes) > _SAMPLE:
            why = f"has {size:,} bytes, and {sizes[0]:,} in {before.name}"
            found.flaw("unknown", why, path)


def _span(seconds: float) -> str:
    for unit, length in (("days", 86400.0), ("h", 3600.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 60:.0f} min"
