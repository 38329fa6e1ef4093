"""What the other checkpoints of a run tell: files left from another save, missing or small ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from diagnose.checkpoint.compare.mtimes import doubt_times, other_saves
from diagnose.checkpoint.compare.pairing import (
    SAMPLE,
    STATE,
    counterparts,
    key_of,
    numberless,
    pairs_of,
    renamed,
    same_content,
    states_of,
)
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Found

# What says where states lie, and not what they are: the same at every step.
_ALIKE = re.compile(r"(?:(?:^|/)\.metadata|\.index\.json|training_args\.bin)$")
_LEFTOVER = re.compile(r"\.(?:tmp|incomplete|partial|part|swp)$|(?:^|/)(?:\.nfs|tmp)[\w-]*$")
# Settings and tokenizers, which a save writes always or never.
_SETTINGS = re.compile(
    r"(?:.*/)?(?:(?:generation_|tokenizer_|adapter_)?config|meta|params|tokenizer|vocab)\.json"
    r"|(?:.*/)?(?:tokenizer\.model|vocab\.txt|merges\.txt)"
)
_PIECE = re.compile(r"/(?:bf16_)?zero_pp_rank_\d+_mp_rank_\d+_(?:optim|model)_states\.pt$")
_RANDOM = re.compile(r"rng_state(?:_\d+)?\.pth$")
# Random numbers, samplers and counters may stay as they are for a whole epoch.
_SELDOM = re.compile(
    r"rng_state|random_states|sampler|scaler|custom_checkpoint|extra_state|dl_state|rank-specific"
)

_STEPPING = re.compile(r"optim")  # counts steps, and so changes with every one
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
        other_saves(found, before, look)
        if before is not None:
            _repeated(found, before, repeats[number])
            earlier = run[number - 2] if number > 1 else None
            _absent(found, before, after or earlier, common)
            _small(found, before, after)
        elif len(run) > 2:
            _absent(found, run[1], run[2], common)
    doubt_times(run)


def _left_overs(found: Found) -> None:
    named = {flaw.file for flaw in found.flaws}
    for path in found.parts:
        if _LEFTOVER.search(path) and path not in named:
            found.flaw("partial", "a temporary file of an unfinished write", path)


def _repeats(run: Sequence[Found], look: Looker) -> list[set[str]]:
    """For each checkpoint the files with the content that they have in the one before.

    Only those that are known to change: elsewhere in the run the same file does.
    """
    same: list[set[str]] = [set()]
    changing: set[str] = set()
    for before, found in pairwise(run):
        parts = found.parts
        pairs = pairs_of(found, before)
        pairs = {path: leaf for path, leaf in pairs.items() if not _ALIKE.search(path)}
        equal = {path for path, leaf in pairs.items() if same_content(parts[path], leaf, look)}
        # Of a damaged file it is not known whether it would have changed.
        broken = {key_of(flaw.file, one) for one in (before, found) for flaw in one.flaws}
        changing |= {key_of(path, found) for path in pairs.keys() - equal} - broken
        alike = Counter(numberless(path) for path in pairs)
        stayed = Counter(numberless(path) for path in equal)
        same.append({
            path for path in equal
            if not _SELDOM.search(path)
            or stayed[kind := numberless(path)] * 2 <= alike[kind] > 1
        })  # fmt: skip
        if len(run) == 2:  # of one pair, only what must change tells that it does
            changing |= {
                key_of(path, found) for path in equal
                if _STEPPING.search(path) or stayed[kind := numberless(path)] * 2 < alike[kind]
            }  # fmt: skip
    return [
        {path for path in equal if key_of(path, found) in changing}
        for found, equal in zip(run, same, strict=True)
    ]


def _repeated(found: Found, before: Found, same: set[str]) -> None:
    named = {flaw.file for flaw in found.flaws}
    states = [path for path in states_of(found) if not _ALIKE.search(path)]
    numbered = numberless(found.name) == numberless(before.name)
    # Else it is a copy, or nothing was learnt.
    if len(same) * 2 <= len(states) or (len(states) == 1 and numbered):
        for path in sorted(same - named):
            found.flaw("corrupt", f"has the same content as in {before.name}", path)


def _absent(found: Found, before: Found, after: Found | None, common: set[str]) -> None:
    """Files that the checkpoints around it have, and no like one here.

    `after` is the one before `before` for the last of a run, None where there are only two.

    Of numbered files (ranks, shards) the layouts know how many there have to be, unless there were
    as many ranks before and after. `common` are settings that all others of the run have.
    """
    if len(found.parts) == 1 == len(before.parts):
        return  # each a file of its own, called as people like
    if not found.parts:
        return  # told of already
    likes = {numberless(path) for path in found.parts}
    named = {flaw.file for flaw in found.flaws if flaw.state != "unknown"}
    theirs = set(counterparts(before, found))
    kept = None if after is None else set(counterparts(before, after))
    random_states = any(_RANDOM.search(path) for path in found.parts)
    ranks = after is not None and found.ranks is not None
    ranks = ranks and found.ranks == before.ranks == (after.ranks if after else None)
    for path in before.parts:
        if path in theirs or (kept is not None and path not in kept):
            continue
        if _SETTINGS.fullmatch(path):
            if path not in common:
                continue
        elif random_states and _RANDOM.search(path):
            continue  # a single process calls its file otherwise
        elif not STATE.search(path) or (
            not ranks and numberless(path) in likes and not _cut_alike(found, before, path)
        ):
            continue
        mine = path if found.step is None else renamed(path, before.step, str(found.step))
        if mine not in named:
            found.flaws = [flaw for flaw in found.flaws if flaw.file != mine]
            found.flaw("partial", f"missing: {before.name} has it", mine)


def _cut_alike(found: Found, before: Found, piece: str) -> bool:
    """Whether pieces of an optimizer are as large as in the checkpoint before.

    A job that went on with fewer ranks cuts the same optimizer into larger pieces.
    """
    kind = numberless(piece)
    most, most_before = (
        max(leaf.size for path, leaf in one.parts.items() if numberless(path) == kind)
        for one in (found, before)
    )
    return _PIECE.search(piece) is not None and most <= 1.02 * most_before


def _small(found: Found, before: Found, after: Found | None) -> None:
    """Files much smaller than the same ones before and after."""
    named = {flaw.file for flaw in found.flaws}
    later = counterparts(found, after) if after is not None else {}
    for path, old in counterparts(found, before).items():
        if path in named or not STATE.search(path):
            continue
        sizes = [before.parts[old].size]
        if after is not None:
            if path not in later:
                continue
            sizes.append(after.parts[later[path]].size)
        size = found.parts[path].size
        if 0 < size < _MIN_SHARE * min(sizes) and min(sizes) > SAMPLE:
            why = f"has {size:,} bytes, and {sizes[0]:,} in {before.name}"
            found.flaw("unknown", why, path)
