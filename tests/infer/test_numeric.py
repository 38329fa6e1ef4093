"""Trainings whose values are bad to the end: the verdict, since which step, of which rank."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagnose


def judged(*lines: str) -> diagnose.Diagnosis:
    return diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))


def steps(count: int, bad: int, value: str = "nan", form: str = "step {n} loss {v}") -> list[str]:
    return [form.format(n=n, v=value if n >= bad else 2.5) for n in range(count)]


def test_a_job_that_runs_on_with_a_loss_that_is_nan_is_running_with_a_cause() -> None:
    found = judged(*steps(60, 40))
    assert (found.verdict, found.root_cause.cause) == ("running", "numeric.nan")
    assert found.root_cause.title == "The loss is nan since step 40"
    assert "the last good value is 2.5 at step 39" in found.root_cause.summary
    assert found.restart.advice == "fix_first"
    assert [one.line for one in found.evidence] == [40, 41]
    assert any(one.predicate == "bad_values" for one in found.reasons)


def test_one_that_ended_well_by_its_own_words_has_failed() -> None:
    found = judged(*steps(60, 40), "Training complete.")
    assert (found.verdict, found.root_cause.cause) == ("failed", "numeric.nan")
    assert any(one.predicate == "ended_with_bad_values" for one in found.reasons)


def test_the_rank_whose_loss_went_bad_first_is_named(tmp_path: Path) -> None:
    for rank in range(4):
        lines = steps(60, 30 if rank == 2 else 31)
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert (found.root_cause.cause, found.culprits.ranks) == ("numeric.nan", [2])
    assert "before those of all other ranks" in found.culprits.why


def test_nobody_is_named_where_all_went_bad_at_one_step(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(steps(60, 30)) + "\n")
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert (found.root_cause.cause, found.culprits.ranks) == ("numeric.nan", [])


def test_an_exception_that_follows_is_its_consequence() -> None:
    found = judged(
        *steps(60, 40),
        "Traceback (most recent call last):",
        '  File "train.py", line 8, in <module>',
        "ValueError: Input contains NaN",
    )
    assert (found.verdict, found.root_cause.cause) == ("failed", "numeric.nan")


def test_an_unrelated_failure_stays_the_cause() -> None:
    found = judged(
        *steps(60, 61),
        "step 61 loss nan",
        "step 62 loss 2.4",
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    )
    assert found.root_cause.cause == "crash.gpu_oom"


@pytest.mark.parametrize(
    ("end", "verdict", "predicate"),
    [((), "running", "bad_values"), (("Training complete.",), "healthy", "ended_with_high_values")],
)
def test_a_loss_that_rose_for_good_is_only_a_lead(
    end: tuple[str, ...], verdict: str, predicate: str
) -> None:
    for form in ("step {n} loss {v}", "step {n} grad_norm {v}"):
        found = judged(*steps(80, 50, "950.0", form), *end)
        assert (found.verdict, found.root_cause.cause) == (verdict, "numeric.spike")
        assert found.root_cause.confidence == "low"
        assert predicate in [one.predicate for one in found.reasons if one.step == "verdict"]


def test_overflow_and_norms_that_are_not_finite_spoil_a_job_that_ended_well() -> None:
    found = judged(*steps(80, 50, "nan", "step {n} loss 1.5 grad_norm {v}"), "Training complete.")
    assert (found.verdict, found.root_cause.cause) == ("failed", "numeric.nan")


@pytest.mark.parametrize(
    "lines",
    [
        [*steps(30, 20), *(f"step {n} loss 2.4" for n in range(30, 50))],
        [f"reducing loss scale to {2.0**n}" for n in range(16, 9, -1)] + steps(30, 31),
        [*steps(30, 31), "{'eval_loss': nan, 'eval_runtime': 0.0}", *steps(40, 41)],
        steps(30, 29, form="step {n} loss 2.5 grad_norm {v}"),
        steps(40, 41, form="step {n} loss {v} loss_aux nan"),
    ],
)
def test_what_recovers_or_is_of_nothing_is_no_failure(lines: list[str]) -> None:
    found = judged(*lines)
    assert (found.verdict, found.root_cause.cause) == ("running", "none")


def test_a_rerun_that_disagrees_names_the_rank_and_the_hardware() -> None:
    found = judged(
        *steps(30, 31),
        "ERROR:megatron.core.rerun_state_machine:Rank 3, node node7, device 5, iteration #30: "
        "Possible persistent error!!",
    )
    assert (found.root_cause.cause, found.culprits.ranks) == ("hw.sdc", [3])
    assert found.culprits.hosts == ["node7"]
    assert found.restart.advice == "retry_elsewhere"


def test_a_norm_that_all_ranks_share_accuses_none_of_them(tmp_path: Path) -> None:
    for rank in range(2):
        lines = [
            f"step {n} loss {'nan' if n > 30 or (n == 30 and rank) else 2.5} "
            f"grad_norm {'nan' if n >= 30 else 0.4}"
            for n in range(60)
        ]
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert (found.root_cause.cause, found.culprits.ranks) == ("numeric.nan", [1])


@pytest.mark.parametrize(("first", "cause"), [(10, "none"), (8, "numeric.nan")])
def test_values_of_a_run_that_a_later_one_follows_do_not_count(
    tmp_path: Path, first: int, cause: str
) -> None:
    def log(name: str, hour: int, bad: int) -> None:
        lines = [f"2026-03-01 {hour:02}:{n:02}:00 {one}" for n, one in enumerate(steps(50, bad))]
        (tmp_path / name).write_text("\n".join(lines) + "\n")

    log("one.log", 9, 20)
    log("two.log", first, 50)
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert (found.verdict, found.root_cause.cause) == ("running", cause)
