"""Makes a case of a scenario: runs it, checks that it went as meant, says what is true of it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.hangbench.case import Case, is_sealed
from benchmarks.hangbench.real.jobs import Recorded, run
from benchmarks.hangbench.real.scenario import Scenario, job_of
from benchmarks.hangbench.real.scenarios import SCENARIOS
from benchmarks.hangbench.real.scrub import Interpreter, markers
from benchmarks.hangbench.real.truth import truth_of


def missing(scenario: Scenario, interpreter: Interpreter) -> str | None:
    """The first thing that a scenario needs and that is not there."""
    for need in scenario.needs:
        if need.startswith("!"):
            if shutil.which(need[1:]) is None:
                return need[1:]
        elif need not in modules(interpreter):
            return need
    return None


_known: dict[str, frozenset[str]] = {}


def modules(interpreter: Interpreter) -> frozenset[str]:
    """Modules of interest that the Python of the jobs has."""
    if interpreter.executable not in _known:
        wanted = sorted({one for each in SCENARIOS for one in each.needs if one[0] != "!"})
        code = f"import importlib.util as u; print(*[m for m in {wanted} if u.find_spec(m)])"
        found = subprocess.run(
            [interpreter.executable, "-c", code], capture_output=True, text=True, check=True
        )
        _known[interpreter.executable] = frozenset(found.stdout.split())
    return _known[interpreter.executable]


def case_of_run(scenario: Scenario, seed: int, found: Recorded) -> Case:
    """The case that a run makes; its truth depends on what its files show."""
    job = job_of(scenario, seed)
    form = "torchrun" if job.launcher == "torchrun" and job.tee else "+".join(job.kept)
    labels = {
        "framework": scenario.framework, "scenario": scenario.name, "kind": job.wrong.kind,
        "launcher": job.launcher, "end": job.end,
    }  # fmt: skip
    return Case(
        f"real-{seed:010d}", "real", seed, is_sealed(seed), form, job.world,
        truth_of(job, found), labels,
    )  # fmt: skip


def record(scenario: Scenario, seed: int, interpreter: Interpreter) -> Recorded:
    """Run one scenario.

    Raises TimeoutError, OSError, subprocess.SubprocessError, and ValueError for a run that is not
    what it should be.
    """
    job = job_of(scenario, seed)
    place = Path(tempfile.mkdtemp(prefix="job-"))
    try:
        found = run(job, place / "j", seed, interpreter)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if job.wrong.kind == "none" and job.end == "itself" and found.status != 0:
        raise ValueError(f"a healthy run ended with status {found.status}")
    if job.wrong.kind not in ("none", "exit", "uneven") and found.status == 0:
        raise ValueError("nothing went wrong")
    early = job.before_training or job.look_early or job.launcher == "forks"
    if not early and sorted(one for one, step in found.steps.items() if step) != [
        *range(job.world)
    ]:
        raise ValueError(f"it never began: {found.steps}")
    told = {word for content in found.files.values() for word in markers(content.decode("latin-1"))}
    if told:
        raise ValueError(f"the files say {sorted(told)}")
    return found
