"""Checkpoints of Megatron-LM in its four formats, and its tracker."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, Found, judged
from diagnose.checkpoint.tree import Folder, read_tree
from tests.checkpoint.founds import Family
from tests.checkpoint.make import megatron
from tests.checkpoint.make.base import filler, json_bytes, torch_file, write

MEGATRON = Family("Megatron-LM")

T = 1_750_000_000.0
FORMATS = {
    "megatron-torch-dist": ("Megatron-LM torch_dist", 4),
    "megatron-torch-tp2-pp2": ("Megatron-LM torch", 4),
    "megatron-torch-tp2": ("Megatron-LM torch", 4),
    "megatron-zarr": ("Megatron-LM zarr", None),
    "megatron-torch-dcp": ("Megatron-LM DCP", 4),
}


def read(path: Path) -> Found | None:
    folder = read_tree(str(path))
    assert isinstance(folder, Folder)
    return MEGATRON.read(folder, Looker())


def judge(path: Path) -> Checkpoint:
    found = read(path)
    assert found is not None
    return judged(found)


def make(maker: str, tmp_path: Path, step: int = 500) -> Path:
    folder = tmp_path / f"iter_{step:07d}"
    megatron.MAKERS[maker](folder, step=step, world=4, start=T + step)
    return folder


def compared(run: Path) -> list[Found]:
    """The checkpoints of a run in order of step, after what they tell of each other."""
    tree = read_tree(str(run))
    assert isinstance(tree, Folder)
    found = [one for inside in tree.folders.values() if (one := MEGATRON.read(inside, Looker()))]
    found.sort(key=lambda one: one.step or 0)
    MEGATRON.compare(tree, found)
    return found


def reasons(found: list[Found]) -> list[list[str]]:
    return [judged(one).reasons for one in found]


@pytest.mark.parametrize("maker", megatron.MAKERS)
def test_whole(maker: str, tmp_path: Path) -> None:
    result = judge(make(maker, tmp_path))
    assert (result.state, result.reasons, result.notes) == ("whole", [], [])
    assert (result.layout, result.ranks) == FORMATS[maker]
    assert (result.step, result.framework) == (500, "megatron")


@pytest.mark.parametrize(
    ("maker", "file", "reason"),
    [
        ("torch-dist", "metadata.json", "it is written last, so this save never finished"),
        ("torch-dist", ".metadata", "it is written last, so this save never finished"),
        ("torch-dist", "common.pt", "the state shared by all ranks"),
        ("torch-dist", "__3_0.distcp", "the metadata names it"),
        ("torch-dcp", ".metadata", "it is written last, so this save never finished"),
        ("torch-dcp", "__0_0.distcp", "the metadata names it"),
        ("zarr", "metadata.json", "it is written last, so this save never finished"),
        ("zarr", "common.pt", "the state shared by all ranks"),
        ("zarr", "optimizer.state.exp_avg/2.0", "3 of 4 chunks of the tensor exist"),
        ("zarr", "optimizer.state.exp_avg/.zarray", "it describes the tensor"),
        ("torch-tp2", "mp_rank_01/distrib_optim.pt", "every model parallel rank writes it"),
        ("torch-tp2", "mp_rank_00/model_optim_rng.pt", "every model parallel rank writes it"),
        ("torch-tp2", "mp_rank_01", "1 of 2 model parallel ranks exist"),
        ("torch-tp2-pp2", "mp_rank_01_001", "3 of 4 model parallel ranks exist"),
        ("torch-tp2-pp2", "mp_rank_00_000", "3 of 4 model parallel ranks exist"),
    ],
)
def test_missing(maker: str, file: str, reason: str, tmp_path: Path) -> None:
    folder = make(f"megatron-{maker}", tmp_path)
    path = folder / file
    named = file
    if path.is_dir():
        shutil.rmtree(path)
        named += "/model_optim_rng.pt"
    else:
        path.unlink()
    result = judge(folder)
    assert (result.state, result.reasons) == ("partial", [f"{named}: missing: {reason}"])


def test_the_last_stage_of_a_pipeline_is_missed(tmp_path: Path) -> None:
    """No name tells of it, but the arguments that the others hold."""
    folder = make("megatron-torch-tp2-pp2", tmp_path)
    for name in ("mp_rank_00_001", "mp_rank_01_001"):
        shutil.rmtree(folder / name)
    assert judge(folder).reasons == [
        f"mp_rank_0{rank}_001/model_optim_rng.pt: missing: 2 of 4 model parallel ranks exist"
        for rank in range(2)
    ]


def test_the_optimizer_of_all_ranks_is_missed(tmp_path: Path) -> None:
    folder = make("megatron-torch-tp2", tmp_path)
    for path in folder.glob("*/distrib_optim.pt"):
        path.unlink()
    assert judge(folder).reasons == [
        f"mp_rank_0{rank}/distrib_optim.pt: missing: every model parallel rank writes it"
        for rank in range(2)
    ]


@pytest.mark.parametrize("file", ["common.pt", "__1_0.distcp", ".metadata", "metadata.json"])
def test_cut_off(file: str, tmp_path: Path) -> None:
    folder = make("megatron-torch-dist", tmp_path)
    path = folder / file
    write(path, path.read_bytes()[:-9], path.stat().st_mtime)
    result = judge(folder)
    assert result.state == "partial"
    assert result.reasons[0].startswith(f"{file}: ")


@pytest.mark.parametrize("maker", ["megatron-torch-dist", "megatron-zarr", "megatron-torch-tp2"])
def test_another_iteration_inside(maker: str, tmp_path: Path) -> None:
    old, new = make(maker, tmp_path, 500), make(maker, tmp_path, 600)
    name = "common.pt" if (new / "common.pt").exists() else "mp_rank_01/model_optim_rng.pt"
    write(new / name, (old / name).read_bytes(), (new / name).stat().st_mtime)
    result = judge(new)
    assert result.state == "corrupt"
    assert result.reasons == [f"{name}: holds step 500, the folder is for 600"]


def test_no_format_in_the_configuration(tmp_path: Path) -> None:
    folder = make("megatron-torch-dist", tmp_path)
    write(folder / "metadata.json", b"{}", T + 600)
    result = judge(folder)
    assert result.state == "corrupt"
    assert result.reasons == ["metadata.json: does not state the format of the tensors"]


@pytest.mark.parametrize(
    ("file", "data", "state", "reason"),
    [
        (".zarray", b'{"shape": [32', "partial", "ends in the middle of its JSON text"),
        (".zarray", b"[]", "corrupt", "does not describe a tensor"),
        (".zarray", json_bytes({"shape": [-1], "chunks": [1]}), "corrupt",
         "does not describe a tensor"),
        ("1.0", b"x" * 100, "partial", "has 100 of 512 bytes"),
        ("1.0", b"", "partial", "has 0 of 512 bytes"),
    ],
)  # fmt: skip
def test_damaged_tensors_of_zarr(
    file: str, data: bytes, state: str, reason: str, tmp_path: Path
) -> None:
    folder = make("megatron-zarr", tmp_path)
    write(folder / "decoder.layers.weight" / file, data, T + 500)
    result = judge(folder)
    assert (result.state, result.reasons) == (state, [f"decoder.layers.weight/{file}: {reason}"])


def test_a_tensor_of_absurdly_many_chunks(tmp_path: Path) -> None:
    folder = make("megatron-zarr", tmp_path)
    array = {"shape": [1 << 50, 1 << 50], "chunks": [1, 1], "dtype": "<f4", "compressor": None}
    write(folder / "decoder.layers.weight" / ".zarray", json_bytes(array), T + 500)
    assert judge(folder).notes == [
        f"decoder.layers.weight/.zarray: {1 << 100:,} chunks, not checked"
    ]


def test_ranks_of_absurd_numbers(tmp_path: Path) -> None:
    folder = make("megatron-torch-tp2", tmp_path)
    for name in ("mp_rank_99999_00000", "mp_rank_00_99999_99999"):
        write(folder / name / "model_optim_rng.pt", torch_file(content={"iteration": 500}), T)
    assert judge(folder).state in ("partial", "whole")


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "iter_0000500").mkdir()
    result = judge(tmp_path / "iter_0000500")
    assert (result.state, result.reasons) == ("partial", ["is empty: the save wrote nothing"])


def test_a_release(tmp_path: Path) -> None:
    folder = make("megatron-torch-tp2", tmp_path).rename(tmp_path / "release")
    write(tmp_path / megatron.TRACKER, b"release\n", T)
    assert judge(folder).state == "whole"
    assert judge(folder).step is None
    assert reasons(compared(tmp_path)) == [[]]


def test_settings_of_the_bridge_come_with_a_state(tmp_path: Path) -> None:
    folder = make("megatron-torch-dist", tmp_path)
    write(folder / "run_config.yaml", b"model: {}\n", T + 520)
    assert judge(folder).reasons == ["train_state.pt: missing: run_config.yaml exists"]
    write(folder / "train_state.pt", torch_file(content={"step": 500}), T + 520)
    assert judge(folder).state == "whole"


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("step-10", [".metadata", "__0_0.distcp"]),
        ("run", ["common.pt"]),
        ("run", ["metadata.json"]),
        ("global_step10", ["mp_rank_00_model_states.pt"]),
        ("checkpoints", ["mp_rank_00/run--step=5.ckpt"]),
    ],
)
def test_other_folders_are_none(name: str, files: list[str], tmp_path: Path) -> None:
    for file in files:
        write(tmp_path / name / file, filler(100), T)
    assert read(tmp_path / name) is None


@pytest.mark.parametrize(
    ("tracker", "expected"),
    [
        (b"600", [[], []]),
        (b"600\n", [[], []]),
        (b"500", [[], ["../{}: never committed: it still names iter_0000500"]]),
        (b"700", [[], ["../{}: names iter_0000700, which does not exist"]]),
        (b"", [[], ["../{}: is empty: it should name the checkpoint to load"]]),
        (b"6e2", [[], ["../{}: does not name a checkpoint"]]),
        (b"9" * 5000, [[], ["../{}: does not name a checkpoint"]]),
        (b"release", [[], ["../{}: names release, which does not exist"]]),
    ],
)
def test_the_tracker(tracker: bytes, expected: list[list[str]], tmp_path: Path) -> None:
    make("megatron-torch-dist", tmp_path, 500)
    make("megatron-torch-dist", tmp_path, 600)
    write(tmp_path / megatron.TRACKER, tracker, T + 700)
    wanted = [[reason.format(megatron.TRACKER) for reason in one] for one in expected]
    assert reasons(compared(tmp_path)) == wanted


def test_without_a_tracker_the_last_save_did_not_end(tmp_path: Path) -> None:
    for step in (500, 600):
        make("megatron-torch-dist", tmp_path, step)
    (tmp_path / megatron.TRACKER).unlink()
    why = f"../{megatron.TRACKER}: missing: it is written when a save is complete"
    assert reasons(compared(tmp_path)) == [[], [why]]
