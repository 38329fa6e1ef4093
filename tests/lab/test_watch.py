"""`diagnose watch` beside real torchrun jobs: stalls are reported in time, healthy jobs never.

Each test starts a job and a watch of its logs. They take about fifteen minutes together, so they
run only on request: `pytest -m lab tests/lab/test_watch.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from launch import free_port

pytest.importorskip("torch")
pytestmark = pytest.mark.lab

WORKER = Path(__file__).with_name("watch_worker.py")
HEARTBEATS = 6
LIMIT_S = 120.0
LONG_RUN = ("--eval-every=15", "--save-every=20")


@pytest.fixture(autouse=True)
def on_request_only(request: pytest.FixtureRequest) -> None:
    """Skip unless the marker was asked for: a plain run of the tests starts no jobs."""
    if "lab" not in request.config.getoption("-m"):
        pytest.skip("starts real jobs; run with -m lab")


@contextmanager
def job(folder: Path, *options: str, nproc: int = 2, buffered: bool = False) -> Iterator[Any]:
    """A job of the lab that runs; it is killed at the end."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={nproc}"]
    command += ["--log-dir=logs", "--redirects=3", "--tee=3", "--master-addr=127.0.0.1"]
    command += [f"--master-port={free_port()}", str(WORKER), *options]
    plain = {key: text for key, text in os.environ.items() if not key.startswith(("TORCH", "NCCL"))}
    plain |= {"OMP_NUM_THREADS": "1"} | ({} if buffered else {"PYTHONUNBUFFERED": "1"})
    with (folder / "console.log").open("wb") as sink:
        process = subprocess.Popen(
            command, cwd=folder, env=plain, stdout=sink, stderr=sink, start_new_session=True
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def watch(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A watch of the job's folder, whose hook writes what it is given to stalls.csv."""
    hook = f'printf "%s\\n" "$DIAGNOSE_STALL_JSON" >> {folder.parent}/stalls.csv'
    command = [sys.executable, "-m", "diagnose", "watch", str(folder), "--exit-code"]
    command += [f"--heartbeats={HEARTBEATS}", "--min-silence=0", "--on-stall", hook, *options]
    with (folder.parent / "watch.txt").open("w") as sink:
        folder.mkdir(parents=True)
        process = subprocess.Popen(command, stdout=sink, stderr=sink, text=True)
        try:
            while "Watching" not in said(folder):  # a busy machine takes long to import it
                assert process.poll() is None, said(folder)
                time.sleep(0.1)
            yield process
        finally:
            process.kill()
            process.wait()


def stalls(folder: Path) -> list[dict[str, Any]]:
    file = folder.parent / "stalls.csv"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def said(folder: Path) -> str:
    return (folder.parent / "watch.txt").read_text()


def noted(folder: Path) -> list[tuple[float, str]]:
    """When each step, evaluation and checkpoint was, as the job itself says."""
    rows = (folder / "steps.csv").read_text().splitlines()
    return [(float(time), what) for time, what in (row.split(",") for row in rows)]


def heartbeat_of(rows: list[tuple[float, str]], phase: str) -> float:
    """Seconds from step to step, or what the evaluation or checkpoint before took."""
    if phase in ("evaluation", "checkpoint"):
        ends = {"evaluation": "evaluated", "checkpoint": "saved"}
        return next(
            end - begin
            for (begin, what), (end, then) in pairwise(rows)
            if what == phase and then == ends[phase]
        )
    return median(
        later - at for (at, what), (later, then) in pairwise(rows) if what == then == "step"
    )


@dataclass(frozen=True)
class Hang:
    """A fault that hangs the job, and in which phase; `grace` where it is the first of its kind."""

    fault: str
    phase: str
    culprit: int = 1
    grace: float | None = None
    heartbeat: float | None = None  # where steps do not tell it
    options: tuple[str, ...] = ()


HANGS = {
    "rank sleeps": Hang("sleep", "training"),
    "rank sleeps, fast steps": Hang(
        "sleep", "training", options=("--step-seconds=0.05", "--steps=200")
    ),
    "rank sleeps, slow steps": Hang(
        "sleep", "training", options=("--step-seconds=1.5", "--steps=40")
    ),
    "other collective": Hang("other_collective", "training"),
    "monitored barrier": Hang("monitored_barrier", "training"),
    "collective on rank 0 only": Hang(
        "conditional", "evaluation", options=("--eval-every=15", "--save-every=15")
    ),
    "slow save": Hang("slow_save", "checkpoint", culprit=0, options=LONG_RUN),
    "slow save, the first": Hang(
        "slow_save", "checkpoint", culprit=0, grace=8.0, options=(*LONG_RUN, "--first")
    ),
    # its bar moves every 0.4 s
    "map that freezes": Hang("frozen_map", "preprocessing", culprit=0, heartbeat=0.4),
}


@pytest.mark.parametrize("name", HANGS)
def test_a_stall_is_reported_in_time(name: str, tmp_path: Path) -> None:
    hang, folder = HANGS[name], tmp_path / "job"
    fault = (f"--fault={hang.fault}", f"--culprit={hang.culprit}", *hang.options)
    grace = () if hang.grace is None else (f"--grace={hang.grace}",)
    with watch(folder, *grace) as watching, job(folder, *fault) as running:
        ends = time.monotonic() + LIMIT_S
        while not stalls(folder) and running.poll() is None and time.monotonic() < ends:
            time.sleep(0.1)
        watching.send_signal(signal.SIGTERM)
        assert watching.wait(timeout=20) == 130
    found = stalls(folder)
    assert len(found) == 1, said(folder)
    rows = noted(folder)
    told = datetime.fromisoformat(found[0]["time"]).timestamp() - rows[-1][0]
    beat = hang.heartbeat or (
        hang.grace / HEARTBEATS if hang.grace else heartbeat_of(rows, hang.phase)
    )
    print(f"\nFIGURE {name}: told after {told:.2f} s, heartbeat {beat:.3f} s, "
          f"{(told - 2) / beat:.1f} heartbeats + 2 s")  # fmt: skip
    assert told <= HEARTBEATS * beat + 2.0, said(folder)
    assert found[0]["phase"] == hang.phase


def test_a_hung_job_is_followed_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with watch(folder) as watching, job(folder, "--fault=sleep", "--culprit=1", "--timeout=12"):
        assert watching.wait(timeout=LIMIT_S) == 1
    assert len(stalls(folder)) == 1
    assert "The job ended: HUNG" in said(folder)


def test_a_map_that_moves_is_no_stall(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with watch(folder) as watching, job(folder, "--map-seconds=20", "--steps=10"):
        assert watching.wait(timeout=LIMIT_S) == 0
    assert stalls(folder) == []


HEALTHY = {
    "plain": (),
    "fast steps": ("--step-seconds=0.05", "--steps=200"),
    "slow steps": ("--step-seconds=1.0", "--steps=20"),
    "slow first step": ("--first-step-seconds=8",),
    "slow first step, fast steps": ("--first-step-seconds=6", "--step-seconds=0.05"),
    "compile": ("--compile-at=2", "--compile-seconds=6"),
    "compile midway": ("--compile-at=30", "--compile-seconds=6"),
    "evaluation": ("--eval-every=15", "--eval-seconds=4"),
    "checkpoint": ("--save-every=15", "--save-seconds=4"),
    "evaluation and checkpoint": ("--eval-every=20", "--save-every=30", "--eval-seconds=2"),
    "checkpoint behind evaluation": ("--eval-every=20", "--save-every=20", "--save-seconds=3"),
    "everything": (
        "--first-step-seconds=5",
        "--compile-at=2",
        "--compile-seconds=4",
        *LONG_RUN,
        "--eval-seconds=2",
        "--save-seconds=3",
    ),
}
RUNS = [(name, 0) for name in HEALTHY] + [
    (name, 1)
    for name in (
        "plain", "fast steps", "slow first step", "compile midway", "evaluation", "checkpoint",
        "checkpoint behind evaluation", "everything",
    )
]  # fmt: skip


@pytest.mark.parametrize(("name", "seed"), RUNS)
def test_a_healthy_job_raises_no_alarm(name: str, seed: int, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with watch(folder) as watching, job(folder, f"--seed={seed}", *HEALTHY[name]):
        status = watching.wait(timeout=LIMIT_S)
    assert (status, stalls(folder)) == (0, []), said(folder)
    assert "The job ended: healthy" in said(folder)
    assert "No progress" not in said(folder)
