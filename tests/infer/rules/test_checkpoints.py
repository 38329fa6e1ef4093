"""What the checkpoints in a job's folder change in its diagnosis."""

import shutil
from pathlib import Path

import pytest

import diagnose
from diagnose.catalog.schema import Run
from diagnose.checkpoint.find import inspect
from diagnose.diagnosis import Diagnosis
from diagnose.errors import InputError
from tests.checkpoint.make import accessory, hf

FIXTURES = Path(__file__).parents[3] / "fixtures"
SAVED = 1_700_000_000.0


def trainer(folder: Path, *steps: int) -> None:
    for number, step in enumerate(steps):
        start = SAVED + 600 * number
        hf.MAKERS["hf-trainer"](folder / f"checkpoint-{step}", step=step, world=4, start=start)


def of(folder: Path, log: str) -> Diagnosis:
    (folder / "train.log").write_text(log)
    return diagnose.diagnose(diagnose.load(folder))


DIED = """\
[2026-01-01 10:00:00,000] [INFO] ***** Running training *****
{'loss': 1.0, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1, 'step': 210}
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free.
"""  # noqa: E501
LOADING = """\
[rank0]: Loading checkpoint from out/checkpoint-200
[rank0]: Traceback (most recent call last):
[rank0]:   File "train.py", line 3, in <module>
[rank0]:     main()
[rank0]: RuntimeError: out/checkpoint-200: the file is not what it should be
"""


def test_a_partial_checkpoint_is_a_consequence_of_another_cause(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100, 200)
    (tmp_path / "out/checkpoint-200/trainer_state.json").unlink()
    found = of(tmp_path, DIED)
    assert found.root_cause.cause == "crash.gpu_oom"
    last = found.evidence[-1]
    assert (last.source, last.line) == ("checkpoint-200", 0)
    assert last.text.startswith("trainer_state.json: missing")
    assert last.why == "also: the checkpoint written last is partial, as a consequence"
    assert "resume from checkpoint-100, for checkpoint-200 is partial" in found.restart.why
    step = next(step for step in found.remedies if step.do.startswith("Resume from checkpoint-100"))
    assert step.when == "now"
    assert step.run == [Run("setting", [f"--resume_from_checkpoint {tmp_path}/out/checkpoint-100"])]
    assert any("--exit-code" in str(s.run) for s in found.remedies if s.when == "prevent")


def test_the_rank_that_did_not_write_its_part_is_told(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100, 200)
    (tmp_path / "out/checkpoint-200/rng_state_2.pth").unlink()
    found = of(tmp_path, DIED)
    assert found.evidence[-1].why.endswith("a consequence; rank 2 did not write all of theirs")
    (tmp_path / "out/checkpoint-200/rng_state_1.pth").unlink()
    found = of(tmp_path, DIED)  # half of the world: they may save elsewhere
    assert found.evidence[-1].why.endswith("a consequence")


def test_a_whole_last_checkpoint_is_where_to_go_on(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100, 200)
    found = of(tmp_path, DIED)
    assert "resume from checkpoint-200" in found.restart.why
    assert not any(evidence.source.startswith("checkpoint-") for evidence in found.evidence)
    step = next(
        step for step in found.remedies if step.do == "Resume from checkpoint-200 (step 200)"
    )
    assert step.why == "It is the last, and whole"


def test_a_job_that_dies_over_a_damaged_checkpoint_dies_of_it(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100, 200)
    whole = of(tmp_path, LOADING)
    assert whole.root_cause.cause == "crash.exception"
    model = tmp_path / "out/checkpoint-200/model.safetensors"
    model.write_bytes(model.read_bytes()[:-100])
    found = of(tmp_path, LOADING)
    assert found.root_cause.cause == "checkpoint.partial"
    assert "model.safetensors" in found.root_cause.summary
    assert found.verdict == "failed"


def test_a_job_that_got_on_did_not_die_of_its_checkpoint(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100, 200)
    (tmp_path / "out/checkpoint-200/model.safetensors").write_bytes(b"")
    found = of(tmp_path, "{'loss': 1.0, 'epoch': 0.1, 'step': 250}\n" + LOADING)
    assert found.root_cause.cause == "crash.exception"


def test_a_healthy_job_stays_healthy(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100)
    (tmp_path / "out/checkpoint-100/trainer_state.json").unlink()
    shutil.copytree(FIXTURES / "healthy-transformers", tmp_path, dirs_exist_ok=True)
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert found.verdict == "healthy"
    assert any("checkpoint-100 is partial" in note for note in found.notes)


def test_the_first_save_of_accessory(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "llama2-accessory-first-save", tmp_path, dirs_exist_ok=True)
    made = tmp_path / "out/epoch0-iter999"
    accessory.MAKERS["accessory"](made, step=999, world=8, start=SAVED)
    for path in made.iterdir():
        if ".model.pth" not in path.name:
            path.unlink()
    found = diagnose.diagnose(diagnose.load(tmp_path))
    assert found.root_cause.cause == "slow.checkpoint"
    assert found.evidence[-1].why.startswith("also: the checkpoint written last is partial")
    assert found.restart.why.endswith("no checkpoint is whole (epoch0-iter999 is partial)")


def test_checkpoints_may_lie_elsewhere(tmp_path: Path) -> None:
    trainer(tmp_path / "out", 100)
    log = tmp_path / "a.log"
    log.write_text(DIED)
    assert diagnose.load(log).checkpoints is None
    job = diagnose.load(log, checkpoints=[tmp_path / "out"])
    assert job.checkpoints == inspect([str(tmp_path / "out")])


def test_a_folder_for_checkpoints_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(DIED)
    with pytest.raises(InputError, match=r"gone: no such file"):
        diagnose.load(log, checkpoints=[tmp_path / "gone"])
