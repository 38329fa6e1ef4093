"""Files that every rank writes: how many there have to be, as other checkpoints tell, too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from diagnose.checkpoint.damaged import DamagedError
from diagnose.checkpoint.layouts.deepspeed_names import PIECE, SHARD, names_of
from diagnose.checkpoint.layouts.numbered import add_missing, gaps
from diagnose.checkpoint.model import Found
from diagnose.checkpoint.torch_bytes import read_pickle
from diagnose.checkpoint.torch_zip import read_archive
from diagnose.checkpoint.tree import Leaf

_MAX_PICKLE = 4 << 20  # bytes
# A key of a pickled dict, put into the memo or not, and the integer behind it.
_PROCESSES = re.compile(
    rb"(?:X\x0d\0\0\0|\x8c\x0d)num_processes(?:q.|r....|\x94)?(?:K(.)|M(..)|J(....))", re.DOTALL
)


def numbers(names: Iterable[str], pattern: re.Pattern[str]) -> set[int]:
    """The numbers that `pattern` captures in the names it matches as a whole."""
    return {int(match[1]) for name in names if (match := pattern.fullmatch(name))}


def check_ranks(found: Found, have: set[int], world: int, name: Callable[[int], str]) -> None:
    """Add a flaw for each of `world` ranks whose file is not there."""
    some, total = gaps(have, world)
    why = f"missing: {world - total} of {world} ranks wrote theirs"
    add_missing(found, why, map(name, some), total)


def check_pieces(found: Found, folder: str, inner: Found, world: int) -> None:
    """Add the last pieces of DeepSpeed's that are missing in a folder, where `world` ranks saved.

    Pieces for a part of the ranks are normal where groups of ranks hold copies: these divide them.
    """
    names = names_of(inner.parts)
    ranks = names.dp
    if inner.flaws or names.mp > 1 or ranks <= 0 or world % ranks == 0 or ranks > world:
        return
    kinds = [(SHARD, set(names.sharded.get(0, ())))] if names.sharded else []
    if names.optim:
        kinds.append((names.prefix + PIECE, set(names.optim[0])))
    for form, have in kinds:
        some, total = gaps(have | set(range(ranks)), world)
        why = f"missing: {world} ranks wrote their random states, and {len(have)} wrote theirs"
        files = (f"{folder}/{form.format(dp=rank, mp=0)}" for rank in some)
        add_missing(found, why, files, total)


def processes(leaf: Leaf | None) -> int | None:
    """The world size in a file of torch.save that has a state of accelerate pickled in it."""
    if leaf is None or leaf.size <= 0:
        return None
    try:
        with leaf.open() as reader:
            data = read_pickle(reader, read_archive(reader), _MAX_PICKLE)
    except (OSError, DamagedError):
        return None
    match = _PROCESSES.search(data)
    return int.from_bytes(match[1] or match[2] or match[3], "little") if match else None


def lost_ranks(
    run: Sequence[Found], restarted: Callable[[Found, Found], bool]
) -> list[tuple[Found, int, Found]]:
    """Checkpoints of a run, in order of step, that lack the files of their last ranks.

    Gives the checkpoint, how many ranks there should be, and the other checkpoint that tells so.
    A job that was restarted with another number of ranks is none: all of its later checkpoints
    agree, or `restarted(before, it)` says so.
    """
    counted = [(one, one.ranks) for one in run if one.ranks]
    lost = []
    most_after = 0  # ranks of later checkpoints
    for place in range(len(counted) - 1, 0, -1):
        (before, world), (one, ranks) = counted[place - 1], counted[place]
        last = place == len(counted) - 1
        if world > ranks and (most_after >= world or (last and not restarted(before, one))):
            lost.append((one, world, before))
        most_after = max(most_after, ranks)
    worlds = {ranks for _, ranks in counted[1:]}
    if len(counted) > 2 and len(worlds) == 1:
        first, ranks = counted[0]
        world = worlds.pop()
        if world > ranks and world % ranks and not restarted(counted[1][0], first):
            lost.append((first, world, counted[1][0]))
    return lost[::-1]
