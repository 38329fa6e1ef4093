"""Where the sequences of collectives of two runs first differ, by call lines or by dumps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from diagnose.comparison.model import Difference
from diagnose.comparison.profile import Profile
from diagnose.comparison.stated import whose
from diagnose.diagnosis import SourceLine

Called = tuple[str, SourceLine]  # what, and where it is seen
_First = tuple[int, Called, Called]
_MOST = 4


def call_differences(good: Profile, bad: Profile) -> list[Difference]:
    """The first call that differs, for ranks that differ in the same call together."""
    found: dict[tuple[str, int, str, str], list[tuple[Any, _First]]] = defaultdict(list)
    for (author, comm), (at, ours, theirs) in _differing(good, bad):
        found[comm, at, ours[0], theirs[0]].append((author, (at, ours, theirs)))
    ordered = sorted(found.items(), key=lambda item: (len(item[1]), item[0][1]))
    return [_difference(comm, same) for (comm, *_), same in ordered[:_MOST]]


def _difference(comm: str, same: list[tuple[Any, _First]]) -> Difference:
    at, (ours, good_at), (theirs, bad_at) = same[0][1]
    who = whose(author for author, _ in same)
    return Difference(
        "collective", f"call {at} of {comm}", ours, theirs, who, good_at=good_at, bad_at=bad_at
    )


def _differing(good: Profile, bad: Profile) -> Iterator[tuple[tuple[Any, str], _First]]:
    for key, ours in good.calls.items():
        theirs = bad.calls.get(key, [])
        for at, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if one[0] != other[0]:
                yield (key[0], f"communicator {key[1]}"), (at, one, other)
                break
    of_good, of_bad = _dumped(good), _dumped(bad)
    for place, calls in of_good.items():
        others: Mapping[int, Called] = of_bad.get(place, {})
        for seq in sorted(calls.keys() & others.keys()):
            if calls[seq][0] != others[seq][0]:
                yield (("rank", place[0]), place[1]), (seq, calls[seq], others[seq])
                break


def _dumped(run: Profile) -> dict[tuple[int, str], dict[int, Called]]:
    """What dumps have, by rank and group: the collectives by their numbers."""
    if not run.job.documents.dumps or run.job.collectives is None:
        return {}
    table = run.job.collectives
    names = [f"group {group.key}" for group in table.groups.values()]
    found: dict[tuple[int, str], dict[int, Called]] = defaultdict(dict)
    columns = (table.columns[name].tolist() for name in ("rank", "group", "call", "seq", "p2p"))
    for rank, group, call, seq, p2p in zip(*columns, strict=True):
        if not p2p:
            made = table.calls[call]
            place = SourceLine(table.files.get(rank, ""), 0)
            found[rank, names[group]][seq] = (f"{made.op} of {made.size_in}", place)
    return found
