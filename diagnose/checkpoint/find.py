"""Finds the checkpoints below given paths, and judges each alone and beside its siblings.

The first layout that recognises a folder takes it, with all below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from diagnose.checkpoint.compare import alike, begun_beside, compare, in_order, unlike
from diagnose.checkpoint.layouts.rows import Layout, layouts, pattern, read
from diagnose.checkpoint.layouts.single import read_file
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Found, Inspection, judged
from diagnose.checkpoint.resume import resume
from diagnose.checkpoint.tree import MAX_FILES, Folder, Leaf, read_tree
from diagnose.errors import InputError
from diagnose.ingest.given import why_unreadable


def inspect(
    paths: Iterable[str], *, verify: bool = False, max_files: int = MAX_FILES
) -> Inspection:
    """All checkpoints at and below `paths` (folders, files, URLs that fsspec reads).

    `verify` reads every byte and checks the checksums that files carry. `max_files` bounds what is
    listed of each path. Raises InputError when a path cannot be read at all.
    """
    look = Looker(verify)
    found: dict[str, Found] = {}
    notes: list[str] = []
    for path in paths:
        try:
            tree = read_tree(path, max_files)
        except OSError as error:
            raise InputError(f"{path}: {why_unreadable(path, error)}") from error
        alone = read_file(tree, look, meant=True) if isinstance(tree, Leaf) else None
        several = [alone] if alone else []
        if isinstance(tree, Folder):
            several = list(_search(tree, look))
            notes += [f"{f.path}: {f.problem}" for f in tree.below() if f.problem]
        found |= {one.path: one for one in several if one.path not in found}
    checkpoints = [judged(one) for one in found.values()]
    return Inspection(checkpoints, resume(checkpoints), notes)


def _search(folder: Folder, look: Looker) -> Iterator[Found]:
    """The checkpoint that a folder is, and those inside it, in order of path and step."""
    _, own = _read(folder, look)
    if own is not None:
        compare([own], look)  # the run it belongs to was not given
        yield own
    inside = list(_inside(folder, own, look))
    yield from inside
    if own is None and not inside:
        left = read(["unknown", "settings of a model"], folder, look)
        yield from [left] if left else []


def _read(folder: Folder, look: Looker) -> tuple[Layout | None, Found | None]:
    for layout in layouts():
        if found := layout.read(folder, look):
            _check_mixed(found)
            return layout, found
    return None, None


def _check_mixed(found: Found) -> None:
    """A flaw where files of two layouts are in one folder: two saves went to the same place."""
    names = [path for path in found.parts if "/" not in path]
    mixed = [
        one.family
        for one in reversed(layouts())
        if "marks" in one.row and any(map(pattern(one.row["marks"]).fullmatch, names))
    ]
    if len(mixed) > 1:
        found.flaw(
            "unknown", f"mixes files of {' and '.join(mixed)}: unclear which save they belong to"
        )


def _inside(folder: Folder, own: Found | None, look: Looker) -> Iterator[Found]:
    """The checkpoints in a folder, which may be one itself: its parts are none of theirs.

    The folder of a run often holds the final model, and the checkpoints before it in folders.
    """
    parts = own.parts if own is not None else {}
    taken = {path.partition("/")[0] for path in parts}
    files = [leaf for leaf in folder.files.values() if own is None and leaf.name not in taken]
    alone = {leaf.name: read_file(leaf, look) for leaf in files}
    known = {alike(name) for name, one in alone.items() if one and alike(name) != name}
    found: list[tuple[Layout | None, Found]] = [
        (None, one)
        for leaf in files
        if (one := alone[leaf.name] or read_file(leaf, look, meant=alike(leaf.name) in known))
    ]
    deeper: list[Found] = []
    others: list[Folder] = []
    for name, inside in folder.folders.items():
        if name in taken:
            continue
        layout, one = _read(inside, look)
        if one is not None:
            found.append((layout, one))
        below = list(_inside(inside, one, look))
        if one is None and not below:
            others.append(inside)
        deeper += below
    folders = [one for layout, one in found if layout is not None]
    begun = {inside.path: begun_beside(inside, folders) for inside in others}
    for one in filter(None, begun.values()):
        look.check(one)
    yield from _compared(folder, found, look, [one for one in begun.values() if one])
    for inside in others:
        if begun[inside.path] is None and (one := read("unknown", inside, look)):
            yield one
    yield from deeper


def _compared(
    run: Folder,
    found: list[tuple[Layout | None, Found]],
    look: Looker,
    begun: Sequence[Found] = (),
) -> Iterator[Found]:
    """The checkpoints of a run, those of one layout compared with each other.

    `begun` are folders that only the names of the others tell to be some.
    """
    kinds: dict[str, list[tuple[Layout | None, Found]]] = {}
    for layout, one in found:
        kinds.setdefault(layout.family if layout else one.layout, []).append((layout, one))
    for _, pairs in sorted(kinds.items()):
        several = in_order([one for _, one in pairs])
        if layout := pairs[0][0]:
            layout.compare(run, several)
        compare(several, look)
    folders = [one for layout, one in found if layout is not None]
    unlike(folders)
    for _, pairs in sorted(kinds.items()):
        several = [one for _, one in pairs]
        yield from in_order([*several, *(one for one in begun if one.layout == several[0].layout)])
