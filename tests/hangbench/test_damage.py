"""What damage leaves of a job's lines."""

from __future__ import annotations

import random
import re
from collections import Counter

import pytest

from benchmarks.hangbench.sim.damage import GARBLINGS, KINDS, damage, garble, without_times
from benchmarks.hangbench.sim.evidence.c10d import lines
from benchmarks.hangbench.sim.evidence.layouts import layout
from benchmarks.hangbench.sim.evidence.releases import TORCHES
from benchmarks.hangbench.sim.outcome import Line
from tests.hangbench.test_evidence import ddp


def printed(torch: str = "2.7") -> list[Line]:
    job = ddp(world=8, per_node=4)
    return lines(job, torch, random.Random(5), statuses=True, trainer="plain", every_rank=True)


def shown(one: Line) -> tuple[object, ...]:
    return (one.rank, one.time, one.shows, one.subject, one.names_rank, one.names_group)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_left_shows_what_it_showed(kind: str) -> None:
    job, found = ddp(world=8, per_node=4), printed()
    before = [(one.text, shown(one)) for one in found]
    for seed in range(20):
        left = damage(found, job, random.Random(seed), kind)  # type: ignore[arg-type]
        assert not [one for one in left.lines if one.rank in left.missing]
        places = Counter(map(shown, found))
        assert not Counter(map(shown, left.lines)) - places
        assert [one.time for one in left.lines] == sorted(one.time for one in left.lines)
        if kind != "undated":
            assert len(left.lines) < len(found)
    assert [(one.text, shown(one)) for one in found] == before


def test_missing_ranks_and_nodes_are_told() -> None:
    job, found = ddp(world=8, per_node=4), printed()
    ranks = damage(found, job, random.Random(1), "ranks")
    assert 1 <= len(ranks.missing) <= 2
    nodes = damage(found, job, random.Random(1), "nodes")
    assert nodes.missing in (frozenset(range(4)), frozenset(range(4, 8)))
    gone = 0 if 0 in nodes.missing else 1
    assert {one.node for one in nodes.lines} == {1 - gone}
    files = layout(nodes.lines, job, "rank_files", random.Random(1), missing=nodes.missing).files
    assert sum("rank" in name for name in files) in (4, 8)  # one file or two a rank
    whole = ddp()
    assert not damage(printed(), whole, random.Random(1), "nodes").missing


def test_cuts_take_the_beginning_or_the_end() -> None:
    job, found = ddp(world=8, per_node=4), printed()
    start = damage(found, job, random.Random(2), "start").lines
    assert start == found[-len(start) :]
    assert any(one.shows == "waits" for one in start)
    end = damage(found, job, random.Random(2), "end").lines
    assert end == found[: len(end)]
    tail = damage(found, job, random.Random(2), "tail").lines
    assert tail == found[-len(tail) :]
    assert 100 < sum(one.text.count("\n") + 1 for one in tail) <= 200


def test_only_rank_0_and_its_launcher_are_left() -> None:
    job = ddp(world=8, per_node=4)
    left = damage(printed(), job, random.Random(2), "rank_0").lines
    assert {one.rank for one in left} == {0, None}
    assert {one.node for one in left} == {0}


@pytest.mark.parametrize("torch", TORCHES)
def test_undated_lines_have_no_time(torch: str) -> None:
    job = ddp(world=8, per_node=4)
    for one in damage(printed(torch), job, random.Random(2), "undated").lines:
        assert not re.search(r"\d\d:\d\d:\d\d", one.text), one.text


def test_times_are_taken_out_of_every_form() -> None:
    assert (
        without_times("[rank6]:[E924 21:56:02.398235325 a.cpp:607] x") == "[rank6]:[E a.cpp:607] x"
    )
    assert without_times("2026-01-01 10:00:00,123 [rank 1] step 2") == "[rank 1] step 2"
    assert without_times(" [2026-01-01 10:00:00.123456] iteration") == "iteration"
    assert without_times("W0307 09:00:36.024000 4321 torch/x.py:9] y") == "W torch/x.py:9] y"


def test_garbling_keeps_all_that_is_there() -> None:
    job = ddp(world=8, per_node=4)
    files = layout(printed(), job, "node_files", random.Random(1)).files
    for kind in GARBLINGS:
        made = garble(files, random.Random(3), kind)
        for name, content in files.items():
            assert made[name] != content
            if kind == "doubled":
                assert set(made[name].splitlines()) == set(content.splitlines())
                assert len(made[name]) > len(content)
            else:
                assert made[name].replace(b"\n", b"") == content.replace(b"\n", b"")
    dump = {"nccl_trace_rank_0": b"\x80\x02\0\n\n\n"}
    assert garble(dump, random.Random(3), "glued") == dump
