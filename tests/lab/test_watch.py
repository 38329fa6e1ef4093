"""`diagnose watch` beside real torchrun jobs: stalls are reported in time, healthy jobs never.

Each test starts some jobs and a watch of the logs of each. The jobs run side by side, for they
mostly sleep, but begin only when all have started, which takes all of the machine. They take about
five minutes together, so they run only on request: `pytest -m lab tests/lab/test_watch.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
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
RANKS = 2
LONG_RUN = ("--eval-every=15", "--save-every=20")


@pytest.fixture(autouse=True)
def on_request_only(request: pytest.FixtureRequest) -> None:
    """Skip unless the marker was asked for: a plain run of the tests starts no jobs."""
    if "lab" not in request.config.getoption("-m"):
        pytest.skip("starts real jobs; run with -m lab")


@contextmanager
def job(folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A job of the lab that runs; it is killed at the end."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}"]
    command += ["--log-dir=logs", "--redirects=3", "--tee=3", "--master-addr=127.0.0.1"]
    command += [f"--master-port={free_port()}", str(WORKER), *options]
    plain = {key: text for key, text in os.environ.items() if not key.startswith(("TORCH", "NCCL"))}
    plain |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    folder.mkdir(parents=True, exist_ok=True)
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
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "watch.txt").open("w") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, text=True)
        try:
            while "Watching" not in said(folder):  # a busy machine takes long to import it
                assert process.poll() is None, said(folder)
                time.sleep(0.1)
            yield process
        finally:
            process.kill()
            process.wait()


@dataclass(frozen=True)
class Watched:
    """A job and its watch, both running."""

    folder: Path
    job: subprocess.Popen[bytes]
    watch: subprocess.Popen[str]


@dataclass(frozen=True)
class Options:
    """How a job and its watch are started."""

    job: tuple[str, ...]
    watch: tuple[str, ...] = ()


@contextmanager
def together(place: Path, asked: Mapping[str, Options]) -> Iterator[dict[str, Watched]]:
    """Jobs by name, each with its watch, that begin at one moment."""
    gate = place / "gate"
    gate.mkdir()
    folders = {name: place / str(number) / "job" for number, name in enumerate(asked)}
    with ExitStack() as stack:
        jobs = {
            name: stack.enter_context(job(folder, f"--gate={gate}", *asked[name].job))
            for name, folder in folders.items()
        }
        while len([*gate.iterdir()]) < RANKS * len(jobs):
            for name, started in jobs.items():
                assert started.poll() is None, name
            time.sleep(0.1)
        watches = {
            name: stack.enter_context(watch(folder, *asked[name].watch))
            for name, folder in folders.items()
        }
        (gate / "open").touch()
        yield {name: Watched(folders[name], jobs[name], watches[name]) for name in asked}


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


def asked_of(hang: Hang) -> Options:
    fault = (f"--fault={hang.fault}", f"--culprit={hang.culprit}", *hang.options)
    return Options(fault, () if hang.grace is None else (f"--grace={hang.grace}",))


@pytest.mark.parametrize("first", range(3))
def test_stalls_are_reported_in_time(first: int, tmp_path: Path) -> None:
    hangs = {name: HANGS[name] for name in [*HANGS][first::3]}
    asked = {name: asked_of(hang) for name, hang in hangs.items()}
    with together(tmp_path, asked) as running:
        ends = time.monotonic() + LIMIT_S
        waiting = [*running.values()]
        while waiting and time.monotonic() < ends:
            waiting = [w for w in waiting if not stalls(w.folder) and w.job.poll() is None]
            time.sleep(0.1)
        for one in running.values():
            one.watch.send_signal(signal.SIGTERM)
        assert [one.watch.wait(timeout=20) for one in running.values()] == [130] * len(running)
    for name, one in running.items():
        in_time(name, hangs[name], one.folder)


def in_time(name: str, hang: Hang, folder: Path) -> None:
    """The one stall was reported within some heartbeats after the last sign of progress."""
    found = stalls(folder)
    assert len(found) == 1, (name, said(folder))
    rows = noted(folder)
    told = datetime.fromisoformat(found[0]["time"]).timestamp() - rows[-1][0]
    beat = hang.heartbeat or (
        hang.grace / HEARTBEATS if hang.grace else heartbeat_of(rows, hang.phase)
    )
    print(f"\nFIGURE {name}: told after {told:.2f} s, heartbeat {beat:.3f} s, "
          f"{(told - 2) / beat:.1f} heartbeats + 2 s")  # fmt: skip
    assert told <= HEARTBEATS * beat + 2.0, (name, said(folder))
    assert found[0]["phase"] == hang.phase, name


def test_a_hung_job_is_followed_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with watch(folder) as watching, job(folder, "--fault=sleep", "--culprit=1", "--timeout=12"):
        assert watching.wait(timeout=LIMIT_S) == 1
    assert len(stalls(folder)) == 1
    assert "The job ended: HUNG" in said(folder)


HEALTHY = {
    "plain": (),
    "fast steps": ("--step-seconds=0.05", "--steps=200"),
    "slow steps": ("--step-seconds=1.0", "--steps=20"),
    "map that moves": ("--map-seconds=20", "--steps=10"),
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


@pytest.mark.parametrize("first", range(4))
def test_healthy_jobs_raise_no_alarm(first: int, tmp_path: Path) -> None:
    jobs = [(name, (f"--seed={n}", *HEALTHY[name])) for n, name in enumerate(HEALTHY)][first::4]
    with together(tmp_path, {name: Options(options) for name, options in jobs}) as running:
        statuses = {name: one.watch.wait(timeout=LIMIT_S) for name, one in running.items()}
    for name, one in running.items():
        assert (statuses[name], stalls(one.folder)) == (0, []), (name, said(one.folder))
        assert "The job ended: healthy" in said(one.folder), name
        assert "No progress" not in said(one.folder), name
