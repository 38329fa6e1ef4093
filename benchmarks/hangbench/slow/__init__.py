"""Track slow: jobs by gloo that work on while a rank is slow, and jobs that only pause.

`make` reads the recorded tape. `python -m benchmarks.hangbench.slow.record` makes one: plan.py says
what is run, job.py is a rank of it, styles.py what trainers print.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from benchmarks.hangbench.case import Case, Files
from benchmarks.hangbench.real.tape import read_tape

TAPE = Path(__file__).with_name("recorded.tar.gz")


def make(seed: int) -> tuple[Case, Files] | None:
    """The case of a seed; None where the tape has none."""
    return _tape().get(seed)


@lru_cache(maxsize=1)
def _tape() -> dict[int, tuple[Case, Files]]:
    return {case.seed: (case, files) for case, files in read_tape(TAPE)}
