"""What counts of different communicators show of each other."""

from __future__ import annotations

from diagnose.infer.collectives.communicators import Communicator, CountedWait, compared
from diagnose.parse.comm_rank import CommRank


def comm(name: str, counts: dict[int, int | None]) -> Communicator:
    """A communicator of these global ranks, with what each has launched."""
    seen = {
        place: CommRank("ras.json", 1, name, place, len(counts), launched=count)
        for place, count in enumerate(counts.values())
    }
    return Communicator(name, len(counts), seen, seen, dict(enumerate(counts)))


def waits(*comms: Communicator, dead: tuple[int, ...] = ()) -> list[CountedWait] | None:
    return compared(comms, dead, at_once=True)


def pairs(found: list[CountedWait] | None) -> list[tuple[int, tuple[int, ...]]]:
    assert found is not None
    return [(one.rank, one.members) for one in found]


def test_of_two_ranks_that_lack_calls_one_waits_for_the_one_that_lacks_more() -> None:
    world = comm("world", {0: 2, 1: 2, 2: 1, 3: 1})
    mates = comm("pair", {2: 1, 3: 1})
    late = comm("other", {1: 2, 3: 1})
    assert pairs(waits(world, mates, late)) == [(2, (2, 3))]


def test_ranks_that_lack_calls_wait_for_one_that_is_dead() -> None:
    world = comm("world", {0: 9, 1: 9, 2: 8, 3: None})
    assert pairs(waits(world, comm("pair", {2: 4, 3: None}), dead=(3,))) == [(2, (2, 3))]


def test_of_a_few_ranks_that_lack_as_many_nobody_is_named() -> None:
    assert waits(comm("world", {0: 2, 1: 2, 2: 1, 3: 1, 4: 2})) is None
    assert waits(comm("world", {0: 2, 1: 2, 2: 1, 3: 1})) == [], "which half is late?"


def test_who_lacks_less_than_the_others_is_none_of_those_that_lack_as_many() -> None:
    """Rank 3 waits for one of the others, as it lacks calls of the job only; which one is open."""
    world = comm("world", dict.fromkeys(range(12), 3) | dict.fromkeys((1, 2, 3), 2))
    data = [comm(f"dp{n}", {n: 2, n + 4: 3, n + 8: 3}) for n in (1, 2)]
    assert waits(world, *data, comm("dp3", {3: 3, 7: 3, 11: 3})) is None


def test_a_rank_that_alone_is_ahead_of_all_made_a_call_by_itself() -> None:
    found = waits(comm("world", {0: 7, 1: 7, 2: 8}), comm("other", {0: 5, 1: 5, 2: 5}))
    assert found is not None
    assert [(one.rank, one.members, one.seq, one.only) for one in found] == [
        (2, (0, 1, 2), 8, True)
    ]
    alike = [comm("world", {0: 7, 1: 7, 2: 8})]
    assert compared(alike, (), at_once=False) == [], "a log may end anywhere"
    several = waits(comm("world", {0: 6, 1: 7, 2: 8}))
    assert several is not None
    assert not any(one.only for one in several)
