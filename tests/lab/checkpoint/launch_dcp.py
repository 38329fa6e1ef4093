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


def torchrun(folder: Path, *options: str) -> int:
    """Run a job of four gloo ranks to its end and give the launcher's exit status.

    Raises subprocess.TimeoutExpired.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    plain = {key: text for key, text in os.environ.items() if not key.startswith(("TORCH", "NCCL"))}
    command = [
        sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}",
        "--master-addr=127.0.0.1", f"--master-port={port}", str(WORKER), f"--folder={folder}",
        *options,
    ]  # fmt: skip
    with (folder.parent / "console.log").open("wb") as console:
        process = subprocess.Popen(
            command, env={**plain, "OMP_NUM_THREADS": "1"}, stdout=console,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(timeout=LIMIT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
