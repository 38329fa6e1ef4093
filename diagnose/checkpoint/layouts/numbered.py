"""Files numbered by rank, and the markers of run folders: what layouts of both kinds share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice

from diagnose.checkpoint.model import Flaw, Found
from diagnose.checkpoint.tree import Folder
from diagnose.ingest.raw import reason
from diagnose.text.ranks import counted

MOST_NAMED = 8  # missing files that get a flaw of their own
_MARKER_SIZE = 4096  # bytes of a marker that are read; real ones are names


def gaps(have: set[int], size: int) -> tuple[Iterator[int], int]:
    """The numbers below `size` that are not there, and how many; `size` may be absurdly large."""
    missing = max(0, size - sum(0 <= number < size for number in have))
    return islice((number for number in count() if number not in have), missing), missing


def add_missing(found: Found, why: str, names: Iterable[str], total: int) -> None:
    """A flaw for each of the first missing files, and one for how many more there are."""
    for name in islice(names, min(total, MOST_NAMED)):
        found.flaw("partial", why, name)
    if total > MOST_NAMED:
        found.flaw("partial", f"missing: {counted(total - MOST_NAMED, 'more file')} like these")


def add_common(run: Sequence[Found], pattern: re.Pattern[str]) -> None:
    """Add as missing what all other checkpoints of a run have, in order of step.

    Only paths that `pattern` matches count, and only checkpoints of as many ranks. The first one
    needs two others that agree: a run may have begun to write a file later on.
    """
    paths: dict[int | None, Counter[str]] = {}
    sizes = Counter(one.ranks for one in run)
    for one in run:
        here = paths.setdefault(one.ranks, Counter())
        here.update(path for path in one.parts if pattern.fullmatch(path))
    for place, one in enumerate(run):
        ranks = one.ranks if one.parts else max(sizes, key=lambda ranks: sizes[ranks])
        others = sizes[ranks] - (ranks == one.ranks)
        if others < (1 if place else 2):
            continue
        named = {flaw.file for flaw in one.flaws}
        lost = sorted(
            path
            for path, number in paths[ranks].items()
            if number == others and path not in one.parts and path not in named
        )
        add_missing(one, "missing: all other checkpoints in this folder have it", lost, len(lost))


def check_names(
    folder: Folder, marker: str, named: Callable[[str], str]
) -> tuple[str, Flaw | None]:
    """The folder that a marker names, empty when there is none, and what is wrong with the marker.

    `named` makes the folder's name of the marker's text, an empty one where it is no such text.
    """
    leaf = folder.files.get(marker)
    if leaf is None:
        return "", Flaw("partial", "missing: it is written when a save is complete", marker)
    if leaf.size < 0:
        return "", Flaw("corrupt", "is a dangling link", marker)
    try:
        text = leaf.text(_MARKER_SIZE).strip()
    except OSError as error:
        return "", Flaw("unknown", f"not read: {reason(error)}", marker)
    if not text:
        return "", Flaw("corrupt", "is empty: it should name the checkpoint to load", marker)
    name = named(text) if text.isprintable() else ""
    if not name:
        return "", Flaw("corrupt", "does not name a checkpoint", marker)
    if name not in folder.folders:
        short = name if len(name) <= 80 else name[:80] + "…"
        return "", Flaw("corrupt", f"names {short}, which does not exist", marker)
    return name, None


def mark(
    run: Folder,
    found: list[Found],
    marker: str,
    named: Callable[[str], str],
    *,
    needed: bool = True,
) -> None:
    """Tell the checkpoints of a run what its marker says of them; they are in order of step.

    What is wrong with the marker itself counts against the last of them, which a job would go on
    with. Those after the one it names were not committed. `needed`: every save writes it, so that
    without it the last one did not end.
    """
    if not found:
        return
    if marker not in run.files and not needed:
        found[-1].notes.append(f"no {marker} beside it: name the checkpoint to load it")
        return
    name, flaw = check_names(run, marker, named)
    if flaw:
        found[-1].flaws.append(replace(flaw, file=f"../{marker}"))
        return
    step = next((one.step for one in found if one.name == name), None)
    for one in found:
        if step is not None and one.step is not None and one.step > step:
            one.flaw("partial", f"never committed: it still names {name}", f"../{marker}")
