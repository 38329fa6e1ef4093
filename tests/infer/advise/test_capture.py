"""What to capture next time."""

from dataclasses import replace

import pytest

from diagnose.infer.advise.remedies import capture_next
from diagnose.infer.events.facts import Facts
from diagnose.infer.rules.base import Hypothesis, Tier

from ..rows import catalog, cause_class

CATALOG = catalog()


def winner(cause: str = "env.config") -> Hypothesis:
    return Hypothesis(cause, Tier.PROVEN, "title", "summary")


def facts(**values: str) -> Facts:
    return Facts({name.replace("__", "."): [value] for name, value in values.items()})


@pytest.mark.parametrize("version", ["2.2.0", "2.7.1+cu128", "2.10.0a0+git12", None])
def test_the_flight_recorder_is_called_by_both_its_names(version: str | None) -> None:
    known = facts(version__torch=version) if version else facts()
    (wanted,) = capture_next(winner(), "medium", CATALOG, known, waits=True)
    assert wanted.what == "which rank never joined: Flight Recorder dumps of all ranks"
    for name in ("TORCH_FR_BUFFER_SIZE=2000", "TORCH_NCCL_TRACE_BUFFER_SIZE=2000"):
        assert name in wanted.how


def test_a_torch_without_flight_recorder_is_told_so() -> None:
    known = facts(version__torch="2.1.2")
    (wanted,) = capture_next(winner(), "medium", CATALOG, known, waits=True)
    assert wanted.how == "needs torch 2.2 or later; until then TORCH_DISTRIBUTED_DEBUG=DETAIL"


def test_a_sure_verdict_needs_nothing_more() -> None:
    assert capture_next(winner(), "high", CATALOG, facts(), waits=True) == []


def test_logs_of_other_ranks_are_asked_for() -> None:
    known = replace(facts(), world_size=8, ranks_seen=[0, 1, 2])
    (wanted,) = capture_next(winner(), "low", CATALOG, known, waits=False)
    assert wanted.what == "the logs of 5 of 8 ranks"
    whole = replace(known, world_size=3)
    assert capture_next(winner(), "low", CATALOG, whole, waits=False) == []


def test_stacks_are_asked_for_where_somebody_is_silent() -> None:
    asked = capture_next(winner("desync.missing_rank"), "low", CATALOG, facts(), waits=True)
    assert [wanted.what for wanted in asked] == [
        "which rank never joined: Flight Recorder dumps of all ranks",
        "the stacks of the silent ranks",
    ]


def test_the_class_says_what_else_to_capture() -> None:
    entry = catalog()
    entry.classes["env.config"] = cause_class("env.config", capture=["the fabric: ibdiagnet -r"])
    (wanted,) = capture_next(winner(), "low", entry, facts(), waits=False)
    assert (wanted.what, wanted.how) == ("the fabric", "ibdiagnet -r")


def test_of_dumps_only_those_that_lack_are_asked_for() -> None:
    (wanted,) = capture_next(winner(), "low", CATALOG, facts(), waits=True, undumped=[2, 3])
    assert wanted.what == "the Flight Recorder dumps of ranks 2-3"
    assert wanted.how == (
        "check their nodes; a rank that died or could not write a dump has none there either"
    )
    assert capture_next(winner(), "low", CATALOG, facts(), waits=True, undumped=[]) == []


def test_the_flight_recorder_is_asked_for_once() -> None:
    entry = catalog()
    entry.classes["env.config"] = cause_class("env.config", capture=["Flight Recorder dumps: x"])
    asked = capture_next(winner(), "low", entry, facts(version__torch="2.8.0"), waits=True)
    assert [wanted.what for wanted in asked] == [
        "which rank never joined: Flight Recorder dumps of all ranks"
    ]


def test_no_more_than_five_things_are_asked_for() -> None:
    entry = catalog()
    lines = [f"thing {number}: how" for number in range(9)]
    entry.classes["env.config"] = cause_class("env.config", capture=lines)
    asked = capture_next(winner(), "low", entry, facts(), waits=False)
    assert [wanted.what for wanted in asked] == [f"thing {number}" for number in range(5)]
