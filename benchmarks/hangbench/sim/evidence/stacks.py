"""Stacks of the processes of a simulated job: `py-spy dump`, or Python's faulthandler."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Literal

from benchmarks.hangbench.case import Files
from benchmarks.hangbench.sim.evidence.names import names
from benchmarks.hangbench.sim.evidence.releases import RELEASES
from benchmarks.hangbench.sim.outcome import Frame, Outcome, Rank, Work

Form = Literal["py-spy", "faulthandler"]

_C10D = "torch/distributed/distributed_c10d.py"
_CALLED = {
    "all_reduce": Frame("all_reduce", _C10D, 2806),
    "barrier": Frame("barrier", _C10D, 4551),
    "broadcast": Frame("broadcast", _C10D, 2421),
    "all_gather": Frame("all_gather", _C10D, 3620),
    "_allgather_base": Frame("all_gather_into_tensor", _C10D, 3709),
    "reduce_scatter": Frame("reduce_scatter", _C10D, 4125),
    "_reduce_scatter_base": Frame("reduce_scatter_tensor", _C10D, 4233),
    "all_to_all": Frame("all_to_all_single", _C10D, 4425),
    "send": Frame("send", _C10D, 2165),
    "recv": Frame("recv", _C10D, 2197),
    "coalesced": Frame("batch_isend_irecv", _C10D, 2345),
}
_WRAPPER = Frame("wrapper", "torch/distributed/c10d_logger.py", 81)

# Frames of libraries below those of the program, outermost first, by what holds up a host.
_BELOW: dict[str, tuple[Frame, ...]] = {
    "loader": (
        Frame("__next__", "torch/utils/data/dataloader.py", 701),
        Frame("_next_data", "torch/utils/data/dataloader.py", 1448),
        Frame("_try_get_data", "torch/utils/data/dataloader.py", 1243),
        Frame("get", "multiprocessing/queues.py", 113),
        Frame("poll", "multiprocessing/connection.py", 257),
        Frame("select", "selectors.py", 415),
    ),
    "lock": (Frame("acquire", "filelock/_api.py", 342),),
    "file": (Frame("read", "tarfile.py", 689),),
    "preparation": (
        Frame("map", "datasets/arrow_dataset.py", 3074),
        Frame("_map_single", "datasets/arrow_dataset.py", 3468),
    ),
    "save": (
        Frame("save", "torch/serialization.py", 943),
        Frame("_save", "torch/serialization.py", 1214),
    ),
    "evaluation": (Frame("_sample", "transformers/generation/utils.py", 3254),),
    "compile": (
        Frame("load", "torch/utils/cpp_extension.py", 1380),
        Frame("_jit_compile", "torch/utils/cpp_extension.py", 1820),
        Frame("wait", "torch/utils/file_baton.py", 49),
    ),
}
_ACTIVE = {"preparation": "active+gil", "evaluation": "active", "save": "active"}


def stacks(
    outcome: Outcome,
    torch: str,
    rng: random.Random,
    *,
    form: Form = "py-spy",
    ranks: Collection[int] | None = None,
) -> Files:
    """A file for each rank whose process is still there (and in `ranks`, where given)."""
    known, python = names(outcome), RELEASES[torch].python
    name = rng.choice(
        ("stacks/rank_{}.txt", "py-spy-rank{}.txt", "rank{}.stack", "dump/rank-{}.pyspy.txt")
        if form == "py-spy"
        else ("stacks/rank_{}.txt", "rank_{}.faulthandler.log", "traceback-rank{}.txt")
    )
    calls = _calls(outcome)
    files: Files = {}
    for rank in outcome.ranks:
        if rank.ended is not None or (ranks is not None and rank.rank not in ranks):
            continue
        frames = _main_thread(rank, calls)
        pid = known.pids[rank.rank]
        content = (
            _py_spy(rank, frames, pid, python)
            if form == "py-spy"
            else _faulthandler(rank, frames, python)
        )
        files[name.format(rank.rank)] = content.encode()
    return files


def _calls(outcome: Outcome) -> dict[tuple[Frame, ...], Work]:
    """A work by the place in the program that calls it."""
    return {work.site: work for rank in outcome.ranks for work in rank.works}


def _main_thread(rank: Rank, calls: dict[tuple[Frame, ...], Work]) -> list[Frame]:
    """Frames of the main thread, outermost first.

    A host that waits for its device is in C below the program's own frame (`.item()`), one that has
    run ahead is in the call of the collective.
    """
    if rank.end != "waiting":
        return [*rank.place, *_BELOW.get(rank.stuck_in, ())]
    work = calls.get(rank.place)
    if work is None:
        return [*rank.place]
    return [*rank.place, _WRAPPER, _CALLED.get(work.op, _CALLED["all_reduce"])]


def _py_spy(rank: Rank, frames: list[Frame], pid: int, python: str) -> str:
    status = _ACTIVE.get(rank.stuck_in, "idle") if rank.end in ("stuck", "slow") else "active"
    out = [
        f"Process {pid}: /usr/bin/python{python} -u train.py --config run.yaml",
        f"Python v{python}.9 (/usr/bin/python{python})",
        "",
        f'Thread {pid} ({status}): "MainThread"',
        *(f"    {one.function} ({_short(one.file)}:{one.line})" for one in reversed(frames)),
        f'Thread {pid + 211} (idle): "Thread-1"',
        "    wait (threading.py:331)",
        "    wait (threading.py:629)",
        "    run (tqdm/_monitor.py:60)",
        "    _bootstrap_inner (threading.py:1045)",
        "    _bootstrap (threading.py:1002)",
    ]
    return "\n".join(out) + "\n"


def _faulthandler(rank: Rank, frames: list[Frame], python: str) -> str:
    base = 0x7F00_0000_0000 + rank.rank * 0x80_0000
    library = f"/usr/local/lib/python{python}"
    out = [
        f"Thread {base + 0x6C0:#018x} (most recent call first):",
        f'  File "{library}/threading.py", line 331 in wait',
        f'  File "{library}/threading.py", line 629 in wait',
        f'  File "{library}/site-packages/tqdm/_monitor.py", line 60 in run',
        f'  File "{library}/threading.py", line 1045 in _bootstrap_inner',
        f'  File "{library}/threading.py", line 1002 in _bootstrap',
        "",
        f"Current thread {base + 0x40_0740:#018x} (most recent call first):",
        *(
            f'  File "{_long(one.file, library)}", line {one.line} in {one.function}'
            for one in reversed(frames)
        ),
    ]
    return "\n".join(out) + "\n"


def _short(file: str) -> str:
    """The file of the user's program by its name, as py-spy shortens what lies in no package."""
    return file.rsplit("/", 1)[-1] if file.startswith("/") else file


def _long(file: str, library: str) -> str:
    """The whole path of a file."""
    if file.startswith("/"):
        return file
    package = file.split("/", 1)[0] in ("torch", "filelock", "datasets", "transformers", "tqdm")
    return f"{library}/{'site-packages/' if package else ''}{file}"
