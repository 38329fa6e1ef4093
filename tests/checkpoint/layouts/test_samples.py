"""The samples of `formats/checkpoints/*.yaml`: files of a checkpoint, and what misses each."""

from __future__ import annotations

import ast
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from diagnose.checkpoint.find import inspect
from diagnose.checkpoint.layouts import checks, rows
from diagnose.checkpoint.look import kind_of
from diagnose.checkpoint.model import Checkpoint
from tests.checkpoint.founds import remove
from tests.checkpoint.make.base import json_bytes, safetensors_file, torch_file, write

FILES = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in rows.FOLDER.glob("*.yaml")]
SAMPLES = [sample for file in FILES for sample in file.get("samples", [])]
MISSED = [
    (sample, gone, why) for sample in SAMPLES for gone, why in sample.get("without", {}).items()
]


def expanded(form: str) -> list[str]:
    """`a_{0-2}` and `a.{b,c}` written out."""
    parts = re.split(r"\{([^}]*)\}", form)
    choices = []
    for place, part in enumerate(parts):
        if place % 2 and (span := re.fullmatch(r"(\d+)-(\d+)", part)):
            width = len(span[1])
            choices.append([f"{n:0{width}d}" for n in range(int(span[1]), int(span[2]) + 1)])
        else:
            choices.append(part.split(",") if place % 2 else [part])
    return ["".join(one) for one in product(*choices)]


def content(path: str, stated: Any) -> bytes:
    """What such a file may hold; `stated` is its JSON, its state, or its text."""
    name = path.rsplit("/", 1)[-1]
    if isinstance(stated, str):
        return stated.encode()
    if name.endswith(".json"):
        return json_bytes(stated or {})
    if name.endswith(".safetensors"):
        return safetensors_file(dict.fromkeys(stated or ["w"], ("F32", (64,))))
    if kind_of(name) in ("torch", "pickle"):
        return torch_file(content=stated or {})
    return b"x"


def made(folder: Path, sample: dict[str, Any]) -> None:
    stated = sample.get("contents", {})
    for path in (path for form in sample["files"] for path in expanded(form)):
        write(folder / path, content(path, stated.get(path)), 1.7e9)


def judged(folder: Path) -> Checkpoint:
    (found,) = inspect([str(folder)]).checkpoints
    return found


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["layout"])
def test_a_whole_one(sample: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / sample["folder"]
    made(folder, sample)
    found = judged(folder)
    assert found.reasons == []
    assert (found.layout, found.step, found.ranks, found.framework) == (
        sample["layout"], sample.get("step"), sample.get("ranks"), sample.get("framework", ""),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sample", "gone", "why"), MISSED, ids=lambda one: one if isinstance(one, str) else ""
)
def test_what_is_missing_is_named(
    sample: dict[str, Any], gone: str, why: str | list[str], tmp_path: Path
) -> None:
    folder = tmp_path / sample["folder"]
    made(folder, sample)
    for path in (path for one in gone.split() for path in expanded(one)):
        remove(folder / path)
    assert judged(folder).reasons == ([f"{gone}: {why}"] if isinstance(why, str) else why)


def test_every_layout_has_a_sample() -> None:
    made_elsewhere = {  # by tests.checkpoint.make: of files whose content has to agree
        "PyTorch DCP", "Lightning", "Megatron-LM torch_dist", "Megatron-LM DCP", "NeMo 1", "NeMo 2",
        "DeepSpeed universal", "unknown", "adapter",
    }  # fmt: skip
    layouts = {row["name"] for file in FILES for row in file["layouts"]}
    assert layouts - made_elsewhere - {sample["layout"] for sample in SAMPLES} == {"Megatron-LM"}


def _specs(found: Any) -> list[Any]:
    """All checks of a row, those of groups included."""
    return [*found.get("checks", []), *(one for group in found["groups"].values() for one in group)]


@pytest.mark.parametrize("layout", rows.all_layouts(), ids=lambda one: f"{one.family}: {one.name}")
def test_rows_name_what_is_there(layout: rows.Layout) -> None:
    row = layout.row
    numbers = {"staged", "inner"}
    for fact in row["facts"].values():
        if isinstance(fact, dict) and "hook" in fact:
            assert callable(rows.hook(fact["hook"]))
        elif not isinstance(fact, dict) or not {"when", "known"} & fact.keys():
            rows.pattern(fact if isinstance(fact, str) else next(iter(fact.values())))
    conditions = [row["is"], row.get("framework_if", "always")]
    conditions += [
        fact["when"] for fact in row["facts"].values() if isinstance(fact, dict) and "when" in fact
    ]
    for spec in _specs(row):
        if isinstance(spec, str):
            assert callable(rows.hook(spec))
            continue
        assert "use" in spec or "hook" in spec or hasattr(checks, next(iter(spec))), spec
        conditions += [spec["when"]] if "when" in spec else []
        conditions += list(spec.get("also", {}).values())
        facts = [
            spec.get(key)
            for key in ("inside", "step_in", "numbered", "most", "listed", "paired", "with", "of")
        ]
        assert {one for one in facts[:-1] if one} <= row["facts"].keys(), spec
    for text in conditions:
        names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        assert names <= row["facts"].keys() | rows._GIVEN.keys() | numbers
    for spec in row.get("compare", []):
        assert (
            callable(rows.hook(spec))
            if isinstance(spec, str)
            else next(iter(spec)) in checks._PREDICATES
        )


def test_the_example_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (rows.FOLDER.parents[2] / "docs/extending.md").read_text(encoding="utf-8")
    example = re.search(r"```yaml\n(layouts:.*?)```", text, re.DOTALL)
    assert example is not None
    (tmp_path / "rows").mkdir()
    for path in rows.FOLDER.glob("*.yaml"):
        (tmp_path / "rows" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "rows/acme.yaml").write_text(example[1], encoding="utf-8")
    monkeypatch.setattr(rows, "FOLDER", tmp_path / "rows")
    rows.all_layouts.cache_clear()
    try:
        (sample,) = yaml.safe_load(example[1])["samples"]
        test_a_whole_one(sample, tmp_path / "whole")
        for number, (gone, why) in enumerate(sample["without"].items()):
            test_what_is_missing_is_named(sample, gone, why, tmp_path / str(number))
    finally:
        rows.all_layouts.cache_clear()
