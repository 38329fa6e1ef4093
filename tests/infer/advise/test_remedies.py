"""Remedies with the setting of the job's framework, restart, timeouts, what to capture."""

from dataclasses import replace
from typing import Any

import pytest

from diagnose.catalog.schema import Remedy
from diagnose.infer.advise import remedies as advice
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.onset import Activity
from diagnose.infer.rules.base import Candidate

from ..rows import catalog, cause_class

CATALOG = catalog()
SETTINGS = {"Axolotl": "micro_batch_size: 1", "deepspeed": "stage: 3"}


def winner(cause: str = "env.config", **more: Any) -> Candidate:
    return Candidate(cause, 6.0, "title", "summary", **more)


def facts(**values: str) -> Facts:
    return Facts({name.replace("__", "."): [value] for name, value in values.items()})


@pytest.mark.parametrize(
    ("known", "command"),
    [
        (facts(framework="axolotl"), "micro_batch_size: 1"),
        (facts(launcher="deepspeed"), "stage: 3"),
        (facts(framework="verl"), "general"),
        (facts(), "general"),
    ],
)
def test_the_setting_of_the_jobs_framework_is_chosen(known: Facts, command: str) -> None:
    step = Remedy("fix", "Use less", "why", "general", SETTINGS)
    (_, fix) = advice.remedies(winner(remedies=[step]), CATALOG, known)
    assert (fix.when, fix.do, fix.why, fix.command) == ("fix", "Use less", "why", command)


def test_an_unknown_framework_gets_all_settings() -> None:
    step = Remedy("now", "Use less", settings=SETTINGS)
    (only,) = advice.remedies(winner(remedies=[step]), CATALOG, facts())
    assert only.command == "axolotl: micro_batch_size: 1\ndeepspeed: stage: 3"


def test_the_class_fills_the_stages_that_the_entry_leaves_out() -> None:
    entry = catalog()
    default = [Remedy("prevent", "p"), Remedy("now", "n"), Remedy("fix", "f")]
    entry.classes["env.config"] = cause_class("env.config", remedies=default)
    own = [Remedy("fix", "own fix"), Remedy("fix", "own fix", "again")]
    steps = advice.remedies(winner(remedies=own), entry, facts())
    assert [(step.when, step.do) for step in steps] == [
        ("now", "n"),
        ("fix", "own fix"),
        ("prevent", "p"),
    ]


def test_restart_avoids_hosts_only_where_that_helps() -> None:
    elsewhere = advice.restart(winner(restart="retry_elsewhere", hosts=["a"]), CATALOG)
    assert (elsewhere.advice, elsewhere.exclude_hosts) == ("retry_elsewhere", ["a"])
    default = advice.restart(winner(hosts=["a"]), CATALOG)
    assert (default.advice, default.exclude_hosts, default.why) == ("retry", [], "why")


@pytest.mark.parametrize(
    ("cause", "of_class", "activity", "answer"),
    [
        ("slow.checkpoint", "yes", Activity("checkpoint", moving=True, bar=True), "yes"),
        ("slow.checkpoint", "yes", Activity("checkpoint", moving=True), "unknown"),
        ("slow.checkpoint", "yes", Activity("checkpoint", frame=True), "unknown"),
        ("slow.checkpoint", "no", Activity("checkpoint", moving=True, bar=True), "no"),
        ("data.preparation", "yes", Activity(), "unknown"),
        ("env.config", "no", Activity(), "no"),
    ],
)
def test_a_longer_timeout_helps_only_what_moves(
    cause: str, of_class: str, activity: Activity, answer: str
) -> None:
    entry = catalog()
    entry.classes[cause] = cause_class(cause, longer_timeout=of_class)
    assert advice.longer_timeout(winner(cause), entry, activity) == answer


def test_a_known_rank_at_work_is_as_good_as_a_bar() -> None:
    entry = catalog()
    entry.classes["slow.checkpoint"] = cause_class("slow.checkpoint", longer_timeout="yes")
    saving = Activity("checkpoint", moving=True)
    named = winner("slow.checkpoint", ranks=[0])
    assert advice.longer_timeout(named, entry, saving) == "yes"
    assert advice.longer_timeout(named, entry, Activity("checkpoint")) == "unknown"


OLD_NAMES = (
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/fr/rank_"
)
NEW_NAMES = (
    "TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_TEMP_FILE=/shared/fr/rank_ (with "
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1)"
)


@pytest.mark.parametrize(
    ("version", "how"),
    [
        ("2.1.2", "needs torch 2.2 or later; until then TORCH_DISTRIBUTED_DEBUG=DETAIL"),
        ("2.2.0", OLD_NAMES),
        ("2.7.1+cu128", OLD_NAMES),
        ("2.8.0", NEW_NAMES),
        ("2.10.0a0+git12", NEW_NAMES),
        (
            None,
            OLD_NAMES + " (torch 2.8 and later: TORCH_FR_BUFFER_SIZE, TORCH_FR_DUMP_TEMP_FILE)",
        ),
    ],
)
def test_the_flight_recorder_is_called_by_the_names_of_the_version(
    version: str | None, how: str
) -> None:
    known = facts(version__torch=version) if version else facts()
    (wanted,) = advice.capture_next(winner(), "medium", CATALOG, known, waits=True)
    assert wanted.what == "which rank did not join: Flight Recorder dumps of all ranks"
    assert wanted.how == how


def test_a_sure_verdict_needs_nothing_more() -> None:
    assert advice.capture_next(winner(), "high", CATALOG, facts(), waits=True) == []


def test_logs_of_other_ranks_are_asked_for() -> None:
    known = replace(facts(), world_size=8, ranks_seen=[0, 1, 2])
    (wanted,) = advice.capture_next(winner(), "low", CATALOG, known, waits=False)
    assert wanted.what == "the logs of 5 of 8 ranks"
    whole = replace(known, world_size=3)
    assert advice.capture_next(winner(), "low", CATALOG, whole, waits=False) == []


def test_stacks_are_asked_for_where_somebody_is_silent() -> None:
    asked = advice.capture_next(winner("desync.missing_rank"), "low", CATALOG, facts(), waits=True)
    assert [wanted.what for wanted in asked] == [
        "which rank did not join: Flight Recorder dumps of all ranks",
        "where the silent ranks stand",
    ]


def test_the_class_says_what_else_to_capture() -> None:
    entry = catalog()
    entry.classes["env.config"] = cause_class("env.config", capture=["the fabric: ibdiagnet -r"])
    (wanted,) = advice.capture_next(winner(), "low", entry, facts(), waits=False)
    assert (wanted.what, wanted.how) == ("the fabric", "ibdiagnet -r")
