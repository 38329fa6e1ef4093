"""Starts the jobs that save with torch.distributed.checkpoint."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

WORKER = Path(__file__).with_name("worker_dcp.py")
LIMIT_S = 120.0
RANKS = 4


def run_job(folder: Path, *options: str) -> int:
    """Run a job of four gloo ranks to its end and give its exit status.

    One process forks all ranks, so that torch is imported once. Raises subprocess.TimeoutExpired.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    plain = {key: text for key, text in os.environ.items() if not key.startswith(("TORCH", "NCCL"))}
    plain |= {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, str(WORKER), f"--folder={folder}", f"--ranks={RANKS}", *options]
    with (folder.parent / "console.log").open("wb") as console:
        process = subprocess.Popen(
            command, env=plain, stdout=console, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return process.wait(timeout=LIMIT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
