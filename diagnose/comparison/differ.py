"""Compares two runs: what differs, the most telling first, cut down to what a person reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from diagnose.comparison.calls import call_differences
from diagnose.comparison.lines import line_differences
from diagnose.comparison.model import Comparison, Difference, Kind, Run
from diagnose.comparison.pace import pace_differences
from diagnose.comparison.profile import Profile, profile
from diagnose.comparison.stated import stated_differences
from diagnose.diagnosis import SourceLine
from diagnose.infer.pipeline import diagnose
from diagnose.job.load import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from diagnose.diagnosis import Diagnosis
    from diagnose.job.model import Job

MOST, LEAST = 16, 5  # differences that a person reads in a minute
_ONE_IN = 100  # lines of the logs
_KEPT = 500


def compare(
    good: str | Path | Iterable[str | Path],
    bad: str | Path | Iterable[str | Path],
    *,
    patterns: Sequence[str | Path] = (),
) -> Comparison:
    """What differs between two runs, each given by its files and folders.

    `patterns` are directories with further catalog entries. Raises InputError when nothing of one
    of them can be read.
    """
    jobs = [load(run, patterns=patterns) for run in (good, bad)]
    return compared(
        *((_name(run), job, diagnose(job)) for run, job in zip((good, bad), jobs, strict=True))
    )


def _name(run: str | Path | Iterable[str | Path]) -> str:
    return (
        str(run)
        if isinstance(run, str) or not isinstance(run, Iterable)
        else ", ".join(map(str, run))
    )


def compared(good: tuple[str, Job, Diagnosis], bad: tuple[str, Job, Diagnosis]) -> Comparison:
    """The same of jobs that were diagnosed: each with its name."""
    one, other = profile(*good), profile(*bad)
    found = [
        *stated_differences(one, other),
        *_ranks(one, other),
        *_hosts(one, other),
        *call_differences(one, other),
        *pace_differences(one, other),
    ]
    found += line_differences(one, other, found)
    ordered = _ordered(_once(found))[:_KEPT]
    lines = one.lines + other.lines
    shown = min(len(ordered), MOST, max(LEAST, lines // _ONE_IN))
    notes = [f"{run.name}: {why}" for run in (one, other) for why in run.cut]
    return Comparison(_run(one), _run(other), ordered, shown, notes)


def _run(found: Profile) -> Run:
    diagnosis = found.diagnosis
    root, facts = diagnosis.root_cause, diagnosis.job
    step = diagnosis.progress.last_step if diagnosis.progress else None
    return Run(
        found.name, diagnosis.verdict, root.cause, root.title, root.confidence,
        facts.world_size, len(facts.hosts), step, found.lines,
    )  # fmt: skip


def _ranks(good: Profile, bad: Profile) -> Iterator[Difference]:
    """Another number of ranks."""
    sizes = [run.diagnosis.job.world_size for run in (good, bad)]
    if None in sizes:
        sizes = [_seen(run) for run in (good, bad)]
    if None not in sizes and sizes[0] != sizes[1]:
        at = [_claim(run, size) for run, size in zip((good, bad), sizes, strict=True)]
        yield Difference("ranks", "", str(sizes[0]), str(sizes[1]), good_at=at[0], bad_at=at[1])


def _seen(run: Profile) -> int | None:
    """How many ranks print, where none between them is missing."""
    ranks = run.diagnosis.job.ranks_seen
    return len(ranks) if len(ranks) > 1 and ranks[-1] == len(ranks) - 1 else None


def _claim(run: Profile, size: int | None) -> SourceLine | None:
    """The first line that states this number of ranks, or one of the last rank."""
    for event in run.job.events.capturing("world_size"):
        if event.fields["world_size"] == str(size):
            return SourceLine(event.source, event.line)
    last = (event for event in run.job.events if size is not None and event.rank == size - 1)
    return next((SourceLine(event.source, event.line) for event in last), None)


def _hosts(good: Profile, bad: Profile) -> Iterator[Difference]:
    """Other nodes: some of them say more than all of them."""
    one, other = ({*run.hosts} for run in (good, bad))
    gone, new = sorted(one - other), sorted(other - one)
    if not one or not other or not (gone or new):
        return
    some = one & other
    kind: Kind = "node" if some and len(new) <= len(some) else "nodes"
    yield Difference(
        kind,
        "",
        _listed(gone),
        _listed(new),
        good_at=_of_host(good, gone),
        bad_at=_of_host(bad, new),
    )


_HOSTS = 8


def _listed(hosts: Sequence[str]) -> str | None:
    more = f" and {len(hosts) - _HOSTS} more" if len(hosts) > _HOSTS else ""
    return ", ".join(hosts[:_HOSTS]) + more if hosts else None


def _of_host(run: Profile, hosts: Sequence[str]) -> SourceLine | None:
    return run.hosts[hosts[0]] if hosts else None


def _once(found: Iterable[Difference]) -> Iterator[Difference]:
    """Without what says the same again: another name of the same two values."""
    seen: dict[tuple[str | None, str | None], int] = {}
    for one in found:
        pair = one.good, one.bad
        trivial = one.good is None or one.bad is None or len(one.good + one.bad) < _SHORT
        if not trivial and pair in seen:
            continue
        seen[pair] = 1
        yield one


_SHORT = 4  # characters of two values that may be equal by chance: 1 and 2, on and off


# What the run was given; what it did, from what only this run has to what takes longer; the rest.
# Of each group so many come before the first of the groups behind it.
_GROUPS: dict[Kind, int] = {
    "version": 0, "environment": 0, "argument": 0, "ranks": 0, "node": 0,
    "collective": 1, "changed": 2, "new": 2, "pace": 3, "more": 4,
}  # fmt: skip
_AHEAD = (6, 1, 1, 1, 0)
_LAST = len(_AHEAD)


def _ordered(found: Iterable[Difference]) -> list[Difference]:
    """By what they are of, but that the first few of each kind of evidence come before the rest."""
    groups: list[list[Difference]] = [[] for _ in range(_LAST + 1)]
    for one in found:
        groups[_GROUPS.get(one.kind, _LAST) if one.early else _LAST].append(one)
    ahead = [one for group, most in zip(groups, _AHEAD, strict=False) for one in group[:most]]
    return ahead + [
        one for group, most in zip(groups, (*_AHEAD, 0), strict=True) for one in group[most:]
    ]
