"""DeepSpeed's checkpoints: whole ones, each kind of damage, and what only looks like damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoint.layouts.deepspeed import check_latest
from diagnose.checkpoint.layouts.rows import View
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, Flaw, judged
from diagnose.checkpoint.tree import Folder, read_tree
from tests.checkpoint.founds import Family
from tests.checkpoint.make.base import torch_file, write
from tests.checkpoint.make.deepspeed import (
    MAKERS,
    experts,
    model_states,
    optim_states,
    pipeline,
    universal,
    weights,
    zero,
)

DEEPSPEED = Family("DeepSpeed universal", "DeepSpeed")
DEEPSPEED_UNIVERSAL = Family("DeepSpeed universal")

T = 1_750_000_000.0


def tree(path: Path) -> Folder:
    folder = read_tree(str(path))
    assert isinstance(folder, Folder)
    return folder


def alone(path: Path) -> Checkpoint:
    """A checkpoint judged without those beside it."""
    found = DEEPSPEED.read(tree(path), Looker())
    assert found is not None
    return judged(found)


def run_of(path: Path) -> dict[str, Checkpoint]:
    """The checkpoints of a run, compared with each other."""
    run, look = tree(path), Looker()
    found = [one for folder in run.folders.values() if (one := DEEPSPEED.read(folder, look))]
    found.sort(key=lambda one: one.step or 0)
    DEEPSPEED.compare(run, found)
    return {one.name: judged(one) for one in found}


def three(path: Path, make: Callable[..., None] = zero, **variant: Any) -> None:
    for step in (100, 200, 300):
        make(path / f"global_step{step}", step=step, world=4, start=T + step, **variant)


@pytest.mark.parametrize("maker", sorted(MAKERS))
def test_what_the_makers_write_is_whole(tmp_path: Path, maker: str) -> None:
    # GIVEN three checkpoints of a run as DeepSpeed leaves them
    for step in (100, 200, 300):
        MAKERS[maker](tmp_path / f"global_step{step}", step=step, world=4, start=T + step)

    found = run_of(tmp_path)

    assert [(one.state, one.reasons, one.step) for one in found.values()] == [
        ("whole", [], 100), ("whole", [], 200), ("whole", [], 300),
    ]  # fmt: skip
    assert {one.framework for one in found.values()} == {"deepspeed"}
    if maker != "deepspeed-universal":
        assert {one.ranks for one in found.values()} == {4}


@pytest.mark.parametrize(
    ("stage", "layout"), [(0, "DeepSpeed"), (2, "DeepSpeed"), (3, "DeepSpeed ZeRO-3")]
)
def test_the_layout_says_how_the_model_lies(tmp_path: Path, stage: int, layout: str) -> None:
    zero(tmp_path / "global_step5", step=5, world=2, start=T, stage=stage)
    assert alone(tmp_path / "global_step5").layout == layout


def test_other_folders_are_none_of_it(tmp_path: Path) -> None:
    write(tmp_path / "mp_rank_00/model_optim_rng.pt", b"", T)
    write(tmp_path / "global_step5/.metadata", b"", T)
    (tmp_path / "empty").mkdir()
    look = Looker()
    for folder in tree(tmp_path).folders.values():
        assert DEEPSPEED.read(folder, look) is None


def test_a_folder_of_a_tag_and_nothing_in_it(tmp_path: Path) -> None:
    (tmp_path / "global_step500").mkdir()
    found = alone(tmp_path / "global_step500")
    assert (found.state, found.reasons) == ("partial", ["nothing was written to it"])
    assert found.step == 500


def test_all_optimizer_states_missing(tmp_path: Path) -> None:
    # GIVEN the model states that rank 0 wrote, and a job that died before the optimizer was saved
    folder = tmp_path / "global_step100"
    write(folder / "mp_rank_00_model_states.pt", model_states(100, 12, 1, 2, ""), T)

    found = alone(folder)

    assert found.state == "partial"
    assert found.reasons[0] == (
        "zero_pp_rank_0_mp_rank_00_optim_states.pt: "
        "missing: optimizer states of 0 of 12 ranks exist"
    )
    assert found.reasons[-1] == "missing: 4 more files like these"
    assert len(found.reasons) == 9


def test_a_model_parallel_rank_that_wrote_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "global_step100"
    zero(folder, step=100, world=4, start=T, mp=2)
    for path in folder.glob("*mp_rank_01*"):
        path.unlink()

    found = alone(folder)

    assert found.state == "partial"
    assert found.reasons == [
        "mp_rank_01_model_states.pt: missing: model states of 1 of 2 model parallel ranks exist",
        "bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt: "
        "missing: optimizer states of 2 of 4 ranks exist",
        "bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt: "
        "missing: optimizer states of 2 of 4 ranks exist",
    ]


def test_mics_saves_the_shards_of_one_group(tmp_path: Path) -> None:
    folder = tmp_path / "global_step100"
    config = {"zero_optimization": {"stage": 3, "mics_shard_size": 2}}
    for rank in range(2):
        end = "mp_rank_00_model_states.pt"
        data = model_states(100, 8, 1, 3, "", ds_config=config)
        write(folder / f"zero_pp_rank_{rank}_{end}", data, T)
        write(folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt",
              optim_states(100, 2, 3, str(rank)), T)  # fmt: skip
    assert alone(folder).state == "whole"


def test_the_earlier_name_of_optimizer_states(tmp_path: Path) -> None:
    folder = tmp_path / "global_step100"
    zero(folder, step=100, world=2, start=T, prefix="")
    for path in folder.glob("*_optim_states.pt"):
        path.rename(path.with_name(path.name.replace("_optim_states", "optim_states")))
    assert alone(folder).state == "whole"


def test_an_empty_and_a_cut_off_file(tmp_path: Path) -> None:
    folder = tmp_path / "global_step100"
    zero(folder, step=100, world=2, start=T, stage=3)
    name = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    data = (folder / name).read_bytes()
    for size in (0, 1, len(data) // 2, len(data) - 1):
        (folder / name).write_bytes(data[:size])
        found = alone(folder)
        assert (found.state, len(found.reasons)) == ("partial", 1)
        assert found.reasons[0].startswith(f"{name}: ")


def test_a_small_optimizer_state_may_be_innocent(tmp_path: Path) -> None:
    # GIVEN the states of a rank that hold much less than those of the others, which are equal
    folder = tmp_path / "global_step100"
    zero(folder, step=100, world=4, start=T)
    name = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    usual = (folder / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").stat().st_size
    (folder / name).write_bytes(small := optim_states(100, 4, 2, name, numel=50))

    found = alone(folder)

    assert found.state == "unknown"
    assert found.reasons == [
        f"{name}: has {len(small):,} bytes, those of other ranks about {usual:,}"
    ]


def test_content_of_another_step(tmp_path: Path) -> None:
    three(tmp_path)
    name = "mp_rank_00_model_states.pt"
    stale = (tmp_path / "global_step200" / name).read_bytes()
    (tmp_path / "global_step300" / name).write_bytes(stale)

    found = run_of(tmp_path)

    assert found["global_step300"].state == "corrupt"
    assert found["global_step300"].reasons == [f"{name}: says step 200"]
    assert found["global_step200"].state == "whole"


def test_tags_that_count_otherwise_than_the_engine(tmp_path: Path) -> None:
    # GIVEN a fine-tuning that counts its iterations anew and goes on with the engine's counter
    for step in (100, 200):
        folder = tmp_path / f"global_step{step}"
        zero(folder, step=7000 + step, world=2, start=T + step)

    found = run_of(tmp_path)

    assert [(one.state, one.step) for one in found.values()] == [("whole", 100), ("whole", 200)]
    assert found["global_step100"].notes == [
        "its content says step 7100, as in all checkpoints here"
    ]


def test_the_step_of_a_tag_of_the_users_own(tmp_path: Path) -> None:
    zero(tmp_path / "pytorch_model", step=1234, world=2, start=T)
    found = alone(tmp_path / "pytorch_model")
    assert (found.state, found.step) == ("whole", 1234)


def test_layers_without_weights_have_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "global_step100"
    pipeline(folder, step=100, world=4, start=T)
    assert not (folder / "layer_01-model_00-model_states.pt").exists()
    assert alone(folder).state == "whole"


def test_layers_of_a_pipeline_without_tensor_parallel_ranks(tmp_path: Path) -> None:
    folder = tmp_path / "global_step100"
    for number in (0, 1, 2, 4, 5):
        write(folder / f"layer_{number:02d}-model_states.pt", weights(100, "", 900), T)
    write(folder / "mp_rank_00_model_states.pt", model_states(100, 2, 1, 0, ""), T)
    why = "missing: the layers before and after exist"
    assert alone(folder).reasons == [f"layer_03-model_states.pt: {why}"]


@pytest.mark.parametrize("expert", [0, 3])
def test_a_missing_expert(tmp_path: Path, expert: int) -> None:
    folder = tmp_path / "global_step100"
    experts(folder, step=100, world=4, start=T)
    name = f"layer_1_expert_{expert}_mp_rank_00_model_states.pt"
    (folder / name).unlink()
    assert alone(folder).reasons == [f"{name}: missing: the other experts exist"]


def test_a_pyramid_of_experts(tmp_path: Path) -> None:
    # GIVEN half as many experts in the first layer, as in DeepSpeed's PR-MoE
    folder = tmp_path / "global_step100"
    experts(folder, step=100, world=4, start=T)
    for expert in (2, 3):
        (folder / f"layer_0_expert_{expert}_mp_rank_00_model_states.pt").unlink()
    assert alone(folder).state == "whole"


def test_universal(tmp_path: Path) -> None:
    folder = tmp_path / "global_step100_universal"
    universal(folder, step=100, world=4, start=T)
    (folder / "zero/model.layers.2.weight/exp_avg.pt").unlink()
    (folder / "zero/optimizer_state.pt").unlink()

    found = alone(folder)

    assert (found.layout, found.step) == ("DeepSpeed universal", 100)
    assert found.reasons == [
        "zero/optimizer_state.pt: missing: the conversion ended before it",
        "zero/model.layers.2.weight/exp_avg.pt: missing: 3 of 4 parameters are complete",
    ]


def test_universal_ones_have_a_marker_of_their_own(tmp_path: Path) -> None:
    zero(tmp_path / "global_step100", step=100, world=2, start=T)
    universal(tmp_path / "global_step100_universal", step=100, world=2, start=T + 60)
    assert {one.state for one in run_of(tmp_path).values()} == {"whole"}
    write(tmp_path / "latest_universal", b"", T + 60)
    found = run_of(tmp_path)
    assert found["global_step100"].state == "whole"
    assert found["global_step100_universal"].reasons == [
        "../latest_universal: is empty: it should name the checkpoint to load"
    ]


def test_universal_ones_are_a_layout_of_their_own(tmp_path: Path) -> None:
    zero(tmp_path / "global_step100", step=100, world=2, start=T)
    universal(tmp_path / "global_step100_universal", step=100, world=2, start=T + 60)
    run, look = tree(tmp_path), Looker()
    read = [DEEPSPEED_UNIVERSAL.read(folder, look) for folder in run.folders.values()]
    assert [one and one.name for one in read] == [None, "global_step100_universal"]


def test_what_latest_does_not_name_was_never_committed(tmp_path: Path) -> None:
    three(tmp_path)
    write(tmp_path / "latest", b"global_step200", T)

    found = run_of(tmp_path)

    assert [one.state for one in found.values()] == ["whole", "whole", "partial"]
    assert found["global_step300"].reasons == [
        "../latest: never committed: it still names global_step200"
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "is empty: it should name the checkpoint to load"),
        (b"\n", "is empty: it should name the checkpoint to load"),
        (b"global_step999", "names global_step999, which does not exist"),
        (b"\0\xff\0", "does not name a checkpoint"),
        (b"../elsewhere", "does not name a checkpoint"),
        (b"g" * 5000, f"names {'g' * 80}…, which does not exist"),
    ],
)
def test_latest_is_wrong(tmp_path: Path, text: bytes, why: str) -> None:
    three(tmp_path)
    write(tmp_path / "latest", text, T)
    found = run_of(tmp_path)
    assert [one.state for one in found.values()] == ["whole", "whole", "corrupt"]
    assert found["global_step300"].reasons == [f"../latest: {why}"]


def test_without_latest_the_last_save_did_not_end(tmp_path: Path) -> None:
    three(tmp_path, marker=False)
    found = run_of(tmp_path)
    assert [one.state for one in found.values()] == ["whole", "whole", "partial"]
    why = "../latest: missing: it is written when a save is complete"
    assert found["global_step300"].reasons == [why]


def check_marker(path: Path) -> list[Flaw]:
    view = View(tree(path), {"facts": {"tags": {"folders": "global_step.*"}}}, Looker())
    check_latest(view)
    return view.found.flaws


def test_check_marker_of_a_checkpoint_that_holds_the_tag(tmp_path: Path) -> None:
    # GIVEN a checkpoint of transformers' Trainer with DeepSpeed's inside
    zero(tmp_path / "global_step100", step=100, world=2, start=T)
    assert check_marker(tmp_path) == []

    (tmp_path / "latest").write_bytes(b"global_step90")
    assert check_marker(tmp_path) == [
        Flaw("corrupt", "names global_step90, which does not exist", "latest")
    ]
    (tmp_path / "global_step90").mkdir()
    assert check_marker(tmp_path) == [
        Flaw(
            "partial",
            "names global_step90, and global_step100 exists: it was never committed",
            "latest",
        )
    ]
    (tmp_path / "latest").unlink()
    assert check_marker(tmp_path) == [
        Flaw("partial", "missing: it is written when a save is complete", "latest")
    ]


def silent(folder: Path, step: int, ranks: int, numel: int) -> None:
    """ZeRO 2 of an engine whose model states do not tell the world."""
    write(folder / "mp_rank_00_model_states.pt", torch_file(content={"module": step}), T + step)
    for rank in range(ranks):
        name = f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        write(folder / name, optim_states(step, 0, 2, f"{rank}", numel), T + step)


def test_only_other_checkpoints_tell_of_the_last_ranks(tmp_path: Path) -> None:
    silent(tmp_path / "global_step100", 100, 8, 2000)
    silent(tmp_path / "global_step200", 200, 6, 2000)
    (tmp_path / "latest").write_text("global_step200")

    found = run_of(tmp_path)

    why = "missing: 6 of 8 optimizer states exist, of the size they have in global_step100"
    assert found["global_step200"].state == "partial"
    assert found["global_step200"].reasons == [
        f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt: {why}" for rank in (6, 7)
    ]


def test_a_job_restarted_on_fewer_ranks_has_larger_pieces(tmp_path: Path) -> None:
    silent(tmp_path / "global_step100", 100, 8, 2000)
    silent(tmp_path / "global_step200", 200, 4, 4000)
    (tmp_path / "latest").write_text("global_step200")
    assert {one.state for one in run_of(tmp_path).values()} == {"whole"}


def test_absurd_numbers_are_no_danger(tmp_path: Path) -> None:
    folder = tmp_path / "global_step100"
    zero(folder, step=100, world=2, start=T)
    claims = model_states(100, 1 << 60, -3, 2, "")
    write(folder / "mp_rank_00_model_states.pt", claims, T)
    assert alone(folder).state == "whole"
    last = b""
    for name in (
        "zero_pp_rank_9999999_mp_rank_99999_optim_states.pt",
        "layer_999999_expert_999999_mp_rank_00_model_states.pt",
        "layer_999999-model_00-model_states.pt",
        "expp_rank_999999_mp_rank_00_optim_states.pt",
    ):
        write(folder / name, last, T)
    found = alone(folder)
    assert found.state == "partial"
    assert len(found.reasons) < 60
    assert found.ranks == 10_000_000 * 100_000


def test_files_of_others_do_no_harm(tmp_path: Path) -> None:
    folder = tmp_path / "global_step100"
    zero(folder, step=100, world=2, start=T)
    write(folder / "README.md", b"# mine\n", T)
    write(folder / "offloaded_tensors/optimizer/rank0/0.tensor.swp", bytes(range(256)) * 9, T)
    found = alone(folder)
    assert (found.state, found.files) == ("whole", 5)


@pytest.mark.parametrize("step", [100, 300])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (experts, "expp_rank_1_mp_rank_00_optim_states.pt"),
        (partial(pipeline, tp=1), "layer_08-model_00-model_states.pt"),
        (universal, "zero/model.layers.3.weight"),
        (partial(zero, stage=0), "mp_rank_00_model_states.pt"),
    ],
)
def test_what_all_other_checkpoints_have(
    tmp_path: Path, make: Callable[..., None], name: str, step: int
) -> None:
    three(tmp_path, make)
    path = tmp_path / f"global_step{step}" / name
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()

    found = run_of(tmp_path)

    hit = found.pop(f"global_step{step}")
    assert hit.state == "partial"
    assert any(
        reason.startswith(name)
        and reason.endswith(": missing: all other checkpoints in this folder have it")
        for reason in hit.reasons
    )
    assert {one.state for one in found.values()} == {"whole"}
