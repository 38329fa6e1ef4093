"""Small jobs with known verdicts, and a scan of them as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from diagnose.batch import run
from diagnose.batch.jobs import find_jobs
from diagnose.batch.results import open_results, tables
from diagnose.batch.run import Lines, Tally
from diagnose.batch.work import Options, Result
from tests.archives import PACK

ROOT = Path(__file__).parents[2]
START = "2025-11-03 08:00:00,000 INFO trainer: step 1/9 loss 2.0\n"

WAIT = (
    "[rank{rank}]:[E1103 08:30:10.{rank}00000000 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog "
    "caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=1024, "
    "NumelOut=1024, Timeout(ms)=1800000) ran for 1800010 milliseconds before timing out.\n"
)
OOM = (
    "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 "
    "has a total capacity of 79.10 GiB of which 1.50 GiB is free.\n"
)
DONE = "2025-11-03 09:00:00,000 INFO trainer: step 9/9 loss 1.0\nTraining completed\n"


def hung(missing: int) -> dict[str, bytes]:
    """Four ranks on two hosts, of which one never joins."""
    files = {}
    for rank in range(4):
        text = START + ("" if rank == missing else WAIT.format(rank=rank))
        files[f"gpu{rank // 2 + 1:03d}/rank_{rank}.log"] = text.encode()
    return files


def oom(rank: int) -> dict[str, bytes]:
    return {f"gpu001/rank_{rank}.log": (START + OOM.format(rank=rank)).encode()}


def healthy() -> dict[str, bytes]:
    return {"gpu001/rank_0.log": (START + DONE).encode()}


def write_fleet(folder: Path, count: int) -> dict[str, str]:
    """Archives of `count` jobs, forms and verdicts in turn; id → class."""
    kinds: list[tuple[str, Callable[[int], dict[str, bytes]]]] = [
        ("desync.missing_rank", hung), ("crash.gpu_oom", oom), ("none", lambda _: healthy()),
    ]  # fmt: skip
    forms = [name for name in PACK if name.startswith("job.")]
    folder.mkdir(parents=True, exist_ok=True)
    truth = {}
    for number in range(count):
        cause, make = kinds[number % 3]
        form = forms[number % len(forms)]
        name = f"{41000 + number}_{('ann', 'bob')[number % 2]}"
        (folder / f"{name}.{form.partition('.')[2]}").write_bytes(PACK[form](make(number % 4)))
        truth[name] = cause
    return truth


def scan(
    source: Path,
    out: Path,
    make: Callable[[], Executor] | None = None,
    *,
    resume: bool = False,
    tally: Tally | None = None,
    workers: int = 2,
    options: Options | None = None,
) -> run.Summary:
    """A scan in this process, by default without other processes."""
    with open_results(out, resume=resume) as results:
        return run.scan(
            find_jobs([str(source)]),
            results,
            make or Inline,
            workers=workers,
            options=options or Options(),
            progress=tally or Tally(),
        )


class Inline(Executor):
    """Does each job at once, in this process."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def table(out: Path) -> pd.DataFrame:
    """The rows by source; lists as tuples, so that they compare."""
    frame = pa.concat_tables(tables(out)).to_pandas().sort_values("source").reset_index(drop=True)
    for name in ("culprit_ranks", "culprit_hosts", "hosts", "frameworks", "notes"):
        frame[name] = frame[name].map(tuple)
    return frame


def start_scan(source: Path, out: Path, *, resume: bool) -> subprocess.Popen[str]:
    """The same in a process of its own with a pool of two, in small parts."""
    command = [sys.executable, "-m", "tests.batch.fleet", source, out, str(int(resume))]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


class Slow(Lines):
    """Takes its time at each job: who ends the scan amid its work comes in time on any machine."""

    def done(self, result: Result) -> None:
        super().done(result)
        time.sleep(0.1)


def main() -> None:
    source, out, resume = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open_results(Path(out), resume=resume == "1") as results:
        summary = run.scan(
            find_jobs([source]),
            results,
            run.local(2),
            workers=2,
            options=Options(),
            progress=Slow(sys.stderr),
        )
    sys.exit(130 if summary.interrupted else 0)


if __name__ == "__main__":
    main()
