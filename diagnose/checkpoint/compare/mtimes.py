"""What times of changes tell of a checkpoint: files left from another save.

Copying and downloading scramble them, so they prove little by themselves: a claim needs a few files
that differ from most others of the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from diagnose.checkpoint.compare.pairing import counterparts, pairs_of, same_content, states_of
from diagnose.checkpoint.damaged import span
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import FlawKind, Found, State
from diagnose.checkpoint.tree import Leaf

LATE = 600.0  # seconds between a file and all others before it counts as of another save
_BY_TIME = (FlawKind.OLDER, FlawKind.TIME)  # layouts find such flaws, too
SLOW_WRITE = 10e6  # bytes a second that writing and copying reach at the least
COPYING = 60.0  # seconds from one file of a copy to the next at the most


def other_saves(found: Found, before: Found | None, look: Looker) -> None:
    """Add files of another save: those of the checkpoint before, or far from all others in time."""
    parts = states_of(found)
    if before is not None:  # layouts know nothing of it
        copied = {
            flaw.why
            for flaw in found.flaws
            if flaw.kind is FlawKind.OLDER and _copied_on(found.parts.get(flaw.file), before)
        }
        found.flaws = [flaw for flaw in found.flaws if flaw.why not in copied]
    named = {flaw.file for flaw in found.flaws}
    if before is not None:
        old = _kept(found, before, look)
        for path in sorted(old - named):
            found.flaw(
                "partial", f"has the same age as in {before.name}: not written by this save", path
            )
            named.add(path)
    for path, apart in _out_of_time(parts).items():
        if path in named or (before is not None and _usual(path, found, before)):
            continue
        if apart < 0 and before is not None and _copied_on(parts[path], before):
            continue
        sense = "after" if apart > 0 else "before"
        why = f"changed {span(abs(apart))} {sense} all other files"
        if apart > 0 and (before is None or path not in counterparts(found, before)):
            found.notes.append(f"{path} {why}")  # such as weights that were converted
            continue
        state: State = "unknown" if before is None else "partial"
        found.flaw(state, f"{why}: not written by this save", path, FlawKind.TIME)


def _kept(found: Found, before: Found, look: Looker) -> set[str]:
    """Files of the checkpoint before that lie here, too, with their times, beside newer ones."""
    parts, pairs = found.parts, pairs_of(found, before)
    old = {path for path, leaf in pairs.items() if 0 < parts[path].mtime == leaf.mtime}
    if not old or len(old) * 2 > len(pairs) or len(pairs) < 2:
        return set()  # none, or it is a copy
    begin = min(parts[path].mtime for path in pairs.keys() - old)
    return {
        path
        for path in old
        if pairs[path].mtime < begin and same_content(parts[path], pairs[path], look)
    }


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
    return counterparts(found, before).get(path) in _out_of_time(states_of(before))


def _copied_on(leaf: Leaf | None, before: Found) -> bool:
    """Whether a file follows those of the checkpoint before as in a copy of a whole run.

    The rest came when the copy was taken up again. Saves are further apart.
    """
    if leaf is None:
        return False
    last = max((other.mtime for other in before.parts.values()), default=0.0)
    return 0 <= leaf.mtime - last <= COPYING + leaf.size / SLOW_WRITE


def doubt_times(run: Sequence[Found]) -> None:
    """Take back what times alone tell of several checkpoints of a run: they come from copying."""
    by_time = [[flaw for flaw in one.flaws if flaw.kind in _BY_TIME] for one in run]
    if sum(map(bool, by_time)) < 2:
        return
    for one, flaws in zip(run, by_time, strict=True):
        if flaws:
            one.flaws = [flaw for flaw in one.flaws if flaw not in flaws]
            one.notes.append(
                "modification times are not in the order of writing, probably because of copying"
            )
