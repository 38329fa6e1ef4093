# ruff: noqa: PLC0415
"""Settings, logging and progress marks of a training script."""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

SETTINGS: dict[str, Any] = json.loads(Path("settings.json").read_text(encoding="utf-8"))
STEPS: int = SETTINGS["steps"]
TIMEOUT: float = SETTINGS["timeout"]


def setup(rank: int) -> logging.Logger:
    """The logger of a rank; ask for stacks by SIGUSR1, for the recorder's trace by a file."""
    style = SETTINGS["style"]
    if style == "dated":
        form = f"%(asctime)s [rank{rank}] %(levelname)s %(name)s: %(message)s"
    elif style == "bare":
        form = "%(message)s"
    else:
        form = "%(levelname)s:%(name)s:%(message)s"
    loud = rank == 0 or SETTINGS["all_ranks_log"]
    logging.basicConfig(level=logging.INFO if loud else logging.WARNING, format=form, force=True)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    if SETTINGS["trace"]:
        threading.Thread(target=watch_trace, args=(rank,), name="trace", daemon=True).start()
    progress(rank, 0)
    return logging.getLogger("train")


def progress(rank: int, step: int) -> None:
    """Note for the operators' dashboard how far a rank has come, and keep to the pace."""
    Path("progress", str(rank)).write_text(f"{os.getpid()} {step}", encoding="utf-8")
    time.sleep(SETTINGS["pace"])


def watch_trace(rank: int) -> None:
    """Write the flight recorder's entries once somebody asks for them."""
    from torch._C._distributed_c10d import _dump_fr_trace

    while not Path("progress", "trace").exists():
        time.sleep(0.1)
    Path("traces", f"nccl_trace_rank_{rank}").write_bytes(_dump_fr_trace())
    Path("progress", f"traced-{rank}").touch()
