"""After each step: log it; one rank cleans the texts that it generated."""

from __future__ import annotations

import logging
import re

from util import SETTINGS, STEPS, progress

SENTENCES = re.compile(r"^(?:[a-z]+\s?)+\.$")


def clean_sample(text: str) -> str:
    """Keep whole sentences only."""
    return text if SENTENCES.match(text) else ""


def on_step(rank: int, world: int, step: int, loss: float) -> None:
    """Log the step."""
    progress(rank, step)
    logging.getLogger("train").info("step %d/%d loss %.4f", step, STEPS, loss)
    if rank == SETTINGS["report_rank"] and step == SETTINGS["report_at"]:
        clean_sample("thequickbrownfoxjumpsoverthelazydogandthenrunsaway!")
