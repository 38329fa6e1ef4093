"""Files of safetensors: the header must be right, and the file as long as it says."""

from __future__ import annotations

import json
import os
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from diagnose.checkpoint.contents import MAX_PARSED
from diagnose.checkpoint.look import Looker
from diagnose.checkpoint.model import Flaw
from diagnose.checkpoint.tree import Leaf, read_tree
from tests.checkpoint.leaves import look
from tests.checkpoint.make.base import safetensors_file, torch_file

TENSORS = {"lm_head": ("BF16", (4, 8)), "norm": ("F32", (8,)), "ids": ("I64", (2, 1, 3))}
WHOLE = safetensors_file(TENSORS)


def flaw(data: bytes) -> Flaw | None:
    told = look("model.safetensors", data)
    assert told.kind == "safetensors"
    return told.flaw


def file(header: object, data: int, *, raw: bytes | None = None) -> bytes:
    text = json.dumps(header).encode() if raw is None else raw
    return pack("<Q", len(text)) + text + b"\1" * data


def entry(dtype: str, shape: list[Any], *offsets: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


def test_a_whole_file_tells_its_tensors() -> None:
    told = look("model.safetensors", WHOLE)
    assert told.flaw is None
    assert told.tensors == {"lm_head": 64, "norm": 32, "ids": 48}


@pytest.mark.parametrize(
    "data",
    [
        safetensors_file({}),
        file({}, 0),
        file({"scalar": entry("F32", [], 0, 4)}, 4),
        file({"none": entry("F32", [0, 7], 0, 0), "one": entry("U8", [1], 0, 1)}, 1),
        file({"b": entry("U8", [2], 3, 5), "a": entry("U8", [3], 0, 3)}, 5),
        file({"half": entry("F4", [3, 2], 0, 3)}, 3),
        file({"new": entry("X9", [100], 0, 3)}, 3),
        file({"__metadata__": {"a": "b", "c": "}{[,"}, "x": entry("BOOL", [2], 0, 2)}, 2),
        file(None, 0, raw=b"{}      "),
    ],
)
def test_what_the_format_allows(data: bytes) -> None:
    assert flaw(data) is None


def test_a_file_cut_off_anywhere_is_partial() -> None:
    for length in range(len(WHOLE)):
        told = flaw(WHOLE[:length])
        assert told is not None, length
        assert told.state == "partial", (length, told)


def test_the_reasons_say_how_much_is_there() -> None:
    header = len(WHOLE) - 144 - 8
    assert flaw(b"") == Flaw("partial", "is empty")
    assert flaw(WHOLE[:5]) == Flaw("partial", "has only 5 bytes, too few for a header")
    told = Flaw("partial", f"ends inside its header: 30 of {header} bytes are there")
    assert flaw(WHOLE[:38]) == told
    told = Flaw("partial", "ends inside its tensors: 143 of 144 bytes are there")
    assert flaw(WHOLE[:-1]) == told


HUGE = 1 << 70


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (WHOLE + b"abc", "has 3 bytes after its last tensor"),
        (pack("<Q", 1 << 60) + b"{}", "claims a header of 1,152,921,504,606,846,976 bytes"),
        (pack("<Q", 100_000_001) + b"{}", "claims a header of 100,000,001 bytes"),
        (pack("<Q", 1) + b"{}", "claims a header of 1 byte"),
        (pack("<Q", 50) + b"\x80\2}" * 30, "its header is not a JSON object"),
        (file(None, 0, raw=b'{"a":}'), "its header is not valid JSON: expecting value (line 1)"),
        (file(None, 0, raw=b'{"a":{"dt'), "its header ends in the middle of its JSON text"),
        (
            file(None, 0, raw=b"{\xff}"),
            "its header is not valid JSON: invalid start byte at byte 1",
        ),
        (file(None, 0, raw=b'{"a":' + b"[" * 9000), "its header is nested too deeply to check"),
        (
            file(None, 0, raw=b'{"a":' + b"9" * 9000 + b"}"),
            "its header has an unreadable number",
        ),
        (file(None, 0, raw=b'{"a":1,"a":1}'), "its header names the same tensor twice"),
        (file({"a": 1}, 0), "its header is malformed for tensor 'a'"),
        (file({"a": entry("U8", [1], 0)}, 1), "its header is malformed for tensor 'a'"),
        (file({"a": entry("U8", [-1], 0, 1)}, 1), "its header is malformed for tensor 'a'"),
        (file({"a": entry("U8", [1.0], 0, 1)}, 1), "its header is malformed for tensor 'a'"),
        (file({"a": entry("U8", [True], 0, 1)}, 1), "its header is malformed for tensor 'a'"),
        (file({"a": entry("U8", [HUGE], 0, 1)}, 1), "its header is malformed for tensor 'a'"),
        (file({"a": entry("U8", [1], 0, HUGE)}, 1), "its header is malformed for tensor 'a'"),
        (file({"a": entry("U8", [1], 1, 0)}, 1), "its header is malformed for tensor 'a'"),
        (file({"a": entry("U8", [1] * 65, 0, 1)}, 1), "its header is malformed for tensor 'a'"),
        (
            file({"a" * 200: entry("U8", [-1], 0, 1)}, 1),
            f"its header is malformed for tensor '{'a' * 80}'",
        ),
        (
            file({"a": entry("F32", [2, 3], 0, 12)}, 12),
            "tensor 'a' of shape [2, 3] and type F32 cannot have 12 bytes",
        ),
        (
            file({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 3, 5)}, 5),
            "its tensors leave a gap at byte 2",
        ),
        (
            file({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, 3),
            "its tensors overlap at byte 1",
        ),
        (torch_file(), "is a torch.save file, not safetensors"),
        (b"<!DOCTYPE html><html>" + b"x" * 99, "is a web page or a server message"),
    ],
)
def test_contradictions_are_corrupt(data: bytes, why: str) -> None:
    assert flaw(data) == Flaw("corrupt", why)


def test_a_start_that_was_never_written() -> None:
    told = Flaw("partial", "starts with zero bytes: its start was never written")
    assert flaw(bytes(64) + WHOLE[64:]) == told


def test_a_pointer_of_git_lfs() -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4976698672\n"
    told = Flaw("partial", "is a Git LFS pointer: its content was never downloaded")
    assert flaw(pointer) == told


def test_a_header_longer_than_any_real_one_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as sink:
        sink.write(pack("<Q", MAX_PARSED + 1) + b"{")
        sink.truncate(MAX_PARSED + 9)
    leaf = read_tree(str(path))
    assert isinstance(leaf, Leaf)
    assert Looker()(leaf).flaw == Flaw(
        "unknown", "has a header of 16,777,217 bytes: too long to check"
    )


@pytest.mark.parametrize("unit", [b"[],", b'{"":0},', b'{"a":', b'"ab",'])
@pytest.mark.slow
def test_a_header_that_takes_too_much_memory_is_not_built(unit: bytes) -> None:
    """Sixteen megabytes of it would take up to 600; what is built is bounded by an estimate."""
    raw = b'{"a":[' + unit * (8_000_000 // len(unit)) + b"0]}"
    told = flaw(file(None, 0, raw=raw))
    assert told is not None
    assert told.state == "corrupt"


def holed(path: Path, blank: int, size: int = 4 << 20) -> Leaf:
    """Four tensors, the first `blank` of which are holes."""
    names = {
        f"w{place}": entry("U8", [size], place * size, (place + 1) * size) for place in range(4)
    }
    text = json.dumps(names).encode()
    with path.open("wb") as sink:
        sink.write(pack("<Q", len(text)) + text)
        sink.seek(8 + len(text) + blank * size)
        sink.write(b"\1" * (4 - blank) * size)
        sink.truncate(8 + len(text) + 4 * size)
        sink.flush()
        os.fsync(sink.fileno())
    leaf = read_tree(str(path))
    assert isinstance(leaf, Leaf)
    if blank and (leaf.on_disk is None or leaf.on_disk > leaf.size - (1 << 20)):
        pytest.skip("the file system writes no holes")
    return leaf


def test_a_file_of_holes_is_unknown(tmp_path: Path) -> None:
    leaf = holed(tmp_path / "model.safetensors", 4)
    told = Looker()(leaf).flaw
    assert told == Flaw(
        "unknown",
        f"its largest tensors start and end with zero bytes, and only {leaf.on_disk:,} of its"
        f" {leaf.size:,} bytes are on disk: it looks like a sparse hole",
    )


@pytest.mark.parametrize("blank", [0, 1])
def test_one_tensor_of_zeros_is_no_flaw(tmp_path: Path, blank: int) -> None:
    assert Looker()(holed(tmp_path / "model.safetensors", blank)).flaw is None
