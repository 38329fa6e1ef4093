"""The checkpoints below given paths, each judged alone and beside its siblings.

The first layout that recognises a folder takes it, with all below it. Checkpoints of one run tell
of files that are missing, too small, or left from another save, and of which layout a checkpoint
was to be of which too little is left. Copying and downloading scramble times of changes,
so these prove little by themselves: a claim needs a few files that differ from most others of the
same checkpoint.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from diagnose.checkpoint.contents import span
from diagnose.checkpoint.layouts.checks import SLOW_WRITE, add_missing, out_of_time
from diagnose.checkpoint.layouts.hooks import read_file
from diagnose.checkpoint.layouts.rows import layouts, pattern, read
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import FlawKind, Found, Inspection, State, judged, resume
from diagnose.checkpoint.tree import MAX_FILES, Folder, Leaf, read_tree
from diagnose.errors import InputError
from diagnose.ingest.names import why_unreadable

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
_BY_TIME = (FlawKind.OLDER, FlawKind.TIME)  # layouts find such flaws, too
COPYING = 60.0  # seconds from one file of a copy to the next at the most
_NUMBER = re.compile(r"\d+")
_MOST = 4096  # files of one folder that are looked at
# What holds weights and states, and the files that commit a save; others are copied at will.
STATE = re.compile(
    r"(?:\.(?:pt|pth|bin|ckpt|safetensors|distcp|pkl|nemo)|(?:^|/)\.metadata|/?trainer_state\.json"
    r"|\.index\.json|/\d+(?:\.\d+)*)$"  # the last are pieces of arrays of zarr
)
SAMPLE = 4096  # bytes
_SAMPLES = 16
_STEPPED = re.compile(r"((?:step|iter|iteration|epoch)[-_=]?)(\d+)")


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
        kinds = Counter(alike(path) for path in pairs)
        stayed = Counter(alike(path) for path in equal)
        same.append({
            path for path in equal
            if not _SELDOM.search(path)
            or stayed[kind := alike(path)] * 2 <= kinds[kind] > 1
        })  # fmt: skip
        if len(run) == 2:  # of one pair, only what must change tells that it does
            changing |= {
                key_of(path, found) for path in equal
                if _STEPPING.search(path) or stayed[kind := alike(path)] * 2 < kinds[kind]
            }  # fmt: skip
    return [
        {path for path in equal if key_of(path, found) in changing}
        for found, equal in zip(run, same, strict=True)
    ]


def _repeated(found: Found, before: Found, same: set[str]) -> None:
    named = {flaw.file for flaw in found.flaws}
    states = [path for path in states_of(found) if not _ALIKE.search(path)]
    numbered = alike(found.name) == alike(before.name)
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
    likes = {alike(path) for path in found.parts}
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
            not ranks and alike(path) in likes and not _cut_alike(found, before, path)
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
    kind = alike(piece)
    most, most_before = (
        max(leaf.size for path, leaf in one.parts.items() if alike(path) == kind)
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
    for path, apart in out_of_time(parts).items():
        if path in named:
            continue
        if before is not None and (
            counterparts(found, before).get(path) in out_of_time(states_of(before))
        ):
            continue  # as far from the others as in the checkpoint before
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


def in_order(several: Sequence[Found]) -> list[Found]:
    """By step; where names tell no step but differ in numbers only, by these; else by time."""
    same = len({alike(one.name) for one in several}) == 1

    def place(one: Found) -> tuple[bool, int, list[int], float, str]:
        written = max((leaf.mtime for leaf in one.parts.values()), default=0.0)
        numbers = [int(number[:18]) for number in _NUMBER.findall(one.name)] if same else []
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
    """A name or path with a sign for each number, the same for all ranks, shards and steps."""
    return _NUMBER.sub("#", name)


def states_of(found: Found) -> dict[str, Leaf]:
    """Files that hold states, by path."""
    return {path: leaf for path, leaf in found.parts.items() if STATE.search(path)}


def pairs_of(found: Found, before: Found) -> dict[str, Leaf]:
    """Files that hold states, with the same file of the checkpoint before."""
    states = states_of(found)
    twins = counterparts(found, before)
    return {path: before.parts[twins[path]] for path in states if path in twins}


def counterparts(found: Found, other: Found) -> dict[str, str]:
    """Paths of a checkpoint and what the same files are called in another one of the run."""
    pairs = {path: path for path in found.parts if path in other.parts}
    others = {key_of(path, other): path for path in other.parts if path not in pairs}
    for path in found.parts:
        if path not in pairs and (old := others.get(key_of(path, found))) is not None:
            pairs[path] = old
    return pairs


def key_of(path: str, found: Found) -> str:
    """What a file is called whatever the step is."""
    if len(found.parts) == 1:  # a file of its own, with the step in its name
        return alike(path)
    return renamed(path, found.step, "#")


def renamed(path: str, step: int | None, new: str) -> str:
    """A path with another step wherever it names this one. Ranks are numbers, too."""
    if step is None:
        return path
    return _STEPPED.sub(lambda m: m[1] + new if int(m[2][:18]) == step else m[0], path)


def same_content(leaf: Leaf, other: Leaf, look: Looker) -> bool:
    """Whether two files hold the same, by their checksums or by samples of their bytes."""
    if leaf.size != other.size or leaf.size <= 0:
        return False
    mine, its = look(leaf), look(other)
    if mine.digest or its.digest:
        return mine.digest == its.digest
    step = max(1, (leaf.size - SAMPLE) // (_SAMPLES - 1))
    try:
        with leaf.open() as one, other.open() as two:
            return all(
                one.read_at(at, SAMPLE) == two.read_at(at, SAMPLE)
                for at in range(0, leaf.size, step)
            )
    except OSError:
        return False


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
    own = _read(folder, look)
    if own is not None:
        compare([own], look)  # the run it belongs to was not given
        yield own
    inside = list(_inside(folder, own, look))
    yield from inside
    if own is None and not inside:
        left = read(["unknown", "settings of a model"], folder, look)
        yield from [left] if left else []


def _read(folder: Folder, look: Looker) -> Found | None:
    """The checkpoint that a folder is, by the first layout that recognises it."""
    found = next((one for layout in layouts() if (one := layout.read(folder, look))), None)
    if found:
        _check_mixed(found)
    return found


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
    found = [
        one
        for leaf in files
        if (one := alone[leaf.name] or read_file(leaf, look, meant=alike(leaf.name) in known))
    ]
    deeper: list[Found] = []
    others: list[Folder] = []
    for name, inside in folder.folders.items():
        if name in taken:
            continue
        one = _read(inside, look)
        below = list(_inside(inside, one, look))
        if one is not None:
            found.append(one)
        elif not below:
            others.append(inside)
        deeper += below
    folders = [one for one in found if one.by]
    begun = {inside.path: begun_beside(inside, folders) for inside in others}
    for one in filter(None, begun.values()):
        look.check(one)
    yield from _compared(folder, found, look, [one for one in begun.values() if one])
    for inside in others:
        if begun[inside.path] is None and (one := read("unknown", inside, look)):
            yield one
    yield from deeper


def _compared(
    run: Folder, found: Sequence[Found], look: Looker, begun: Sequence[Found]
) -> Iterator[Found]:
    """The checkpoints of a run, those of one layout compared with each other.

    `begun` are folders that only the names of the others tell to be some.
    """
    kinds: dict[str, list[Found]] = {}
    for one in found:
        kinds.setdefault(one.by.family if one.by else one.layout, []).append(one)
    for _, kind in sorted(kinds.items()):
        several = in_order(kind)
        if layout := kind[0].by:
            layout.compare(run, several)
        compare(several, look)
    unlike([one for one in found if one.by])
    for _, kind in sorted(kinds.items()):
        yield from in_order([*kind, *(one for one in begun if one.layout == kind[0].layout)])
