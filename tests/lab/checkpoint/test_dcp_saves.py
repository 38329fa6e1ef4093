"""What torch itself saves with DCP is read as torch reads it, and is whole.

On request only: `pytest -m lab tests/lab/checkpoint`.
"""

from __future__ import annotations

import pickle
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from launch_dcp import run_job

from diagnose.checkpoint.dcp_metadata import names_in, read_metadata
from diagnose.checkpoint.find import inspect
from diagnose.ingest.raw import FileStore
from tests.checkpoint.make import dcp

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs torch"),
]

KINDS = {
    "step-1": 1, "two_files_step_2": 2, "file_per_item_step_3": 3, "async_step_4": 4,
    "uncoordinated_step_5": 5, "overwritten": None, "nothing_for_most_step_7": 7,
    "empty_step_8": 8, "compressed_step_9": 9, "zeros_step_10": 10,
}  # fmt: skip


@pytest.fixture(autouse=True)
def on_request_only(request: pytest.FixtureRequest) -> None:
    """Skip unless the marker was asked for: a plain run of the tests starts no jobs."""
    if "lab" not in request.config.getoption("-m"):
        pytest.skip("starts real jobs; run with -m lab")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One checkpoint of every kind."""
    folder = tmp_path_factory.mktemp("job") / "run"
    assert run_job(folder, "--saves") == 0
    return folder


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_whole(run: Path, kind: str, verify: bool) -> None:
    (found,) = inspect([str(run / kind)], verify=verify).checkpoints
    assert (found.state, found.reasons, found.notes) == ("whole", [], [])
    assert found.layout == "PyTorch DCP"
    assert found.step == KINDS[kind]
    assert found.ranks == (1 if kind == "nothing_for_most_step_7" else 4)


def loaded(path: Path) -> Any:
    return pickle.loads(path.read_bytes())


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_says_what_torch_reads(run: Path, kind: str) -> None:
    paths = sorted((run / kind).glob("*.metadata"))
    assert len(paths) == (4 if kind == "uncoordinated_step_5" else 1)
    for path in paths:
        real = loaded(path)
        expected: dict[str, list[list[int]]] = {}
        for info in real.storage_data.values():
            expected.setdefault(info.relative_path, []).append([info.offset, info.length])
        with FileStore(path).open() as reader:
            mine, names = read_metadata(reader), names_in(reader)
        assert {name: rows.tolist() for name, rows in mine.files.items()} == {
            name: sorted(rows) for name, rows in expected.items()
        }
        assert set(names.files) == set(expected)
        known = list(real.state_dict_metadata.values())
        tensors = [one for one in known if hasattr(one, "chunks")]
        assert mine.tensors == len(tensors)
        assert mine.chunks == sum(len(one.chunks) for one in tensors)
        assert mine.blobs == len(known) - len(tensors)
        assert mine.saved_as == str(run / kind)
        assert mine.transformed == (kind == "compressed_step_9")
        assert mine.foreign == ()


def test_made_metadata_is_that_of_torch() -> None:
    """The tests' own writer gives the same bytes."""
    import torch
    from torch.distributed.checkpoint import filesystem, metadata

    save = dcp.items_of(dcp.MODEL, {"step": 5}, step=5, world=2)
    save.metadata.storage_meta = dcp.StorageMeta(Path("/data/step-5"), "id")
    save.metadata.version = "1.0.0"
    shared: dict[str, torch.Size] = {}

    def size(value: dcp.Size) -> torch.Size:
        return shared.setdefault(repr(id(value)), torch.Size(value))

    tensors: dict[str, Any] = {}
    for fqn, known in save.metadata.state_dict_metadata.items():
        if isinstance(known, dcp.BytesStorageMetadata):
            tensors[fqn] = metadata.BytesStorageMetadata()
            continue
        chunks = [
            metadata.ChunkStorageMetadata(size(chunk.offsets), size(chunk.sizes))
            for chunk in known.chunks
        ]
        properties = metadata.TensorProperties(torch.float32)
        tensors[fqn] = metadata.TensorStorageMetadata(properties, size(known.size), chunks)
    storage = {}
    for index, info in save.metadata.storage_data.items():
        real = metadata.MetadataIndex(index.fqn, None, index.index)
        if hasattr(index, "offset"):
            object.__setattr__(real, "offset", size(index.offset))
        storage[real] = filesystem._StorageInfo(info.relative_path, info.offset, info.length)
    meta = metadata.StorageMeta(Path("/data/step-5"), "id")
    whole = metadata.Metadata(tensors, save.metadata.planner_data, storage, meta, "1.0.0")
    assert dcp.pickled(save.metadata) == pickle.dumps(whole, protocol=4)
