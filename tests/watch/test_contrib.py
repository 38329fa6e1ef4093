"""What is under contrib/: used as far as this machine allows.

The manifest is no more than read here: there is no cluster, and kubectl checks one only against a
server. Its command is run. systemd is asked whether the unit is right, where it is installed; the
service itself is started nowhere, as the tests may not touch a machine's systemd.
The two scripts are run as Slurm runs them: with its environment, and nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CONTRIB = ROOT / "contrib"
LIMIT_S = 180.0  # of a busy machine that compiles the catalog first


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which `diagnose` is this checkout."""
    command = tmp_path / "bin" / "diagnose"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m diagnose "$@"\n')
    command.chmod(0o755)
    return f"{command.parent}:{os.environ['PATH']}"


def until(done: Any) -> None:
    end = time.monotonic() + LIMIT_S
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def script(name: str, env: dict[str, str]) -> None:
    subprocess.run([CONTRIB / "slurm" / name], env=env, check=True, timeout=LIMIT_S)


def alive(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_watch_from_prolog_to_epilog(tmp_path: Path, path: str) -> None:
    run = tmp_path / "run"
    env = {
        "PATH": path,
        "SLURM_JOB_ID": "81922",
        "DIAGNOSE_LOGS": str(tmp_path / "logs" / "%j"),
        "DIAGNOSE_RUN": str(run),
        "DIAGNOSE_WATCH_OPTIONS": "--every-rank\n--on-stall\ntrue && true",
        "DIAGNOSE_WAIT": "0",
        "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],
    }
    script("prolog.sh", env)
    pid = int((run / "81922.pid").read_text())
    log = run / "81922.log"  # the watch makes it
    until(lambda: log.exists() and "Watching 0 files" in log.read_text())
    assert (tmp_path / "logs" / "81922").is_dir()
    script("epilog.sh", env)
    until(lambda: not alive(pid))
    assert not (run / "81922.pid").exists()
    script("epilog.sh", env)  # once more is no error


@pytest.mark.parametrize(
    "env",
    [{}, {"SLURM_JOB_ID": "../etc", "DIAGNOSE_LOGS": "/x"}, {"SLURM_JOB_ID": "1"}],
    ids=["no job", "no number", "no logs"],
)
def test_jobs_that_are_left_alone(tmp_path: Path, path: str, env: dict[str, str]) -> None:
    given = {"PATH": path, "DIAGNOSE_RUN": str(tmp_path / "run"), **env}
    script("prolog.sh", given)
    script("epilog.sh", given)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_manifest(tmp_path: Path, path: str) -> None:
    pod = yaml.safe_load((CONTRIB / "kubernetes" / "sidecar.yaml").read_text())
    spec = pod["spec"]["template"]["spec"]
    (sidecar,) = spec["initContainers"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    mounts = sidecar["volumeMounts"] + spec["containers"][0]["volumeMounts"]
    assert {mount["name"] for mount in mounts} == volumes
    assert sidecar["restartPolicy"] == "Always"
    assert {"name": "metrics", "containerPort": 9400} in sidecar["ports"]
    name, command, logs, *options = sidecar["command"]
    assert [name, command, logs, *options] == [
        "diagnose", "watch", "/logs", "--metrics", ":9400",
    ]  # fmt: skip
    options[1] = "127.0.0.1:0"
    env = {"PATH": path, "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]}
    running = subprocess.Popen(
        [name, command, str(tmp_path), *options], env=env, stdout=subprocess.PIPE
    )
    assert running.stdout is not None
    try:
        assert b"Watching" in running.stdout.readline()
    finally:
        running.terminate()
        assert running.wait(LIMIT_S) == 130
        running.stdout.close()


def test_the_unit(tmp_path: Path) -> None:
    text = (CONTRIB / "systemd" / "diagnose-watch@.service").read_text()
    (start,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    assert start == "ExecStart=/usr/bin/env diagnose watch %f $DIAGNOSE_WATCH_OPTIONS"
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd here")
    unit = tmp_path / "diagnose-watch@.service"
    unit.write_text(text)
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(tmp_path / "diagnose-watch@logs.service")],
        capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    about = [line for line in done.stderr.splitlines() if "diagnose-watch" in line]
    assert about == []
