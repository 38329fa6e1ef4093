"""What is healthy stays whole, and what is no checkpoint is not called one."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from diagnose.checkpoint.find import inspect
from diagnose.checkpoint.model import Inspection
from tests.checkpoint.make import deepspeed, hf
from tests.checkpoint.make.base import Tensor, filler, safetensors_file, torch_file, write
from tests.checkpoint.mutate import STEPS, make_run, makers, name_of
from tests.sizes import few

BEGIN = 1_700_000_000.0
DAY = 86400.0


def made(run: Path, maker: str = "hf-trainer") -> Path:
    make_run(maker, run)
    return run


def states(inspection: Inspection) -> dict[str, list[str]]:
    """What is not whole, and why."""
    return {one.path: one.reasons for one in inspection.checkpoints if one.state != "whole"}


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def all_at_once(run: Path) -> None:
    for path in files(run):
        os.utime(path, (BEGIN, BEGIN))


def without_times(run: Path) -> None:
    for path in files(run):
        os.utime(path, (0, 0))


def in_order_of_names(run: Path) -> None:
    """As `cp -r` and downloads do, two minutes for each file."""
    for number, path in enumerate(files(run)):
        os.utime(path, (BEGIN + 120 * number,) * 2)


def backwards(run: Path) -> None:
    for number, path in enumerate(reversed(files(run))):
        os.utime(path, (BEGIN + 120 * number,) * 2)


def taken_up_again(run: Path) -> None:
    """A download that went on a day later, when the first file of the last checkpoint was there."""
    paths = files(run)
    last = [number for number, path in enumerate(paths) if "300" in str(path.relative_to(run))]
    for number, path in enumerate(paths):
        os.utime(path, (BEGIN + 2 * number + (DAY if number > last[0] else 0),) * 2)


COPIES = [all_at_once, without_times, in_order_of_names, backwards, taken_up_again]


@pytest.mark.parametrize(("maker", "copy"), few(product(makers(), COPIES), 2 * len(makers())))
def test_copies_are_whole(tmp_path: Path, maker: str, copy: Callable[[Path], None]) -> None:
    run = made(tmp_path / "run", maker)
    copy(run)
    inspection = inspect([str(run)])
    assert states(inspection) == {}
    assert inspection.resume is not None
    assert Path(inspection.resume.path).name == name_of(maker, STEPS[-1])


def test_files_of_users_and_other_programs_are_no_parts(tmp_path: Path) -> None:
    run = made(tmp_path)
    for folder in [run, *(path for path in run.iterdir() if path.is_dir())]:
        for name in ("README.md", ".gitattributes", "notes.txt", "log.jsonl"):
            write(folder / name, b"", BEGIN)
        write(folder / ".DS_Store", b"\0\0\0\1Bud1", BEGIN)
        write(folder / "events.out.tfevents.1700000000.host.1.0", b"\x18\0\0", BEGIN)
        write(folder / "eval_results.json", b"{}", BEGIN)
        write(folder / "wandb/run-1/files/config.yaml", b"a: 1", BEGIN)
        write(folder / "__pycache__/model.cpython-311.pyc", b"\0", BEGIN)
        write(folder / ".ipynb_checkpoints/train-checkpoint.ipynb", b"{}", BEGIN)
    inspection = inspect([str(run)])
    assert (len(inspection.checkpoints), states(inspection)) == (len(STEPS), {})


def test_a_job_without_checkpoints_has_none(tmp_path: Path) -> None:
    tensor = torch_file(content={"input_ids": Tensor((4,), "int64")})
    write(tmp_path / "train.pt", tensor, BEGIN)
    write(tmp_path / "shards/train_00.pt", tensor, BEGIN)
    write(tmp_path / "text_document.bin", filler(500), BEGIN)
    write(tmp_path / "text_document.idx", b"MMIDIDX\0\0", BEGIN)
    write(tmp_path / "model.bin", filler(500), BEGIN)  # of CTranslate2, for one
    write(tmp_path / "words/model.bin", filler(500), BEGIN)
    write(tmp_path / "data/data-00000-of-00001.arrow", b"ARROW1", BEGIN)
    write(tmp_path / "data/state.json", b"{}", BEGIN)
    write(tmp_path / "cache.pkl", pickle.dumps({"a": 1}), BEGIN)
    write(tmp_path / "tokenizer/tokenizer.json", b"{}", BEGIN)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    write(tmp_path / "tokenizer/config.json", json.dumps(config).encode(), BEGIN)
    write(tmp_path / "torchinductor_root/ab/kernel.so", b"\x7fELF", BEGIN)
    write(tmp_path / "step_3_logs/rank0.log", b"x", BEGIN)
    write(tmp_path / "epoch_1/predictions.txt", b"x", BEGIN)
    write(tmp_path / "latest", b"run7", BEGIN)
    (tmp_path / "checkpoints").mkdir()
    inspection = inspect([str(tmp_path)])
    assert [one.path for one in inspection.checkpoints] == []
    assert inspection.notes == []


def test_weights_that_were_converted_days_later(tmp_path: Path) -> None:
    run = made(tmp_path, "hf-trainer-deepspeed-zero3")
    merged = torch_file(content={"weight": Tensor((4, 4))})
    write(run / "checkpoint-200/pytorch_model.bin", merged, BEGIN + 1e9)
    assert states(inspect([str(run)])) == {}


def trainer(run: Path, *worlds: int) -> None:
    for number, world in enumerate(worlds, 1):
        folder = run / f"checkpoint-{number * 100}"
        hf.MAKERS["hf-trainer"](folder, step=number * 100, world=world, start=BEGIN + 600 * number)


@pytest.mark.parametrize("worlds", [(4, 4, 1), (1, 8), (1, 8, 8), (4, 4, 2, 2), (2, 2, 4, 4)])
def test_a_job_that_went_on_with_another_number_of_ranks(
    tmp_path: Path, worlds: tuple[int, ...]
) -> None:
    trainer(tmp_path, *worlds)
    assert states(inspect([str(tmp_path)])) == {}


def test_random_states_that_only_an_epoch_changes(tmp_path: Path) -> None:
    trainer(tmp_path, 2, 2, 2, 2)
    for rank in range(2):
        for step, other in ((200, 100), (400, 300)):
            name = f"rng_state_{rank}.pth"
            shutil.copyfile(
                tmp_path / f"checkpoint-{other}" / name, tmp_path / f"checkpoint-{step}" / name
            )
            os.utime(tmp_path / f"checkpoint-{step}" / name, (BEGIN + step * 6 + 3,) * 2)
    assert states(inspect([str(tmp_path)])) == {}


@pytest.mark.parametrize("weights", ["model.safetensors", "model-00001-of-00002.safetensors"])
def test_an_optimizer_called_as_that_of_fsdp(tmp_path: Path, weights: str) -> None:
    """What is loaded needs no `pytorch_model_fsdp.bin` where the weights are there."""
    maker = "hf-trainer" if "-of-" not in weights else "hf-trainer-sharded"
    hf.MAKERS[maker](tmp_path / "checkpoint-100", step=100, world=2, start=BEGIN)
    folder = tmp_path / "checkpoint-100"
    (folder / "optimizer.pt").rename(folder / "optimizer.bin")
    assert states(inspect([str(tmp_path)])) == {}


def test_fsdp_weights_alone(tmp_path: Path) -> None:
    hf.MAKERS["hf-trainer-fsdp-full"](tmp_path / "checkpoint-100", step=100, world=2, start=BEGIN)
    folder = tmp_path / "checkpoint-100"
    (folder / "model.safetensors").unlink()
    assert states(inspect([str(tmp_path)]))  # its settings tell that it was there
    (folder / "training_args.bin").unlink()
    assert states(inspect([str(tmp_path)])) == {}


def test_numbers_in_names_that_equal_the_step(tmp_path: Path) -> None:
    for number in range(3):
        maker = makers()["accelerate-two-models"]
        maker(tmp_path / f"checkpoint_{number}", step=number, world=3, start=BEGIN + 600 * number)
    assert states(inspect([str(tmp_path)])) == {}


@pytest.mark.parametrize("form", ["adapter-{}", "run_{}_lora"])
def test_numbers_in_names_tell_the_order_where_no_step_is_named(tmp_path: Path, form: str) -> None:
    for place, number in enumerate((1000, 300, 20)):
        folder = tmp_path / form.format(number)
        hf.MAKERS["peft-adapter"](folder, step=number, world=1, start=BEGIN + 600 * place)
    back = inspect([str(tmp_path)]).resume
    assert back is not None
    assert back.path == str(tmp_path / form.format(1000))


def test_names_with_braces_percents_quotes_and_line_breaks(tmp_path: Path) -> None:
    run = tmp_path / "größe 模型 {path} %s '\n{0}"
    trainer(run, 1)
    back = inspect([str(run)]).resume
    assert back is not None
    told = f"{tmp_path}/größe 模型 {{path}} %s \\'\\u000a{{0}}/checkpoint-100"
    assert back.how == f"--resume_from_checkpoint $'{told}'"


@pytest.mark.parametrize("text", ["global_step300\r\n", "  global_step300  \n"])
def test_markers_written_by_hand(tmp_path: Path, text: str) -> None:
    run = made(tmp_path, "deepspeed-zero2")
    write(run / "latest", text.encode(), BEGIN + DAY)
    assert states(inspect([str(run)])) == {}


def test_a_file_of_safetensors_is_not_loaded_by_torch(tmp_path: Path) -> None:
    write(tmp_path / "lora_300.safetensors", safetensors_file({"a": ("F32", (4,))}), BEGIN)
    back = inspect([str(tmp_path)]).resume
    assert back is not None
    assert back.step == 300
    assert back.how.startswith("safetensors.torch.load_file('")


def test_one_rank_with_nothing_else_to_compare(tmp_path: Path) -> None:
    deepspeed.MAKERS["deepspeed-zero3"](tmp_path / "global_step5", step=5, world=1, start=BEGIN)
    assert states(inspect([str(tmp_path / "global_step5")])) == {}
