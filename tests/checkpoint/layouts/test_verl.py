"""verl's checkpoints: FSDP and Megatron, reinforcement learning and fine-tuning."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, Found, judged
from diagnose.checkpoint.tree import Folder, read_tree
from tests.checkpoint.founds import Family
from tests.checkpoint.make.base import json_bytes, torch_file, write
from tests.checkpoint.make.verl import MAKERS, TRACKER, reinforced, tuned

VERL = Family("verl")

T = 1_760_000_000.0


def tree(path: Path) -> Folder:
    folder = read_tree(str(path))
    assert isinstance(folder, Folder)
    return folder


def read(path: Path) -> Found | None:
    return VERL.read(tree(path), Looker())


def alone(path: Path) -> Checkpoint:
    found = read(path)
    assert found is not None
    return judged(found)


def run_of(path: Path) -> dict[str, Checkpoint]:
    run, look = tree(path), Looker()
    found = [one for folder in run.folders.values() if (one := VERL.read(folder, look))]
    found.sort(key=lambda one: one.step or 0)
    VERL.compare(run, found)
    return {one.name: judged(one) for one in found}


@pytest.mark.parametrize("maker", sorted(MAKERS))
def test_what_the_makers_write_is_whole(tmp_path: Path, maker: str) -> None:
    for step in (5, 10):
        MAKERS[maker](tmp_path / f"global_step_{step}", step=step, world=4, start=T + step)
    found = run_of(tmp_path)
    assert [(one.state, one.reasons, one.step, one.ranks) for one in found.values()] == [
        ("whole", [], 5, 4), ("whole", [], 10, 4),
    ]  # fmt: skip


def test_the_world_stands_in_the_configuration_too(tmp_path: Path) -> None:
    # GIVEN a model saved without optimizer and other states, and no shard of it left
    folder = tmp_path / "global_step_5"
    reinforced(folder, step=5, world=2, start=T, critic=False)
    for path in (folder / "actor").glob("*_rank_*.pt"):
        path.unlink()
    assert alone(folder).reasons == [
        f"actor/model_world_size_2_rank_{rank}.pt: missing: 0 of 2 ranks wrote theirs"
        for rank in range(2)
    ]


def test_a_truncated_shard_is_named_with_its_role(tmp_path: Path) -> None:
    folder = tmp_path / "global_step_5"
    reinforced(folder, step=5, world=2, start=T)
    shard = folder / "critic/model_world_size_2_rank_1.pt"
    shard.write_bytes(shard.read_bytes()[:100])
    found = alone(folder)
    assert found.state == "partial"
    assert len(found.reasons) == 1
    assert found.reasons[0].startswith("critic/model_world_size_2_rank_1.pt: ")


def test_weights_for_hugging_face_are_judged_too(tmp_path: Path) -> None:
    folder = tmp_path / "global_step_5"
    reinforced(folder, step=5, world=2, start=T, weights=True)
    weights = folder / "actor/huggingface/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    found = alone(folder)
    assert found.state == "partial"
    assert found.reasons[0].startswith("actor/huggingface/model.safetensors: ")


def test_only_weights_for_hugging_face(tmp_path: Path) -> None:
    folder = tmp_path / "global_step_5"
    reinforced(folder, step=5, world=2, start=T, weights=True, critic=False)
    for path in (folder / "actor").glob("*_rank_*.pt"):
        path.unlink()
    assert alone(folder).state == "whole"


def test_a_role_alone(tmp_path: Path) -> None:
    folder = tmp_path / "global_step_5"
    reinforced(folder, step=5, world=2, start=T)
    found = alone(folder / "actor")
    assert (found.state, found.step, found.ranks) == ("whole", None, 2)


def test_rotation_leaves_the_data_loader(tmp_path: Path) -> None:
    reinforced(tmp_path / "global_step_5", step=5, world=2, start=T, critic=False)
    shutil.rmtree(tmp_path / "global_step_5/actor")
    reinforced(tmp_path / "global_step_10", step=10, world=2, start=T + 60, critic=False)
    found = run_of(tmp_path)
    assert found["global_step_10"].state == "whole"
    assert found["global_step_5"].state == "partial"
    assert found["global_step_5"].reasons == [
        "actor: missing: there is no model; rotation deletes only actor and critic of old steps"
    ]


def test_a_folder_made_and_nothing_written(tmp_path: Path) -> None:
    (tmp_path / "global_step_5/actor").mkdir(parents=True)
    assert alone(tmp_path / "global_step_5").reasons == ["nothing was written to it"]


def test_files_of_an_earlier_world_are_noted(tmp_path: Path) -> None:
    folder = tmp_path / "global_step_5"
    reinforced(folder, step=5, world=2, start=T, critic=False)
    write(folder / "actor/model_world_size_8_rank_7.pt", torch_file(content={}), T)
    found = alone(folder)
    assert (found.state, found.ranks) == ("whole", 2)
    assert found.notes == ["actor/ also has files of a world size of 8"]


@pytest.mark.parametrize("step", [5, 15])
@pytest.mark.parametrize("name", ["fsdp_config.json", "huggingface/tokenizer.json", "data_3.pt"])
def test_a_file_that_all_others_have(tmp_path: Path, step: int, name: str) -> None:
    for n in (5, 10, 15):
        tuned(tmp_path / f"global_step_{n}", step=n, world=4, start=T + n)
    (tmp_path / f"global_step_{step}" / name).unlink()
    found = run_of(tmp_path)
    assert found.pop(f"global_step_{step}").reasons == [
        f"{name}: missing: all other checkpoints in this folder have it"
    ]
    assert {one.state for one in found.values()} == {"whole"}


def test_another_world_has_other_files(tmp_path: Path) -> None:
    for n, world in ((5, 8), (10, 8), (15, 4)):
        tuned(tmp_path / f"global_step_{n}", step=n, world=world, start=T + n)
    assert {one.state for one in run_of(tmp_path).values()} == {"whole"}


@pytest.mark.parametrize(
    ("text", "state", "why"),
    [
        ("5", "partial", "never committed: it still names global_step_5"),
        ("999", "corrupt", "names global_step_999, which does not exist"),
        ("", "corrupt", "is empty: it should name the checkpoint to load"),
        ("ten", "corrupt", "does not name a checkpoint"),
        ("٣", "corrupt", "does not name a checkpoint"),
    ],
)
def test_the_tracker_is_wrong(tmp_path: Path, text: str, state: str, why: str) -> None:
    for step in (5, 10):
        reinforced(tmp_path / f"global_step_{step}", step=step, world=2, start=T + step)
    (tmp_path / TRACKER).write_text(text)
    found = run_of(tmp_path)
    assert found["global_step_5"].state == "whole"
    assert (found["global_step_10"].state, found["global_step_10"].reasons) == (
        state, [f"../{TRACKER}: {why}"],
    )  # fmt: skip


def megatron(folder: Path) -> None:
    """Schema 2: a table of contents and, here, the configuration only."""
    contents = {
        "model": {"path": "model/huggingface", "format": "huggingface"},
        "transformer_config": {"path": "transformer_config.json", "format": "json"},
    }
    write(folder / "actor/transformer_config.json", json_bytes({"tp": 2}), T)
    write(folder / "actor/model/huggingface/config.json", json_bytes({"model_type": "x"}), T)
    manifest = {"schema_version": 2, "global_step": 5, "contents": contents}
    write(folder / "actor/ckpt_contents.json", json_bytes(manifest), T)
    write(folder / "data.pt", torch_file(content={}), T)


def test_megatron_died_before_it_listed_what_it_saved(tmp_path: Path) -> None:
    folder = tmp_path / "global_step_5"
    megatron(folder)
    (folder / "actor/ckpt_contents.json").unlink()
    (folder / "actor/model/dist_ckpt").mkdir()
    assert (
        "actor/ckpt_contents.json: missing: it is written when a save is complete"
        in alone(folder).reasons
    )


def test_other_folders_are_none_of_it(tmp_path: Path) -> None:
    write(tmp_path / "global_step_5/model.safetensors", b"", T)
    write(tmp_path / "actor/notes.txt", b"", T)
    write(tmp_path / "data.pt", b"", T)
    assert read(tmp_path) is None
    assert read(tmp_path / "actor") is None
    assert read(tmp_path / "global_step_5") is None


def test_absurd_numbers_are_no_danger(tmp_path: Path) -> None:
    folder = tmp_path / "global_step_5"
    reinforced(folder, step=5, world=2, start=T, critic=False)
    config = folder / "actor/fsdp_config.json"
    for world in ("-1", "1e30", str(1 << 70), '"2"', "true", "[2]"):
        config.write_text(f'{{"world_size": {world}}}')
        assert alone(folder).state == "whole"
    write(folder / "actor/model_world_size_9999999_rank_9999999.pt", torch_file(content={}), T)
    write(folder / "data_999999.pt", torch_file(content={}), T)
    found = alone(folder)
    assert found.state == "partial"
    assert len(found.reasons) == 9
