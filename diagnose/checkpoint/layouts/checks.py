"""The predicates of rows: what has to hold in a folder for its checkpoint to be complete.

Each is called with the folder as seen so far and the row's own words, and adds flaws. Texts of rows
may hold `{}` fields: groups of the pattern that matched, numbers that were counted, the step.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from math import prod
from typing import Any

from diagnose.checkpoint.contents import DamagedError
from diagnose.checkpoint.layouts.rows import Layout, Row, View, hook, layouts, pattern, read
from diagnose.checkpoint.model import Flaw, FlawKind, Found
from diagnose.checkpoint.torch_files import read_archive, read_pickle
from diagnose.checkpoint.tree import Folder, Leaf
from diagnose.ingest.raw import reason
from diagnose.parse.pickles import PickleError, walk
from diagnose.text.ranks import counted

MOST_NAMED = 8  # missing files that get a flaw of their own
LATE = 600.0  # seconds between a file and all others before it counts as of another save
SLOW_WRITE = 10e6  # bytes a second that writing and copying reach at the least
MOST_RANKS = 1 << 17  # more is no claim to be believed
_MOST_SERIES = 1000  # of numbered files in one folder that are judged, from the last one on
_MAX_PICKLE = 16 << 20  # bytes of data.pkl; larger ones, of very many tensors, are not looked at
_LIST_SIZE = 1 << 16  # bytes of a list of files that are read


class _Fields(dict[str, Any]):
    """What texts may name: numbers, the step, `{fact[group]}` of the last that a fact matches."""

    def __init__(self, view: View, **fields: Any) -> None:
        super().__init__(
            view.numbers, step=view.found.step or 0, problem=view.folder.problem, **fields
        )
        self.view = view

    def __missing__(self, fact: str) -> re.Match[str] | dict[str, str]:
        matches = self.view.matches(fact)
        return matches[-1] if matches else defaultdict(str)


def flaw(view: View, spec: Row) -> None:
    """Something is missing or wrong: `flaw` names the file, `why` and `state` say what.

    With `once`, only where nothing else is wrong with the file.
    """
    fields = _Fields(view)
    file = spec["flaw"].format_map(fields)
    if "once" in spec and any(one.file == view.prefix + file for one in view.found.flaws):
        return
    view.flaw(spec.get("state", "partial"), spec["why"].format_map(fields), file)


def note(view: View, spec: Row) -> None:
    """For the reader, and no flaw."""
    view.found.notes.append(spec["note"])


def look(view: View, spec: Row) -> None:
    """Look at all files that no other layout has judged, but those that `look` matches."""
    skipped = pattern(spec["look"])
    taken = {f"{path}/{part}" for path, one in view.inner.items() for part in one.parts}
    names = (path for path in view.found.parts if path not in taken and not skipped.fullmatch(path))
    view.looks |= view.look.check(view.found, names)


def use(view: View, spec: Row) -> None:
    """Checks of a group; with `of`, on each of these folders inside."""
    checks = view.row["groups"][spec["use"]]
    for match in view.matches(spec["of"]) if "of" in spec else ():
        name = match.string
        inside = View(view.at(name), view.row, view.look, view.found, f"{name}/", view.looks)
        inside.check(checks)
        for key, number in inside.numbers.items():
            view.numbers[key] = max(view.numbers.get(key, 0), number)
    if "of" not in spec:
        view.check(checks)


def inside(view: View, spec: Row) -> None:
    """Take over what another layout says of folders inside; `none` is the flaw where it is none."""
    for match in view.matches(spec["inside"]):
        path = match.string
        step = view.found.step if "step" in spec else None
        one = read(spec["layout"], view.at(path), view.look, step)
        if one is not None:
            view.inner[path] = one
            view.found.absorb(f"{view.prefix}{path}", one)
            if "gives_step" in spec and view.found.step is None:
                view.found.step = one.step
            view.numbers["inner"] = max(one.ranks or 0, view.numbers.get("inner", 0))
        elif "none" in spec:
            view.flaw("partial", spec["none"], path + spec.get("file", ""))


def step_in(view: View, spec: Row) -> None:
    """What a file says the step is, against that of the name; `slack` may lie between.

    `none` is the flaw of a file that says none; `key` what to ask a file of torch.save for that is
    no step.
    """
    for match in view.matches(spec["step_in"])[:MOST_NAMED]:
        name = match.string
        seen, named = view.looks.get(view.prefix + name), view.found.step
        if seen is None or seen.flaw is not None:
            continue
        says = seen.step
        if "key" in spec and view.named is not None:
            key = spec["key"]
            says, named = number(stated(view.folder.files[name], (key,)), key), int(view.named[key])
        if "wins" in spec:
            view.found.step = says or named
        elif says is None:
            if "none" in spec and seen.data is not None:
                view.flaw("corrupt", spec["none"], name)
        elif named is None:
            view.found.step = says
        elif says - named not in spec.get("slack", view.row.get("slack", (0,))):
            view.flaw("corrupt", spec["why"].format(says=says, step=named), name)


def most(view: View, spec: Row) -> None:
    """Names state how many there are (`of`): what most files say counts, or `key` in `json`."""
    several = Counter(int(match[spec["of"]]) for match in view.matches(spec["most"]))
    stated_size = 0
    if "json" in spec and (seen := view.looks.get(view.prefix + spec["json"])):
        stated_size = number(seen.data, spec["key"]) or 0
    size = (
        stated_size
        if 0 < stated_size <= MOST_RANKS
        else max(several, key=several.__getitem__, default=0)
    )
    folder = view.prefix or f"{view.folder.name}/"
    view.found.notes += [
        spec["note"].format(of=other, folder=folder) for other in several if other != size
    ]
    view.numbers[spec["of"]] = size or spec.get("default", 0)
    if spec.get("ranks"):
        view.numbers["ranks"] = max(size, view.numbers.get("ranks", 0))


def numbered(view: View, spec: Row) -> None:
    """Files counted by the groups of `by` (ranks, stages, shards …) have no holes.

    `each` names groups of which every value is a series of its own, `also` values that have to be
    there under a condition. There have to be as many as the group or number `size` says; without
    it, as the largest number there is tells, in all series with `alike`, and at least `least`.
    `start` is the first number, `first` the name of the first file if it has none, and `last` says
    why all of a series is missing, where the next ones are as well. `ranks`: these are all ranks.
    """
    by, each, start = spec["by"], spec.get("each", []), spec.get("start", 0)
    series: dict[tuple[str, ...], set[tuple[int, ...]]] = defaultdict(set)
    for value, condition in spec.get("also", {}).items():
        if view.holds(condition):
            series[value,]
    named = spec.get("size", [])
    named = [named] if isinstance(named, str) else named
    for match in view.matches(spec["numbered"]):
        of = [one for one in named if one in view.numbers and one in match.re.groupindex]
        if all(int(match[one]) == view.numbers[one] for one in of):
            key = tuple(match[one] for one in each)
            series[key].add(tuple(int(match[one] or 0) for one in by))
    if not each:
        series[()]
    every = set().union(*series.values())
    ordered = sorted(series, key=lambda key: [int(one) if one.isdecimal() else one for one in key])
    for place, key in islice(enumerate(ordered), max(0, len(ordered) - _MOST_SERIES), None):
        fields = _Fields(view, **dict(zip(each, key, strict=True)))
        have = series[key]
        sizes = [int(fields.get(one, 0)) for one in named]
        if not sizes:
            least = max((int(fields.get(one, 0)) for one in spec.get("least", [])), default=0)
            there = zip(*(every if "alike" in spec else have), strict=True)
            sizes = [max(max(axis) + 1, least) for axis in there] or [least] * len(by)
        some, total = holes(have, sizes, start)
        full = prod(sizes) - start
        why = spec["why"]
        if not any(series[later] for later in ordered[place:]):
            why = spec.get("last", {}).get(key and key[0], why)
        fields |= {"have": full - total, "all": full}
        why = why.format_map(fields)
        add_missing(view.found, why, map(view.prefix.__add__, _names(spec, some, fields)), total)
        if spec.get("ranks"):
            view.numbers["ranks"] = max(view.numbers.get("ranks", 0), *sizes)


def _names(spec: Row, some: Iterable[tuple[int, ...]], fields: _Fields) -> Iterator[str]:
    for place in some:
        form = spec["name"] if any(place) or "first" not in spec else spec["first"]
        fields.update(zip(spec["by"], place, strict=True))
        yield form.format_map(fields)


def paired(view: View, spec: Row) -> None:
    """Every folder of a fact has one with the same number among those of `with`."""
    mine, theirs = (
        {int(match["number"]) for match in view.matches(spec[fact])} for fact in ("paired", "with")
    )
    for one in sorted(mine - theirs)[:MOST_NAMED]:
        view.flaw("partial", spec["why"], spec["name"].format(one))


def left_overs(view: View, spec: Row) -> None:
    """Files that were being written under a temporary name, for what the facts or parts match."""
    texts = [view.row["facts"][fact] for fact in spec["left_overs"]]
    for match in view.matches("temporary"):
        name = match["name"]
        known = any(pattern(text).fullmatch(name) for text in texts)
        if known or ("parts" in spec and name in view.found.parts):
            view.found.parts[match.string] = view.folder.files[match.string]
            view.flaw("partial", "a temporary file of an unfinished write", match.string)


def ranks(view: View, spec: Row) -> None:
    """How many ranks there are is the largest of these numbers."""
    view.found.ranks = max((view.numbers.get(one, 0) for one in spec["ranks"]), default=0) or None


def listed(view: View, spec: Row) -> None:
    """The files that a list names by lines which `names` matches."""
    for match in view.matches(spec["listed"]):
        try:
            text = view.folder.files[match.string].text(_LIST_SIZE)
        except OSError:
            return
        known = {one.file for one in view.found.flaws} | view.folder.files.keys()
        lost = sorted({one[1] for one in re.finditer(spec["names"], text)} - known)
        add_missing(view.found, spec["why"], lost, len(lost))


def holes(
    have: set[tuple[int, ...]], sizes: Sequence[int], start: int = 0
) -> tuple[Iterator[tuple[int, ...]], int]:
    """The places of a grid that are not there, and how many; a size may be absurdly large."""
    if not sizes:
        return iter(()), 0
    inside = sum(
        all(start <= one < size for one, size in zip(place, sizes, strict=True)) for place in have
    )
    full = prod(size - start for size in sizes)
    return (place for place in _places(sizes, start) if place not in have), max(0, full - inside)


def _places(sizes: Sequence[int], start: int) -> Iterator[tuple[int, ...]]:
    if not sizes:
        yield ()
        return
    for first in range(start, sizes[0]):
        for rest in _places(sizes[1:], start):
            yield first, *rest


def gaps(have: set[int], size: int) -> tuple[Iterator[int], int]:
    """The numbers below `size` that are not there, and how many."""
    some, total = holes({(one,) for one in have}, [size])
    return (one for (one,) in some), total


def add_missing(
    found: Found,
    why: str,
    names: Iterable[str],
    total: int,
    rest: str = "missing: {} like these",
    kind: FlawKind = FlawKind.OTHER,
) -> None:
    """A flaw for each of the first files that are missing, and one for how many more there are."""
    for name in islice(names, min(total, MOST_NAMED)):
        found.flaw("partial", why, name, kind)
    if total > MOST_NAMED:
        found.flaw("partial", rest.format(counted(total - MOST_NAMED, "more file")))


def stated(leaf: Leaf | None, keys: Collection[str]) -> dict[str, Any]:
    """Those items of the dict in a file of torch.save, and of dicts in it, that are asked for.

    Found without unpickling it; empty where the file is damaged, has another format, or no dict.
    """
    try:
        value = walk(pickled(leaf), 0, keys).value
    except PickleError:
        return {}
    return value if isinstance(value, dict) else {}


def pickled(leaf: Leaf | None) -> bytes:
    """The pickle in a file of torch.save; empty where it is damaged or has another format."""
    if leaf is None or leaf.size <= 0:
        return b""
    try:
        with leaf.open() as reader:
            return read_pickle(reader, read_archive(reader), _MAX_PICKLE)
    except (OSError, DamagedError):
        return b""


def number(items: object, *path: str) -> int | None:
    """The integer at a path of keys through dicts inside each other; None where there is none."""
    for key in path:
        items = items.get(key) if isinstance(items, dict) else None
    return items if type(items) is int else None


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


def out_of_time(parts: Mapping[str, Leaf]) -> dict[str, float]:
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
