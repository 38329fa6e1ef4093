"""What both runs state by name, and state differently: versions, environment, arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from diagnose.comparison.model import KINDS, Difference, Kind
from diagnose.comparison.profile import VARIES, Author, Profile, Stating
from diagnose.text.alike import lasting
from diagnose.text.ranks import ranks_phrase

_FEW = 0.34  # of the authors: who differs from the others
_WORDS = 120  # characters
_NEAR = 3  # lines
_GIVEN: frozenset[Kind] = frozenset({"environment"})


def stated_differences(good: Profile, bad: Profile) -> list[Difference]:
    """What is stated differently; what only one run states where it is a variable or a flag."""
    found: list[Difference] = []
    for key in dict.fromkeys([*good.stated, *bad.stated]):
        one, other = good.stated.get(key), bad.stated.get(key)
        if one is not None and other is not None:
            found += _both(*key, one, other)
        elif _speaks(key) and _beside(key, good, bad):
            found += _alone(*key, one, other)
    return sorted(
        found, key=lambda one: (bool(one.good is None or one.bad is None), KINDS.index(one.kind))
    )


def _both(kind: Kind, name: str, good: Stating, bad: Stating) -> Iterator[Difference]:
    ours, theirs = _value(good), _value(bad)
    if ours is not None and theirs is not None:
        if _differ(ours, theirs):
            yield _difference(kind, name, good, bad, ours, theirs, "")
        return
    if ours is None and theirs is None:
        yield from _by_author(kind, name, good, bad)
    elif ours is not None:  # some authors of the bad run differ
        counts = Counter(bad.values.values())
        odd = [value for value in counts if value not in (VARIES, ours)]
        if VARIES in counts or ours not in counts or len(odd) != 1:
            return
        if _differ(ours, odd[0]) and counts[odd[0]] <= counts[ours]:
            who = whose(author for author, value in bad.values.items() if value == odd[0])
            yield _difference(kind, name, good, bad, ours, odd[0], who)


def _by_author(kind: Kind, name: str, good: Stating, bad: Stating) -> Iterator[Difference]:
    """Of what each author has its own value: who has another than in the other run, if few have."""
    shared = [author for author in bad.values if author in good.values]
    changed = [author for author in shared if _differ(good.values[author], bad.values[author])]
    sure = all(VARIES not in (good.values[author], bad.values[author]) for author in shared)
    if changed and sure and len(changed) <= _FEW * len(shared):
        first = changed[0]
        ours, theirs = good.values[first], bad.values[first]
        yield _difference(kind, name, good, bad, ours, theirs, whose(changed))


def _speaks(key: tuple[Kind, str]) -> bool:
    """Whether it says something that one run alone states this."""
    kind, name = key
    return kind in _GIVEN or name.startswith("--")


def _beside(key: tuple[Kind, str], good: Profile, bad: Profile) -> bool:
    """Whether the other run states most of what this one states beside it: else it prints less.

    Beside it is the same line, or lines near it where that states nothing else.
    """
    run, other = (good, bad) if key in good.stated else (bad, good)
    place = next(iter(run.stated[key].spots.values()))
    for reach in (0, _NEAR):
        lines = range(place.line - reach, place.line + reach + 1)
        near = [
            name
            for line in lines
            for name in run.names_at.get((place.source, line), ())
            if name != key
        ]
        if near:
            return 2 * sum(name in other.stated for name in near) >= len(near)
    return False


def _alone(
    kind: Kind, name: str, good: Stating | None, bad: Stating | None
) -> Iterator[Difference]:
    ours, theirs = (None if one is None else _value(one) for one in (good, bad))
    if ours is not None or theirs is not None:
        yield _difference(kind, name, good, bad, ours, theirs, "")


def _value(stating: Stating) -> str | None:
    """The value that all authors state; None where there are several."""
    values = {*stating.values.values()}
    value = values.pop()
    return None if values or value == VARIES else value


def _differ(one: str, other: str) -> bool:
    return one != other and lasting(one) != lasting(other) and not _equal(one, other)


def _equal(one: str, other: str) -> bool:
    """Whether they are one number in two forms."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one.lower() == other.lower()


def _difference(
    kind: Kind,
    name: str,
    good: Stating | None,
    bad: Stating | None,
    ours: str | None,
    theirs: str | None,
    who: str,
) -> Difference:
    return Difference(
        kind, name, _cut(ours), _cut(theirs), who,
        good_at=good.spots.get(ours) if good and ours is not None else None,
        bad_at=bad.spots.get(theirs) if bad and theirs is not None else None,
    )  # fmt: skip


def _cut(value: str | None) -> str | None:
    return value if value is None or len(value) <= _WORDS else value[: _WORDS - 1] + "…"


def whose(authors: Iterable[Author]) -> str:
    """The authors, for people."""
    found = [*authors]
    ranks = [who for kind, who in found if kind == "rank" and isinstance(who, int)]
    if len(ranks) == len(found):
        return ranks_phrase(ranks)
    kind, who = found[0]
    first = f"{kind} {who[1] if isinstance(who, tuple) else who}"
    return first if len(found) == 1 else f"{first} and {len(found) - 1} more"
