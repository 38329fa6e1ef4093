"""Speed and memory of checkpoint forensics: `python benchmarks/checkpoints.py [--shards 2000]`.

Sparse files stand for large shards: as many of 5 GB as asked for, as a Hugging Face model of
safetensors and as DeepSpeed's optimizer states (zip). Then hostile files, each in a process of its
own: seconds, the most memory it held, and what was said. Nothing of them may run.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from as_used import keep_byte_code

from diagnose.checkpoint.find import inspect

SIZE = 5_000_000_000
DIRECTORY = struct.Struct("<4s6H3I5H2I")


def sparse_safetensors(path: Path, number: int) -> None:
    """One tensor of SIZE bytes, all of it a hole."""
    header = {f"layer.{number}": {"dtype": "U8", "shape": [SIZE], "data_offsets": [0, SIZE]}}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + SIZE)


def sparse_zip(path: Path) -> None:
    """A torch file with one storage of SIZE bytes, all of it a hole, and its directory behind."""
    records = {"data.pkl": b"\x80\x02}q\x00.", "byteorder": b"little", "data/0": None,
               "version": b"3\n"}  # fmt: skip
    directory = b""
    with path.open("wb") as file:
        for name, data in records.items():
            raw, offset = f"archive/{name}".encode(), file.tell()
            size = SIZE if data is None else len(data)
            crc = 0 if data is None else zlib.crc32(data)
            wide = struct.pack("<2H3Q", 1, 24, size, size, offset)
            file.write(struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0, 0, 0, 0, crc, 0xFFFFFFFF,
                                   0xFFFFFFFF, len(raw), 20))  # fmt: skip
            file.write(raw + struct.pack("<2H2Q", 1, 16, size, size))
            file.write(data) if data is not None else file.seek(size, os.SEEK_CUR)
            directory += DIRECTORY.pack(
                b"PK\1\2", 45, 45, 0, 0, 0, 0, crc, 0xFFFFFFFF, 0xFFFFFFFF, len(raw), len(wide),
                0, 0, 0, 0, 0xFFFFFFFF,
            )  # fmt: skip
            directory += raw + wide
        start = file.tell()
        file.write(directory)
        end, count = file.tell(), len(records)
        file.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count,
                               len(directory), start))  # fmt: skip
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(directory),
                               0xFFFFFFFF, 0))  # fmt: skip


def model(folder: Path, shards: int) -> None:
    """A model of sparse shards with its index."""
    width = max(5, len(str(shards)))
    names = [f"model-{n:0{width}}-of-{shards:0{width}}.safetensors" for n in range(1, shards + 1)]
    for number, name in enumerate(names):
        sparse_safetensors(folder / name, number)
    index = {
        "metadata": {"total_size": SIZE * shards},
        "weight_map": {f"layer.{number}": name for number, name in enumerate(names)},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text('{"model_type": "llama"}')


def optimizer(folder: Path, shards: int) -> None:
    """ZeRO optimizer states of sparse files."""
    inside = folder / "global_step10"
    inside.mkdir()
    for rank in range(shards):
        sparse_zip(inside / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    sparse_zip(inside / "mp_rank_00_model_states.pt")
    (folder / "latest").write_text("global_step10")


class Run:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch HACKED",)


def hostile() -> dict[str, Callable[[Path], None]]:
    """Files made to do harm, by what they are."""

    def dcp(data: bytes) -> Callable[[Path], None]:
        def make(folder: Path) -> None:
            (folder / ".metadata").write_bytes(data)
            (folder / "__0_0.distcp").write_bytes(b"x" * 64)

        return make

    def file(name: str, *pieces: bytes, size: int = 0) -> Callable[[Path], None]:
        def make(folder: Path) -> None:
            with (folder / name).open("wb") as out:
                for piece in pieces:
                    out.write(piece)
                if size:
                    out.truncate(size)

        return make

    def bomb(folder: Path) -> None:
        with zipfile.ZipFile(folder / "a.pt", "w", zipfile.ZIP_DEFLATED) as packed:
            packed.writestr("archive/data.pkl", bytes(500 << 20))
            packed.writestr("archive/version", "3\n")

    nested = b"[" * (30 << 20)
    many = (
        b"{" + b",".join(
            b'"t%d":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}' % (n, n, n + 1)
            for n in range(1_000_000)
        ) + b"}"
    )  # fmt: skip
    directory = 0x7FFFFFF0
    return {
        "DCP metadata that runs a command": dcp(pickle.dumps(Run())),
        "torch file whose data.pkl runs a command": file("a.pt", pickle.dumps(Run())),
        "DCP metadata with a memo slot of 2^31": dcp(b"\x80\x04]r\xf0\xff\xff\x7f."),
        "DCP metadata that claims 2^62 bytes": dcp(b"\x80\x04\x8e" + struct.pack("<Q", 1 << 62)),
        "DCP metadata of 60 MB of empty lists": dcp(b"\x80\x04(" + b"]" * (60 << 20) + b"l."),
        "DCP metadata of lists in lists": dcp(b"\x80\x04" + b"](" * (10 << 20) + b"."),
        "safetensors header of 2^60 bytes": file(
            "a.safetensors", struct.pack("<Q", 1 << 60), b"{}"
        ),
        "safetensors header of 99 MB, nested": file(
            "a.safetensors", struct.pack("<Q", 30 << 20), nested, size=1 << 30
        ),
        "safetensors header of a million tensors": file(
            "a.safetensors", struct.pack("<Q", len(many)), many, b"x" * 1_000_000
        ),
        "deflated torch file (500 MB of zeros)": bomb,
        "zip directory that claims 2 GB": file(
            "a.pt", b"PK\3\4" + b"x" * 100,
            struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 65535, 65535, directory, 4, 0),
        ),
        "index of 30 MB, nested": file("model.safetensors.index.json", nested),
    }  # fmt: skip


def measured(path: Path) -> tuple[float, float, str]:
    """Seconds, MB of memory at most, and the first reason, of a process that looks at `path`."""
    code = (
        "import sys, json; from diagnose.cli.main import run\n"
        "status = run(['checkpoint', sys.argv[1], '--format', 'json'])\n"
        "peak = dict(l.split(':', 1) for l in open('/proc/self/status'))['VmHWM'].split()[0]\n"
        "print(status, peak, file=sys.stderr)"
    )
    began = time.perf_counter()
    ran = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=path if path.is_dir() else path.parent,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    found = json.loads(ran.stdout)["checkpoints"]
    told = "no checkpoint"
    if found:
        told = f"{found[0]['state']}: {'; '.join(found[0]['reasons'][:1])}"
    return seconds, int(ran.stderr.split()[-1]) / 1024, told


def main() -> None:
    """Measure and print."""
    keep_byte_code()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, default=2000)
    given = parser.parse_args()
    for name, make in (("safetensors", model), ("DeepSpeed zip", optimizer)):
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder), given.shards)
            began = time.perf_counter()
            found = inspect([folder]).checkpoints
            seconds = time.perf_counter() - began
            states = ", ".join(f"{one.files} files {one.state}" for one in found)
            reasons = [reason for one in found for reason in one.reasons][:2]
            what = f"{given.shards} sparse shards of 5 GB, {name}: {seconds:.2f} s"
            print(f"{what} ({states}) {reasons}")
    for name, make in hostile().items():
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder))
            lone = Path(folder) / "a.pt"
            seconds, memory, told = measured(lone if lone.exists() else Path(folder))
            hacked = " EXECUTED" if (Path(folder) / "HACKED").exists() else ""
            print(f"{name}: {seconds:.2f} s, {memory:.0f} MB: {told[:110]}{hacked}")


if __name__ == "__main__":
    main()
