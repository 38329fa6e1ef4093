"""`collect --hosts` against a real sshd on this machine, with keys of its own."""

from __future__ import annotations

import getpass
import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collect.reach.running import (
    COMMAND,
    free_ports,
    needs,
    ranks,
    running,
    short_folder,
    until,
    where,
)

pytestmark = pytest.mark.cluster

SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile {folder}/sshd.pid
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
"""
CLIENT = """\
Host *
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking accept-new
"""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[int, dict[str, str]]]:
    """The port of a sshd, and an environment whose `ssh` has the right keys."""
    needs("sshd", "ssh", "ssh-keygen")
    sshd, ssh = where("sshd"), where("ssh")
    assert sshd
    assert ssh
    Path("/run/sshd").mkdir(exist_ok=True)
    with short_folder() as folder:
        (port,) = free_ports(1)
        for name in ("host", "user"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)],
                check=True,
            )
        (folder / "server").write_text(SERVER.format(folder=folder, port=port))
        (folder / "client").write_text(CLIENT.format(folder=folder))
        (folder / "bin").mkdir()
        wrapper = folder / "bin" / "ssh"
        wrapper.write_text(f'#!/bin/sh\nexec {shlex.quote(ssh)} -F {folder}/client "$@"\n')
        wrapper.chmod(0o755)
        environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        with running([sshd, "-D", "-e", "-f", folder / "server"], folder / "log"):
            until(lambda: "listening" in (folder / "log").read_text(), "sshd listens")
            yield port, environment


def collect(
    environment: dict[str, str], *arguments: str
) -> tuple[subprocess.CompletedProcess[str], float]:
    began = time.monotonic()
    done = subprocess.run(
        [*COMMAND, "--seconds=0.5", *arguments],
        env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done, time.monotonic() - began


def test_hosts_are_collected_and_one_that_refuses_is_one_line(
    server: tuple[int, dict[str, str]], tmp_path: Path
) -> None:
    port, environment = server
    (closed,) = free_ports(1)
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(
        f"# two names of one machine, as mpirun has them\n"
        f"127.0.0.1 slots=8 port={port}\n"
        f"{getpass.getuser()}@localhost:{port} slots=8\n"
        f"127.0.0.1:{closed}\n"
    )
    bundle = tmp_path / "bundle.tar.zst"
    with ranks("of-the-ssh-test", 4, tmp_path):
        done, took = collect(
            environment, "--hosts", str(hosts), "--job=of-the-ssh-test", "-o", str(bundle)
        )
    assert (done.returncode, done.stdout) == (0, f"{bundle}\n"), done.stderr
    shown = subprocess.run(
        ["tar", "-x", "-O", "--zstd", "-f", str(bundle), "bundle/manifest.json"],
        capture_output=True, check=True,
    )  # fmt: skip
    manifest = json.loads(shown.stdout)
    assert manifest["via"] == "ssh"
    refused = f"ssh: connect to host 127.0.0.1 port {closed}: Connection refused"
    assert manifest["problems"] == [f"127.0.0.1:{closed}: {refused}"]
    found = [sorted(one["rank"] for one in node["processes"]) for node in manifest["nodes"]]
    assert found == [[0, 1, 2, 3], [0, 1, 2, 3]]
    print(f"2 hosts, 4 ranks, {took:.1f} s: {manifest['problems']}")


def test_a_host_without_python_is_one_line(
    server: tuple[int, dict[str, str]], tmp_path: Path
) -> None:
    """Another Python than the one with which `collect` runs is not there, nor is one in PATH."""
    port, environment = server
    bundle = tmp_path / "bundle"
    done, _ = collect(
        environment, "--hosts", f"127.0.0.1:{port}", "-o", str(bundle),
        "--remote-command", "/nowhere/bin/diagnose",
    )  # fmt: skip
    assert done.returncode == 2
    manifest = json.loads((bundle / "manifest.json").read_text())
    (problem,) = manifest["problems"]
    assert problem.startswith(f"127.0.0.1:{port}: ")
    assert "/nowhere/bin/diagnose" in problem


def test_what_is_installed_there_can_be_named(
    server: tuple[int, dict[str, str]], tmp_path: Path
) -> None:
    port, environment = server
    bundle = tmp_path / "bundle"
    with ranks("of-the-other-ssh-test", 1, tmp_path):
        done, _ = collect(
            environment, "--hosts", f"127.0.0.1:{port}", "-o", str(bundle),
            "--job=of-the-other-ssh-test", "--remote-command", shlex.join(COMMAND[:-1]),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert [one["rank"] for one in manifest["nodes"][0]["processes"]] == [0]
