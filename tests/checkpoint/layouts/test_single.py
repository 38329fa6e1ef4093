"""Checkpoints that are single files, and files that are none."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from diagnose.checkpoint.layouts.hooks import read_file
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Checkpoint, judged
from diagnose.checkpoint.tree import Leaf, read_tree
from tests.checkpoint.make import hf
from tests.checkpoint.make.base import safetensors_file, torch_file, torch_legacy_file, write
from tests.checkpoint.make.lightning import content

T = 1_750_000_000.0
TORCH = torch_file(content=hf.state_dict("1"))
PLAIN = torch_file(content=[1, 2, 3])


def judge(path: Path) -> Checkpoint | None:
    leaf = read_tree(str(path))
    assert isinstance(leaf, Leaf)
    found = read_file(leaf, Looker())
    return judged(found) if found else None


def nemo(size: int = 3000) -> bytes:
    """A tar as NeMo 1 writes it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:") as archive:
        for name, data in (
            ("./model_config.yaml", b"a: 1\n"),
            ("./model_weights.ckpt", TORCH[:size]),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


LIGHTNING = ("Lightning", "lightning")
FILE = ("torch file", "")


@pytest.mark.parametrize(
    ("name", "data", "kind", "step"),
    [
        ("epoch=1-step=700.ckpt", torch_file(content=content(700)), LIGHTNING, 700),
        ("epoch=1-step=700-v2.ckpt", torch_file(content=content(701)), LIGHTNING, 700),
        ("last.ckpt", torch_file(content=content(700)), LIGHTNING, 700),
        ("sd-v1.ckpt", TORCH, LIGHTNING, None),
        ("model.safetensors", safetensors_file(hf.MODEL), ("safetensors file", ""), None),
        ("x.safetensors", safetensors_file(hf.MODEL), ("safetensors file", ""), None),
        ("checkpoint_1200.pt", TORCH, FILE, 1200),
        ("iter_500.pth", torch_legacy_file(hf.state_dict("1")), FILE, 500),
        ("ResNet50.pth", TORCH, FILE, None),  # its content tells
        ("pytorch_model.bin", TORCH, FILE, None),
        ("checkpoint.pt", torch_file(content={"global_step": 41, "model": {}}), FILE, 41),
        ("stt_en.nemo", nemo(), ("NeMo archive", "nemo"), None),
    ],
)
def test_whole_files(
    tmp_path: Path, name: str, data: bytes, kind: tuple[str, str], step: int | None
) -> None:
    write(tmp_path / name, data, T)
    checkpoint = judge(tmp_path / name)
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == ("whole", [])
    assert ((checkpoint.layout, checkpoint.framework), checkpoint.step) == (kind, step)
    assert (checkpoint.files, checkpoint.bytes) == (1, len(data))


@pytest.mark.parametrize(
    ("name", "data", "state", "why"),
    [
        ("last.ckpt", b"", "partial", "is empty"),
        ("model.pt", b"", "partial", "is empty"),
        ("pytorch_model.bin", b"", "partial", "is empty"),
        (
            "model.pt",
            TORCH[:-10],
            "partial",
            "ends before its table of contents, which a save writes last",
        ),
        ("model.pt", b"P", "partial", "has only 1 byte"),
        (
            "model.pt",
            b"\0" * 4096,
            "partial",
            "starts with zero bytes: its start was never written",
        ),
        ("x.safetensors", b"", "partial", "is empty"),
        ("model.pt.tmp", TORCH[:100], "partial", "a temporary file of an unfinished write"),
        ("epoch=1-step=700.ckpt", torch_file(content=content(600)), "corrupt", "says step 600"),
        ("a.nemo", nemo()[:2000], "partial", "ends before the end of its tar archive"),
        ("a.nemo", nemo()[:512], "partial", "ends before the end of its tar archive"),
        ("a.nemo", b"hello" * 1000, "corrupt", "is not a tar archive"),
        ("a.nemo", nemo()[:100], "partial", "is truncated within its first bytes"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, data: bytes, state: str, why: str) -> None:
    write(tmp_path / name, data, T)
    checkpoint = judge(tmp_path / name)
    assert checkpoint is not None
    assert (checkpoint.state, checkpoint.reasons) == (state, [f"{name}: {why}"])


def test_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "last.ckpt").symlink_to("epoch=0-step=5.ckpt")
    leaf = next(leaf for name, leaf in _leaves(tmp_path) if name == "last.ckpt")
    found = read_file(leaf, Looker())
    assert found is not None
    assert judged(found).reasons == ["last.ckpt: is a dangling link"]


def _leaves(path: Path) -> list[tuple[str, Leaf]]:
    folder = read_tree(str(path))
    assert not isinstance(folder, Leaf)
    return list(folder.leaves())


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("tokens.bin", b"\1\2\3\4" * 100),
        ("data_text_document.bin", b""),
        ("model.bin", b"\x08\x06\x12\x07"),  # OpenVINO
        ("dataset.pt", PLAIN),
        ("latents_00017.pt", PLAIN),
        ("train.pth", b""),
        ("distutils.pth", b"import os\n"),
        ("model.ckpt", b"\x0a\x0bTF"),
        ("recipe_state.pt", TORCH),
        ("notes.tmp", b""),
        ("tokens.bin.tmp", b""),
        ("model.onnx", b"\x08\x07"),
        ("optimizer.pkl", b"\x80\x04."),
        ("README.md", b""),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, data: bytes) -> None:
    write(tmp_path / name, data, T)
    assert judge(tmp_path / name) is None


def test_a_packed_archive_is_not_unpacked(tmp_path: Path) -> None:
    write(tmp_path / "a.nemo", gzip.compress(nemo())[:-9], T)
    checkpoint = judge(tmp_path / "a.nemo")
    assert checkpoint is not None
    assert checkpoint.state == "whole"
    assert checkpoint.notes == ["compressed: unpack it to check whether it is complete"]


@pytest.mark.parametrize(
    ("sign", "reason"),
    [
        (b"\x80", "ends before the end of its tar archive"),
        (b"\xff", "its tar archive has a damaged header"),
    ],
)
def test_a_tar_with_a_size_beyond_its_end(tmp_path: Path, sign: bytes, reason: str) -> None:
    """Sizes in the header are attacker-made: base 256, up to 11 bytes."""
    info = tarfile.TarInfo("model_weights.ckpt")
    header = bytearray(info.tobuf())
    header[124:136] = sign + b"\xff" * 11
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    write(tmp_path / "a.nemo", bytes(header) + b"\0" * 1024, T)
    checkpoint = judge(tmp_path / "a.nemo")
    assert checkpoint is not None
    assert checkpoint.reasons == [f"a.nemo: {reason}"]
