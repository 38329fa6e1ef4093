"""Real torchrun jobs that hang: collected while they are alive, the bundle alone names the fault.

`pytest -m lab tests/lab/test_live.py` takes about seven minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose.collect import bundle, proc
from diagnose.collect.bundle import Node
from tests.lab.live import STUCK, WORKER, Live, collected, live, silent_mount

pytest.importorskip("torch")
pytestmark = pytest.mark.lab

SECRET = "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY2z"


@pytest.fixture(autouse=True)
def on_request_only(request: pytest.FixtureRequest) -> None:
    """Skip unless the marker was asked for: a plain run of the tests starts no jobs."""
    if "lab" not in request.config.getoption("-m"):
        pytest.skip("starts real jobs; run with -m lab")


@dataclass(frozen=True)
class Case:
    """A hanging fault, and what must be said of it: class, rank, and the source line it is at."""

    script: Path
    fault: str
    culprit: int
    cause: str
    line: str  # of the script, by what is written there
    ranks: int = 4


CASES = {
    "rank sleeps": Case(WORKER, "sleep", 2, "stall.host", "time.sleep(LONG)"),
    "other collective": Case(
        WORKER, "other_collective", 1, "desync.mismatch", "dist.broadcast(torch.zeros(1024)"
    ),
    "collective on rank 0 only": Case(
        WORKER, "conditional", 0, "desync.mismatch", "dist.all_reduce(loss)"
    ),
    "monitored barrier": Case(WORKER, "monitored_barrier", 2, "stall.host", "time.sleep(LONG)"),
    "slow save": Case(WORKER, "slow_save", 0, "slow.checkpoint", "time.sleep(LONG)"),
    "slow map": Case(WORKER, "slow_map", 0, "data.preparation", "time.sleep(seconds / shown)"),
    "tokenizer": Case(STUCK, "tokenizer", 1, "data.preparation", "found = [hash("),
    "two locks": Case(STUCK, "two_locks", 3, "stall.host", "with other:"),
    "GIL held by a C call": Case(STUCK, "gil", 2, "stall.host", "ctypes.PyDLL"),
    "GIL held in a thread": Case(STUCK, "gil_thread", 1, "stall.host", "ctypes.PyDLL"),
    "dead worker of one's own": Case(STUCK, "prefetch", 2, "data.loader", "rows.get()"),
    "workers that give nothing": Case(STUCK, "loader", 2, "data.loader", "next(iter("),
    "stopped": Case(STUCK, "stopped", 2, "stall.host", "os.kill(os.getpid(), signal.SIGSTOP)"),
    "named pipe": Case(STUCK, "fifo", 0, "stall.host", 'Path(path).open("rb")'),
    "silent mount": Case(STUCK, "fuse", 2, "slow.storage", 'Path(path).open("rb")'),
    "eight ranks": Case(STUCK, "stopped", 5, "stall.host", "signal.SIGSTOP", ranks=8),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a rank reads: `fifo` nobody writes to, `mount/rows.bin` nobody answers for."""
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


class Pauses:
    """Watches how long processes are paused by a tracer, at most and together."""

    def __init__(self, pids: list[int]) -> None:
        self._pids, self._ends = pids, threading.Event()
        self.longest = dict.fromkeys(pids, 0.0)
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Pauses:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def _watch(self) -> None:
        since: dict[int, float] = {}
        while not self._ends.wait(0.005):
            for pid in self._pids:
                stat, now = proc.stat(pid), time.monotonic()
                if stat is not None and stat.state == "t":
                    began = since.setdefault(pid, now)
                    self.longest[pid] = max(self.longest[pid], now - began)
                else:
                    since.pop(pid, None)


def hung(job: Live) -> None:
    """Until the job has begun and then hangs."""
    job.await_(lambda: "loss" in job.console or "Map:" in job.console)
    job.settle()


@pytest.mark.parametrize("name", CASES)
def test_a_hang_is_named_without_any_log(name: str, path: Path) -> None:
    case = CASES[name]
    silent = case.fault == "fuse"
    if silent and (shutil.which("fusermount3") is None or not os.access("/dev/fuse", os.W_OK)):
        pytest.skip("no FUSE file system can be mounted here")
    place = path / ("mount/rows.bin" if silent else "fifo")
    options = [f"--fault={case.fault}", f"--culprit={case.culprit}", "--timeout=600"]
    options += [f"--path={place}"] if case.script == STUCK else []
    mounted = silent_mount(path / "mount") if silent else nullcontext()
    with mounted, live(path / "job", case.script, *options, nproc=case.ranks) as job:
        hung(job)
        began = time.monotonic()
        with Pauses(job.ranks) as pauses:
            node = collected(job, path / "bundle")
        took = time.monotonic() - began
    assert took <= 15
    assert max(pauses.longest.values()) < 1.0
    judged(case, node, path)


def judged(case: Case, node: Node, path: Path) -> None:
    """The verdict on a bundle, folder or archive, is the one wanted."""
    bundle.pack(path / "bundle", path / "bundle.tar.zst")
    for form in ("bundle", "bundle.tar.zst"):
        result = diagnose.diagnose(diagnose.load(path / form))
        said = result.root_cause.summary
        assert (result.verdict, result.root_cause.cause) == ("hung", case.cause), result.to_json()
        assert result.culprits.ranks == [case.culprit], result.to_json()
        assert result.culprits.hosts == [node.host]
        lines = case.script.read_text().splitlines()
        wanted = [f"{case.script.name}:{n}" for n, text in enumerate(lines, 1) if case.line in text]
        assert any(re.search(rf"\b{re.escape(one)}\b", said) for one in wanted), said


def test_a_healthy_job_goes_on_and_is_not_called_hung(tmp_path: Path) -> None:
    options = ("--steps=60", "--step-seconds=0.5")
    env = {"HF_TOKEN": SECRET, "NCCL_COMMENT": SECRET}
    with live(tmp_path / "job", STUCK, *options, nproc=8, env=env) as job:
        job.await_(lambda: "step 3 " in job.console)
        began = time.monotonic()
        with Pauses(job.ranks) as pauses:
            node = collected(job, tmp_path / "bundle")
        assert time.monotonic() - began <= 15
        assert max(pauses.longest.values()) < 1.0
        assert job.launcher.wait(90) == 0
        assert "step 59 " in job.console
    assert sorted(one.rank for one in node.processes if one.rank is not None) == [*range(8)]
    result = diagnose.diagnose(diagnose.load(tmp_path / "bundle"))
    assert result.verdict in ("running", "unknown"), result.to_json()
    told = [file.read_bytes() for file in (tmp_path / "bundle").rglob("*") if file.is_file()]
    assert not any(SECRET[6:].encode() in data for data in told)


def test_without_native_stacks_the_rank_and_the_class_are_the_same(path: Path) -> None:
    case = CASES["two locks"]
    options = [f"--fault={case.fault}", f"--culprit={case.culprit}"]
    with live(path / "job", STUCK, *options) as job:
        hung(job)
        node = collected(job, path / "bundle", pause_s=0.0)
    judged(case, node, path)


def test_without_py_spy_the_kernel_names_a_stopped_rank(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diagnose.collect import processes
    from diagnose.runtime.children import Unavailable

    def missing(_name: str) -> Any:
        raise Unavailable("there is no py-spy here")

    monkeypatch.setattr(processes, "found", missing)
    with live(path / "job", STUCK, "--fault=stopped", "--culprit=1") as job:
        hung(job)
        collected(job, path / "bundle")
    result = diagnose.diagnose(diagnose.load(path / "bundle"))
    assert (result.verdict, result.root_cause.cause) == ("hung", "stall.host")
    assert result.culprits.ranks == [1]


def test_dumps_are_asked_for_where_ranks_have_a_server(path: Path) -> None:
    """Each rank has a socket of its own, which a wrapper of the script names."""
    script = path / "rank.sh"
    own = f"export TORCH_WORKER_SERVER_SOCKET={path}/$RANK.sock"
    script.write_text(f'#!/bin/sh\n{own}\nexec {sys.executable} {STUCK} "$@"\n')
    script.chmod(0o700)
    options = ("--fault=two_locks", "--culprit=2")
    with live(path / "job", script, *options, launcher=["--no-python"]) as job:
        hung(job)
        node = collected(job, path / "bundle")
    folder = path / "bundle" / node.folder / "flight_recorder"
    assert sorted(one.name for one in folder.iterdir()) == [
        f"nccl_trace_rank_{rank}.json" for rank in range(4)
    ]
    result = diagnose.diagnose(diagnose.load(path / "bundle"))
    assert (result.verdict, result.culprits.ranks) == ("hung", [2]), result.to_json()
    assert result.collective is not None
    assert (result.collective.joined, result.collective.missing) == ([0, 1, 3], [2])
