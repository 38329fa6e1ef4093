"""Checkpoints of NeMo 1 and 2, and the markers of those that are not finished."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, Found, judged
from diagnose.checkpoint.tree import Folder, read_tree
from tests.checkpoint.founds import Family
from tests.checkpoint.make import dcp, megatron, nemo
from tests.checkpoint.make.base import filler, write

NEMO = Family("NeMo")

T = 1_750_000_000.0
OTHER = ": left from another save, or the folder was renamed"
NAME = "gpt--reduced_train_loss=1.25-step={step}-consumed_samples=800.0"


def read(path: Path) -> Found | None:
    folder = read_tree(str(path))
    assert isinstance(folder, Folder)
    return NEMO.read(folder, Looker())


def judge(path: Path) -> Checkpoint:
    found = read(path)
    assert found is not None
    return judged(found)


def make(tmp_path: Path, step: int = 100, suffix: str = "", maker: str = "nemo-2") -> Path:
    folder = tmp_path / (NAME.format(step=step) + suffix)
    nemo.MAKERS[maker](folder, step=step, world=4, start=T)
    return folder


def compared(run: Path) -> list[list[str]]:
    tree = read_tree(str(run))
    assert isinstance(tree, Folder)
    found = [one for inside in tree.folders.values() if (one := NEMO.read(inside, Looker()))]
    found.sort(key=lambda one: one.step or 0)
    NEMO.compare(tree, found)
    return [judged(one).reasons for one in found]


@pytest.mark.parametrize(("maker", "layout"), [("nemo-2", "NeMo 2"), ("nemo-1", "NeMo 1")])
@pytest.mark.parametrize("suffix", ["", "-last", "-EMA"])
def test_whole(maker: str, layout: str, suffix: str, tmp_path: Path) -> None:
    result = judge(make(tmp_path, 100, suffix, maker))
    assert (result.state, result.reasons, result.notes) == ("whole", [], [])
    assert (result.layout, result.step, result.ranks) == (layout, 100, 4)
    assert result.framework == "nemo"


def test_without_context_it_is_whole(tmp_path: Path) -> None:
    folder = make(tmp_path)
    shutil.rmtree(folder / "context")
    assert judge(folder).state == "whole"


def test_plain_dcp_as_weights(tmp_path: Path) -> None:
    folder = tmp_path / NAME.format(step=100)
    dcp.make(folder / "weights", step=100, world=2, start=T)
    result = judge(folder)
    assert (result.state, result.layout, result.ranks) == ("whole", "NeMo 2", 2)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("weights/metadata.json", "it is written last, so this save never finished"),
        ("weights/.metadata", "it is written last, so this save never finished"),
        ("weights/common.pt", "the state shared by all ranks"),
        ("weights/__2_0.distcp", "the metadata names it"),
        ("context/io.json", "what the model is built from"),
        ("weights", "it contains no weights"),
    ],
)
def test_missing(file: str, reason: str, tmp_path: Path) -> None:
    folder = make(tmp_path)
    write(folder / "context" / "model.yaml", b"a: 1\n", T)
    shutil.rmtree(folder / file) if (folder / file).is_dir() else (folder / file).unlink()
    result = judge(folder)
    assert (result.state, result.reasons) == ("partial", [f"{file}: missing: {reason}"])


def test_a_save_that_has_just_begun(tmp_path: Path) -> None:
    (tmp_path / NAME.format(step=1) / "weights").mkdir(parents=True)
    result = judge(tmp_path / NAME.format(step=1))
    assert result.reasons == ["weights: missing: it contains no weights"]


@pytest.mark.parametrize(("inside", "state"), [(99, "whole"), (101, "whole"), (200, "corrupt")])
def test_the_step_inside_may_be_one_off(inside: int, state: str, tmp_path: Path) -> None:
    """The name counts from 0, the state the steps that are done."""
    folder, other = make(tmp_path), tmp_path / "other"
    megatron.write_dist(other, step=inside, world=4, start=T)
    write(folder / "weights" / "common.pt", (other / "common.pt").read_bytes(), T)
    result = judge(folder)
    assert result.state == state
    assert result.reasons == (
        [] if state == "whole" else ["weights/common.pt: holds step 200, the folder is for 100"]
    )


def test_metadata_of_another_step(tmp_path: Path) -> None:
    old, new = make(tmp_path, 100), make(tmp_path, 200)
    data = (old / "weights" / ".metadata").read_bytes()
    write(new / "weights" / ".metadata", data, T + 7)
    assert judge(new).reasons == ["weights/.metadata: was written for step 100, not 200" + OTHER]


def test_an_unfinished_one(tmp_path: Path) -> None:
    make(tmp_path, 100)
    last = make(tmp_path, 200)
    marker = f"{last.name}-unfinished"
    write(tmp_path / marker, b"", T)
    why = "exists: the save did not finish, and NeMo removes it at its next start"
    assert compared(tmp_path) == [[], [f"../{marker}: {why}"]]


def test_the_average_shares_the_marker(tmp_path: Path) -> None:
    name = make(tmp_path, 100, "-EMA").name.removesuffix("-EMA")
    write(tmp_path / f"{name}-unfinished", b"", T)
    write(tmp_path / "another-unfinished", b"", T)
    (reasons,) = compared(tmp_path)
    assert reasons[0].startswith(f"../{name}-unfinished: ")


def test_an_unpacked_archive(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    write(folder / "model_config.yaml", b"a: 1\n", T)
    megatron.write_dist(folder / "model_weights", step=100, world=2, start=T)
    assert judge(folder).state == "whole"
    (folder / "model_weights" / "common.pt").unlink()
    assert judge(folder).reasons == [
        "model_weights/common.pt: missing: the state shared by all ranks"
    ]


def test_a_folder_per_model_parallel_rank(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    for step in (100, 200):
        nemo.make_ranks(folder, step=step, world=4, start=T + step, tp=4)
    result = judge(folder)
    assert (result.state, result.step, result.layout) == ("whole", 200, "NeMo 1 (mp_rank)")
    (path,) = (folder / "mp_rank_01").glob("*step=200*")
    path.unlink()
    shutil.rmtree(folder / "mp_rank_02")
    write(folder / f"{path.stem}-unfinished", b"", T)
    why = "missing: other model parallel ranks have it"
    first = path.name.replace("200", "100").replace("1600", "800")
    assert judge(folder).reasons == [
        f"mp_rank_01/{path.name}: {why}",
        f"mp_rank_02/{first}: {why}",
        f"mp_rank_02/{path.name}: {why}",
        f"{path.stem}-unfinished: exists: its save did not finish",
    ]


def test_stages_of_a_pipeline(tmp_path: Path) -> None:
    for rank in ("tp_rank_00_pp_rank_000", "tp_rank_01_pp_rank_001", "tp_rank_00_pp_rank_001"):
        nemo.make_ranks(tmp_path / rank, step=5, world=1, start=T, tp=1)
        for path in (tmp_path / rank / "mp_rank_00").iterdir():
            path.rename(tmp_path / rank / path.name)
        (tmp_path / rank / "mp_rank_00").rmdir()
    (reason,) = judge(tmp_path).reasons
    assert reason.startswith("tp_rank_01_pp_rank_000/megatron_gpt--")


@pytest.mark.parametrize(
    "files",
    [
        ["weights/readme.txt"],
        ["context/notes.md"],
        ["model.safetensors", "weights/a.bin"],
        ["mp_rank_00/model_optim_rng.pt"],
        ["common.pt", "metadata.json"],
        ["model_config.yaml"],
    ],
)
def test_other_folders_are_none(files: list[str], tmp_path: Path) -> None:
    for file in files:
        write(tmp_path / "anything" / file, filler(100), T)
    assert read(tmp_path / "anything") is None
