"""Jobs like those of the lab (tests/lab/worker.py), written down instead of run: no torch needed.

The same small training in four layouts, with a fault on one rank. The texts of the faults are those
that Python, torch, the shell and torchrun print.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

# What the culprit prints when it dies (nothing for a kill), and its exit code for torchrun.
FAULTS: dict[str, tuple[tuple[str, ...], int]] = {
    "none": ((), 0),
    "error": (
        (
            "Traceback (most recent call last):",
            '  File "/home/user/train.py", line 195, in <module>',
            "    main()",
            '  File "/home/user/train.py", line 148, in midway',
            '    print(batch["labels"])',
            "          ~~~~~^^^^^^^^^^",
            "KeyError: 'labels'",
        ),
        1,
    ),
    "out_of_memory": (
        (
            "Traceback (most recent call last):",
            '  File "/home/user/train.py", line 136, in train',
            "    loss.backward()",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
            "total capacity of 79.15 GiB of which 1.2 GiB is free.",
        ),
        1,
    ),
    "sigkill": ((), -9),
    "sigsegv": (("Segmentation fault (core dumped)",), -11),
    "loader_killed": (
        (
            "Traceback (most recent call last):",
            '  File "/home/user/train.py", line 128, in train',
            "    for step, batch in enumerate(loader, start=1):",
            "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed. ",
        ),
        1,
    ),
    "timeout": (
        (
            "Traceback (most recent call last):",
            '  File "/home/user/train.py", line 136, in train',
            "    loss.backward()",
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out "
            "waiting 6000ms for recv operation to complete",
        ),
        1,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """A training of `world` ranks, whose rank `culprit` dies at step `at`.

    The others go on for `further` steps, as asynchronous ones or those of other groups do.
    `summary`: torchrun tells at the end how the processes ended.
    """

    fault: str = "none"
    world: int = 4
    culprit: int = 0
    steps: int = 12
    at: int = 6
    further: int = 0
    summary: bool = True
    clock: bool = False  # lines begin with the time
    silent: frozenset[int] = frozenset()  # ranks that print nothing more after step `at` either


def lines_of(run: Run, rank: int, death: Sequence[str]) -> list[str]:
    """All that one rank prints; `death` is what the culprit prints last."""
    said = (
        []
        if rank
        else ["***** Running training *****", f"  Total optimization steps = {run.steps}"]
    )
    dies = run.fault != "none" and rank == run.culprit
    last = run.steps if run.fault == "none" else run.at + run.further
    if dies or rank in run.silent:
        last = run.at
    for step in range(1, last + 1):
        said.append(f"{_time(run, step)}step {step}/{run.steps} loss {2.5 - step / 100:.4f}")
    if dies:
        said += death
    elif run.fault == "none" and rank == 0:
        said.append("Training completed. Do not forget to share your model =)")
    return said


def files_of(
    run: Run, layout: str, rng: Random, death: Sequence[str] | None = None
) -> dict[str, bytes]:
    """The job's files in one of LAYOUTS; `death` replaces the words of the fault."""
    words, code = FAULTS[run.fault]
    ranks = [lines_of(run, rank, words if death is None else death) for rank in range(run.world)]
    end = _summary(run, code) if run.summary and run.fault != "none" else []
    files = LAYOUTS[layout](ranks, rng)
    if end:
        name = "console.log"
        files[name] = files.get(name, b"") + _text(end)
    return files


def _time(run: Run, step: int) -> str:
    return f"2026-06-02 08:{step // 60 % 60:02d}:{step % 60:02d},184 INFO " if run.clock else ""


def _summary(run: Run, code: int) -> list[str]:
    signal = {-9: " (SIGKILL)", -11: " (SIGSEGV)"}.get(code, "")
    pid = 6740 + run.culprit
    number = {-9: 9, -11: 11}.get(code)
    told = (
        f"Signal {number}{signal} received by PID {pid}"
        if number
        else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    )
    return [
        "E1121 13:16:56.668000 6739 torch/distributed/elastic/multiprocessing/api.py:1002] failed "
        f"(exitcode: {code}) local_rank: {run.culprit} (pid: {pid}) of binary: /opt/bin/python",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "============================================================",
        "/home/user/train.py FAILED",
        "------------------------------------------------------------",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-11-21_13:16:56",
        "  host      : localhost",
        f"  rank      : {run.culprit} (local_rank: {run.culprit})",
        f"  exitcode  : {code} (pid: {pid}){signal}",
        "  error_file: <N/A>",
        f"  traceback : {told}",
        "============================================================",
    ]


def _text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _merged(ranks: Sequence[Sequence[str]], rng: Random, form: str) -> bytes:
    """All ranks' lines in one stream, at random but each rank's in its order."""
    left = [list(lines) for lines in ranks]
    merged = []
    while any(left):
        rank = rng.choice([number for number, lines in enumerate(left) if lines])
        merged.append(form.format(rank=rank) + left[rank].pop(0))
    return _text(merged)


def _by_rank(ranks: Sequence[Sequence[str]], _: Random) -> dict[str, bytes]:
    return {f"rank_{rank}.log": _text(lines) for rank, lines in enumerate(ranks)}


def _torchrun(ranks: Sequence[Sequence[str]], _: Random) -> dict[str, bytes]:
    top = "logs/none_rda5k_1k/attempt_0"
    return {f"{top}/{rank}/stderr.log": _text(lines) for rank, lines in enumerate(ranks)}


def _teed(ranks: Sequence[Sequence[str]], rng: Random) -> dict[str, bytes]:
    return {"console.log": _merged(ranks, rng, "[default{rank}]:")}


def _tagged(ranks: Sequence[Sequence[str]], rng: Random) -> dict[str, bytes]:
    return {"console.log": _merged(ranks, rng, "[rank{rank}]: ")}


LAYOUTS: dict[str, Callable[[Sequence[Sequence[str]], Random], dict[str, bytes]]] = {
    "by_rank": _by_rank,
    "torchrun": _torchrun,
    "teed": _teed,
    "tagged": _tagged,
}
