"""After each step: log it; one rank pushes the metrics to a server."""

from __future__ import annotations

import json
import logging
import urllib.request

from util import SETTINGS, STEPS, progress


def push_metrics(step: int, loss: float) -> None:
    """Send the metrics of a step to the tracking server."""
    body = json.dumps({"step": step, "loss": loss}).encode()
    address = f"http://127.0.0.1:{SETTINGS['tracking_port']}/api/metrics"
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        answer.read()


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if rank == SETTINGS["report_rank"] and step == SETTINGS["report_at"]:
        push_metrics(step, loss)
