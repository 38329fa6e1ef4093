"""Makes an input that an oracle rejects smaller: fewer mutations, fewer files, fewer lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.fuzz.case import Case, run, with_files
from tests.fuzz.driver import Recipe, check, judge

T = TypeVar("T")


def shorter(what: Recipe, oracle: str) -> Recipe:
    """The recipe without the mutations that its failure does not need."""

    def fails(chain: Sequence[tuple[str, str]]) -> bool:
        failed = check(replace(what, chain=tuple(chain)))[1]
        return any(name == oracle for name, _ in failed)

    return replace(what, chain=tuple(fewer(what.chain, fails, runs=20)))


def smaller(case: Case, oracle: str, runs: int = 150) -> Case:
    """A part of the files and lines of a case that fails an oracle of a single input still."""

    def fails(part: Case) -> bool:
        return any(name == oracle for name, _ in judge(run(part), None, (), reports=True))

    case = with_files(
        case, fewer(case.files, lambda files: fails(with_files(case, files)), runs=runs // 4)
    )
    for number, file in enumerate(case.files):
        if file.log:
            case = _fewer_lines(case, number, fails, runs)
    return case


def fewer(items: Sequence[T], fails: Callable[[Sequence[T]], bool], runs: int) -> list[T]:
    """A part of `items` that still fails, found by leaving out ever smaller stretches."""
    kept = list(items)
    stretch = max(len(kept) // 2, 1)
    while runs > 0 and kept:
        at, before = 0, len(kept)
        while at < len(kept) and runs > 0:
            without = kept[:at] + kept[at + stretch :]
            runs -= 1
            if fails(without):
                kept = without
            else:
                at += stretch
        if stretch == 1 and len(kept) == before:
            break
        stretch = max(stretch // 2, 1)
    return kept


def _fewer_lines(case: Case, number: int, fails: Callable[[Case], bool], runs: int) -> Case:
    def of(rows: Sequence[bytes]) -> Case:
        files = list(case.files)
        files[number] = replace(files[number], data=b"".join(rows))
        return with_files(case, files)

    rows = case.files[number].data.splitlines(keepends=True)
    return of(fewer(rows, lambda kept: fails(of(kept)), runs))
