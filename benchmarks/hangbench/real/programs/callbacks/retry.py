"""After each step: log it; pushing metrics may fail, which is only told."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request

from util import SETTINGS, STEPS, progress


def push_metrics(step: int, loss: float) -> None:
    """Send the metrics of a step to the tracking server."""
    body = json.dumps({"step": step, "loss": loss}).encode()
    address = f"http://127.0.0.1:{SETTINGS['tracking_port']}/api/metrics"
    with urllib.request.urlopen(urllib.request.Request(address, body)) as answer:
        answer.read()


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if step == SETTINGS["report_at"]:
        try:
            push_metrics(step, loss)
        except urllib.error.URLError:
            logging.getLogger("train").exception("metrics of step %d are lost, going on", step)
