"""Real torchrun jobs with injected faults: the verdict must name the fault and its rank.

They take about four minutes, so they run only on request: `pytest -m lab tests/lab`.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from launch import run_job

from diagnose.diagnosis import Diagnosis

pytest.importorskip("torch")
pytestmark = pytest.mark.lab

C10D = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=lab")
LONG_RUN = ("--steps=100", "--step-seconds=0.2")


@dataclass(frozen=True)
class Case:
    """One job: how it is started and what must be said about it."""

    fault: str
    verdict: str
    classes: set[str]
    culprits: list[int]
    culprit: str = "0"
    phase: str | None = None
    attempts: int = 1
    open_culprit: bool = False  # it depends on who dies first whether the logs name the rank
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "healthy": Case("none", "healthy", {"none"}, []),
    "rank sleeps": Case(
        "sleep", "hung", {"desync.missing_rank"}, [2], culprit="2", phase="training"
    ),
    "other collective": Case(
        "other_collective",
        "hung",
        {"desync.mismatch", "desync.conditional"},
        [1],
        culprit="1",
        phase="training",
    ),
    "python error": Case(
        "error", "failed", {"crash.exception"}, [3], culprit="3", phase="training"
    ),
    "SIGKILL": Case("sigkill", "failed", {"crash.killed"}, [1], culprit="1", phase="training"),
    "SIGSEGV": Case("sigsegv", "failed", {"crash.native"}, [2], culprit="2", phase="training"),
    # gloo aborts the rank that left its loop early: it got a gradient where it expected a metric
    "fewer batches": Case(
        "uneven",
        "failed",
        {"desync.uneven_work", "desync.conditional", "desync.mismatch"},
        [3],
        culprit="3",
        open_culprit=True,
    ),
    "collective on rank 0 only": Case(
        "conditional", "hung", {"desync.conditional", "desync.mismatch"}, [0]
    ),
    "monitored barrier": Case(
        "monitored_barrier", "hung", {"desync.missing_rank"}, [2], culprit="2", phase="training"
    ),
    "slow save": Case("slow_save", "hung", {"slow.checkpoint"}, [0], phase="checkpoint"),
    "slow map": Case("slow_map", "hung", {"data.preparation"}, [0], phase="preprocessing"),
    # who killed the worker process is not in the log: memory is likely, not proved
    "killed loader worker": Case(
        "loader_killed",
        "failed",
        {"data.loader", "crash.host_oom", "crash.killed"},
        [1],
        culprit="1",
        phase="training",
    ),
    "unused parameters": Case(
        "unused", "failed", {"desync.conditional"}, [1], culprit="1", phase="training"
    ),
    "shape mismatch": Case(
        "shape",
        "failed",
        {"desync.mismatch"},
        [2],
        culprit="2",
        options={"env": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}},
    ),
    "node never joins": Case(
        "none",
        "failed",
        {"rendezvous.timeout"},
        [],
        phase="init",
        options={"launcher": ("--nnodes=2", "--rdzv-conf=join_timeout=8", *C10D)},
    ),
    # With the launcher's own store the second attempt would find the addresses of the first.
    "restart with another fault": Case(
        "error,sigsegv",
        "failed",
        {"crash.native"},
        [1],
        culprit="3,1",
        phase="training",
        attempts=2,
        options={
            "launcher": ("--max-restarts=1", *C10D),
            "env": {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        },
    ),
    # a log cannot tell who sent SIGTERM to the launcher
    "SIGTERM to the launcher": Case(
        "none",
        "failed",
        {"scheduler.preempted", "user.interrupt", "crash.killed", "unknown"},
        [],
        options={"worker": LONG_RUN, "signal_after": (signal.SIGTERM, 1.0)},
    ),
    "SIGINT to the launcher": Case(
        "none",
        "failed",
        {"user.interrupt"},
        [],
        options={"worker": LONG_RUN, "signal_after": (signal.SIGINT, 1.0)},
    ),
}


@pytest.fixture(autouse=True)
def on_request_only(request: pytest.FixtureRequest) -> None:
    """Skip unless the marker was asked for: a plain run of the tests starts no jobs."""
    if "lab" not in request.config.getoption("-m"):
        pytest.skip("starts real jobs; run with -m lab")


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port somebody else listens on while the test runs."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield int(other.getsockname()[1])


def diagnosed(folder: Path) -> Diagnosis:
    import diagnose

    return diagnose.diagnose(diagnose.load(folder))


@pytest.mark.parametrize("name", CASES)
def test_fault_is_named(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    folder = run_job(case.fault, tmp_path / "job", culprit=case.culprit, **case.options)
    result = diagnosed(folder)
    assert result.root_cause.cause in case.classes, result.to_json()
    assert result.verdict == case.verdict
    assert result.culprits.ranks in (case.culprits, *([[]] if case.open_culprit else []))
    assert result.job.attempts == case.attempts
    if case.phase is not None:
        assert result.phase == case.phase


def test_port_in_use_is_named(taken_port: int, tmp_path: Path) -> None:
    result = diagnosed(run_job("none", tmp_path / "job", port=taken_port))
    assert result.root_cause.cause == "rendezvous.port_in_use", result.to_json()
    assert result.verdict == "failed"
    assert result.culprits.ranks == []
