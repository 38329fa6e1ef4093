"""Starts one `torchrun` job of the lab and keeps its console and its log folder."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
JOB_LIMIT_S = 90.0


def free_port() -> int:
    """A TCP port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_job(
    fault: str,
    folder: Path,
    *,
    culprit: str = "0",
    nproc: int = 4,
    env: dict[str, str] | None = None,
    launcher: Sequence[str] = (),
    worker: Sequence[str] = (),
    port: int | None = None,
    signal_after: tuple[signal.Signals, float] | None = None,
) -> Path:
    """Run one job to its end; `folder` then holds console.log and torchrun's logs/.

    `launcher` and `worker` are extra options of torchrun and of the worker script; "{port}" in a
    launcher option stands for `port`, by default a free one.
    `signal_after` sends the launcher a signal that many seconds after the first step was printed.
    Raises subprocess.TimeoutExpired if the job outlives JOB_LIMIT_S.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={nproc}"]
    command += ["--log-dir=logs", "--redirects=3", "--tee=3"]
    port = port or free_port()
    command += [option.format(port=port) for option in launcher]
    if not any(option.startswith("--rdzv") for option in launcher):
        command += ["--master-addr=127.0.0.1", f"--master-port={port}"]
    command += [str(WORKER), f"--fault={fault}", f"--culprit={culprit}", *worker]
    plain = {key: text for key, text in os.environ.items() if not key.startswith(("TORCH", "NCCL"))}
    console = folder / "console.log"
    with console.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**plain, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **(env or {})},
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            if signal_after is not None:
                threading.Thread(
                    target=_signal, args=(process, console, *signal_after), daemon=True
                ).start()
            process.wait(timeout=JOB_LIMIT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return folder


def _signal(
    process: subprocess.Popen[bytes], console: Path, number: signal.Signals, delay: float
) -> None:
    """Send `number` to the launcher `delay` seconds after the job's first training step."""
    while process.poll() is None and b"'loss'" not in console.read_bytes():
        time.sleep(0.1)
    time.sleep(delay)
    if process.poll() is None:
        process.send_signal(number)
