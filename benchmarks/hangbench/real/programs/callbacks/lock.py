"""After each step: log it, and write the metrics file of one rank in a thread."""

from __future__ import annotations

import logging
import threading
import time

from util import SETTINGS, STEPS, progress

records: list[tuple[int, float]] = []
records_lock = threading.Lock()
file_lock = threading.Lock()


def write_metrics() -> None:
    """Append the records to the file."""
    with file_lock:
        time.sleep(0.3)
        with records_lock:
            records.clear()


def add_record(step: int, loss: float) -> None:
    """Keep a record until the next write."""
    with records_lock:
        records.append((step, loss))
        time.sleep(0.1)
        with file_lock:
            pass


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    if rank == SETTINGS["report_rank"] and step == SETTINGS["report_at"]:
        threading.Thread(target=write_metrics, name="metrics-writer", daemon=True).start()
        time.sleep(0.05)
        add_record(step, loss)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
