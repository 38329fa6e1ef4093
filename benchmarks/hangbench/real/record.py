"""`python -m benchmarks.hangbench.real.record OUT.tar.gz`: run all scenarios here, keep a tape.

Runs that were made before are kept in `--raw DIR`, so that an interrupted recording goes on.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from benchmarks.hangbench.case import Case, Files, seeds
from benchmarks.hangbench.real.jobs import Recorded
from benchmarks.hangbench.real.runs import case_of_run, missing, record
from benchmarks.hangbench.real.scenario import Scenario
from benchmarks.hangbench.real.scenarios import SCENARIOS
from benchmarks.hangbench.real.scrub import Interpreter
from benchmarks.hangbench.real.tape import write_tape
from benchmarks.hangbench.shape import shape_of

AT_ONCE = 2
TRIES = 2
_PACKAGES = (
    "torch", "accelerate", "transformers", "lightning", "mpi4py", "jax", "ray",
    "distributed", "py-spy",
)  # fmt: skip


def versions(interpreter: Interpreter) -> dict[str, str]:
    """Versions of the frameworks that the jobs ran with."""
    code = (
        "import importlib.metadata as m\n"
        f"for name in {_PACKAGES}:\n"
        "    try: print(name, m.version(name))\n"
        "    except m.PackageNotFoundError: pass\n"
    )
    done = subprocess.run(
        [interpreter.executable, "-c", code], capture_output=True, text=True, check=True
    )
    found = dict(line.split() for line in done.stdout.splitlines())
    found["python"] = platform.python_version()
    if shutil.which("mpirun"):
        told = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False)
        found["mpirun"] = told.stdout.splitlines()[0]
    return found


def save_raw(raw: Path, scenario: Scenario, seed: int, found: Recorded) -> None:
    """Keep one run below a folder, from which its case can be made at any time."""
    place = raw / f"real-{seed:010d}"
    for name, content in found.files.items():
        path = place / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    onset = found.onset.isoformat() if found.onset else None
    facts = {"scenario": scenario.name, "onset": onset, "status": found.status}
    (place / "run.json").write_text(json.dumps(facts), encoding="utf-8")


def read_raw(raw: Path) -> Iterator[tuple[Scenario, int, Recorded]]:
    """The runs below a folder."""
    by_name = {scenario.name: scenario for scenario in SCENARIOS}
    for path in sorted(raw.glob("*/run.json")):
        facts = json.loads(path.read_text(encoding="utf-8"))
        inner = path.parent / "files"
        files = {
            str(one.relative_to(inner)): one.read_bytes()
            for one in sorted(inner.rglob("*"))
            if one.is_file()
        }
        onset = datetime.fromisoformat(facts["onset"]) if facts["onset"] else None
        scenario = by_name.get(facts["scenario"])
        if scenario is not None:
            seed = int(path.parent.name.removeprefix("real-"))
            yield scenario, seed, Recorded(files, onset, {}, facts["status"])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hangbench.real.record")
    parser.add_argument("tape", type=Path)
    parser.add_argument("--raw", type=Path, required=True, help="finished runs, kept")
    parser.add_argument("--python", default=sys.executable, help="Python of the jobs")
    parser.add_argument("--only", default="", help="beginnings of names of scenarios, A;B")
    parser.add_argument("--each", type=int, default=1, help="runs a scenario")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="runs at a time")
    options = parser.parse_args(arguments)
    interpreter = Interpreter(options.python)
    # Jobs of a shell's background ignore SIGINT, and what they start inherits that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def one(item: tuple[Scenario, int]) -> None:
        scenario, seed = item
        if (options.raw / f"real-{seed:010d}" / "run.json").exists():
            return
        lacking = missing(scenario, interpreter)
        if lacking is not None:
            print(f"{scenario.name}: skipped, no {lacking}", flush=True)
            return
        for _ in range(TRIES):
            began = time.monotonic()
            try:
                save_raw(options.raw, scenario, seed, record(scenario, seed, interpreter))
            except (TimeoutError, OSError, ValueError, subprocess.SubprocessError) as error:
                print(f"{scenario.name}: {error}", flush=True)
                continue
            print(f"{scenario.name}: {time.monotonic() - began:.0f} s", flush=True)
            return

    wanted = tuple(options.only.split(";"))
    items = [
        (scenario, scenario.first_seed + number)
        for number in range(options.each)
        for scenario in SCENARIOS
        if scenario.name.startswith(wanted)
    ]
    with ThreadPoolExecutor(options.at_once) as pool:
        list(pool.map(one, items))
    pack(options.raw, options.tape, interpreter)


def pack(raw: Path, tape: Path, interpreter: Interpreter) -> None:
    """Write the tape of all runs below a folder, each shape once.

    Numbers tell nothing, and a run stays in its half, open or sealed, whatever is added.
    """
    numbers = {half: seeds(0, sealed=half) for half in (False, True)}
    shapes: set[str] = set()
    cases: list[tuple[Case, Files]] = []
    for scenario, seed, found in read_raw(raw):
        shape = shape_of(found.files)
        if shape in shapes:
            continue
        shapes.add(shape)
        case = case_of_run(scenario, seed, found)
        case.labels["run"] = str(seed)
        number = next(numbers[case.sealed])
        case = replace(case, id=f"real-{number:07d}", seed=number, shape=shape)
        cases.append((case, found.files))
    about = {"recorded": time.strftime("%Y-%m-%d"), "versions": versions(interpreter)}
    write_tape(tape, about, cases)


if __name__ == "__main__":
    main()
