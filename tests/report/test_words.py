"""The shared sentences."""

import pytest

from diagnose.catalog.schema import Needs, Risk, Run
from diagnose.diagnosis import (
    Answer,
    Collective,
    Culprits,
    Diagnosis,
    JobFacts,
    Onset,
    Progress,
    RemedyStep,
    RootCause,
    Verdict,
)
from diagnose.report import words

CAUSE = RootCause("desync.missing_rank", "title", "summary", "medium")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("the end", "the end."),
        ("Done!", "Done!"),
        ("gpu07 died", "gpu07 died."),
    ],
)
def test_sentence(text: str, expected: str) -> None:
    assert words.sentence(text) == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Culprits(), ""),
        (Culprits([3], [], "crashed"), "Rank 3: failed"),
        (
            Culprits([1, 2, 3], ["a", "b"], "missing"),
            "Ranks 1-3 on a, b: left the other ranks, or never joined them",
        ),
        (Culprits([], ["a"], None), "a"),
        (Culprits([], [], "slow"), ""),
    ],
)
def test_culprits(found: Culprits, expected: str) -> None:
    assert words.culprits(Diagnosis("hung", CAUSE, found)) == expected


def test_who_is_missing_never_reached_the_collective_that_is_known() -> None:
    waits = Collective(None, "ALLREDUCE", 7)
    found = Diagnosis("hung", CAUSE, Culprits([2], [], "missing"), collective=waits)
    assert words.culprits(found) == "Rank 2: never reached the collective"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Collective(None, None, None), "a collective"),
        (Collective("dp", "ALLREDUCE", 0), "ALLREDUCE, sequence number 0, group dp"),
        (
            Collective(None, "BARRIER", None, [0, 1], [2]),
            "BARRIER: ranks 0-1 joined, rank 2 did not",
        ),
        (Collective(None, "BARRIER", None, [], [2]), "BARRIER: rank 2 did not join"),
        (Collective(None, "BARRIER", None, [0, 1], []), "BARRIER: ranks 0-1 joined"),
    ],
)
def test_collective(found: Collective, expected: str) -> None:
    assert words.collective(found) == expected


def test_onset() -> None:
    assert words.onset(Onset()) == ""
    assert words.onset(Onset(None, "no line has a time")) == "No line has a time."
    assert (
        words.onset(Onset("2025-01-02T03:04:05.678901", "why")) == "2025-01-02 03:04:05.678 (why)"
    )
    assert words.onset(Onset("2025-01-02T03:04:05")) == "2025-01-02 03:04:05"


def test_progress_has_the_time_of_the_last_step_and_a_slow_down() -> None:
    done = Progress(
        1200, 9.0, None, 1800.0, last_step_time="2026-06-02T08:02:27", earlier_seconds_a_step=1.2
    )
    assert words.progress(done) == (
        "step 1,200 at 2026-06-02 08:02:27 · 9 s a step, 1.2 s earlier · silent for the last 30 min"
    )
    assert words.progress(Progress(7, seconds_a_step=75.0)) == "step 7 · 1 min 15 s a step"


@pytest.mark.parametrize(
    ("verdict", "answer", "text"),
    [
        ("hung", "no", "No. A longer timeout would only delay the same failure."),
        ("failed", "no", "No. The cause is not a timeout."),
        ("failed", "yes", "Yes. It has to exceed the time the slow rank needs."),
    ],
)
def test_a_longer_timeout_delays_only_what_waits(
    verdict: Verdict, answer: Answer, text: str
) -> None:
    found = Diagnosis(verdict, RootCause("c", "", "", "low"), longer_timeout_helps=answer)
    assert words.longer_timeout(found) == text


def test_job() -> None:
    assert words.job(JobFacts()) == ""
    assert words.job(JobFacts(world_size=1)) == "1 rank"
    assert words.job(JobFacts(hosts=["a"])) == "host a"
    assert words.job(JobFacts(world_size=2, hosts=["a", "b"], attempts=3)) == (
        "2 ranks on a, b; 3 attempts"
    )
    # the hosts that were seen need not hold all ranks
    assert words.job(JobFacts(world_size=2, hosts=["a"], ranks_seen=[0])) == (
        "2 ranks; host a; no output from rank 1"
    )
    # nobody could be told apart: that says nothing about who is absent
    assert words.job(JobFacts(world_size=8)) == "8 ranks"
    assert words.job(JobFacts(world_size=4, ranks_seen=[1])) == (
        "4 ranks; no output from ranks 0, 2-3"
    )


def test_names_are_bounded() -> None:
    assert words.names(["a", "b"]) == "a, b"
    assert words.names([str(n) for n in range(100)], 3) == "0, 1 and 98 more"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), ""),
        (("Rank 5: died", ""), "Rank 5: died."),
        (("Rank 5: died", "It was killed"), "Rank 5: died. It was killed."),
        (("Rank 5: died", "others ended later"), "Rank 5: died; others ended later."),
    ],
)
def test_joined(parts: tuple[str, ...], expected: str) -> None:
    assert words.joined(*parts) == expected


LOOK = Run("shell", ["ibstat"])


@pytest.mark.parametrize(
    ("runs", "labels"),
    [
        ([LOOK], [""]),
        ([Run("shell", ["sbatch a"], "slurm")], ["For slurm"]),
        ([LOOK, Run("note", ["ask them"], "aws")], ["", "For aws"]),
        ([LOOK, Run("python", ["f()"])], ["Shell", "Python"]),
        ([Run("setting", ["a: 1"], "verl", "a.yaml")], ["Setting for verl, in a.yaml"]),
        ([Run("setting", ["a: 1"], "", "a.yaml")], ["Setting, in a.yaml"]),
    ],
)
def test_what_stands_above_something_to_run(runs: list[Run], labels: list[str]) -> None:
    step = RemedyStep("now", "do", "", runs)
    assert words.runs_of(step) == list(zip(labels, runs, strict=True))


@pytest.mark.parametrize(
    ("risk", "needs", "caution"),
    [
        ("read_only", "user", ""),
        ("changes_state", "user", "Changes state."),
        ("read_only", "admin", "Needs an administrator."),
        (
            "destructive",
            "admin",
            "Needs an administrator. Destructive: ends or deletes what is there.",
        ),
    ],
)
def test_the_risk_of_a_step_is_told(risk: Risk, needs: Needs, caution: str) -> None:
    assert words.caution(RemedyStep("now", "do", "", [], risk, needs)) == caution
