"""Events in time order, and by what they are."""

from __future__ import annotations

from dataclasses import fields

import pytest

from diagnose.timeline.event import Event, Meaning, Timeline, Work

from .told import event

EVENTS = [
    event(
        index=2,
        kind="phase",
        role="phase",
        signature="b",
        rank=3,
        host="n1",
        source="a.log",
        line=7,
    ),
    event(index=3, kind="progress", role="progress", signature="a", rank=1),
    event(index=5, kind="phase", signal="finished", role="phase", signature="b", rank=1, host="n2"),
    event(index=9, signal="timeout", role="effect", rank=3, host="n2"),
    event(index=12, kind="exit", signal="exit"),
]
TIMELINE = Timeline(EVENTS)


def indices(events: object) -> list[int]:
    return [event.index for event in events]  # type: ignore[attr-defined]


def test_it_is_a_sequence_of_events() -> None:
    assert ([*TIMELINE], len(TIMELINE)) == (EVENTS, 5)
    assert (len(Timeline()), [*Timeline()]) == (0, [])
    assert EVENTS[0].place == ("a.log", 7)


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_is_found_by_its_index(event: Event) -> None:
    assert TIMELINE.at(event.index) is event


@pytest.mark.parametrize("index", [-1, 0, 4, 13])
def test_an_index_that_is_not_here(index: int) -> None:
    with pytest.raises(KeyError, match=str(index)):
        TIMELINE.at(index)


@pytest.mark.parametrize(
    ("index", "left"),
    [(-1, [2, 3, 5, 9, 12]), (2, [3, 5, 9, 12]), (4, [5, 9, 12]), (9, [12]), (12, []), (99, [])],
)
def test_what_comes_after_an_index(index: int, left: list[int]) -> None:
    assert indices(TIMELINE.after(index)) == left


def test_a_part_keeps_the_indices() -> None:
    part = TIMELINE.only(lambda event: event.rank == 1)
    assert indices(part) == [3, 5]
    assert part.at(5) is EVENTS[2]
    assert part.ranks == [1]


def test_events_of_several_kinds_are_in_order_of_time() -> None:
    assert indices(TIMELINE.kind("progress", "phase")) == [2, 3, 5]
    assert indices(TIMELINE.kind("phase")) == [2, 5]
    assert indices(TIMELINE.signalling("timeout", "exit", "finished")) == [5, 9, 12]
    assert indices(TIMELINE.role("effect", "phase")) == [2, 5, 9]
    assert TIMELINE.kind("restart", "frame") == TIMELINE.signalling("ignored") == []


def test_signatures_come_in_the_order_in_which_they_first_appear() -> None:
    assert {name: indices(events) for name, events in TIMELINE.by_signature.items()} == {
        "b": [2, 5],
        "a": [3],
    }
    assert list(TIMELINE.by_signature) == ["b", "a"]


def test_events_by_what_their_lines_told() -> None:
    told = [{"a": "1", "b": "2"}, {}, {"b": "3"}, {"b": "4", "a": "5"}, {"c": "6"}]
    found = Timeline(event(index=index, fields=fields) for index, fields in enumerate(told))
    assert indices(found.capturing("a")) == [0, 3]
    assert indices(found.capturing("b")) == [0, 2, 3]
    assert indices(found.capturing("a", "b")) == [0, 3]
    assert found.capturing("a", "c") == []


def test_events_by_what_they_have_in_common() -> None:
    assert indices(TIMELINE.where(lambda alike: alike.role is not None)) == indices(
        event for event in TIMELINE if event.role is not None
    )
    asked: list[str | None] = []
    same = Timeline(event(index=index, kind="exit", rank=index) for index in range(3))
    assert same.where(lambda alike: asked.append(alike.kind) or alike.kind == "exit") == [*same]
    assert asked == ["exit"]  # once for all


def test_a_part_that_is_all_is_the_timeline_itself() -> None:
    assert TIMELINE.only(lambda event: event.index > 0) is TIMELINE


def test_columns_and_positions() -> None:
    some = Timeline(event(index=index * 2, signature=id_) for index, id_ in enumerate("abacb"))
    assert some.column("index") == [0, 2, 4, 6, 8]
    assert some.of_signatures == {"a": [0, 2], "b": [1, 4], "c": [3]}
    assert [*some.positions.values()] == [[0, 2], [1, 4], [3]]
    assert [*some.by_signature["a"]] == [some.events[0], some.events[2]]
    assert some.where(lambda meaning: meaning.signature != "c") == [
        event for event in some if event.signature != "c"
    ]


def test_ranks_and_their_hosts() -> None:
    assert TIMELINE.ranks == [1, 3]
    assert TIMELINE.hosts_of_ranks == {3: "n1", 1: "n2"}


def test_an_event_says_what_its_meaning_and_its_work_say() -> None:
    for kind, name in ((Meaning, "meaning"), (Work, "work")):
        names = [one.name for one in fields(kind) if one.repr and one.name != "captures"]
        said = kind(*names)  # type: ignore[arg-type]
        assert [getattr(Event(**{name: said}), one) for one in names] == names


def test_events_that_mean_the_same_are_alike_though_each_has_its_own_meaning() -> None:
    found = Timeline(event(index=index, kind="exit", rank=index) for index in range(3))
    assert [*found.alike.values()] == [[*found]]
