"""Track real: jobs that ran on a machine with something made to go wrong, as their files show it.

`make` reads the recorded tape, which takes no time and needs nothing but the standard library.
With the variable HANGBENCH_LIVE set to the Python of an environment with the frameworks it runs
jobs anew instead. `python -m benchmarks.hangbench.real.record` makes a tape.

scenario.py has the words, scenarios.py and lab.py what is run, programs/ the training scripts,
jobs.py runs them, scrub.py makes their files neutral, truth.py says what they can show.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import lru_cache

from benchmarks.hangbench.case import Case, Files
from benchmarks.hangbench.real import runs
from benchmarks.hangbench.real.scenarios import SCENARIOS
from benchmarks.hangbench.real.scrub import Interpreter
from benchmarks.hangbench.real.tape import TAPE, read_tape

LIVE = "HANGBENCH_LIVE"


def make(seed: int) -> tuple[Case, Files] | None:
    """The case of a seed: of the tape, or of a run made now.

    None where the tape has no such case, or the frameworks of its run are absent. Raises what
    `runs.record` does.
    """
    python = os.environ.get(LIVE)
    if python:
        return live(seed, python)
    return _tape().get(seed)


def live(seed: int, python: str) -> tuple[Case, Files] | None:
    """Run the scenario that a seed stands for with a Python; None if something is absent for it."""
    scenario = SCENARIOS[seed % len(SCENARIOS)]
    interpreter = Interpreter(python)
    if runs.missing(scenario, interpreter) is not None:
        return None
    inner = scenario.first_seed + seed // len(SCENARIOS)
    found = runs.record(scenario, inner, interpreter)
    case = runs.case_of_run(scenario, inner, found)
    return replace(case, id=f"real-{seed:07d}", seed=seed), found.files


@lru_cache(maxsize=1)
def _tape() -> dict[int, tuple[Case, Files]]:
    return {case.seed: (case, files) for case, files in read_tape(TAPE)}
