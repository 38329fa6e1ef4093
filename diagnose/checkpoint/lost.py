"""What is lost when a job resumes from a checkpoint: steps, and the GPU-hours they took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Lost:
    """`last` is the last step the logs show; `steps` and `gpu_hours` are what comes again.

    `gpu_hours` is None where the logs do not tell when the step of the checkpoint was, or how many
    ranks there were.
    """

    last: int
    steps: int
    gpu_hours: float | None


def lost(timeline: pd.DataFrame, step: int | None, world_size: int | None) -> Lost | None:
    """What a restart at `step` loses; None where the logs show no step behind it.

    Time counts from the first line at or beyond the step to the last line of the attempt.
    """
    progress = timeline[(timeline["kind"] == "progress") & timeline["step"].notna()]
    if step is None or progress.empty:
        return None
    last = int(progress["step"].max())
    if last < step:
        return None
    began = progress.loc[progress["step"] >= step, "time"].dropna()
    ended = timeline["time"].dropna()
    hours = None
    if len(began) and world_size:
        seconds = (ended.max() - began.min()).total_seconds()
        hours = seconds / 3600 * world_size
    return Lost(last, last - step, hours)
