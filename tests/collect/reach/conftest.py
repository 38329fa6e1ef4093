"""A real Slurm for the tests that need one."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.collect.reach.running import ask, free_ports, needs, running, short_folder, until, where

CONFIG = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdTimeout=300
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=YES
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """The environment in which the commands of Slurm find it; DAEMON_2 is the pid of node 2."""
    needs("munged", "slurmctld", "slurmd", "srun", "sbatch", "squeue", "scontrol")
    host = socket.gethostname()
    with short_folder() as folder, ExitStack() as stack:
        controller, first, second = free_ports(3)
        (folder / "state").mkdir()
        config = folder / "slurm.conf"
        config.write_text(
            CONFIG.format(
                host=host, folder=folder, controller=controller, first=first, second=second
            )
        )
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        environment = {**os.environ, "SLURM_CONF": str(config)}
        log = folder / "log"

        def start(*command: str) -> subprocess.Popen[bytes]:
            program = where(command[0])
            assert program
            return stack.enter_context(running([program, *command[1:]], log, environment))

        start(
            "munged", "--foreground", "--force", f"--key-file={key}",
            f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid",
            f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed",
        )  # fmt: skip
        until((folder / "munge.socket").exists, "munged listens")
        start("slurmctld", "-D", "-f", str(config))
        for node in ("n1", "n2"):
            daemon = start("slurmd", "-D", "-N", node, "-f", str(config))
            environment["DAEMON_2"] = str(daemon.pid)

        def ready() -> bool:
            said = ask(environment, "sinfo", "--noheader", "--format=%T %D")
            return said.split() == ["idle", "2"]

        try:
            until(ready, "both nodes are idle")
        except AssertionError:
            for path in sorted(folder.glob("*.log")):
                print(path.name, path.read_text(errors="replace")[-3000:])
            raise
        yield environment
