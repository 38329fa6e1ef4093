"""Hung or failed, in which phase, and what is told of the job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from diagnose.diagnosis import Collective, JobFacts
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.onset import Activity, Start
from diagnose.infer.judge.lines import stalls
from diagnose.infer.judge.verdict import Verdict
from diagnose.infer.outcome import (
    at_work,
    collective_of,
    inconclusive,
    job_facts,
    phase_of,
    verdict_of,
)
from diagnose.infer.pipeline import _waiting
from diagnose.infer.rules.base import Hypothesis, Tier
from diagnose.infer.stacks.classify import unranked
from diagnose.parse.stacks import read_stacks

from .rows import Row, catalog, context, marker, matched, signature, step, wait

NOWHERE = Start(None, None, "")


def one(cause: str, **more: Any) -> Hypothesis:
    return Hypothesis(cause, Tier.STRONG, "", "", **more)


# --------------------------------------------------------------------------- hung or failed


@pytest.mark.parametrize(
    ("cause", "inferred", "silent", "waited", "verdict"),
    [
        ("desync.missing_rank", True, False, True, "hung"),
        ("desync.missing_rank", True, False, False, "failed"),
        ("unknown", True, False, True, "hung"),
        ("crash.gpu_oom", False, False, True, "failed"),  # the others waited because it died
        ("crash.native", True, True, False, "failed"),
        ("env.config", True, True, False, "failed"),
        ("data.loader", True, True, False, "hung"),  # stacks of a process that stood still
        ("data.loader", False, True, False, "failed"),
        ("slow.storage", False, True, False, "hung"),
        ("checkpoint.partial", True, True, True, "failed"),
    ],
)
def test_hung_or_failed(
    make: Any, cause: str, inferred: bool, silent: bool, waited: bool, verdict: str
) -> None:
    timeline = make(step(1), *[wait(0)] * waited)
    seen = context(timeline, failing=[] if silent else [timeline.at(0)])
    assert verdict_of(one(cause, inferred=inferred), seen)[0] == verdict


@pytest.mark.parametrize("signal", ["store_wait", "missing", "host_blocked"])
def test_other_words_for_a_wait(make: Any, signal: str) -> None:
    timeline = make({"signal": signal})
    seen = context(timeline, failing=[timeline.at(0)])
    assert verdict_of(one("desync.missing_rank"), seen) == ("hung", "waited")


# --------------------------------------------------------------------------- phases


@pytest.mark.parametrize(
    ("cause", "phase"),
    [
        ("rendezvous.timeout", "init"),
        ("data.preparation", "preprocessing"),
        ("slow.model_load", "model_load"),
        ("slow.checkpoint", "checkpoint"),
        ("slow.evaluation", "evaluation"),
        ("slow.compile", "init"),
        ("checkpoint.partial", "checkpoint"),
    ],
)
def test_some_causes_have_their_phase(make: Any, cause: str, phase: str) -> None:
    timeline = make(marker("training"), step(1))
    assert (
        phase_of(one(cause), context(timeline, activity=Activity("training", 0)), NOWHERE) == phase
    )


OOM = signature("t.oom", "crash.gpu_oom")


@pytest.mark.parametrize(
    ("row", "activity", "phase"),
    [
        (matched(OOM, phase="init"), Activity("training"), "init"),
        (matched(OOM), Activity("evaluation"), "evaluation"),
        # Training goes on to evaluate and save: what went on says it closer.
        (matched(OOM, phase="training"), Activity("evaluation"), "evaluation"),
        (matched(OOM, phase="training"), Activity("preprocessing"), "training"),
        # What is neither cause nor aftermath signal what went on beside it.
        (matched(OOM, phase="init", role="effect"), Activity("training"), "training"),
        (matched(OOM, phase="shutdown", role="effect"), Activity(), "shutdown"),
    ],
)
def test_the_evidence_tells_its_phase(make: Any, row: Row, activity: Activity, phase: str) -> None:
    assert (
        phase_of(one("crash.gpu_oom", rows=[0]), context(make(row), activity=activity), NOWHERE)
        == phase
    )


def test_without_any_other_sign_the_markers_before_the_onset_tell(make: Any) -> None:
    timeline = make(marker("init"), marker("model_load"), step(1), marker("shutdown"))
    winner = one("crash.gpu_oom")
    for row, phase in ((0, "init"), (1, "model_load"), (3, "training"), (None, "training")):
        assert phase_of(winner, context(timeline), Start(None, row, "")) == phase


@pytest.mark.parametrize(
    ("cause", "phase"),
    [
        ("net.socket", "init"),
        ("net.fabric", "training"),
        ("env.version", "init"),
        ("hw.gpu", "training"),
        ("unknown", None),
    ],
)
def test_else_it_is_where_such_a_cause_usually_strikes(make: Any, cause: str, phase: str) -> None:
    assert phase_of(one(cause), context(make()), NOWHERE) == phase


# --------------------------------------------------------------------------- what is told


def test_the_collective_of_the_first_group_that_stopped(make: Any) -> None:
    found = stalls(make(wait(0, group="dp"), wait(None, group="dp"), wait(2, group="dp")), None)
    assert collective_of(found) == Collective("dp", "ALLREDUCE", 7, [0, 2], [1])
    other = Verdict("mismatched", (5,), "tp", joined=(5, 6))
    assert collective_of([other, *found]) == Collective("tp", None, None, [6], [])
    assert collective_of([]) is None


def test_a_guess_at_who_did_not_join_gives_way_to_a_culprit_who_did(make: Any) -> None:
    found = stalls(make(wait(0, group="dp"), wait(None, group="dp"), wait(2, group="dp")), None)
    assert collective_of(found, [2]) == Collective("dp", "ALLREDUCE", 7, [0, 2], [])
    assert collective_of(found, [1]) == Collective("dp", "ALLREDUCE", 7, [0, 2], [1])
    proven = [replace(found[0], ranks=found[0].suspects, suspects=(), sure=True)]
    assert collective_of(proven, [2]) == Collective("dp", "ALLREDUCE", 7, [0, 2], [1])


def test_the_facts_of_a_job() -> None:
    facts = Facts({"framework": ["verl", "torch"], "version.torch": ["2.4.0", "2.3.0"]}, 8)
    assert job_facts(facts, 3) == JobFacts(
        world_size=8,
        hosts=[],
        attempts=3,
        frameworks=["verl", "torch"],
        versions={"torch": "2.4.0"},
        ranks_seen=[],
    )


def test_where_no_rule_proposes_anything_the_first_failures_are_shown(make: Any) -> None:
    failing = list(make(*[wait(rank) for rank in range(9)]))
    found = inconclusive(failing, catalog())
    assert (found.cause, found.title, found.rows) == ("unknown", "Title of unknown", [0, 1, 2, 3])


def test_a_launcher_that_waits_alone_is_said_to() -> None:
    """Before any of its ranks is there: a bundle of a job whose other node does not come."""
    frame = "torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py"
    text = (
        "Process 7: torchrun --nnodes 2 train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\n"
        f'Thread 7 (idle): "MainThread"\n    next_rendezvous (/opt/site-packages/{frame}:67)\n'
    )
    (place,) = unranked(read_stacks(text.encode(), "stack.txt"))
    assert inconclusive([], catalog(), _waiting([place])).summary == (
        f"A process is waiting for a key in the store: next_rendezvous in {frame}; nothing shows "
        "why it hangs."
    )
    assert inconclusive([], catalog(), _waiting([replace(place, state="python")])).summary == (
        "The job had not ended when somebody looked into it; nothing shows why it hangs."
    )


@pytest.mark.parametrize(
    ("pods", "hosts"), [(["w-0"], ["w-0"]), (["w-0", "w-0"], ["w-0"]), (["w-0", "w-1"], [])]
)
def test_the_one_pod_that_a_table_shows_in_error_is_named(
    make: Any, pods: list[str], hosts: list[str]
) -> None:
    """Of several who failed first is not told."""
    table = [{"kind": "other", "role": "effect", "signal": "dies", "fields": {"host": pod}}
             for pod in pods]  # fmt: skip
    timeline = make(step(3), *table)
    found = inconclusive([event for event in timeline if event.signal], catalog())
    assert found.hosts == hosts
    assert found.kind == ("crashed" if hosts else None)


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        ([], False),
        ([marker("init")], False),
        ([marker("init"), marker("training")], True),
        ([step(1)], True),
        ([wait(0)], False),
    ],
)
def test_whether_a_log_shows_work(make: Any, rows: list[Row], answer: bool) -> None:
    assert at_work(context(make(*rows))) is answer
