"""What stacks say of who is late, and whether dumps agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.diagnosis import Evidence
from diagnose.infer.advise.remedies import held_of, look_first, remedies
from diagnose.infer.judge.verdict import Kind, Verdict
from diagnose.infer.rules.base import Context, Hypothesis, Tier
from diagnose.infer.rules.stacks import evidence, placed, propose
from diagnose.infer.stacks.classify import places
from diagnose.infer.stacks.groups import PlaceClass, fold, place_rows
from diagnose.parse.stacks import read_stacks
from diagnose.timeline.build import build
from diagnose.timeline.event import Event, Meaning, Timeline

from ..rows import context

MAIN = "main (train.py:58)"
WAIT = "all_reduce (torch/distributed/distributed_c10d.py:3252)", "step (train.py:41)", MAIN
BARRIER = "barrier (torch/distributed/distributed_c10d.py:5356)", "step (train.py:23)", MAIN
DATA = "_try_get_data (torch/utils/data/dataloader.py:1291)", "step (train.py:16)", MAIN
SAVE = "_save (torch/serialization.py:9)", "save_checkpoint (train.py:70)", MAIN

TIMEOUT = (
    "[rank{0}]:[E1120 03:27:10.000000000 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=16, NumelOut=16, "
    "Timeout(ms)=600000) ran for 600010 milliseconds before timing out.\n"
)


def text(rank: int, frames: tuple[str, ...]) -> str:
    head = f'# rank {rank}\nProcess {rank}: python\nThread {rank} (idle): "MainThread"\n'
    return head + "".join(f"    {frame}\n" for frame in frames)


def classes(*ranks: tuple[str, ...]) -> list[PlaceClass]:
    dump = "".join(text(rank, frames) for rank, frames in enumerate(ranks))
    return fold(places(read_stacks(dump.encode(), "all.txt")))


def of(found: list[PlaceClass]) -> Timeline:
    return build([], load_catalog(), place_rows(found))


def seen(found: list[PlaceClass], **more: Any) -> Context:
    return context(of(found), stacks=found, **more)


def only(*ranks: tuple[str, ...], held: tuple[int, ...] = (), **more: Any) -> Hypothesis:
    found = classes(*ranks)
    (hypothesis,) = placed(found, seen(found, **more), held)
    return hypothesis


@pytest.mark.parametrize(
    ("frames", "cause", "kind"),
    [
        (DATA, "data.loader", "stuck_host"),
        (SAVE, "slow.checkpoint", "stuck_host"),  # the phase says more than that it writes
        (("step (train.py:50)", MAIN), "stall.host", "stuck_host"),
    ],
)
def test_the_odd_one_is_blamed_for_what_it_does(
    frames: tuple[str, ...], cause: str, kind: str
) -> None:
    hypothesis = only(WAIT, frames, WAIT, WAIT)
    assert (hypothesis.cause, hypothesis.tier) == (cause, Tier.STRONG)
    assert (hypothesis.ranks, hypothesis.kind, hypothesis.inferred) == ([1], kind, True)
    assert hypothesis.title == f"Title of {cause}"


def test_its_words() -> None:
    found = classes(WAIT, DATA, WAIT)
    timeline = of(found)
    (hypothesis,) = propose(seen(found))
    assert hypothesis.summary == (
        "Ranks 0, 2 wait in all_reduce; rank 1 is blocked in the data loader at train.py:16: "
        "_try_get_data in torch/utils/data/dataloader.py."
    )
    assert hypothesis.why == "its stack: blocked in the data loader"
    assert [timeline.at(row).rank for row in hypothesis.rows] == [1]


def test_dumps_that_name_the_same_rank_make_it_surer() -> None:
    assert only(WAIT, DATA, WAIT, held=(1,)).tier == Tier.OBSERVED
    assert only(WAIT, DATA, WAIT, held=(1, 2)).tier == Tier.OBSERVED


def test_of_two_odd_ranks_the_one_that_dumps_name_is_surer() -> None:
    found = classes(WAIT, DATA, SAVE, WAIT, WAIT)
    told = placed(found, seen(found), (2,))
    assert [(one.cause, one.ranks, one.tier) for one in told] == [
        ("data.loader", [1], Tier.STRONG),
        ("slow.checkpoint", [2], Tier.OBSERVED),
    ]


def test_of_the_rank_that_dumps_name_the_stack_tells_what_it_does() -> None:
    found = classes(WAIT, DATA, WAIT, WAIT)
    assert placed(found, seen(found), (3,)) == [], "its stack shows only that it waits"
    busy = only(WAIT, DATA, DATA, DATA, held=(2,))  # a majority is not odd by itself
    assert (busy.cause, busy.ranks) == ("data.loader", [2])


def test_ranks_that_wait_in_different_collectives_blame_nobody() -> None:
    hypothesis = only(WAIT, WAIT, BARRIER, BARRIER)
    assert (hypothesis.cause, hypothesis.ranks) == ("desync.mismatch", [])
    assert hypothesis.summary == (
        "All ranks with a stack wait, but in different collectives: ranks 0-1 in all_reduce at "
        "train.py:41; ranks 2-3 in barrier at train.py:23."
    )


def test_the_one_rank_in_another_collective_than_all_others_is_apart() -> None:
    hypothesis = only(WAIT, WAIT, BARRIER, WAIT)
    assert (hypothesis.cause, hypothesis.ranks, hypothesis.kind) == (
        "desync.mismatch", [2], "mismatched",
    )  # fmt: skip
    assert only(WAIT, WAIT, BARRIER).ranks == [], "who knows how many there are"
    assert only(WAIT, WAIT, BARRIER, world=3).ranks == [2]


def test_a_rank_beyond_the_loop_of_the_others_had_less_work() -> None:
    train, evaluate = (WAIT[0], "train (t.py:4)"), (WAIT[0], "evaluate (t.py:7)")
    hypothesis = only(train, train, evaluate, train)
    assert (hypothesis.cause, hypothesis.ranks) == ("desync.uneven_work", [2])
    assert only(evaluate, train, train, train).cause == "desync.mismatch", "rank 0's own work"


def test_a_rank_without_a_stack_is_missed_where_all_others_wait() -> None:
    hypothesis = only(WAIT, WAIT, WAIT, world=4)
    assert (hypothesis.cause, hypothesis.ranks, hypothesis.kind) == (
        "desync.missing_rank", [3], "missing",
    )  # fmt: skip
    assert hypothesis.summary == "Ranks 0-2 wait in all_reduce; there is no stack of rank 3."


def test_who_says_that_it_finished_has_left_the_others() -> None:
    found = classes(WAIT, WAIT)
    meaning = Meaning(kind="signature", signal="finished")
    said = Event("a.log", 9, meaning=meaning, rank=3, index=9)
    timeline = Timeline([*of(found), said])
    (hypothesis,) = placed(found, context(timeline, stacks=found, world=4), ())
    assert (hypothesis.cause, hypothesis.ranks) == ("desync.uneven_work", [3])
    assert hypothesis.rows == [9]


def test_where_all_stand_alike_nobody_is_blamed() -> None:
    found = classes(WAIT, WAIT)
    (hypothesis,) = propose(seen(found))
    assert (hypothesis.cause, hypothesis.ranks, hypothesis.hung) == ("unknown", [], True)
    assert [*propose(context(Timeline()))] == []


def test_stacks_of_a_job_that_somebody_ended_are_those_of_a_hang() -> None:
    found = classes(("a (t.py:1)",), ("b (t.py:2)",), ("c (t.py:3)",))
    assert [*propose(seen(found))] == []
    limit = Meaning(kind="signature", role="cause", cause="scheduler.limit", strength="decisive")
    ended = Event("job.log", 7, meaning=limit, index=9)
    (hypothesis,) = propose(seen(found, failing=[ended]))
    assert (hypothesis.cause, hypothesis.ranks, hypothesis.hung) == ("unknown", [], True)
    assert hypothesis.summary == (
        "Rank 0 at t.py:1; rank 1 at t.py:2; rank 2 at t.py:3; no stack shows who holds them up."
    )


def test_evidence_has_the_frames_and_says_who_is_odd() -> None:
    odd, rest = evidence(classes(WAIT, DATA, WAIT), [1])
    assert odd == Evidence(
        "all.txt",
        odd.line,
        "rank 1: blocked in the data loader at train.py:16: _try_get_data in "
        "torch/utils/data/dataloader.py [_try_get_data < step < main]",
        "Stack of the outlier rank",
        quoted=False,
    )
    assert rest.text.startswith("ranks 0, 2: waiting in a collective (all_reduce)")
    assert rest.why == ""


def test_a_rank_that_is_where_all_are_is_no_outlier() -> None:
    (everybody,) = evidence(classes(DATA, DATA, DATA), [1])
    assert everybody.text.startswith("ranks 0-2: blocked in the data loader")
    assert everybody.why == ""


def test_where_a_rank_that_called_something_else_stands_is_no_other_cause() -> None:
    """Its stack, in no call that is known, says less than the counters do."""
    found = classes(WAIT, ("hook (train.py:153)", MAIN), WAIT, WAIT)

    def told(kind: Kind, ranks: tuple[int, ...]) -> list[str]:
        stopped = Verdict(kind, ranks, "dp", "all_reduce", 7, (0, 2), (), "why", by_dumps=True)
        return [one.cause for one in propose(seen(found, stalls=[stopped]))]

    assert told("mismatched", (1,)) == []
    assert told("stuck_host", (1,)) == ["stall.host"]


def test_the_first_step_is_the_line_where_the_rank_stands_and_what_its_peers_do() -> None:
    found = classes(WAIT, SAVE, WAIT, WAIT)
    seen_there = seen(found)
    (winner,) = placed(found, seen_there, ())
    (step,) = look_first(winner, seen_there)
    assert (step.when, step.do) == (
        "now",
        "Start at train.py:70 (save_checkpoint): rank 1 is writing files there, while "
        "ranks 0, 2-3 wait in all_reduce at train.py:41.",
    )
    nobody = replace(winner, ranks=[])
    assert look_first(nobody, seen_there) == []


@pytest.mark.slow
def test_of_a_job_that_somebody_ended_the_first_step_says_where_its_ranks_were() -> None:
    """A person who ends a hung job sees nowhere else who held it up."""
    seen_there = seen(classes(WAIT, SAVE, WAIT, WAIT))
    ended = Hypothesis("user.interrupt", Tier.STRONG, "Ctrl-C", "SIGINT.", [0], outside=True)
    (step,) = look_first(ended, seen_there)
    assert step.do == (
        "If it was stopped because it hung, start there: rank 1 was at train.py:70 "
        "(save_checkpoint), ranks 0, 2-3 were at train.py:41 (step), waiting in all_reduce."
    )
    assert held_of(ended, seen_there) == ["places"]
    for apart in (seen(classes(SAVE, SAVE)), seen(classes(WAIT, WAIT))):
        assert (look_first(ended, apart), held_of(ended, apart)) == ([], [])
    assert look_first(replace(ended, outside=False), seen_there) == []


def test_a_culprit_that_a_signal_stopped_has_to_go_on() -> None:
    """What it did when it was stopped is not at fault, and no lock has to be looked for."""
    found = [
        replace(
            group, state="stopped", places=tuple(replace(p, state="stopped") for p in group.places)
        )
        if 1 in group.ranks
        else group
        for group in classes(WAIT, SAVE, WAIT)
    ]
    context = seen(found)
    (winner,) = placed(found, context, ())
    assert (winner.cause, winner.ranks) == ("stall.host", [1])
    assert (look_first(winner, context), held_of(winner, context)) == ([], ["stopped"])
    steps = remedies(winner, load_catalog(), context.facts, [{"pid": "77"}], ["stacks", "stopped"])
    commands = [line for run in steps[0].run for line in run.lines]
    assert (steps[0].when, commands) == ("now", ["kill -CONT 77"])
    assert {step.when for step in steps} == {"now", "prevent"}
    others = remedies(winner, load_catalog(), context.facts, [{"pid": "77"}], ["stacks"])
    assert {step.when for step in others} == {"fix", "prevent"}


def test_a_culprit_that_sleeps_by_itself_has_no_lock_to_look_for() -> None:
    slept = ("load_batch (train.py:8)", MAIN)
    found = classes(WAIT, slept, WAIT)
    asleep = [
        replace(group, state="sleep", places=tuple(replace(p, state="sleep") for p in group.places))
        if group.ranks == (1,)
        else group
        for group in found
    ]
    context = seen(asleep)
    (winner,) = placed(asleep, context, ())
    assert (winner.cause, held_of(winner, context)) == ("stall.host", ["asleep"])
    steps = remedies(winner, load_catalog(), context.facts, held=["stacks", "asleep"])
    assert [step.do for step in steps if step.when == "fix"] == [
        "Bound what it waits for there by a number of tries or a time, after which it raises."
    ]
    assert held_of(replace(winner, ranks=[0, 1]), context) == []


def test_who_wrote_something_else_last_and_stands_alone_took_another_branch(tmp_path: Path) -> None:
    steps = [f"[{rank}/4] it {step} w 0.1" for step in range(3) for rank in range(4)]
    (tmp_path / "console.log").write_text("\n".join([*steps, "[2/4] the copy is stale\n"]))
    lines = (15, 15, 26, 18)
    for rank, line in enumerate(lines):
        (tmp_path / f"stacks_rank_{rank}.txt").write_text(text(rank, (f"<module> (p.py:{line})",)))
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert (found.verdict, found.root_cause.cause) == ("hung", "desync.conditional")
    assert (found.culprits.ranks, found.culprits.kind) == ([2], "mismatched")
    assert found.evidence[0].text == "[2/4] the copy is stale"
    assert found.remedies[0].do == "Start at p.py:26 (<module>): rank 2 is there."


@pytest.mark.parametrize(("node", "cause"), [(1, "slow.storage"), (2, "data.loader")])
def test_a_loader_waits_for_the_file_system_of_its_own_node(
    tmp_path: Path, node: int, cause: str
) -> None:
    """The kernel says why rank 3 of n01 is where its stack shows it; not another node's."""
    for rank in range(6):
        here = f"INFO [gpu-n0{rank // 2}] rank {rank}/6 local_rank {rank % 2}: init\n"
        late = rank == 3
        (tmp_path / f"pyspy_rank{rank}.txt").write_text(text(rank, DATA if late else WAIT))
        log = here if late else here + TIMEOUT.format(rank)
        (tmp_path / f"rank_{rank}.log").write_text(f"2026-11-20 03:10:00,000 {log}")
    (tmp_path / f"dmesg-gpu-n0{node}.txt").write_text(
        "[    0.000000] Linux version 5.15.0\n"
        "[ 8123.441] nfs: server nas01 not responding, still trying\n"
    )
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert (found.verdict, found.root_cause.cause) == ("hung", cause)
    assert (found.culprits.ranks, found.culprits.hosts) == ([3], ["gpu-n01"])
    assert found.culprits.kind == "stuck_host"
    assert found.culprits.why == "its stack: blocked in the data loader"
