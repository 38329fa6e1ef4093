"""`collect --via mpirun` with a real Open MPI, whose processes write into one output."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diagnose.collect.reach.frames import split
from tests.collect.reach.running import COMMAND, needs, ranks

pytestmark = pytest.mark.cluster

MPIRUN = "mpirun --allow-run-as-root --oversubscribe"


@pytest.fixture(autouse=True)
def _mpirun() -> None:
    needs("mpirun")


@pytest.mark.parametrize("processes", ["-npernode 1", "-n 4", "--tag-output -n 2"])
def test_a_node_is_collected_once(processes: str, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    command = [*COMMAND, "--seconds=0.5", "--via", f"{MPIRUN} {processes}", "-o", str(bundle),
               "--job=of-the-mpi-test"]  # fmt: skip
    with ranks("of-the-mpi-test", 4, tmp_path):
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        took = time.monotonic() - began
    assert (done.returncode, done.stdout) == (0, f"{bundle}\n"), done.stderr
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert (manifest["via"], manifest["problems"]) == (f"{MPIRUN} {processes}", [])
    found = [sorted(one["rank"] for one in node["processes"]) for node in manifest["nodes"]]
    assert found == [[0, 1, 2, 3]]
    print(f"{processes}: 4 ranks, {took:.1f} s")


def test_large_streams_of_many_processes_come_out_whole(tmp_path: Path) -> None:
    """What four processes write at the same time, 256 KiB each, is not mixed up."""
    script = tmp_path / "write.py"
    script.write_text(
        "import io, os, random\n"
        "from diagnose.collect.reach.frames import send\n"
        "rank = int(os.environ['OMPI_COMM_WORLD_RANK'])\n"
        "send(1, io.BytesIO(bytes([rank]) + random.Random(rank).randbytes(1 << 18)))\n"
    )
    began = time.monotonic()
    with (tmp_path / "out").open("w+b") as out:
        subprocess.run(
            [*MPIRUN.split(), "-n", "4", sys.executable, str(script)],
            stdout=out, check=True, timeout=300, cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        )  # fmt: skip
        took = time.monotonic() - began
        out.seek(0)
        parts, others = split(out)
        seen = set()
        for part in parts:
            data = io.BytesIO()
            part.copy(out, data)
            assert part.missing == 0
            rank = data.getvalue()[0]
            assert data.getvalue()[1:] == random.Random(rank).randbytes(1 << 18)
            seen.add(rank)
    assert (seen, others) == ({0, 1, 2, 3}, [])
    print(f"1 MiB in {took:.1f} s")
