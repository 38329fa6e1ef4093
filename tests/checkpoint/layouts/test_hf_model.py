"""Folders with a model of transformers or an adapter of PEFT."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from diagnose.checkpoint.layouts.hooks import Series, series_of
from diagnose.checkpoint.layouts.rows import layouts, pattern
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, judged
from diagnose.checkpoint.tree import Folder, read_tree
from tests.checkpoint.founds import Family
from tests.checkpoint.make.base import json_bytes, safetensors_file, torch_file, write
from tests.checkpoint.make.hf import CONFIG, LORA, MAKERS, MODEL, adapter, model, weights

HF_MODEL = Family("Hugging Face model")

T = 1_750_000_000.0
INDEX = "model.safetensors.index.json"


def judge(path: Path) -> Checkpoint | None:
    folder = read_tree(str(path))
    assert isinstance(folder, Folder)
    found = HF_MODEL.read(folder, Looker())
    return judged(found) if found else None


def reasons(path: Path) -> list[str]:
    checkpoint = judge(path)
    assert checkpoint is not None
    return checkpoint.reasons


def sharded(path: Path, shards: int = 4) -> None:
    model(path, step=1, start=T, shards=shards)


def shard(number: int, count: int = 4) -> str:
    return f"model-{number:05d}-of-{count:05d}.safetensors"


@pytest.mark.parametrize(
    ("maker", "layout", "framework", "files"),
    [
        ("hf-model", "Hugging Face model", "", 5),
        ("hf-model-sharded", "Hugging Face model", "", 9),
        ("hf-model-bin", "Hugging Face model", "", 7),
        ("peft-adapter", "PEFT adapter", "peft", 2),
    ],
)
def test_what_the_makers_write_is_whole(
    tmp_path: Path, maker: str, layout: str, framework: str, files: int
) -> None:
    MAKERS[maker](tmp_path / "step_70", step=70, world=4, start=T)
    checkpoint = judge(tmp_path / "step_70")
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons, checkpoint.notes) == ("whole", [], [])
    assert (checkpoint.layout, checkpoint.framework, checkpoint.files, checkpoint.step) == (
        layout, framework, files, 70,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda f: (f / shard(3)).unlink(), [f"{shard(3)}: missing: 3 of 4 shards exist"]),
        (
            lambda f: (f / INDEX).unlink(),
            [f"{INDEX}: missing: it is written when all shards exist"],
        ),
        (
            lambda f: (f / "config.json").unlink(),
            ["config.json: missing: from_pretrained needs it"],
        ),
        (
            lambda f: (f / "tokenizer.json").unlink(),
            ["tokenizer.json: missing: the tokenizer's settings exist, but no vocabulary"],
        ),
        (
            lambda f: write(f / f"{shard(2)}.incomplete", b"PK", T),
            [f"{shard(2)}.incomplete: a temporary file of an unfinished write"],
        ),
        (lambda f: (f / shard(1)).write_bytes(b""), [f"{shard(1)}: is empty"]),
    ],
)
def test_what_a_save_or_download_that_was_cut_off_leaves_is_partial(
    tmp_path: Path, damage: Callable[[Path], object], expected: list[str]
) -> None:
    sharded(tmp_path)
    damage(tmp_path)
    checkpoint = judge(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == ("partial", expected)


def test_the_first_shards_without_the_rest_and_the_index(tmp_path: Path) -> None:
    sharded(tmp_path)
    for name in (shard(3), shard(4), INDEX, "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    assert reasons(tmp_path) == [
        f"{shard(3)}: missing: 2 of 4 shards exist",
        f"{shard(4)}: missing: 2 of 4 shards exist",
        f"{INDEX}: missing: it is written when all shards exist",
    ]


def test_only_the_index_is_left(tmp_path: Path) -> None:
    sharded(tmp_path)
    for number in range(1, 5):
        (tmp_path / shard(number)).unlink()
    assert reasons(tmp_path) == [
        f"{shard(number)}: missing: 0 of 4 shards exist" for number in range(1, 5)
    ]


def test_no_more_than_eight_missing_shards_are_named(tmp_path: Path) -> None:
    write(tmp_path / "model-00002-of-99999.safetensors", safetensors_file(MODEL), T)
    said = reasons(tmp_path)
    assert said[0] == ("model-00001-of-99999.safetensors: missing: 1 of 99999 shards exist")
    assert [text for text in said if "more" in text] == ["missing: 99,990 more files like these"]
    assert len(said) == 10


def test_settings_without_weights(tmp_path: Path) -> None:
    model(tmp_path, step=1, start=T)
    (tmp_path / "model.safetensors").unlink()
    assert reasons(tmp_path) == ["model.safetensors: missing: there are no weights"]


def test_a_shard_of_another_model(tmp_path: Path) -> None:
    sharded(tmp_path)
    write(tmp_path / shard(2), safetensors_file({"other.weight": ("F32", (8,))}), T)
    checkpoint = judge(tmp_path)
    assert checkpoint is not None
    name = list(MODEL)[1]
    assert (checkpoint.state, checkpoint.reasons) == (
        "corrupt",
        [f"{shard(2)}: lacks 1 of 1 tensors that the index places in it, such as {name}"],
    )


def test_shards_of_two_saves_without_an_index_are_corrupt(tmp_path: Path) -> None:
    sharded(tmp_path, 4)
    sharded(tmp_path, 3)
    (tmp_path / shard(3, 3)).unlink()
    (tmp_path / INDEX).unlink()
    checkpoint = judge(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == (
        "corrupt", [f"{shard(1, 3)}: shards of different saves, of 3 and 4 files, are mixed"],
    )  # fmt: skip


def test_shards_that_the_index_does_not_name_are_a_note(tmp_path: Path) -> None:
    sharded(tmp_path, 4)
    sharded(tmp_path, 3)
    checkpoint = judge(tmp_path)
    assert checkpoint is not None
    assert checkpoint.state == "whole"
    assert checkpoint.notes == [
        f"no index names {shard(1)} and similar shards: left over from another save"
    ]


def test_an_index_that_names_only_some_shards_of_its_series(tmp_path: Path) -> None:
    sharded(tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    name = next(name for name, file in index["weight_map"].items() if file == shard(4))
    del index["weight_map"][name]
    write(tmp_path / INDEX, json_bytes(index), T)
    checkpoint = judge(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == (
        "corrupt", [f"{shard(4)}: the index lists no tensor in it"]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"metadata": {}}, "has no weight_map: it does not say which file contains a tensor"),
        ({"weight_map": {"a": 7}}, "its weight_map names something that is not a file"),
        ([], "has no weight_map: it does not say which file contains a tensor"),
    ],
)
def test_an_index_that_makes_no_sense(tmp_path: Path, data: object, why: str) -> None:
    sharded(tmp_path)
    write(tmp_path / INDEX, json_bytes(data), T)
    checkpoint = judge(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == ("corrupt", [f"{INDEX}: {why}"])


def test_a_file_that_hides_other_shards(tmp_path: Path) -> None:
    sharded(tmp_path)
    write(tmp_path / "model.safetensors", safetensors_file({"a": ("F32", (4,))}), T - 9000)
    checkpoint = judge(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == (
        "corrupt",
        ["model.safetensors: has other tensors than the shards beside it, and loaders prefer it"],
    )  # fmt: skip


def test_total_size_is_a_note_because_tied_weights_are_counted_in_two_ways(tmp_path: Path) -> None:
    sharded(tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    index["metadata"]["total_size"] += 2048
    write(tmp_path / INDEX, json_bytes(index), T)
    checkpoint = judge(tmp_path)
    assert checkpoint is not None
    assert checkpoint.state == "whole"
    assert checkpoint.notes == [f"the tensors take 6,176 bytes, and {INDEX} says 8,224"]


def _both_formats(folder: Path) -> None:
    sharded(folder)
    weights(folder, step=1, start=T, shards=2, kind="bin")


def _index_of_another_format_only(folder: Path) -> None:
    _both_formats(folder)
    for number in (1, 2):
        (folder / f"pytorch_model-{number:05d}-of-00002.bin").unlink()


def _single_beside_its_shards(folder: Path) -> None:
    sharded(folder)
    weights(folder, step=1, start=T)


def _files_of_the_user(folder: Path) -> None:
    sharded(folder)
    for name in ("README.md", ".gitattributes", "log.txt", "eval.json", "dump.bin", "a.tmp"):
        write(folder / name, b"", T)
    write(folder / "runs/events.out.tfevents.1", b"", T)


def _no_generation_config(folder: Path) -> None:
    sharded(folder)
    (folder / "generation_config.json").unlink()


def _slow_tokenizer(folder: Path) -> None:
    sharded(folder)
    (folder / "tokenizer.json").unlink()
    write(folder / "tokenizer.model", b"\n\x0e", T)


def _without_vocabulary(folder: Path) -> None:
    sharded(folder)
    (folder / "tokenizer.json").unlink()
    write(folder / "tokenizer_config.json", json_bytes({"tokenizer_class": "ByT5Tokenizer"}), T)


def _variant(folder: Path) -> None:
    write(folder / "config.json", json_bytes(CONFIG), T)
    names = [f"model.fp16-{number:05d}-of-00002.safetensors" for number in (1, 2)]
    for name in names:
        write(folder / name, safetensors_file({name[11:16]: ("F16", (4,))}), T)
    mapping = {name[11:16]: name for name in names}
    write(folder / "model.safetensors.index.fp16.json", json_bytes({"weight_map": mapping}), T)


def _weights_alone(folder: Path) -> None:
    weights(folder, step=1, start=T, shards=2)


@pytest.mark.parametrize(
    "make",
    [
        _both_formats, _index_of_another_format_only, _single_beside_its_shards,
        _files_of_the_user, _no_generation_config, _slow_tokenizer, _without_vocabulary, _variant,
        _weights_alone,
    ],
)  # fmt: skip
def test_what_is_normal_stays_whole(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path)
    checkpoint = judge(tmp_path)
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == ("whole", [])


def test_links_of_the_hub_cache(tmp_path: Path) -> None:
    blobs = tmp_path / "models--a--b/blobs"
    snapshot = tmp_path / "models--a--b/snapshots/0a1b"
    sharded(blobs)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    checkpoint = judge(snapshot)
    assert checkpoint is not None
    assert checkpoint.state == "whole"
    (blobs / shard(2)).unlink()
    assert reasons(snapshot) == [f"{shard(2)}: is a dangling link"]


def test_further_adapters_are_part_of_the_first_one(tmp_path: Path) -> None:
    adapter(tmp_path, step=1, start=T)
    adapter(tmp_path / "second", step=1, start=T, kind="bin")
    adapter(tmp_path / "third", step=1, start=T)
    (tmp_path / "third/adapter_model.safetensors").write_bytes(safetensors_file(LORA)[:-1])
    checkpoint = judge(tmp_path)
    assert checkpoint is not None
    assert checkpoint.files == 6
    assert [reason.partition(":")[0] for reason in checkpoint.reasons] == [
        "third/adapter_model.safetensors"
    ]


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"config.json": json_bytes({"learning_rate": 1})},
        {"config.json": json_bytes(CONFIG), "tokenizer.json": b"{}"},
        {"config.json": json_bytes(CONFIG), "generation_config.json": b"{}", "tf_model.h5": b"x"},
        {"data.bin": b"\0" * 8, "optimizer.pt": torch_file()},
        {"llama.gguf": b"GGUF", "config.json": json_bytes(CONFIG)},
    ],
)
def test_other_folders_are_none(tmp_path: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        write(tmp_path / name, data, T)
    assert judge(tmp_path) is None


def test_names_that_are_hostile(tmp_path: Path) -> None:
    """Many series of shards, and an index whose files lie elsewhere, end with few reasons."""
    for number in range(300):
        write(tmp_path / f"m{number}-00001-of-99999.bin", b"", T)
    mapping = {f"t{n}": f"x{n}-00001-of-99999.safetensors" for n in range(300)}
    mapping |= {"up": "../../../etc/passwd", "long": "a" * 5000}
    write(tmp_path / INDEX, json_bytes({"weight_map": mapping}), T)
    checkpoint = judge(tmp_path)
    assert checkpoint is not None
    assert checkpoint.state == "partial"
    assert len(checkpoint.reasons) < 2000
    assert max(map(len, checkpoint.reasons)) < 400


@pytest.mark.parametrize(
    ("name", "series", "index"),
    [
        ("model-00001-of-00004.safetensors", Series("model", 4, ".safetensors"), INDEX),
        (
            "pytorch_model-00002-of-00002.bin", Series("pytorch_model", 2, ".bin"),
            "pytorch_model.bin.index.json",
        ),
        (
            "model.fp16-00001-of-00002.safetensors", Series("model.fp16", 2, ".safetensors"),
            "model.safetensors.index.fp16.json",
        ),
        (
            "model-00001-of-00002.fp16.safetensors", Series("model", 2, ".fp16.safetensors"),
            "model.safetensors.index.fp16.json",
        ),
    ],
)  # fmt: skip
def test_names_of_shards(name: str, series: Series, index: str) -> None:
    match = pattern(layouts("Hugging Face model")[0].row["facts"]["shard"]).fullmatch(name)
    assert match is not None
    assert series_of(match) == series
    assert series.index == index
    assert name == series.name(int(match["number"]))
