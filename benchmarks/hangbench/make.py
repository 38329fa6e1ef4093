"""Makes the cases of a benchmark folder: `python -m benchmarks.hangbench make`."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.hangbench.case import Case, Files, Track, is_sealed, read_cases, seeds, write_case
from benchmarks.hangbench.shape import shape_of

WORKERS = 2
FEW = 8  # cases that are made sooner than workers start
BARREN = 200  # seeds in a row without a case: a generator that has no more
_CHUNK = 4  # seeds that a worker is given at a time

Made = tuple[Case, Files] | None
Generator = Callable[[int], Made]
Map = Callable[[Callable[[int], Made], Iterable[int]], Iterator[Made]]


class MakeError(Exception):
    """Cases cannot be made as asked; the message says what to do."""


def generator(track: Track) -> Generator:
    """The generator of a track: `make(seed)` of the module that bears its name.

    It gives a case and its files, the same for the same seed, or None where a seed makes none. A
    module may also say by `ranks(seed)`, before the case is made, how many ranks its job has about.
    """
    name = f"benchmarks.hangbench.{track}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise MakeError(f"there is no track {track} here: {name} is missing") from error
    try:
        return module.make  # type: ignore[no-any-return]
    except AttributeError as error:
        raise MakeError(f"{name} has no function make(seed)") from error


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which cases of a track are made.

    cases: how many; first: the seed from which on; sealed: of which half of the seeds; ranks: of
    jobs with no more ranks than this, None: of any job.
    """

    cases: int
    first: int = 0
    sealed: bool = False
    ranks: int | None = None


def make(
    folder: Path, tracks: Iterable[Track], wanted: Wanted, *, add: bool = False
) -> dict[Track, int]:
    """Write the cases of each track; how many of them are new.

    The same arguments write the same bytes. With `add` a folder may hold cases already; those of
    the same id are left as they are.
    """
    generators = {track: generator(track) for track in tracks}
    if (folder / "truth.jsonl").exists():
        if not add:
            raise MakeError(f"{folder} holds cases already; give --add, or another folder")
        present = {case.id for case in read_cases(folder)}
    elif folder.exists() and any(folder.iterdir()):
        raise MakeError(f"{folder} is not empty and holds no cases; give another folder")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        present = set()
    made: dict[Track, int] = {}
    with _mapping(wanted.cases) as apply:
        for track, function in generators.items():
            made[track] = 0
            numbers = _seeds(track, wanted)
            for case, files in itertools.islice(
                _cases(apply, function, numbers, wanted), wanted.cases
            ):
                if case.id not in present:
                    write_case(folder, case, files)
                    made[track] += 1
    return made


@contextmanager
def _mapping(cases: int) -> Iterator[Map]:
    """How a generator is applied to seeds: in this process for a few cases, else in workers."""
    if cases <= FEW:
        yield map
        return
    # Spawned, not forked: a fork inherits whatever threads its starter runs.
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
        yield partial(pool.map, chunksize=_CHUNK)


def _seeds(track: Track, wanted: Wanted) -> Iterator[int]:
    """The seeds from which cases are made, without those of jobs that are known to be too large."""
    numbers = seeds(wanted.first, sealed=wanted.sealed)
    ranks = getattr(importlib.import_module(f"benchmarks.hangbench.{track}"), "ranks", None)
    most = wanted.ranks
    if ranks is None or most is None:
        return numbers
    return (seed for seed in numbers if ranks(seed) <= most)


def _cases(
    apply: Map, function: Generator, numbers: Iterator[int], wanted: Wanted
) -> Iterator[tuple[Case, Files]]:
    """Cases in the order of their seeds; ends where a generator has no more to give."""
    one = partial(_one, function, wanted.ranks)
    barren = 0
    while barren < BARREN:
        for found in apply(one, list(itertools.islice(numbers, min(wanted.cases, 64)))):
            barren = barren + 1 if found is None else 0
            if found is not None:
                yield found


def _one(function: Generator, ranks: int | None, seed: int) -> Made:
    """The case of a seed with its half and its shape; None where there is none that is wanted."""
    found = function(seed)
    if found is None or (ranks is not None and found[0].world > ranks):
        return None
    case, files = found
    return replace(case, sealed=is_sealed(seed), shape=shape_of(files)), files
