"""`python -m benchmarks.hangbench.slow.record OUT.tar.gz --raw DIR`: run all plans, keep a tape.

Runs that were made before are kept in `--raw DIR`, so that an interrupted recording goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.hangbench.case import Case, Files, is_sealed
from benchmarks.hangbench.real.tape import write_tape
from benchmarks.hangbench.shape import shape_of
from benchmarks.hangbench.slow.clocks import queried
from benchmarks.hangbench.slow.job import Rank
from benchmarks.hangbench.slow.plan import Plan, plan_of

RUNS = 120
_LIMIT_S = 120.0
# Of each 10 ms a process that is short of CPU runs so many.
_PERIOD_S, _RUNS_S = 0.010, 0.0008


def run(plan: Plan) -> Files:
    """Run a plan. Raises TimeoutError where it does not end, ValueError where a rank fails."""
    folder = Path(tempfile.mkdtemp(prefix="job-"))
    try:
        for rank in range(plan.world):
            (folder / f"shard-{rank}").write_bytes(os.urandom(64 << 10))
        processes = [_start(rank, plan, folder) for rank in range(plan.world)]
        done = threading.Event()
        if plan.fault == "cpu":
            threading.Thread(
                target=_starve, args=(processes[plan.rank], plan, folder, done), daemon=True
            ).start()
        try:
            _wait(processes)
        finally:
            done.set()
        return _files(folder, plan)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(rank: int, plan: Plan, folder: Path) -> int:
    process = os.fork()
    if process:
        return process
    try:
        os.environ |= {"TORCH_FR_BUFFER_SIZE": "200", "TORCH_NCCL_TRACE_BUFFER_SIZE": "200"}
        name = f"rank-{rank}" if plan.tee else "console"
        out = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
        Rank(rank, plan, folder).run()
    finally:
        os._exit(1)


def _starve(process: int, plan: Plan, folder: Path, done: threading.Event) -> None:
    """Let a rank run for a small part of the time only, once it has come to its step."""
    base_s = sum(plan.base_ms.values()) / 1e3
    time.sleep(2.0 + plan.since * base_s)
    while not done.is_set():
        try:
            os.kill(process, signal.SIGSTOP)
            time.sleep(_PERIOD_S - _RUNS_S)
            os.kill(process, signal.SIGCONT)
        except ProcessLookupError:
            return
        time.sleep(_RUNS_S)


def _wait(processes: Sequence[int]) -> None:
    left, deadline = [*processes], time.monotonic() + _LIMIT_S
    try:
        while left:
            for process in [*left]:
                ended, status = os.waitpid(process, os.WNOHANG)
                if ended:
                    left.remove(process)
                    if status:
                        raise ValueError(f"a rank ended with {status}")
            if time.monotonic() > deadline:
                raise TimeoutError("a run did not end")
            time.sleep(0.05)
    finally:
        for process in left:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)


def _files(folder: Path, plan: Plan) -> Files:
    found: Files = {}
    if plan.tee:
        for rank in range(plan.world):
            if content := (folder / f"rank-{rank}").read_bytes():
                found[f"logs/attempt_0/{rank}/stdout.log"] = content
    else:
        found["console.log"] = (folder / "console").read_bytes()
    for trace in folder.glob("nccl_trace_rank_*"):
        found[f"dumps/{trace.name}"] = trace.read_bytes()
    if plan.style == "clocks":
        found["gpu.log"] = queried(plan)
    return found


def save_raw(raw: Path, seed: int, files: Files) -> None:
    """Keep one run below a folder, from which its case can be made at any time."""
    place = raw / f"slow-{seed:07d}"
    for name, content in files.items():
        path = place / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (place / "plan.json").write_text(json.dumps(asdict(plan_of(seed))), encoding="utf-8")


def read_raw(raw: Path) -> Iterator[tuple[int, Files]]:
    """The runs below a folder."""
    for path in sorted(raw.glob("*/plan.json")):
        inner = path.parent / "files"
        yield (
            int(path.parent.name.removeprefix("slow-")),
            {
                str(one.relative_to(inner)): one.read_bytes()
                for one in sorted(inner.rglob("*"))
                if one.is_file()
            },
        )


def case_of(seed: int, files: Files) -> Case:
    """The case of a run."""
    plan = plan_of(seed)
    labels = {
        "style": plan.style, "fault": plan.fault, "factor": str(plan.factor),
        "since": str(plan.since), "calm": " ".join(plan.calm),
    }  # fmt: skip
    form = "ranks" if plan.tee else "console"
    id_ = f"slow-{seed:07d}"
    return Case(
        id_, "slow", seed, is_sealed(seed), form, plan.world, plan.truth, labels, shape_of(files)
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hangbench.slow.record")
    parser.add_argument("tape", type=Path)
    parser.add_argument("--raw", type=Path, required=True, help="finished runs, kept")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    import torch  # noqa: PLC0415  here, so that no forked rank has to

    for seed in range(options.first, options.first + options.runs):
        if (options.raw / f"slow-{seed:07d}" / "plan.json").exists():
            continue
        began = time.monotonic()
        try:
            save_raw(options.raw, seed, run(plan_of(seed)))
        except (TimeoutError, ValueError) as error:
            print(f"{seed}: {error}", file=sys.stderr, flush=True)
            continue
        print(f"{seed}: {time.monotonic() - began:.0f} s", flush=True)
    about = {"recorded": time.strftime("%Y-%m-%d"), "versions": {"torch": torch.__version__}}
    write_tape(
        options.tape,
        about,
        [(case_of(seed, files), files) for seed, files in read_raw(options.raw)],
    )


if __name__ == "__main__":
    main()
