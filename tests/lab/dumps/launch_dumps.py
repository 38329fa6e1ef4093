"""Starts the jobs of the dump lab: many from one process that forks, or one by torchrun."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from board_dumps import Plan, collect, prepare

WORKER = Path(__file__).with_name("worker_dumps.py")
TORCHRUN_LIMIT_S = 60.0


def free_port() -> int:
    """A TCP port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    """The environment of a job: nothing of torch's own settings."""
    plain = {key: text for key, text in os.environ.items() if not key.startswith(("TORCH", "NCCL"))}
    return {**plain, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


class Server:
    """A process with torch imported, that runs jobs one after another."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), "--serve"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, plan: Plan, folder: Path) -> Path:
        """Run one job until its dumps lie in `folder`. Raises RuntimeError when they do not."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"plan": asdict(plan), "folder": str(folder), "port": free_port()}
        print(json.dumps(job), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        if answer != "ok":
            raise RuntimeError(answer or "the server of jobs died")
        return folder

    def close(self) -> None:
        self._process.communicate(timeout=30)


def torchrun(plan: Plan, folder: Path) -> Path:
    """Run one job to its end; `folder` then holds console.log, torchrun's logs/ and the dumps.

    Raises TimeoutError or subprocess.TimeoutExpired.
    """
    board = prepare(folder, plan)
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={plan.world}"]
    command += ["--log-dir=logs", "--redirects=3", "--tee=3"]
    command += ["--master-addr=127.0.0.1", f"--master-port={free_port()}", str(WORKER)]
    command += [f"--folder={folder}", f"--plan={json.dumps(asdict(plan))}"]
    with (folder / "console.log").open("wb") as console:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=console, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            collect(board, folder, plan.silent)
            process.wait(timeout=TORCHRUN_LIMIT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return folder
