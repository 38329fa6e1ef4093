"""What the checkpoints in a job's folder add to its diagnosis."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose.catalog.schema import Run
from diagnose.checkpoint.model import Checkpoint, Inspection, Resume, State
from diagnose.diagnosis import Diagnosis, JobFacts, Onset, RestartAdvice, RootCause
from diagnose.infer.advise.checkpoints import added
from diagnose.timeline.event import Timeline
from tests.checkpoint.make import accessory

from ..rows import at, catalog, step
from ..saved import DIED, SAVED, of, trainer

FIXTURES = Path(__file__).parents[3] / "fixtures"


def test_a_partial_checkpoint_is_a_consequence_of_another_cause(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100, 200)
    (tmp_path / "out/checkpoint-200/trainer_state.json").unlink()
    found = of(tmp_path, DIED)
    assert found.root_cause.cause == "crash.gpu_oom"
    last = found.evidence[-1]
    assert (last.source, last.line) == ("checkpoint-200", 0)
    assert last.text.startswith("trainer_state.json: missing")
    assert last.why == "consequence: the most recent checkpoint is incomplete"
    assert "resume from checkpoint-100, because checkpoint-200 is incomplete" in found.restart.why
    step = next(step for step in found.remedies if step.do.startswith("Resume from checkpoint-100"))
    assert step.when == "now"
    assert step.run == [Run("setting", [f"--resume_from_checkpoint {tmp_path}/out/checkpoint-100"])]
    assert any("--exit-code" in str(s.run) for s in found.remedies if s.when == "prevent")
    kept = next(s.run for s in found.remedies if s.do == "Keep at least the last two checkpoints.")
    assert kept == [Run("setting", ["--save_total_limit 2"], "transformers")]


def test_the_rank_that_did_not_write_its_part_is_told(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100, 200)
    (tmp_path / "out/checkpoint-200/rng_state_2.pth").unlink()
    found = of(tmp_path, DIED)
    assert found.evidence[-1].why.endswith("is incomplete; rank 2 did not finish writing")
    (tmp_path / "out/checkpoint-200/rng_state_1.pth").unlink()
    found = of(tmp_path, DIED)  # half of the world: they may save elsewhere
    assert found.evidence[-1].why.endswith("is incomplete")


def test_a_whole_last_checkpoint_is_where_to_go_on(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100, 200)
    found = of(tmp_path, DIED)
    assert "resume from checkpoint-200" in found.restart.why
    assert not any(evidence.source.startswith("checkpoint-") for evidence in found.evidence)
    step = next(
        step for step in found.remedies if step.do == "Resume from checkpoint-200 (step 200)"
    )
    assert step.why == "It is the most recent one, and intact"


def test_a_healthy_job_stays_healthy(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100)
    (tmp_path / "out/checkpoint-100/trainer_state.json").unlink()
    shutil.copytree(FIXTURES / "healthy-transformers", tmp_path, dirs_exist_ok=True)
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert found.verdict == "healthy"
    assert any("checkpoint-100 is incomplete" in note for note in found.notes)


def test_the_first_save_of_accessory(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "llama2-accessory-first-save", tmp_path, dirs_exist_ok=True)
    made = tmp_path / "out/epoch0-iter999"
    accessory.MAKERS["accessory"](made, step=999, world=8, start=SAVED)
    for path in made.iterdir():
        if ".model.pth" not in path.name:
            path.unlink()
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert found.root_cause.cause == "slow.checkpoint"
    assert found.evidence[-1].why.startswith(
        "consequence: the most recent checkpoint is incomplete"
    )
    assert found.restart.why.endswith(
        "there is no usable checkpoint (epoch0-iter999 is incomplete)"
    )


# --------------------------------------------------------------------------- of a given diagnosis


def checkpoint(number: int, state: State, *reasons: str, **more: Any) -> Checkpoint:
    return Checkpoint(
        f"/run/checkpoint-{number}", "hf-trainer", number, 8, state, list(reasons), 3, 9, number,
        "transformers", **more,
    )  # fmt: skip


def failed(why: str = "It would fail again.") -> Diagnosis:
    return Diagnosis(
        verdict="failed",
        root_cause=RootCause("env.config", "title", "summary", "high"),
        onset=Onset(None, ""),
        restart=RestartAdvice("fix_first", [], why),
        job=JobFacts(world_size=4),
    )


def told(timeline: Timeline, *checkpoints: Checkpoint, resume: Resume | None = None) -> Diagnosis:
    return added(failed(), Inspection(list(checkpoints), resume), timeline, catalog())


def test_what_comes_again_is_counted(make: Any) -> None:
    timeline = make(step(100, time=at("08:00:00")), step(1350, time=at("09:30:00")))
    resume = Resume("/run/checkpoint-100", 100, "--resume")
    found = told(
        timeline, checkpoint(100, "whole"), checkpoint(200, "corrupt", "x: damaged"), resume=resume
    )
    assert found.restart.why == (
        "It would fail again; resume from checkpoint-100, because checkpoint-200 is corrupt; "
        "this repeats 1,250 steps (about 6.0 GPU-hours)"
    )


@pytest.mark.parametrize(
    ("state", "said"), [("partial", "is incomplete"), ("unknown", "is not verified")]
)
def test_without_a_whole_one_that_is_told(make: Any, state: State, said: str) -> None:
    found = told(make(), checkpoint(200, state, "x: missing"))
    assert (
        found.restart.why
        == f"It would fail again; there is no usable checkpoint (checkpoint-200 {said})"
    )


@pytest.mark.parametrize("behind", [2, 3])
def test_the_few_ranks_that_did_not_write_are_named(make: Any, behind: int) -> None:
    files = tuple(f"rng_state_{rank}.pth" for rank in range(behind))
    reasons = [f"{file}: missing" for file in files]
    found = told(make(), checkpoint(200, "partial", *reasons, missing=files))
    named = "; ranks 0-1 did not finish writing" if behind == 2 else ""
    assert [(e.source, e.text, e.why) for e in found.evidence] == [
        (
            "checkpoint-200",
            reason,
            f"consequence: the most recent checkpoint is incomplete{named}",
        )
        for reason in reasons
    ]


def test_of_a_job_at_work_only_damage_is_a_note(make: Any) -> None:
    healthy = Diagnosis("healthy", failed().root_cause, onset=Onset(None, ""))
    whole = Inspection([checkpoint(200, "whole")])
    assert added(healthy, whole, make(), catalog()) == healthy
    found = added(healthy, Inspection([checkpoint(200, "partial", "x: gone")]), make(), catalog())
    assert found.notes == ["checkpoint-200 is incomplete (x: gone); harmless during a save"]
    assert added(healthy, Inspection([]), make(), catalog()) == healthy
