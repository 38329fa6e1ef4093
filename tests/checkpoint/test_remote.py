"""Checkpoints in an object store, through fsspec: ranges only, and the same verdicts."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.checkpoint.find import inspect
from diagnose.checkpoint.model import Inspection
from tests.checkpoint.mutate import BEGIN, STEPS, WORLD, makers, name_of

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def store() -> Iterator[object]:
    memory = fsspec.filesystem("memory")
    yield memory
    memory.rm("/", recursive=True)


def upload(run: Path, memory: object) -> None:
    for path in sorted(run.rglob("*")):
        if path.is_file():
            memory.pipe_file(f"/bucket/{path.relative_to(run)}", path.read_bytes())  # type: ignore[attr-defined]


def told(found: Inspection, base: str) -> list[tuple[str, str, list[str]]]:
    return [(one.path.removeprefix(base), one.state, one.reasons) for one in found.checkpoints]


@pytest.mark.parametrize("maker", ["hf-trainer-sharded", "deepspeed-zero3", "dcp", "accessory"])
def test_the_same_as_on_disk(maker: str, tmp_path: Path, store: object) -> None:
    for number, step in enumerate(STEPS):
        folder = tmp_path / name_of(maker, step)
        makers()[maker](folder, step=step, world=WORLD, start=BEGIN + 600 * number)
    largest = max(folder.rglob("*"), key=lambda path: path.stat().st_size)
    written = largest.stat().st_mtime
    largest.write_bytes(largest.read_bytes()[:-50])
    os.utime(largest, (written, written))
    upload(tmp_path, store)
    here = told(inspect([str(tmp_path)]), f"{tmp_path}/")
    there = told(inspect(["memory://bucket"]), "memory://bucket/")
    assert here == there
    assert [state for _, state, _ in there] == ["whole", "whole", "partial"]


def test_only_ranges_are_fetched(store: object, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 64 << 20
    header = b'{"a":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}' % (size, size)
    data = len(header).to_bytes(8, "little") + header + b"\1" * size
    store.pipe_file("/bucket/model.safetensors", data)  # type: ignore[attr-defined]
    fetched: list[int] = []
    cat = type(store).cat_file

    def counting(self: object, path: str, start: int, end: int, **more: object) -> bytes:
        fetched.append(end - start)
        return cat(self, path, start=start, end=end, **more)

    monkeypatch.setattr(type(store), "cat_file", counting)
    found = inspect(["memory://bucket/model.safetensors"]).checkpoints
    assert [one.state for one in found] == ["whole"]
    assert 0 < sum(fetched) < 1 << 20
