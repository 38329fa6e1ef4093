"""The runs of tests/lab as scenarios: the same workers, under sources that do not tell.

Dead jobs (tests/lab/worker.py), jobs that still hang (worker.py and stuck.py), and Flight Recorder
dumps of groups and pipelines (tests/lab/dumps). What goes wrong is built into the source of a run
as the default of its options, so that no command line shows it.
"""

from __future__ import annotations

import atexit
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.hangbench.real.scenario import End, Job, Kept, Kind, Scenario, Wrong
from benchmarks.hangbench.real.scrub import neutral_source

LAB = Path(__file__).resolve().parents[3] / "tests" / "lab"


# ------------------------------------------------------------------------------ torchrun


@dataclass(frozen=True, slots=True)
class Known:
    """A job of the lab: the option that chooses what goes wrong, on which rank, and its truth."""

    fault: str
    kind: Kind
    classes: tuple[str, ...]
    rank: int | None = None  # None: any
    env: tuple[tuple[str, str], ...] = ()


WORKER: dict[str, Known] = {
    "none": Known("none", "none", ("none",)),
    "sleep": Known("sleep", "stall", ("stall.host",)),
    "other_collective": Known(
        "other_collective", "mismatch", ("desync.mismatch", "desync.conditional")
    ),
    "error": Known("error", "exception", ("crash.exception",)),
    "sigkill": Known("sigkill", "killed", ("crash.killed",)),
    "sigsegv": Known("sigsegv", "native", ("crash.native",)),
    "uneven": Known(
        "uneven", "uneven", ("desync.uneven_work", "desync.conditional", "desync.mismatch")
    ),
    "conditional": Known(
        "conditional", "conditional", ("desync.conditional", "desync.mismatch"), 0
    ),
    "monitored_barrier": Known("monitored_barrier", "stall", ("stall.host", "desync.missing_rank")),
    "slow_save": Known("slow_save", "stall", ("slow.checkpoint",), 0),
    "slow_map": Known("slow_map", "stall", ("data.preparation",), 0),
    "loader_killed": Known(
        "loader_killed", "exception",
        ("data.loader", "crash.host_oom", "crash.killed", "crash.exception"),
    ),
    "unused": Known("unused", "conditional", ("desync.conditional", "crash.exception"), 1),
    "shape": Known(
        "shape", "mismatch", ("desync.mismatch",), None, (("TORCH_DISTRIBUTED_DEBUG", "DETAIL"),)
    ),
}  # fmt: skip

STUCK: dict[str, Known] = {
    "tokenizer": Known("tokenizer", "stall", ("data.preparation", "stall.host", "slow.straggler")),
    "two_locks": Known("two_locks", "stall", ("stall.host",)),
    "gil": Known("gil", "stall", ("stall.host",)),
    "gil_thread": Known("gil_thread", "stall", ("stall.host",)),
    "prefetch": Known("prefetch", "stall", ("data.loader", "stall.host")),
    "loader": Known("loader", "stall", ("data.loader", "stall.host")),
    "stopped": Known("stopped", "stall", ("stall.host",)),
    "fifo": Known("fifo", "stall", ("stall.host", "slow.storage", "data.loader")),
}

_MARK = 'Path("progress", str({rank})).write_text(f"{{os.getpid()}} {{{step}}}")'


def worker_source(script: str, **options: Any) -> str:
    """The source of a worker with other defaults of its options, which marks its progress."""
    text = (LAB / script).read_text(encoding="utf-8")
    for name, value in options.items():
        pattern = rf'(add_argument\("--{name.replace("_", "-")}",(?:[^()\n]*?))default=[^,)\n]+'
        text, count = re.subn(pattern, rf"\g<1>default={value!r}", text)
        if count != 1:
            raise ValueError(f"{script} has no option --{name}")
    places = {
        "worker.py": ("            if step == self.steps // 2:\n", "self.rank", "step"),
        "stuck.py": ("        time.sleep(options.step_seconds)\n", "rank", "step + 1"),
    }
    before, rank, step = places[script]
    indent = before[: len(before) - len(before.lstrip())]
    mark = indent + _MARK.format(rank=rank, step=step) + "\n"
    if before not in text:
        raise ValueError(f"{script} has no {before.strip()!r}")
    return neutral_source(text.replace(before, mark + before, 1))


def _drawn(
    script: str, known: Known, *, end: End, kept: tuple[Kept, ...], tee: bool, timeout: float
) -> Callable[[Random], Job]:
    def draw(random: Random) -> Job:
        world = 3
        rank = known.rank if known.rank is not None else random.randrange(world)
        options: dict[str, Any] = {"fault": known.fault, "timeout": timeout}
        options["culprit"] = str(rank) if script == "worker.py" else rank
        options["steps"] = random.choice((6, 8, 10)) if script == "worker.py" else 6
        if script == "stuck.py":
            options["path"] = "rows.bin"
        ranks = () if known.kind == "none" else (rank,)
        return Job(
            "ddp", world, "torchrun", Wrong(known.kind, ranks, known.classes),
            sources={"train.py": worker_source(script, **options)}, env=dict(known.env),
            fifos=("rows.bin",) if known.fault == "fifo" else (), timeout_s=timeout,
            end=end, kept=kept, tee=tee, look_early=known.fault == "slow_map",
            before_training=known.fault in ("slow_map", "shape"),
        )  # fmt: skip

    return draw


def _torchrun() -> list[Scenario]:
    found = []
    for name, known in WORKER.items():
        draw = _drawn(
            "worker.py", known, end="itself", kept=("console", "ranks"), tee=True, timeout=8
        )
        found.append(Scenario(f"lab: {name}", "torchrun", ("torch",), draw))
    for script, name in [
        *[("worker.py", one) for one in ("sleep", "other_collective", "conditional", "slow_save")],
        *[("stuck.py", one) for one in STUCK],
    ]:
        known = (WORKER if script == "worker.py" else STUCK)[name]
        draw = _drawn(script, known, end="alive", kept=("bundle",), tee=False, timeout=300)
        found.append(Scenario(f"lab-alive: {name}", "torchrun", ("torch",), draw))
    return found


# ------------------------------------------------------------------------------ dumps


@dataclass(frozen=True, slots=True)
class Plan:
    """A job of the dump lab (tests/lab/dumps/board_dumps.py)."""

    fault: str
    where: str = "tensor"
    shape: str = "grid"
    tensor: int = 2
    stage: bool = False  # a whole pipeline stage of two ranks


_IN_GROUPS = {
    f"{fault} in {where}": Plan(fault, where)
    for where in ("tensor", "data", "world")
    for fault in ("op", "empty", "extra", "extra_op", "skip")
}
PLANS: dict[str, Plan] = {
    "asleep": Plan("sleep"),
    "asleep, tensor groups of four": Plan("sleep", tensor=4),
    "stopped": Plan("stop"),
    "killed": Plan("kill"),
    "asleep in a pipeline": Plan("sleep", shape="pipeline"),
    "a whole stage asleep": Plan("sleep", shape="pipeline", stage=True),
    "stopped in a pipeline": Plan("stop", shape="pipeline"),
    **_IN_GROUPS,
}
_STILL = ("stall.host", "desync.missing_rank")


def _plan(plan: Plan) -> Callable[[Random], Job]:
    def draw(random: Random) -> Job:
        first = 2 * random.randrange(4) if plan.stage else random.randrange(8)
        ranks = (first, first + 1) if plan.stage else (first,)
        kind: Kind = "mismatch"
        classes: tuple[str, ...] = ("desync.mismatch", "desync.conditional")
        if plan.fault in ("sleep", "stop"):
            kind, classes = "stall", _STILL
        elif plan.fault == "kill":
            kind, classes = "killed", ("crash.killed", *_STILL, "unknown")
        task = {
            "mode": plan.fault, "members": ranks, "where": plan.where, "shape": plan.shape,
            "world": 8, "tensor": plan.tensor, "json": random.random() < 0.4,
        }  # fmt: skip
        return Job("ddp", 8, "forks", Wrong(kind, ranks, classes), settings=task, kept=("dumps",))

    return draw


class Forker:
    """A process that has torch imported and forks the ranks of job after job."""

    def __init__(self, python: str, env: Mapping[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="job-"))
        for name, script in (("train.py", "worker_dumps.py"), ("board.py", "board_dumps.py")):
            text = (LAB / "dumps" / script).read_text(encoding="utf-8")
            (self.folder / name).write_text(neutral_source(text), encoding="utf-8")
        self._process = subprocess.Popen(
            [python, "train.py", "--serve"], cwd=self.folder, env=dict(env), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._jobs = 0
        atexit.register(self.close)

    def run(self, job: Job, port: int) -> dict[str, bytes]:
        """The dumps of a job. Raises ValueError where it leaves none."""
        plan = dict(job.settings)
        kind = "json" if plan.pop("json") else "dumps"
        self._jobs += 1
        place = self.folder / str(self._jobs)
        task = {"plan": plan, "folder": str(place), "port": port}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(task), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        if answer != "ok":
            raise ValueError(answer or "no answer")
        end = ".json" if kind == "json" else ""
        return {
            f"dumps/{one.name}{end}": one.read_bytes() for one in sorted((place / kind).iterdir())
        }

    def close(self) -> None:
        """End the process; its folder goes."""
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)


def _dumps() -> list[Scenario]:
    return [
        Scenario(f"lab-dumps: {name}", "gloo", ("torch",), _plan(plan))
        for name, plan in PLANS.items()
    ]


SCENARIOS: tuple[Scenario, ...] = (*_torchrun(), *_dumps())
