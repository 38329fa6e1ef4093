"""The command `checkpoint`, run as a user runs it."""

import json
from pathlib import Path

import pytest

from diagnose.cli.main import run
from tests.checkpoint.make import hf
from tests.cli.running import check_readme

LOG = """\
[2026-01-01 10:00:00,000] [INFO] world_size=4
{'loss': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1, 'step': 100}
[2026-01-01 11:00:00,000] [INFO] step 150 loss 0.9
[2026-01-01 12:00:00,000] [INFO] step 180 loss 0.8
"""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for number, step in enumerate((100, 200)):
        folder = tmp_path / f"out/checkpoint-{step}"
        hf.MAKERS["hf-trainer"](folder, step=step, world=4, start=1.7e9 + 600 * number)
    return tmp_path / "out"


def cut(out: Path) -> None:
    (out / "checkpoint-200/trainer_state.json").unlink()


def test_json_is_alone_on_stdout(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut(out)
    assert run(["checkpoint", str(out), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert list(answer) == ["schema", "checkpoints", "resume"]
    assert answer["schema"] == "diagnose-checkpoint/1"
    assert [(one["step"], one["state"]) for one in answer["checkpoints"]] == [
        (100, "whole"),
        (200, "partial"),
    ]
    keys = ["path", "layout", "step", "state", "reasons", "files", "bytes"]
    assert list(answer["checkpoints"][0]) == keys
    assert answer["checkpoints"][1]["reasons"][0].startswith("trainer_state.json: missing")
    assert answer["resume"] == {
        "path": f"{out}/checkpoint-100",
        "step": 100,
        "how": f"--resume_from_checkpoint {out}/checkpoint-100",
    }


def test_exit_code_is_for_scripts(out: Path) -> None:
    assert run(["checkpoint", "--exit-code", str(out)]) == 0
    cut(out)
    assert run(["checkpoint", str(out)]) == 0
    assert run(["checkpoint", "--exit-code", str(out)]) == 1
    assert run(["checkpoint", "--exit-code", str(out / "checkpoint-100")]) == 0


def test_no_checkpoint_is_no_success_for_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["checkpoint", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "No checkpoint found.\n"
    assert run(["checkpoint", "--exit-code", str(tmp_path)]) == 1
    assert run(["checkpoint", str(tmp_path), "--format", "json"]) == 0


def test_logs_tell_what_is_lost(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut(out)
    log = tmp_path / "train.log"
    log.write_text(LOG)
    assert run(["checkpoint", str(out), "--logs", str(log)]) == 0
    assert "Resuming repeats 80 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere/at/all"], "diagnose: /nowhere/at/all: no such file or directory"),
        ([""], "diagnose: one of the paths is empty"),
        (["nosuch://bucket/x"], "diagnose: nosuch://bucket/x: no reader for nosuch://"),
    ],
)
def test_what_cannot_be_read(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["checkpoint", *arguments]) == 2
    assert capsys.readouterr().err.startswith(message)


def test_verify_finds_a_changed_byte(out: Path) -> None:
    optimizer = out / "checkpoint-200/optimizer.pt"
    data = bytearray(optimizer.read_bytes())
    at = len(data) // 2
    data[at] ^= 0xFF
    optimizer.write_bytes(data)
    assert run(["checkpoint", "--exit-code", "--verify", str(out)]) == 1


def test_triage_takes_checkpoints_from_elsewhere(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        f"{LOG}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    assert run(["triage", str(log), "--checkpoints", str(out), "--format", "json"]) == 0
    why = json.loads(capsys.readouterr().out)["restart"]["why"]
    assert "resume from checkpoint-200" in why
    assert run(["triage", str(log), "--checkpoints", str(tmp_path / "gone")]) == 2


def test_the_readme_shows_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    make = hf.MAKERS["hf-trainer-deepspeed-zero2"]
    for number, step in enumerate((2000, 2500, 3000)):
        start = 1_750_000_000.0 + 1800 * number
        make(tmp_path / f"out/checkpoint-{step}", step=step, world=8, start=start)
    last = tmp_path / "out/checkpoint-3000"
    for name in ("trainer_state.json", "rng_state_5.pth"):
        (last / name).unlink()
    cut = next(last.rglob("*zero_pp_rank_5_*_optim_states.pt"))
    cut.write_bytes(cut.read_bytes()[:1000])
    assert run(["checkpoint", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out.replace(str(tmp_path), "/data")
    check_readme("checkpoint", f"$ diagnose checkpoint /data/out\n{out}")
