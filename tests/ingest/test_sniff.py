from __future__ import annotations

import io
import json
import pickle
import tarfile
import zipfile

import pytest

from diagnose.ingest.sniff import (
    RETURNS,
    Container,
    describe,
    encoding_of,
    sniff,
    without_mark,
)

DUMP = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 3}},
    "entries": [],
}
ERROR = {"message": {"message": "RuntimeError: x", "extraInfo": {"timestamp": "1795262526"}}}


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("log"))
    return out.getvalue()


def zipped(name: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, b"x")
    return out.getvalue()


@pytest.mark.parametrize(
    ("head", "kind", "what"),
    [
        (b"", "empty", ""),
        (b"[rank0]: text\n", "text", ""),
        (b'{"message": "step 1", "level": "info", "ts": 1}\n{"message": "step 2"}\n', "text", ""),
        (b'{"message": "step 1", "level": "info", "ts": 1}\n', "text", ""),
        ("训练 损失\n".encode("gbk") * 20, "text", ""),
        ("训练 损失\n".encode() * 20, "text", ""),
        ("step 1\n".encode("utf-16"), "text", ""),
        (b"\0" * 4096 + b"the hole of a rotated log\n", "text", ""),
        (b"45%|\xe2\x96\x88 | 1/2\r\x1b[A\x07\n", "text", ""),
        (json.dumps(ERROR).encode(), "error_json", ""),
        (b'{"message": "terminate called", "timestamp": 1795262526}', "error_json", ""),
        (b'{"message": {"message": "x", "extraInfo": {"py_callstack": "Tra', "error_json", ""),
        (pickle.dumps(DUMP, 2), "fr_dump", ""),
        (pickle.dumps(DUMP, 4), "fr_dump", ""),
        (json.dumps(DUMP, sort_keys=True).encode(), "fr_dump", ""),
        (pickle.dumps({"a": 1}), "binary", "pickle"),
        (zipped("archive/data.pkl"), "binary", "torch.save file"),
        (zipped("a.log"), "binary", "zip archive"),
        (tar(), "binary", "tar archive"),
        (b"\x7fELF\x02\x01\x01" + bytes(9), "binary", "ELF program, library or core dump"),
        (b'\x40\0\0\0\0\0\0\0{"w":{"dtype":"F32","shape":[1]}}', "binary", "safetensors"),
        (b'[rank0] {"model": {"dtype": "bf16"}}\n', "text", ""),
        (b'{"level": "info", "msg": "nccl_version=2.21"}\n{"msg": "x"}\n', "text", ""),
        (b'{"nccl_version": "2.21"}\n{"msg": "x"}\n', "text", ""),
        (b'{\n "version": "2.4",\n "entries": [\n {},\n {"profiling_name": "x', "fr_dump", ""),
        (bytes(range(256)) * 16, "binary", "binary data"),
    ],
)  # fmt: skip
def test_kind_and_description(head: bytes, kind: str, what: str) -> None:
    assert describe(head, "x")[:2] == (kind, what)
    assert sniff(head, "x") == kind


@pytest.mark.parametrize(
    ("head", "container"),
    [
        (zipped("a.log"), Container.ARCHIVE),
        (tar(), Container.ARCHIVE),
        (b"7z\xbc\xaf\x27\x1c", Container.OTHER_ARCHIVE),
        (b"Rar!\x1a\x07", Container.OTHER_ARCHIVE),
        (b"\x04\x22\x4d\x18", Container.OTHER_CODEC),
        (zipped("archive/data.pkl"), None),
        (b"\x7fELF", None),
        (b"zip archive\n", None),
    ],
)
def test_what_may_hold_logs(head: bytes, container: Container | None) -> None:
    assert describe(head, "x").container is container


def test_the_name_settles_a_cut_error_file() -> None:
    cut = b'{"message": "a very long text without an end'
    assert sniff(cut, "attempt_0/1/error.json") == "error_json"
    assert sniff(cut, "console.log") == "text"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"plain", ("utf-8", 0)),
        (b"\xef\xbb\xbfmarked", ("utf-8", 3)),
        ("marked".encode("utf-16-le"), ("utf-16-le", 0)),
        (b"\xff\xfe" + "marked".encode("utf-16-le"), ("utf-16-le", 2)),
        (b"\xfe\xff" + "marked".encode("utf-16-be"), ("utf-16-be", 2)),
        ("no mark at all\n".encode("utf-16-be"), ("utf-16-be", 0)),
        (b"a\0\0\0\0text with a small hole", ("utf-8", 0)),
        (b"\x01\0\x02\0\x03\0\x04\0" * 20, ("utf-8", 0)),
        (b"caf\xe9", ("utf-8", 0)),
        (b"step 1\rstep 2\r", (RETURNS, 0)),
        (b"\xef\xbb\xbfstep 1\rstep 2\r", (RETURNS, 3)),
        (b"10%|a\r20%|b\r", ("utf-8", 0)),
        (b"step 1\r\nstep 2\r\n", ("utf-8", 0)),
        (b"", ("utf-8", 0)),
    ],
)
def test_encoding(head: bytes, expected: tuple[str, int]) -> None:
    assert encoding_of(head) == expected


def test_a_document_has_no_mark_and_no_returns_for_line_ends() -> None:
    assert without_mark(b"\xef\xbb\xbf{\r}\r") == b"{\n}\n"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a/rank_3.log", "text"),
        ("job.OUT", "text"),
        ("train.log.1.gz", "text"),
        ("slurm-17.err", "text"),
        ("data.idx", "binary"),
        ("catalog", "binary"),
    ],
)
def test_a_log_stays_one_when_bytes_were_written_into_it(name: str, kind: str) -> None:
    assert sniff(bytes(range(256)) * 16 + b"\nKeyError: 1\n", name) == kind
    assert sniff(b"\x7fELF\x02" + bytes(range(256)) * 16, name) == "binary"
