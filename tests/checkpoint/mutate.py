"""Damages one file of a whole run of checkpoints at a time, and counts how often that is seen.

Each maker writes three checkpoints. Files of the newest and of the oldest one are then removed,
emptied, cut off at many places or replaced by those of the step before, and markers are set wrong;
each time all three are judged. `python -m tests.checkpoint.mutate` prints the table;
`--maker NAME` takes those whose name begins so, `--offsets N` sets the number of cuts.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import random
import re
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from types import ModuleType

import tests.checkpoint.make
from diagnose.checkpoint.find import inspect
from diagnose.checkpoint.model import Checkpoint

STEPS = (100, 200, 300)
WORLD = 4
BEGIN = 1_750_000_000.0  # seconds since 1970
BETWEEN = 1800.0  # seconds from one save to the next

# Files whose content can be anything, and why that is no damage.
UNREAD = {
    "zero_to_fp32.py": "a script for people",
    "model.yaml": "NeMo's copy of io.json for people",
}
# Files that a loader can do without, though not with a damaged one.
OPTIONAL = {
    "generation_config.json": "without it there are defaults",
    "tokenizer_config.json": "without it tokenizer.json does",
}
# What may stay as it is for a whole epoch: the content of the step before may be its own.
STEADY = ("sampler*", "custom_checkpoint_*")
MARKERS = ("latest", "latest_universal", "latest_checkpointed_iteration.txt")

KINDS = (
    "removed", "emptied", "cut", "stale, old time", "stale, copied later", "stale, same time",
    "marker",
)  # fmt: skip


@dataclass(frozen=True)
class Damage:
    """What is done to one file, given relative to the run; `data` is None for removing it."""

    kind: str
    path: str
    data: bytes | None
    mtime: float
    what: str = ""
    step: int = 0  # of the checkpoint that is hit; 0 for a marker, which may be told of any


@dataclass
class Tally:
    """How the damages of one kind were judged."""

    n: int = 0
    seen: int = 0  # called partial or corrupt
    unsure: int = 0  # called unknown
    named: int = 0  # seen or unsure, and the file was named
    missed: int = 0  # called whole

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.n + other.n, self.seen + other.seen, self.unsure + other.unsure,
            self.named + other.named, self.missed + other.missed,
        )  # fmt: skip


@dataclass
class Result:
    """The tallies of one maker by kind of damage, and what went wrong."""

    maker: str
    tallies: dict[str, Tally] = field(default_factory=dict)
    misses: list[str] = field(default_factory=list)


@cache
def _modules() -> list[ModuleType]:
    names = [module.name for module in pkgutil.iter_modules(tests.checkpoint.make.__path__)]
    return [importlib.import_module(f"tests.checkpoint.make.{name}") for name in names]


def makers() -> dict[str, Callable[..., None]]:
    """All writers of checkpoints by name."""
    return {
        name: make for module in _modules() for name, make in getattr(module, "MAKERS", {}).items()
    }


def name_of(maker: str, step: int) -> str:
    """What the checkpoint of a step is called."""
    forms = [getattr(module, "FOLDERS", {}).get(maker) for module in _modules()]
    return next(filter(None, forms), "step-{step}").format(step=step)


def make_run(maker: str, run: Path) -> None:
    """Write three checkpoints, half an hour apart."""
    make = makers()[maker]
    for number, step in enumerate(STEPS):
        start = BEGIN + number * BETWEEN
        make(run / name_of(maker, step), step=step, world=WORLD, start=start)


def judge(run: Path) -> dict[str, Checkpoint]:
    """The checkpoints of a run by name."""
    found = inspect([str(run)]).checkpoints
    return {one.path.rstrip("/").rsplit("/", 1)[-1]: one for one in found}


def cuts(data: bytes, count: int, seed: str) -> list[int]:
    """Up to `count` sizes to cut a file down to: its ends, around its structure, and in between."""
    size = len(data)
    if size < 2:
        return []
    wanted = [1, size - 1, 2, size - 2, size - 22, size - 23, 8, 4]
    marks = [m.start() for m in re.finditer(rb"PK[\1-\7][\2-\10]", data)]
    if len(data) > 8 and data[8:9] == b"{":
        marks.append(8 + struct.unpack("<Q", data[:8])[0])
    around = [at + by for at in marks for by in (0, 1, -1, 4, 30)]
    rng = random.Random(seed)
    rng.shuffle(around)
    even = [size * n // (count + 1) for n in range(1, count + 1)]
    places = wanted[: count // 2 + 1] + around[: count // 3] + even
    fit = list(dict.fromkeys(at for at in places if 0 < at < size))
    return sorted(fit[:count])


def damages(run: Path, maker: str, step: int, offsets: int) -> Iterator[Damage]:
    """All that is done to the checkpoint of a step."""
    top = run / name_of(maker, step)
    later = BEGIN + len(STEPS) * BETWEEN + 3600.0
    files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
    for path in files:
        if path.name in UNREAD:
            continue
        place = path.relative_to(run).as_posix()
        data, mtime = path.read_bytes(), path.stat().st_mtime
        if path.name not in OPTIONAL:
            yield Damage("removed", place, None, mtime, step=step)
        if data:
            yield Damage("emptied", place, b"", mtime, step=step)
        for at in cuts(data, offsets, place):
            if data[:at] == data.rstrip(b"\r\n "):  # nothing is lost with the end of the last line
                continue
            yield Damage("cut", place, data[:at], mtime, f"at {at} of {len(data)}", step)
        before = step - STEPS[0]
        stale = run / re.sub(rf"(?<!\d)(0*){step}(?!\d)", rf"\g<1>{before}", place)
        if before in STEPS and stale.is_file() and (old := stale.read_bytes()) != data:
            times = (stale.stat().st_mtime, later, mtime)
            steady = any(fnmatch(path.name, pattern) for pattern in STEADY)
            for kind, time in zip(KINDS[3:5] if steady else KINDS[3:6], times, strict=False):
                yield Damage(kind, place, old, time, step=step)
    for marker in MARKERS:
        for path in (run / marker, top / marker):
            if path.is_file() and str(step) in path.read_text():
                yield from _wrong_markers(run, path, step)


def _wrong_markers(run: Path, path: Path, step: int) -> Iterator[Damage]:
    place, text, mtime = path.relative_to(run).as_posix(), path.read_text(), path.stat().st_mtime
    wrong: dict[str, bytes | None] = {
        "an older step": text.replace(str(step), str(step - STEPS[0])).encode(),
        "no such step": text.replace(str(step), "999").encode(),
        "empty": b"",
        "garbage": b"\0\x93\xff\1" * 3,
    } | ({} if path.name == "latest_universal" else {"removed": None})
    for what, data in wrong.items():
        yield Damage("marker", place, data, mtime, what)


def inflict(run: Path, damage: Damage) -> Callable[[], None]:
    """Do it; gives what undoes it."""
    path = run / damage.path
    data, stat = path.read_bytes(), path.stat()
    folder = path.parent.stat()
    if damage.data is None:
        path.unlink()
    else:
        path.write_bytes(damage.data)
        os.utime(path, (damage.mtime, damage.mtime))

    def undo() -> None:
        path.write_bytes(data)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        os.utime(path.parent, ns=(folder.st_atime_ns, folder.st_mtime_ns))

    return undo


def measure(
    maker: str, offsets: int, steps: tuple[int, ...] = (STEPS[-1], STEPS[0]), most: int = 0
) -> Result:
    """Damage the run of one maker in all ways, one at a time, or in `most` of them."""
    result = Result(maker)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        make_run(maker, run)
        whole = judge(run)
        wrong = [f"{one.path}: {one.state} {one.reasons}" for one in whole.values()
                 if one.state != "whole"]  # fmt: skip
        if wrong or len(whole) != len(STEPS):
            raise AssertionError(f"{maker}: not {len(STEPS)} whole checkpoints: {whole}; {wrong}")
        for step in steps:
            several = list(damages(run, maker, step, offsets))
            for damage in several[:: max(1, len(several) // most) if most else 1]:
                undo = inflict(run, damage)
                try:
                    _count(result, damage, maker, judge(run))
                finally:
                    undo()
    return result


def _count(result: Result, damage: Damage, maker: str, found: dict[str, Checkpoint]) -> None:
    """Enter how one damage was judged."""
    if damage.step:
        hit = [one for name, one in found.items() if name == name_of(maker, damage.step)]
    else:
        hit = [one for one in found.values() if one.state != "whole"]
    states = {one.state for one in hit}
    reasons = [reason for one in hit for reason in one.reasons]
    name = damage.path.rsplit("/", 1)[-1]
    seen, unsure = bool(states & {"partial", "corrupt"}), states == {"unknown"}
    # A single file that is gone leaves nothing that could be judged, and nothing to resume from.
    gone = not hit and damage.step > 0
    named = gone or ((seen or unsure) and any(name in reason for reason in reasons))
    others = [one for one in found.values() if one not in hit and one.state != "whole"]
    tally = Tally(1, seen or gone, unsure, named, not (seen or unsure or gone))
    result.tallies[damage.kind] = result.tallies.get(damage.kind, Tally()) + tally
    if not (tally.seen and tally.named) or (damage.step and others):
        states_ = "/".join(sorted(states)) or "not found"
        blamed = [f"{one.path.rsplit('/', 1)[-1]} {one.state} {one.reasons[0]}" for one in others]
        result.misses.append(
            f"{maker}: {damage.kind} {damage.what} {damage.path}: {states_} {reasons[:3]}"
            + (f" also {blamed}" if blamed and damage.step else "")
        )


def table(results: list[Result]) -> str:
    """The counts as text, one line per maker and kind, with sums."""
    lines = [f"{'maker':28} {'damage':20} {'n':>6} {'seen':>7} {'unknown':>7} {'named':>7} "
             f"{'whole':>6}"]  # fmt: skip
    total: Counter[str] = Counter()
    sums = {kind: Tally() for kind in KINDS}
    for result in results:
        for kind in KINDS:
            if kind in result.tallies:
                lines.append(_line(result.maker, kind, result.tallies[kind]))
                sums[kind] += result.tallies[kind]
                total[kind] += result.tallies[kind].n
    lines.append("")
    lines += [_line("all", kind, sums[kind]) for kind in KINDS if sums[kind].n]
    lines.append(_line("all", "all", sum(sums.values(), Tally())))
    return "\n".join(lines)


def _line(maker: str, kind: str, tally: Tally) -> str:
    share = 100 * tally.seen / tally.n
    named = 100 * tally.named / tally.n
    return (
        f"{maker:28} {kind:20} {tally.n:6} {share:6.1f}% {tally.unsure:7} {named:6.1f}% "
        f"{tally.missed:6}"
    )


def main() -> None:
    """Print the table, and what was not seen or not named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--maker", default="")
    parser.add_argument("--offsets", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--misses", type=int, default=60)
    given = parser.parse_args()
    chosen = [name for name in makers() if name.startswith(given.maker)]
    with ProcessPoolExecutor(given.jobs) as pool:
        results = list(pool.map(measure, chosen, [given.offsets] * len(chosen)))
    sys.stdout.write(table(results) + "\n")
    misses = [miss for result in results for miss in result.misses]
    sys.stdout.write(f"\n{len(misses)} not seen or not named, or others blamed:\n")
    sys.stdout.write("".join(f"{miss}\n" for miss in misses[: given.misses]))


if __name__ == "__main__":
    main()
