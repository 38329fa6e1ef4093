"""`collect --slurm` against a real Slurm: a controller and two nodes, both on this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collect.reach.running import (
    COMMAND,
    SLEEPING,
    ask,
    until,
)

XID = Path(__file__).parents[3] / "fixtures" / "megatron-xid79"

pytestmark = pytest.mark.cluster


@pytest.fixture
def job(slurm: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """A job of two sleeping ranks on each node."""
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nsrun -n4 -N2 python3 -c '{SLEEPING}'\n")
    number = ask(
        slurm, "sbatch", "--parsable", "-N2", "-n4", f"--output={tmp_path}/job.out", str(script)
    ).strip()
    assert number.isdecimal()
    try:
        until(lambda: ask(slurm, "squeue", "-h", "-s", "-j", number, "-o", "%i").count(".0") == 1,
              "the step runs")  # fmt: skip
        time.sleep(0.5)
        yield number
    finally:
        ask(slurm, "scancel", number)
        until(lambda: not ask(slurm, "squeue", "-h", "-j", number), "the job has ended")


def ranks(node: dict[str, Any]) -> list[int]:
    """The ranks that sleep, as the document of a node has them."""
    return sorted(
        one["rank"]
        for one in node["processes"]
        if one["role"] == "rank" and one["command"].endswith(SLEEPING)
    )


def collect(
    environment: dict[str, str], *arguments: str, seconds: float = 120
) -> tuple[subprocess.CompletedProcess[str], float]:
    began = time.monotonic()
    done = subprocess.run(
        [*COMMAND, "--seconds=0.5", *arguments],
        env=environment, capture_output=True, text=True, check=False, timeout=seconds,
    )  # fmt: skip
    return done, time.monotonic() - began


def test_every_node_of_a_job_is_collected(slurm: dict[str, str], job: str, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    done, took = collect(slurm, "--slurm", job, "-o", str(bundle))
    assert (done.returncode, done.stdout) == (0, f"{bundle}\n"), done.stderr
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert (manifest["via"], manifest["problems"]) == ("slurm", [])
    host = socket.gethostname()
    # Both nodes are this machine, so each sees the ranks of both.
    assert sorted(node["host"] for node in manifest["nodes"]) == [host, f"{host}-2"]
    for node in manifest["nodes"]:
        assert ranks(node) == [0, 1, 2, 3]
        assert (bundle / "nodes" / node["host"] / "node.json").is_file()
    print(f"{len(manifest['nodes'])} nodes, 8 ranks, {took:.1f} s")
    # The job goes on, and no step of ours is left.
    assert ask(slurm, "squeue", "-h", "-j", job, "-o", "%T").strip() == "RUNNING"
    until(lambda: "diagnose" not in ask(slurm, "squeue", "-h", "-s", "-j", job, "-o", "%j"),
          "our steps have ended", 20)  # fmt: skip


def test_an_unknown_job_is_one_line(slurm: dict[str, str], tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    done, _ = collect(slurm, "--slurm", "999999", "-o", str(bundle))
    line = "job 999999: slurm_load_jobs error: Invalid job id specified"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"collect: {line}", f"diagnose: nothing was collected ({bundle} says why)"
    ]  # fmt: skip
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert (manifest["nodes"], manifest["problems"]) == ([], [line])


def test_a_job_that_ended_is_one_line(slurm: dict[str, str], tmp_path: Path) -> None:
    number = ask(slurm, "sbatch", "--parsable", "--output=/dev/null", "--wrap=true").strip()
    until(lambda: not ask(slurm, "squeue", "-h", "-j", number), "the job has ended")
    done, _ = collect(slurm, "--slurm", number, "-o", str(tmp_path / "bundle"))
    assert done.returncode == 2
    assert f"collect: job {number}: it is not running (it has ended)" in done.stderr.splitlines()


def test_ctrl_c_keeps_what_came(slurm: dict[str, str], job: str, tmp_path: Path) -> None:
    """The second node waits for the first one, and takes eight seconds from then on."""
    bundle = tmp_path / "bundle.tar.gz"
    command = [*COMMAND, "--seconds=8", "--parallel=1", "--slurm", job, "-o", str(bundle)]
    process = subprocess.Popen(
        command, env={**slurm, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip

    def first_is_in() -> bool:
        return any(tmp_path.glob(".diagnose-*/nodes/*/node.json"))

    until(first_is_in, "the first node is in the bundle", 60)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=30)
    assert process.returncode == 130, messages
    with tarfile.open(bundle) as archive:
        manifest = json.load(archive.extractfile("bundle/manifest.json"))  # type: ignore[arg-type]
    assert [ranks(node) for node in manifest["nodes"]] == [[0, 1, 2, 3]]
    assert len(manifest["problems"]) == 1
    assert manifest["problems"][0].startswith("n2: ")
    assert "interrupted" in manifest["problems"][0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bundle.tar.gz", "job.out", "job.sh"
    ]  # fmt: skip


def test_slurm_as_any_launcher(slurm: dict[str, str], job: str, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    via = f"srun --overlap --jobid={job} --nodes=2 --ntasks=2 --ntasks-per-node=1"
    done, took = collect(slurm, "--via", via, "--job", job, "-o", str(bundle))
    assert (done.returncode, done.stdout) == (0, f"{bundle}\n"), done.stderr
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert [ranks(node) for node in manifest["nodes"]] == [[0, 1, 2, 3]] * 2
    assert manifest["problems"] == []
    print(f"--via srun: 2 nodes, {took:.1f} s")


def test_a_node_that_does_not_answer_is_one_line(
    slurm: dict[str, str], job: str, tmp_path: Path
) -> None:
    """The daemon of the second node hangs, as on a node whose disk is gone. The last test here."""
    bundle = tmp_path / "bundle"
    daemon = int(slurm["DAEMON_2"])
    os.kill(daemon, signal.SIGSTOP)
    try:
        done, took = collect(slurm, "--slurm", job, "-o", str(bundle), "--timeout=5")
    finally:
        os.kill(daemon, signal.SIGCONT)
    manifest = json.loads((bundle / "manifest.json").read_text())
    print(manifest["problems"], f"{took:.1f} s")
    assert done.returncode == 0, done.stderr
    assert [ranks(node) for node in manifest["nodes"]] == [[0, 1, 2, 3]]
    assert len(manifest["problems"]) == 1
    assert manifest["problems"][0].startswith("n2: ")


def test_a_record_drains_a_node_and_brings_it_back(slurm: dict[str, str], tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(XID, job)
    for path in [*job.rglob("*"), job]:
        if path.is_file() and path.suffix != ".yaml":
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace("gpu08", "n1").replace("gpu07", "n2"), encoding="utf-8")
        path.rename(path.with_name(path.name.replace("gpu08", "n1").replace("gpu07", "n2")))

    def act(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "diagnose", "act", *arguments],
            env=slurm | more, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def state(node: str) -> str:
        return ask(slurm, "sinfo", "-h", "-n", node, "-N", "-o", "%t|%E").strip()

    record = tmp_path / "record.json"
    record.write_text(act(str(job), "--form", "json").stdout)
    assert state("n1").startswith("idle")  # printing changes nothing
    refused = act(
        str(record), "--form", "slurm", "--apply", "--yes", SLURM_SCRIPT_CONTEXT="epilog_slurmd"
    )
    assert (refused.returncode, state("n1")[:4]) == (2, "idle")
    done = act(str(record), "--form", "slurm", "--apply", "--yes")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "ran 1 command"
    assert re.fullmatch(r"drain\|diagnose [0-9a-f]{16} hw.gpu: .*Xid 79.*", state("n1"))
    assert state("n2").startswith("idle")
    assert act(str(record), "--form", "slurm", "--apply", "--yes", "--undo").returncode == 0
    until(lambda: state("n1").startswith("idle"), "the node is back")
