"""Files that torch itself writes, whole and cut off; `pytest -m lab tests/lab/checkpoint`."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diagnose.checkpoint.look import Look, Looker
from diagnose.checkpoint.model import Flaw
from diagnose.checkpoint.tree import Leaf, read_tree
from tests.checkpoint.leaves import look
from tests.checkpoint.make.base import (
    SERIALIZATION_ID,
    Tensor,
    safetensors_file,
    torch_file,
    torch_legacy_file,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.lab

SHAPES = {"float32": (7, 3), "float16": (4,), "bfloat16": (2, 2, 2), "int64": (5,), "bool": (3,),
          "uint8": (0,)}  # fmt: skip


def seen(path: Path, *, verify: bool = False) -> Look:
    leaf = read_tree(str(path))
    assert isinstance(leaf, Leaf)
    return Looker(verify)(leaf)


def tensors() -> dict[str, Any]:
    return {kind: torch.ones(shape, dtype=getattr(torch, kind)) for kind, shape in SHAPES.items()}


def alike(value: dict[str, Any]) -> dict[str, Tensor]:
    """The same for the writer of the tests."""
    return {
        kind: Tensor(tuple(tensor.shape), kind, tensor.view(torch.uint8).numpy().tobytes())
        for kind, tensor in value.items()
    }


def training() -> dict[str, Any]:
    """A model with the state of its optimizer and scheduler, as trainers save them."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    for _ in range(3):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        scheduler.step()
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(),
        "lr_scheduler": scheduler.state_dict(), "rng": torch.get_rng_state(), "global_step": 3,
    }  # fmt: skip


def saved(path: Path, value: Any, **options: Any) -> bytes:
    torch.save(value, path, **options)
    return path.read_bytes()


def test_the_writer_of_the_tests_writes_what_torch_does(tmp_path: Path) -> None:
    value = tensors()
    made = torch_file(content={"global_step": 5, **alike(value)}, archive="a")
    real = saved(tmp_path / "a.pt", {"global_step": 5, **value})
    # The id is a hash of names and checksums; its own checksum stands in three places.
    at = made.index(SERIALIZATION_ID)
    assert len(made) == len(real)
    assert made[:at] == real[:at]
    assert made[at + 56 : at + 56 + 500] == real[at + 56 : at + 56 + 500]
    assert made[-98:] == real[-98:]


def test_torch_loads_what_the_writer_of_the_tests_writes(tmp_path: Path) -> None:
    value = tensors()
    for name, write in (("a.pt", torch_file), ("b.pt", torch_legacy_file)):
        (tmp_path / name).write_bytes(write(content={"n": 5, **alike(value)}))
        loaded = torch.load(tmp_path / name)
        assert loaded.pop("n") == 5
        assert all(torch.equal(loaded[kind], tensor) for kind, tensor in value.items())


@pytest.mark.parametrize("options", [{}, {"_use_new_zipfile_serialization": False}])
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("make", [tensors, training, dict, lambda: torch.nn.Linear(3, 3)])
@pytest.mark.filterwarnings("ignore")
def test_files_of_torch_are_whole_and_their_beginnings_partial(
    tmp_path: Path, make: Callable[[], Any], protocol: int, options: dict[str, Any]
) -> None:
    whole = saved(tmp_path / "a.pt", make(), pickle_protocol=protocol, **options)
    for verify in (False, True):
        assert seen(tmp_path / "a.pt", verify=verify).flaw is None
    for length in range(0, len(whole), 1 if len(whole) < 5000 else 11):
        told = look("a.pt", whole[:length]).flaw
        assert told is not None, length
        assert told.state == "partial", (length, told)


def test_the_step_of_a_real_state_is_found(tmp_path: Path) -> None:
    state = training()
    saved(tmp_path / "a.pt", state)
    assert seen(tmp_path / "a.pt").step == 3
    saved(tmp_path / "scheduler.pt", state["lr_scheduler"])
    assert seen(tmp_path / "scheduler.pt").step == 3


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_views_sparse_and_quantized_tensors(tmp_path: Path) -> None:
    base = torch.arange(100.0)
    value = {
        "view": base[10:20], "same": base.view(10, 10), "sparse": torch.eye(9).to_sparse(),
        "quantized": torch.quantize_per_tensor(base, 0.1, 0, torch.qint8),
        "complex": torch.ones(3, dtype=torch.complex64), "storage": torch.ones(5).untyped_storage(),
        "float8": torch.ones(4).to(torch.float8_e4m3fn), "parameter": torch.nn.Parameter(base),
    }  # fmt: skip
    saved(tmp_path / "a.pt", value)
    assert seen(tmp_path / "a.pt", verify=True).flaw is None
    old = {key: tensor for key, tensor in value.items() if key not in ("float8", "storage")}
    saved(tmp_path / "b.pt", old, _use_new_zipfile_serialization=False)
    assert seen(tmp_path / "b.pt").flaw is None


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_scripts_are_zips_of_torch(tmp_path: Path) -> None:
    torch.jit.script(torch.nn.Linear(3, 3)).save(str(tmp_path / "a.pt"))
    told = seen(tmp_path / "a.pt", verify=True)
    assert (told.kind, told.flaw) == ("torch", None)


def test_files_without_checksums(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        saved(tmp_path / "a.pt", training())
    finally:
        torch.serialization.set_crc32_options(True)
    told = seen(tmp_path / "a.pt", verify=True)
    assert (told.flaw, told.digest, told.step) == (None, "", 3)


def test_holes_that_torch_leaves_on_purpose(tmp_path: Path) -> None:
    with torch.serialization.skip_data():
        saved(tmp_path / "a.pt", {"w": torch.ones(1_000_000)})
    assert seen(tmp_path / "a.pt").flaw is None


def test_what_torch_loads_in_silence(tmp_path: Path) -> None:
    """Blocks that were lost: torch.load gives zeros, the checksum tells."""
    path = tmp_path / "a.pt"
    whole = saved(path, {"w": torch.ones(1_000_000), "zeros": torch.zeros(1_000_000)})
    at = whole.index(b"\0\0\x80?" * 100)
    with path.open("wb") as sink:
        sink.write(whole[: at + 10])
        sink.seek(at + 4_000_000 - 10)
        sink.write(whole[at + 4_000_000 - 10 :])
        sink.flush()
        os.fsync(sink.fileno())
    assert torch.load(path)["w"].sum() < 1_000_000
    told = Flaw(
        "corrupt", "the 4,000,000 bytes of its record 'a/data/0' do not match their checksum"
    )
    assert seen(path, verify=True).flaw == told
    assert seen(path).flaw is None  # its first and last bytes are right


def test_more_than_four_gigabytes(tmp_path: Path) -> None:
    """Sizes and offsets of 64 bits; the data are a hole, so it takes no disk."""
    path = tmp_path / "a.pt"
    with torch.serialization.skip_data():
        big = torch.empty(5 << 30, dtype=torch.uint8)
        torch.save({"w": big, "after": torch.ones(3), "iteration": 7}, path)
    del big
    told = seen(path)
    assert (told.flaw, told.step) == (None, 7)
    os.truncate(path, path.stat().st_size - 1)
    assert seen(path).flaw == Flaw(
        "partial", "ends before its table of contents, which a save writes last"
    )


def test_files_of_the_safetensors_library(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.torch")
    value = {kind: tensor for kind, tensor in tensors().items() if kind != "uint8"}
    library.save_file(value, tmp_path / "model.safetensors", metadata={"format": "pt"})
    told = seen(tmp_path / "model.safetensors")
    assert told.flaw is None
    assert told.tensors == {key: tensor.nbytes for key, tensor in value.items()}
    made = safetensors_file({
        "float32": ("F32", (7, 3)), "float16": ("F16", (4,)), "bfloat16": ("BF16", (2, 2, 2)),
        "int64": ("I64", (5,)), "bool": ("BOOL", (3,)),
    })  # fmt: skip
    real = (tmp_path / "model.safetensors").read_bytes()
    header = 8 + int.from_bytes(made[:8], "little")
    assert made[:header] == real[:header]
    assert len(made) == len(real)


def test_random_states_of_accelerate(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    states = {"torch_manual_seed": torch.get_rng_state(), "numpy": numpy.random.get_state()}
    path = tmp_path / "random_states_0.pkl"
    saved(path, states)
    assert seen(path).flaw is None
    path.write_bytes(pickle.dumps(states))
    assert seen(path).flaw is None
