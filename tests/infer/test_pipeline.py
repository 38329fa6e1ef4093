"""The steps in order: which rules are asked, and what becomes of what they propose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import diagnose
from diagnose.infer.decide import ranking
from diagnose.infer.rules import INFERRED, KNOWN, STATED, proposals
from diagnose.infer.rules.base import Context, Hypothesis, Tier
from diagnose.timeline.event import Timeline

from .rows import context
from .test_whole import without

FIXTURES = Path(__file__).parents[2] / "fixtures"
LOG = "\n".join(line for log in without(3, 4) for line in log) + "\n"


def judged(text: str = LOG) -> diagnose.Diagnosis:
    return diagnose.diagnose(diagnose.load_text(text))


# --------------------------------------------------------------------------- rules


def own(seen: Context) -> Iterator[Hypothesis]:
    """A rule as anybody may write it."""
    waits = seen.timeline.signalling("timeout")
    if waits:
        yield Hypothesis(
            "slow.storage", Tier.PROVEN, "The storage", "It is slow.", [waits[0].index], ranks=[3],
            kind="slow", why="a rule says so", sure=True,
        )  # fmt: skip


def test_a_further_rule_is_asked_and_may_win(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged().root_cause.cause == "desync.missing_rank"
    monkeypatch.setitem(INFERRED, "own", own)
    found = judged()
    assert (found.root_cause.cause, found.root_cause.confidence) == ("slow.storage", "high")
    assert (found.culprits.ranks, found.culprits.why) == ([3], "a rule says so")
    assert [other.cause for other in found.alternatives] == ["desync.missing_rank"]
    assert found.evidence[0].text.startswith("[rank0]:[E602 08:25:10")


def test_a_further_rule_is_not_asked_about_a_healthy_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: Context) -> Iterable[Hypothesis]:
        raise AssertionError("nothing failed")

    for stage in (STATED, INFERRED, KNOWN):
        monkeypatch.setitem(stage, "never", never)
    assert judged("[rank0]: iteration 1/ 100 | loss: Tier.GUESS\n").verdict == "running"


def test_rules_of_a_later_stage_see_what_the_stages_before_proposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[str]] = []

    def looks(given: Context) -> Iterable[Hypothesis]:
        seen.append([one.rule for one in given.proposed])
        return ()

    for stage in (STATED, INFERRED, KNOWN):
        monkeypatch.setitem(stage, "looks", looks)
    judged(LOG + "[rank3]: ValueError: bad batch\n")
    assert seen == [[], ["signatures"], ["signatures", "stalls"]]


@pytest.mark.parametrize("job", ["", "flight-recorder-mismatch", "llama2-accessory-first-save"])
def test_every_hypothesis_carries_its_rules_name(monkeypatch: pytest.MonkeyPatch, job: str) -> None:
    merged: list[Hypothesis] = []
    merge = ranking.merge

    def noted(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        merged.extend(hypotheses)
        return merge(hypotheses)

    monkeypatch.setattr(ranking, "merge", noted)
    diagnose.diagnose(diagnose.load(FIXTURES / job) if job else diagnose.load_text(LOG))
    assert merged
    assert {one.rule for one in merged} <= {*STATED, *INFERRED, *KNOWN}


@pytest.mark.parametrize(("tier", "told"), [(Tier.NONE, []), (Tier.GUESS, ["hw.gpu"])])
def test_what_scores_below_the_threshold_is_not_told(
    monkeypatch: pytest.MonkeyPatch, tier: Tier, told: list[str]
) -> None:
    guess = Hypothesis("hw.gpu", tier, "A guess", "It may be.")
    monkeypatch.setitem(INFERRED, "guess", lambda _: [guess])
    assert [other.cause for other in judged().alternatives] == told


def test_the_name_is_given_by_the_stage() -> None:
    given = Hypothesis("unknown", Tier.GUESS, "", "", rule="another")
    (found,) = proposals({"mine": lambda _: [given]}, context(Timeline()))
    assert (found.rule, given.rule) == ("mine", "another")


def test_no_two_stages_share_a_name() -> None:
    names = [*STATED, *INFERRED, *KNOWN]
    assert len(names) == len(set(names))


# --------------------------------------------------------------------------- leads

READY = "INFO:     Application startup complete.\n"


PEER = "2026-03-19 19:16:21 n1:7:8 [0] misc/socket.cc:72 NCCL WARN socketProgress: "
INDEX = " > building dataset index ...\n"


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        (PEER + "Connection closed by remote peer n2.example.com<46776>", "unknown"),
        (PEER + "Connection closed by remote peer", "unknown"),
        ("srun: forcing job termination", "data.preparation"),
    ],
)
def test_a_peer_that_went_says_nothing_of_the_work_here(last: str, cause: str) -> None:
    found = judged(INDEX + last + "\n")
    assert (found.verdict, found.root_cause.cause) == ("failed", cause)


USAGE = "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\n"


@pytest.mark.parametrize(
    ("last", "cause", "confidence"),
    [
        ("Failed to initialize any NET plugin", "env.config", "medium"),
        ("something new", "rendezvous.rank_mapping", "low"),
    ],
)
def test_the_last_error_of_nccl_says_more_than_its_return_code(
    last: str, cause: str, confidence: str
) -> None:
    found = judged(USAGE + last + "\n").root_cause
    assert (found.cause, found.confidence) == (cause, confidence)


def test_a_number_of_the_driver_is_no_rank() -> None:
    found = judged("[   72.99] habanalabs hl2: Failed to communicate with Device CPU (timeout)\n")
    assert (found.root_cause.cause, found.culprits.ranks) == ("hw.gpu", [])


@pytest.mark.parametrize(
    ("text", "verdict", "cause"),
    [
        (
            READY + "INFO:     Shutting down\nINFO:     Waiting for tasks to end.\n",
            "unknown",
            "unknown",
        ),
        (
            "Map:  46%|####      | 31/67 [29:02<35:12, 58.67s/it]\nsrun: forcing job termination\n",
            "failed",
            "data.preparation",
        ),
    ],
)
def test_a_server_that_was_stopped_was_not_too_slow(text: str, verdict: str, cause: str) -> None:
    found = judged(text)
    assert (found.verdict, found.root_cause.cause) == (verdict, cause)


def test_who_was_killed_after_it_answered_a_wait_did_not_die_first() -> None:
    timeout = (
        "[rank{}]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=167, "
        "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
    )
    answer = "[rank0]: Received a dump signal due to a collective timeout from rank 2 and we will try our best to dump the debug info. Last enqueued NCCL work: 166, last completed NCCL work: 166."  # noqa: E501
    ends = ["srun: error: n2: tasks 2-3: Aborted", "srun: error: n1: tasks 0-1: Killed"]
    lines = [timeout.format(2), timeout.format(3), answer]
    after = diagnose.diagnose(diagnose.load_text("\n".join([*lines, *ends]) + "\n"))
    assert after.root_cause.cause == "desync.missing_rank"
    silent = diagnose.diagnose(diagnose.load_text("\n".join([*lines[:2], *ends]) + "\n"))
    assert silent.root_cause.cause == "crash.killed"


def test_a_shutdown_alone_is_no_failure_and_no_good_end() -> None:
    served = "Processed prompts: 50%|#### | 500/1000 [03:51<00:00,  4.33it/s]"
    ends = "INFO 10-07 10:39:41 multiproc.py:134] Terminating local vLLM worker processes"
    found = diagnose.diagnose(diagnose.load_text(f"{served}\n{ends}\n"))
    assert (found.verdict, found.root_cause.cause) == ("unknown", "unknown")
    assert "shut down at the end" in found.root_cause.summary
