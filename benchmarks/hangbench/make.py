"""Makes the cases of a benchmark folder: `python -m benchmarks.hangbench make`."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.hangbench.case import Case, Files, Track, is_sealed, read_cases, seeds, write_case
from benchmarks.hangbench.shape import shape_of

WORKERS = 2
_CHUNK = 4  # seeds that a worker is given at a time

Generator = Callable[[int], tuple[Case, Files] | None]


class MakeError(Exception):
    """Cases cannot be made as asked; the message says what to do."""


def generator(track: Track) -> Generator:
    """The generator of a track: `make(seed)` of the module that bears its name.

    It gives a case and its files, the same for the same seed, or None where a seed makes none.
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


def make(
    folder: Path, tracks: Iterable[Track], cases: int, first: int, *, sealed: bool, add: bool
) -> dict[Track, int]:
    """Write `cases` cases of each track from seed `first` on; how many of them are new.

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
    with ProcessPoolExecutor(WORKERS) as pool:
        for track, function in generators.items():
            made[track] = 0
            for case, files in itertools.islice(
                _cases(pool, function, seeds(first, sealed=sealed), cases), cases
            ):
                if case.id not in present:
                    write_case(folder, case, files)
                    made[track] += 1
    return made


def _cases(
    pool: ProcessPoolExecutor, function: Generator, numbers: Iterator[int], wanted: int
) -> Iterator[tuple[Case, Files]]:
    """Cases in the order of their seeds; ends where a generator has no more to give."""
    one = partial(_one, function)
    barren = 0
    while barren < 100:  # seeds in a row without a case: a tape that is at its end
        batch = list(itertools.islice(numbers, max(_CHUNK * WORKERS, min(wanted, 64))))
        for found in pool.map(one, batch, chunksize=_CHUNK):
            barren = barren + 1 if found is None else 0
            if found is not None:
                yield found


def _one(function: Generator, seed: int) -> tuple[Case, Files] | None:
    found = function(seed)
    if found is None:
        return None
    case, files = found
    return replace(case, sealed=is_sealed(seed), shape=shape_of(files)), files
