"""The predicates of rows about the checkpoints of one run, which are in order of step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from diagnose.checkpoint.layouts.checks import add_missing, gaps
from diagnose.checkpoint.layouts.rows import Layout, Row, hook, layouts, pattern
from diagnose.checkpoint.model import Flaw, Found
from diagnose.checkpoint.tree import Folder
from diagnose.ingest.raw import reason
from diagnose.text.ranks import counted

_MARKER_SIZE = 4096  # bytes of a marker that are read; real ones are names


def compare(layout: Layout, run: Folder, found: list[Found]) -> None:
    """Add what markers (`latest` …) and the other checkpoints of a run tell of each."""
    specs = next((one.row["compare"] for one in layouts(layout.family) if "compare" in one.row), ())
    for one in specs if found else ():
        if isinstance(one, str):
            hook(one)(run, found)
        else:
            _PREDICATES[next(iter(one))](run, found, one)


def marker(run: Folder, found: list[Found], spec: Row) -> None:
    """A file names the checkpoint to go on with: `names` is its text, `as` makes it a folder's.

    What is wrong with the marker itself counts against the last checkpoint, which a job would go on
    with. Those after the one it names were not committed. With `optional` not every save writes it.
    """
    name = spec["marker"]
    several = [one for one in found if one.step is not None] if spec.get("stepped") else found
    if not several:
        return
    if name not in run.files and spec.get("optional"):
        found[-1].notes.append(f"no {name} beside it: name the checkpoint to load it")
        return
    named, flaw = check_names(run, spec)
    if flaw:
        several[-1].flaws.append(replace(flaw, file=f"../{name}"))
        return
    step = next((one.step for one in several if one.name == named), None)
    for one in several:
        if step is not None and one.step is not None and one.step > step:
            one.flaw("partial", f"never committed: it still names {named}", f"../{name}")


def check_names(folder: Folder, spec: Row) -> tuple[str, Flaw | None]:
    """The folder that a marker names, empty without one, and what is wrong with the marker."""
    marker = spec["marker"]
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
    match = pattern(spec["names"]).fullmatch(text) if text.isprintable() else None
    if match is None:
        return "", Flaw("corrupt", "does not name a checkpoint", marker)
    name = text
    if "as" in spec and match[1]:
        name = spec["as"].format(int(match[1]))
    if name not in folder.folders:
        short = name if len(name) <= 80 else name[:80] + "…"
        return "", Flaw("corrupt", f"names {short}, which does not exist", marker)
    return name, None


def common(run: Folder, found: list[Found], spec: Row) -> None:
    """Files that `common` matches are missing where all other checkpoints of a run have them.

    Only checkpoints of as many ranks count. The first one needs two others that agree: a run may
    have begun to write a file later on.
    """
    paths: dict[int | None, Counter[str]] = {}
    sizes = Counter(one.ranks for one in found)
    for one in found:
        here = paths.setdefault(one.ranks, Counter())
        here.update(path for path in one.parts if pattern(spec["common"]).fullmatch(path))
    for place, one in enumerate(found):
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


def same_ranks(run: Folder, found: list[Found], spec: Row) -> None:
    """Files of ranks (`same_ranks`, called `name`) that lack their last ones, as others tell.

    A job that was restarted with another number of ranks is none: all of its later checkpoints
    agree, or the function `restarted` says so of two of them. `unless` marks those of one process.
    """
    several = [one for one in found if spec.get("unless") not in one.parts]
    for one, world, other in _lost_ranks(several, hook(spec["restarted"])):
        have = numbers(one.parts, pattern(spec["same_ranks"]))
        check_ranks(one, have, world, spec["name"].format)
        one.notes.append(
            f"{other.name} was saved by {counted(world, 'rank')}, this one by {len(have)}"
        )


def _lost_ranks(
    run: Sequence[Found], restarted: Callable[[Found, Found], bool]
) -> list[tuple[Found, int, Found]]:
    """The checkpoint, how many ranks there should be, and the other checkpoint that tells so."""
    ranked = [(one, one.ranks) for one in run if one.ranks]
    lost = []
    most_after = 0  # ranks of later checkpoints
    for place in range(len(ranked) - 1, 0, -1):
        (before, world), (one, ranks) = ranked[place - 1], ranked[place]
        last = place == len(ranked) - 1
        if world > ranks and (most_after >= world or (last and not restarted(before, one))):
            lost.append((one, world, before))
        most_after = max(most_after, ranks)
    worlds = {ranks for _, ranks in ranked[1:]}
    if len(ranked) > 2 and len(worlds) == 1:
        first, ranks = ranked[0]
        world = worlds.pop()
        if world > ranks and world % ranks and not restarted(ranked[1][0], first):
            lost.append((first, world, ranked[1][0]))
    return lost[::-1]


def no_steps(run: Folder, found: list[Found]) -> None:
    """Steps are those of one epoch only: no order where there are several epochs."""
    if any(one.step is None for one in found):
        for one in found:
            one.step = None


def numbers(names: Iterable[str], form: re.Pattern[str]) -> set[int]:
    """The numbers that `form` captures in the names it matches as a whole."""
    return {int(match[1]) for name in names if (match := form.fullmatch(name))}


def check_ranks(found: Found, have: set[int], world: int, name: Callable[[int], str]) -> None:
    """Add a flaw for each of `world` ranks whose file is not there."""
    some, total = gaps(have, world)
    why = f"missing: {world - total} of {world} ranks wrote theirs"
    add_missing(found, why, map(name, some), total)


_PREDICATES = {"marker": marker, "common": common, "same_ranks": same_ranks}
