"""`python -m benchmarks.hangbench.numeric.record OUT.tar.gz --raw DIR`: run all jobs, keep a tape.

What goes wrong is in the data that a job reads, in its learning rate, or in a bit of a weight. Runs
that were made before are kept in the folder, so that an interrupted recording goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from benchmarks.hangbench.case import Case, Files, Truth, is_sealed
from benchmarks.hangbench.real.scrub import Interpreter, Scrubber
from benchmarks.hangbench.real.tape import write_tape
from benchmarks.hangbench.shape import shape_of

PROGRAMS = Path(__file__).with_name("programs")
STYLES = ("plain", "trainer", "titan", "ranked", "log", "epochs")
ALL_PRINT = ("ranked", "log")  # styles in which each rank is told apart
LIMIT_S = 240


@dataclass(frozen=True, slots=True)
class Plan:
    """A job: what is wrong from which step on, in the batch or the weights of which rank.

    kind: see `KINDS`; style, every: how and how often steps are printed.
    """

    kind: str
    style: str
    world: int
    rank: int
    step: int
    every: int


# What is wrong → options of the program, and the classes that are right (none: it is healthy).
KINDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "bad-sample": ((), ("numeric.nan",)),
    "bad-sample-all": (("--printers", "all"), ("numeric.nan",)),
    "learning-rate": (("--lr", "40"), ("numeric.nan",)),
    "overflow": (("--scaler", "65536"), ("numeric.nan",)),
    "stop": (("--on-bad", "stop"), ("numeric.nan",)),
    "raise": (("--on-bad", "raise"), ("numeric.nan",)),
    "clip": (("--on-bad", "clip"), ("numeric.nan",)),
    "anomaly": (("--anomaly", "--log-loss"), ("numeric.nan",)),
    "bit-30": (("--printers", "all"), ("numeric.nan", "hw.sdc")),
    "bit-check": (("--check-weights", "5"), ("hw.sdc",)),
    "scaler-start": (("--scaler", "1e38"), ()),
    "spike": (("--clip", "1.0"), ()),
    "empty-evaluation": (("--evaluate", "15"), ()),
    "checked": (("--check-weights", "10"), ()),
}
TIMES = {"bad-sample": 6, "bad-sample-all": 5, "learning-rate": 3, "overflow": 3, "stop": 2,
         "raise": 2, "clip": 1, "anomaly": 2, "bit-30": 3, "bit-check": 3, "scaler-start": 3,
         "spike": 3, "empty-evaluation": 2, "checked": 2}  # fmt: skip


def plans() -> list[Plan]:
    """All jobs; the same each time."""
    rng = random.Random("numeric")
    found = []
    for kind, times in TIMES.items():
        for _ in range(times):
            every_rank = "all" in KINDS[kind][0]
            style = rng.choice(ALL_PRINT if every_rank else STYLES)
            world = rng.choice((2, 2, 3, 4))
            every = 1 if kind in ("stop", "raise", "clip", "anomaly") else rng.choice((1, 1, 2))
            step = rng.randrange(12, 40) // 2 * 2
            found.append(Plan(kind, style, world, rng.randrange(world), step, every))
    return found


def data_of(plan: Plan, path: Path) -> None:
    """Write the batches of a job."""
    import torch  # noqa: PLC0415  only a recording needs it

    rng = torch.Generator().manual_seed(3)
    x = torch.randn(60, plan.world, 8, 16, generator=rng)
    y = x.sum(-1) * 0.2 + 3
    if plan.kind in ("bad-sample", "bad-sample-all", "stop", "raise", "clip"):
        x[plan.step, plan.rank, 3, 5] = float("nan" if plan.step % 4 else "inf")
        y[plan.step, plan.rank, 2] = float("nan")
    if plan.kind == "anomaly":
        y[plan.step, plan.rank] = float("nan")
    if plan.kind == "overflow":
        y[plan.step :] = 1e30
    if plan.kind == "spike":
        y[plan.step, plan.rank] *= 12
    torch.save((x, y), path)


def run(plan: Plan, python: str) -> tuple[Files, int]:
    """The console of a job, made neutral, and its exit status."""
    place = Path(tempfile.mkdtemp(prefix="job-"))
    try:
        for name in ("train.py", "sitecustomize.py"):
            shutil.copy(PROGRAMS / name, place / name)
        data_of(plan, place / "batches.pt")
        env = {
            "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": str(place), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        if plan.kind.startswith("bit"):
            bit = 30 if plan.kind == "bit-30" else 14
            env["WEIGHTS_AT"] = f"{plan.rank},{plan.step},{bit}"
        command = [
            python, "-m", "torch.distributed.run", "--nproc-per-node", str(plan.world),
            "--master-port", str(20_000 + random.SystemRandom().randrange(20_000)), "train.py",
            "--data", "batches.pt", "--style", plan.style, "--every", str(plan.every),
            *KINDS[plan.kind][0],
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
        files = Scrubber(place, Interpreter(python)).files({"console.log": done.stdout})
        return files, done.returncode
    finally:
        shutil.rmtree(place, ignore_errors=True)


def case_of(number: int, plan: Plan, status: int) -> Case:
    """The case of a run. Raises ValueError where it did not go as meant."""
    classes = KINDS[plan.kind][1]
    if not classes and status:
        raise ValueError(f"{plan.kind}: a healthy run ended with status {status}")
    named = plan.kind in ("bad-sample-all", "bit-30") and plan.every == 1
    suspects = (plan.rank,) if named else tuple(range(plan.world))
    verdicts = ("failed",) if classes else ("healthy", "running")
    truth = Truth(
        verdicts,
        classes=classes or ("none",),
        culprits=(plan.rank,) if classes else (),
        suspects=suspects if classes else (),
        determines=("rank" if named else "group") if classes else "none",
    )
    labels = {
        "kind": plan.kind, "style": plan.style, "control": "no" if classes else "yes",
        "step": str(plan.step), "made": "run",
    }  # fmt: skip
    return Case(
        f"numeric-run-{number:03d}", "numeric", number, is_sealed(number), "console", plan.world,
        truth, labels,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hangbench.numeric.record")
    parser.add_argument("tape", type=Path)
    parser.add_argument("--raw", type=Path, required=True, help="finished runs, kept")
    parser.add_argument("--python", default=sys.executable, help="Python of the jobs")
    options = parser.parse_args()
    options.raw.mkdir(parents=True, exist_ok=True)
    cases = []
    for number, plan in enumerate(plans()):
        kept = options.raw / f"{number:03d}.json"
        if not kept.exists():
            files, status = run(plan, options.python)
            text = files["console.log"].decode("utf-8", "replace")
            kept.write_text(json.dumps({"status": status, "text": text}), encoding="utf-8")
            print(number, plan, status, flush=True)
        found = json.loads(kept.read_text(encoding="utf-8"))
        files = {"console.log": found["text"].encode()}
        case = case_of(number, plan, found["status"])
        cases.append((replace(case, shape=shape_of(files)), files))
    write_tape(options.tape, {"recorded": f"{date.today()}"}, cases)


if __name__ == "__main__":
    main()
