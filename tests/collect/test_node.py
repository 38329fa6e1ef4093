from __future__ import annotations

import errno
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagnose.collect import bundle, machine, node, processes, recorder
from diagnose.collect.bundle import NodeOptions, Sink
from diagnose.collect.node import Over, collect_node, collect_within
from diagnose.runtime.children import Answer

SECRET = "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY2z"
JOB = f"made-up-{os.getpid()}"  # other tests of this file may run beside these
OUTPUTS = {f"rank-3/{name}" for name in ("stdout", "stderr", "output")}  # as pytest is run
QUICK = {"apart_s": 0.3, "pause_s": 0.0}


@pytest.fixture(scope="module")
def job() -> Iterator[subprocess.Popen[bytes]]:
    """One process that looks like a rank, with a secret in its command line and environment."""
    env = {
        **os.environ, "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "SLURM_JOB_ID": JOB,
        "HF_TOKEN": SECRET, "NCCL_DEBUG": "INFO", "NCCL_RAS_ADDR": "127.0.0.1:1",
    }  # fmt: skip
    script = "import time\ntime.sleep(100)"
    child = subprocess.Popen([sys.executable, "-c", script, f"--token={SECRET}"], env=env)
    try:
        for _ in range(200):
            if "nanosleep" in Path(f"/proc/{child.pid}/wchan").read_text():
                break
            time.sleep(0.05)
        yield child
    finally:
        child.kill()
        child.wait()


def everything(folder: Path) -> str:
    return "\n".join(
        path.read_text(errors="replace") for path in sorted(folder.rglob("*")) if path.is_file()
    )


@pytest.mark.slow
def test_a_node_is_collected(job: subprocess.Popen[bytes], tmp_path: Path) -> None:
    found = collect_node(tmp_path, NodeOptions(job=JOB, host="n/1", **QUICK))  # type: ignore[arg-type]
    place = tmp_path / "nodes" / "n_1"
    assert found.host == "n_1"
    assert [(one.pid, one.rank, one.folder) for one in found.processes] == [(job.pid, 3, "rank-3")]
    document = json.loads((place / "node.json").read_text())
    assert document == json.loads(json.dumps(found.to_dict()))
    told = {probe.name: probe for probe in found.probes if probe.name not in OUTPUTS}
    assert sorted(told) == sorted(
        ["activity", "cgroup", "filesystems", "gpus", "kernel", "ncclras", "pressure", "rdma",
         "sockets", "rank-3/process", "rank-3/stack-1", "rank-3/stack-2", "rank-3/flight_recorder"]
    )  # fmt: skip
    assert told["ncclras"].problem == "nobody listens at 127.0.0.1:1"
    assert told["ncclras"].status == "not available"
    assert told["activity"].status == "ok"
    assert told["activity"].bytes == (place / "rank-3" / "activity.json").stat().st_size
    about = json.loads((place / "rank-3" / "process.json").read_text())
    assert about["environment"]["NCCL_DEBUG"] == "INFO"
    assert "HF_TOKEN" not in about["environment"]
    assert json.loads((place / "rank-3" / "activity.json").read_text())["activity"] == "waiting"
    assert SECRET[6:] not in everything(tmp_path)
    assert all("\n" not in probe.problem for probe in found.probes)
    assert job.poll() is None


@pytest.mark.slow
def test_a_second_report_of_ras_is_asked_for_where_there_was_a_first(
    job: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(sink: Sink, _: object, __: float, name: str = "ncclras") -> None:
        sink.text(f"{name}.txt", "a report")

    monkeypatch.setattr(recorder, "ask", ask)
    monkeypatch.setattr(recorder, "APART_S", 0.01)
    told = {one.name for one in collect_node(tmp_path, NodeOptions(job=JOB, **QUICK)).probes}  # type: ignore[arg-type]
    assert {"ncclras", "ncclras-2"} <= told


@pytest.mark.slow
def test_a_probe_that_hangs_and_one_that_breaks_cost_a_line_each(
    job: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hangs(sink: Sink) -> None:
        sink.text("half.txt", "what came before")
        time.sleep(60)

    def breaks(*_: object) -> None:
        raise RuntimeError(f"cannot\nread {SECRET}")

    monkeypatch.setattr(machine, "pressure", hangs)
    monkeypatch.setattr(machine, "cgroups", breaks)
    monkeypatch.setattr(node, "_SLACK_S", 1.0)
    options = NodeOptions(pids=(job.pid,), host="n1", probe_s=1.0, **QUICK)  # type: ignore[arg-type]
    began = time.monotonic()
    found = collect_node(tmp_path, options)
    assert time.monotonic() - began < 15
    told = {probe.name: (probe.status, probe.problem) for probe in found.probes}
    assert told["pressure"] == ("timed out", "no answer in 1 s")
    assert told["cgroup"] == ("failed", "cannot read [masked]")
    # How the others end within a second depends on the machine; each has its line.
    assert {"activity", "filesystems", "rank-3/process", "rank-3/stack-2"} <= set(told)
    assert (tmp_path / "nodes" / "n1" / "half.txt").exists()


def test_what_ends_early_has_what_was_found(
    job: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ending(*_: object) -> Iterator[Answer]:
        yield Answer("kernel", 0.1, {"bytes": 7, "problem": ""})
        raise Over("interrupted", by_user=True)

    monkeypatch.setattr(node, "_answers", ending)
    (told,), over = collect_within(tmp_path, NodeOptions(job=JOB, host="n1"), 60)
    assert over is not None
    assert [one["rank"] for one in told["processes"]] == [3]
    assert [one["name"] for one in told["probes"]] == ["kernel"]
    assert told["problems"] == ["ended early: interrupted"]
    assert told["ended"]
    assert json.loads((tmp_path / "nodes" / "n1" / "node.json").read_text()) == told


@pytest.mark.slow
def test_all_of_it_is_for_its_owner_only(job: subprocess.Popen[bytes], tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        collect_node(tmp_path / "b", NodeOptions(job=JOB, **QUICK))  # type: ignore[arg-type]
        bundle.pack(tmp_path / "b", tmp_path / "b.tar.gz")
    finally:
        os.umask(before)
    modes = {
        (path.is_dir(), stat.S_IMODE(path.stat().st_mode))
        for path in [tmp_path / "b.tar.gz", tmp_path / "b", *(tmp_path / "b").rglob("*")]
    }
    assert modes == {(True, 0o700), (False, 0o600)}


@pytest.mark.slow
def test_a_process_that_ends_meanwhile(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.4)"])
    options = NodeOptions(pids=(child.pid,), host="n1", apart_s=1.0, pause_s=0.8)
    try:
        found = collect_node(tmp_path, options)
    finally:
        child.kill()
        child.wait()
    folder = f"pid-{child.pid}"
    told = json.loads((tmp_path / "nodes" / "n1" / folder / "activity.json").read_text())
    assert told["activity"] == "ended"
    probe = next(probe for probe in found.probes if probe.name == f"{folder}/stack-2")
    assert probe.status in ("failed", "not available")
    assert probe.problem


@pytest.mark.slow
def test_a_full_disk_costs_a_line_a_probe_and_the_bundle_is_whole(
    job: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_sink: Sink, name: str, _data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    monkeypatch.setattr(Sink, "data", full)
    found = collect_node(tmp_path, NodeOptions(pids=(job.pid,), host="n1", **QUICK))  # type: ignore[arg-type]
    told = {probe.name: (probe.status, probe.problem) for probe in found.probes}
    assert told["pressure"] == ("failed", "no space left on device: pressure.json")
    assert told["rank-3/process"] == ("failed", "no space left on device: process.json")
    assert json.loads((tmp_path / "nodes" / "n1" / "node.json").read_text())["host"] == "n1"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")
@pytest.mark.slow
def test_a_really_full_disk(job: subprocess.Popen[bytes], tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(small)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        (small / "filler").write_bytes(b"x" * (56 << 10))
        found = collect_node(small, NodeOptions(pids=(job.pid,), host="n1", **QUICK))  # type: ignore[arg-type]
        failed = [probe for probe in found.probes if probe.status == "failed"]
        assert any("no space left on device" in probe.problem for probe in failed)
        told = json.loads((small / "nodes" / "n1" / "node.json").read_text())
        assert len(told["probes"]) == len(found.probes)
        for path in small.rglob("*.json"):
            json.loads(path.read_text())
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.slow
def test_without_the_right_to_look_the_rest_is_there(
    job: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> None:
        raise OSError(processes.HINT)

    monkeypatch.setattr(processes, "quick", closed)
    monkeypatch.setattr(processes, "full", closed)
    found = collect_node(tmp_path, NodeOptions(pids=(job.pid,), host="n1", **QUICK))  # type: ignore[arg-type]
    told = {probe.name: probe for probe in found.probes}
    assert told["rank-3/stack-1"].problem == processes.HINT
    assert f"no stacks of 1 process: {processes.HINT}" in found.problems
    assert told["activity"].status == "ok"


@pytest.mark.slow
def test_a_clock_that_cannot_be_asked(
    job: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_seconds: float) -> None:
        raise OSError("no clock")

    monkeypatch.setattr(machine, "clock", broken)
    found = collect_node(tmp_path, NodeOptions(pids=(job.pid,), **QUICK))  # type: ignore[arg-type]
    assert found.host == socket.gethostname()
    assert "clock: no clock" in found.problems


def test_no_process_of_a_job(tmp_path: Path) -> None:
    found = collect_node(tmp_path, NodeOptions(job="no such job", host="n1", **QUICK))  # type: ignore[arg-type]
    assert found.processes == []
    assert found.problems[0].startswith("no process of job no such job was found")
    assert {probe.name for probe in found.probes} >= {"pressure", "filesystems"}


def test_nobody_is_signalled(job: subprocess.Popen[bytes]) -> None:
    """After all the tests above, the process still runs, untraced and not stopped."""
    status = Path(f"/proc/{job.pid}/status").read_text()
    assert "TracerPid:\t0" in status
    assert "State:\tS" in status
    assert signal.SIGSTOP not in signal.sigpending()


def test_the_node_side_needs_only_the_standard_library() -> None:
    """Without `site` nothing that was installed can be imported."""
    code = "import diagnose.collect.node, diagnose.collect.bundle"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
