"""Evidence of several kinds about the same ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnose.infer.decide.ranking import believed, fused, worth_analysis
from diagnose.infer.judge.verdict import Verdict
from diagnose.infer.rules.base import Basis, Hypothesis, Tier
from diagnose.timeline.event import Timeline

from ..rows import Row, at, context, finished, step, wait

VERDICT = Verdict("missing", (2,), "dp", "all_reduce", 7, (0, 1), (2,), "why", sure=True)


def one(cause: str, basis: Basis, *ranks: int) -> Hypothesis:
    return Hypothesis(cause, Tier.STRONG, "", "", ranks=list(ranks), basis=basis)


def left(*hypotheses: Hypothesis) -> list[tuple[str, str]]:
    return [(h.cause, h.basis) for h in fused(hypotheses, context(Timeline()))[0]]


@pytest.mark.parametrize("basis", ["wait", "dump", "monitor"])
@pytest.mark.parametrize("vague", ["stall.host", "desync.missing_rank"])
def test_what_a_stuck_rank_does_its_stack_tells_better(basis: Basis, vague: str) -> None:
    by_stack = one("data.loader", "stack", 2)
    assert left(one(vague, basis, 2), by_stack) == [("data.loader", "stack")]
    assert left(one(vague, basis, 3), by_stack) == [(vague, basis), ("data.loader", "stack")]
    same = one(vague, "stack", 2)
    assert left(one(vague, basis, 2), same) == [(vague, basis), (vague, "stack")]
    assert left(one("hw.gpu", basis, 2), by_stack)[0] == ("hw.gpu", basis)


def test_what_an_idle_rank_does_its_own_lines_tell_better_than_dumps() -> None:
    by_dumps, saves = one("stall.host", "dump", 2), one("slow.checkpoint", "wait", 2)
    assert left(by_dumps, saves) == [("slow.checkpoint", "wait")]
    other = one("slow.checkpoint", "wait", 3)
    assert left(by_dumps, other)[0] == ("stall.host", "dump")


def test_what_is_dropped_names_what_knows_better() -> None:
    by_dumps, by_stack = one("stall.host", "dump", 2), one("data.loader", "stack", 2)
    kept, dropped = fused([by_dumps, by_stack], context(Timeline()))
    assert kept == [by_stack]
    assert [(one.hypothesis, one.predicate, one.by) for one in dropped] == [
        (by_dumps, "stacks_know_what", by_stack),
    ]


# --------------------------------------------------------------------------- is it true


def pending(clock: str) -> Row:
    return {
        "signal": "pending", "kind": "collective", "role": None, "rank": 0, "seq": 7, "group": "dp",
        "time": at(clock),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("clock", "fails", "dumped", "passing", "sure"),
    [
        ("08:00:30", False, True, False, True),
        ("08:02:00", False, True, False, None),  # steps from long after it
        ("08:02:00", True, True, False, True),  # it failed all the same
        ("08:02:00", True, False, False, True),
        ("08:02:00", True, False, True, False),  # counters, read in passing
        ("08:02:00", False, False, False, False),  # at the end of a log ranks are never alike
    ],
)
def test_dumps_of_a_job_at_work_show_what_is_in_flight(
    make: Any, clock: str, fails: bool, dumped: bool, passing: bool, sure: bool | None
) -> None:
    timeline = make(pending("08:00:00"), step(5, time=at(clock)), wait(0))
    failing = [timeline.at(2)] if fails else []
    seen = context(timeline, failing=failing, alive=dumped)
    found = believed(VERDICT, seen, passing=passing)
    assert (found.sure if found else None) is sure


def test_counters_that_did_not_move_between_two_looks_are_sure(make: Any) -> None:
    seen = context(make(pending("08:00:00"), wait(0)), failing=[], alive=False)
    for halted in (True, False):
        found = believed(VERDICT, seen, passing=False, halted=halted)
        assert found
        assert found.sure is halted


def test_no_dump_says_nothing(make: Any) -> None:
    assert believed(None, context(make()), passing=False) is None


def test_dumps_of_a_job_that_is_done_or_goes_on_are_not_analysed(make: Any) -> None:
    done = make(step(1, rank=0), finished(0))
    assert not worth_analysis(context(done, alive=True))
    assert not worth_analysis(context(make(step(1)), alive=False))
    assert worth_analysis(context(make(step(1)), alive=True))
    failed = make(step(1), wait(0))
    assert worth_analysis(context(failed, failing=[failed.at(1)], alive=False))
    assert worth_analysis(context(make(), alive=False))


@pytest.mark.parametrize(
    ("fails", "dumped", "kind", "kept"),
    [
        (False, False, "network", False),  # the log may be cut there
        (True, False, "network", True),
        (False, True, "network", True),  # a dump is taken of what stands still
        (False, False, "missing", True),
    ],
)
def test_a_call_that_all_have_made_may_be_where_the_log_is_cut(
    make: Any, fails: bool, dumped: bool, kind: Any, kept: bool
) -> None:
    timeline = make(wait(0))
    seen = context(timeline, failing=[timeline.at(0)] if fails else [], alive=dumped)
    verdict = replace(VERDICT, kind=kind, ranks=())
    assert (believed(verdict, seen, passing=False) is not None) == kept
