"""Consoles that hold several runs one below the other: the last one counts."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagnose
from diagnose.ingest import text_source
from diagnose.job.load import read

BANNER = (
    "WARNING:torch.distributed.run:\n*****************************************\n"
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid "
    "your system being overloaded\n*****************************************\n"
)
NCCL = "NCCL version 2.18.1+cuda12.1\n"
ENGINE = (
    "INFO 06-02 10:00:00 [core.py:58] Initializing a V1 LLM engine (v0.8.5) with config: model=m\n"
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
KEY = "KeyError: 'lr'\n"
DONE = "Training completed.\n"
CANCELLED = (
    "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-06-02T10:05:00 DUE TO PREEMPTION ***\n"
)
CTRL_C = "^CTraceback (most recent call last):\nKeyboardInterrupt\n"


def steps(first: int = 1, last: int = 12) -> str:
    return "".join(f"step {n} loss 2.{n:02}\n" for n in range(first, last + 1))


def raised(error: str, script: str = "train.py") -> str:
    return (
        f'Traceback (most recent call last):\n  File "{script}", line 30, in <module>\n    main()\n'
        f'  File "{script}", line 20, in main\n    run()\n{error}'
    )


def table(rank: int = 0) -> str:
    """What torchrun reports of a worker that failed."""
    return (
        'Traceback (most recent call last):\n  File "/opt/venv/bin/torchrun", line 8, in <module>\n'
        "    sys.exit(main())\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\ntrain.py FAILED\n"
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-03-01_10:00:00\n"
        f"  host      : n1\n  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : 1 (pid: {500 + rank})\n"
    )


def exited(task: int, host: str = "n1") -> str:
    return f"srun: error: {host}: task {task}: Exited with exit code 1\n"


def judged(text: str) -> tuple[int, str, str]:
    """How many runs a text holds, the verdict, and the cause."""
    result = diagnose.diagnose(diagnose.load_text(text))
    return result.job.attempts, result.verdict, result.root_cause.cause


def test_three_runs_of_torchrun() -> None:
    first = BANNER + NCCL + steps() + raised(OOM) + table()
    second = BANNER + "RuntimeError: The server socket has failed to listen\n" + table()
    third = BANNER + NCCL + steps(1, 3) + raised(KEY) + table()
    assert judged(first) == (1, "failed", "crash.gpu_oom")
    assert judged(first + second + third) == (3, "failed", "crash.exception")
    assert judged(first + BANNER + NCCL + steps() + DONE) == (2, "healthy", "none")


@pytest.mark.parametrize(("signal", "attempts"), [("launched", 2), ("opening", 1), ("", 1)])
@pytest.mark.slow
def test_a_launcher_of_a_users_own_catalog_begins_runs(
    tmp_path: Path, signal: str, attempts: int
) -> None:
    (tmp_path / "acme.yaml").write_text(
        "signatures:\n  - {id: acme.run.go, title: A, role: context, facts: {launcher: acme}, "
        f"{f'signal: {signal}, ' if signal else ''}match: [{{regex: 'acme starts the job'}}]}}\n"
    )
    run = "acme starts the job\n" + steps() + DONE
    job = diagnose.load_text(run + run, patterns=[tmp_path])
    assert diagnose.diagnose(job).job.attempts == attempts


def test_several_launchers_in_one_console() -> None:
    # All nodes write into one file; a run is one that all of them begin.
    above = BANNER * 4 + NCCL + steps() + raised(OOM) + table(2) + table(5)
    taken = BANNER * 4 + (
        'Traceback (most recent call last):\n  File "/usr/lib/python3.11/runpy.py", line 196, in '
        "_run_module_as_main\nRuntimeError: The server socket has failed to bind to [::]:6000 "
        "(errno: 98 - Address already in use).\n"
    )
    last = BANNER * 4 + NCCL + raised(KEY) + table(3)
    assert judged(above + taken + last) == (3, "failed", "crash.exception")
    # A launcher that died before the others began is part of the same run.
    early = BANNER * 3 + raised(OOM) + BANNER * 5 + table(2)
    assert judged(early) == (1, "failed", "crash.gpu_oom")


def test_ranks_that_die_while_others_start_are_of_one_run() -> None:
    start = "[rank{}]: Initializing a V1 LLM engine (v0.8.5) with config: model=m\n"
    dies = "".join(f"[rank1]: {line}\n" for line in raised(OOM).splitlines())
    text = start.format(1) + dies + exited(1) + "".join(start.format(n) for n in (0, 2, 3))
    late = "".join(f"[rank{n}]: RuntimeError: Connection closed by peer\n" for n in (0, 2, 3))
    assert judged(text + late + exited(0))[::2] == (1, "crash.gpu_oom")


def test_versions_that_errors_state_begin_no_run() -> None:
    error = "[rank{}]: torch.distributed.DistBackendError: NCCL error in: x.cpp:77, unhandled cuda error, NCCL version 2.26.2\n"  # noqa: E501
    text = BANNER + NCCL + steps() + raised(OOM) + error.format(0) + error.format(1) + table()
    assert judged(text)[::2] == (1, "crash.gpu_oom")


def test_the_next_program_of_a_script_is_no_second_run() -> None:
    text = ENGINE + steps() + raised(OOM) + "Exit code: 1\n" + ENGINE
    text += raised("FileNotFoundError: [Errno 2] No such file or directory: 'out.pt'\n", "eval.py")
    assert judged(text)[::2] == (1, "crash.gpu_oom")


def test_below_the_end_of_a_slurm_job_stands_another_one_however_it_began() -> None:
    first = BANNER * 4 + NCCL + steps() + CANCELLED
    assert judged(first + BANNER + NCCL + steps() + DONE) == (2, "healthy", "none")
    assert judged(first + NCCL + "Killed\n") == (2, "failed", "crash.killed")
    # The ranks that it ended have a last word.
    assert judged(first + raised(KEY))[::2] == (1, "scheduler.preempted")


def test_deepspeed_reports_and_starts_again() -> None:
    launch = "[2026-03-01 10:00:00,123] [INFO] [launch.py:163:main] dist_world_size=2\n"
    killed = (
        "[2026-03-01 10:05:00,123] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 77\n"
        "[2026-03-01 10:05:00,123] [ERROR] [launch.py:321:sigkill_handler] ['python'] exits with "
        "return code = 1\n"
    )
    text = launch + steps() + raised(OOM) + killed + launch + raised(KEY) + killed
    assert judged(text) == (2, "failed", "crash.exception")


def test_srun_was_called_again() -> None:
    text = NCCL + steps() + raised(OOM) + exited(0) + NCCL + steps() + raised(KEY) + exited(1)
    assert judged(text) == (2, "failed", "crash.exception")


def test_accelerate_was_interrupted_and_called_again() -> None:
    text = NCCL + steps() + CTRL_C + NCCL + steps()
    assert judged(NCCL + steps() + CTRL_C)[1:] == ("failed", "user.interrupt")
    assert judged(text)[:2] == (2, "running")


def test_a_job_that_finished_and_was_started_again() -> None:
    text = BANNER + NCCL + steps() + DONE + BANNER + NCCL + steps(1, 4)
    assert judged(text)[:2] == (2, "running")
    # Who tests after it trained says versions again, but no launcher starts.
    assert judged(NCCL + steps() + DONE + NCCL + steps(1, 4))[0] == 1


def test_healthy_after_two_failures() -> None:
    text = NCCL + steps() + raised(OOM) + table() + NCCL + steps() + raised(KEY) + table()
    assert judged(text + NCCL + steps() + DONE) == (3, "healthy", "none")


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        # The program begins as before, below an end, and works.
        (ENGINE + steps(1, 1) + CANCELLED + ENGINE + steps(), 2),
        (ENGINE + CANCELLED + ENGINE + steps(), 2),
        (ENGINE + CANCELLED + ENGINE + DONE, 2),
        (ENGINE + steps(1, 1) + CTRL_C + ENGINE + steps(1, 1), 2),
        (ENGINE + steps() + exited(0) + ENGINE + steps() + CANCELLED, 2),
        # It was never seen to begin, or only another one begins.
        (ENGINE + steps() + CANCELLED + steps(), 1),
        (ENGINE + steps() + CANCELLED + NCCL + steps(), 1),
        # Nothing says that the process ended.
        (ENGINE + steps() + OOM + ENGINE + steps(), 1),
        # Only one of two processes begins again, or nothing shows that both had begun.
        (NCCL * 2 + steps() + exited(0) + NCCL, 1),
        (NCCL + exited(0) + NCCL, 1),
    ],
)
def test_where_a_run_begins(text: str, runs: int) -> None:
    assert judged(text)[0] == runs


FIRST = "2026-01-04 {},389 - INFO - Iniciando processo de ajuste fino\n"
WRONG = "2026-01-04 {},389 - ERROR - Error loading model: You are trying to access a gated repo.\n"
DATA = "2026-01-04 {},389 - INFO - Carregando dados\n"


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        # The last words were those of an error, or the log was silent for long.
        (FIRST.format("10:00:00") + WRONG.format("10:00:09") + FIRST.format("10:00:40"), 2),
        (FIRST.format("10:00:00") + DATA.format("10:00:09") + FIRST.format("10:30:00"), 2),
        # Others may start as soon as that, or at that time, if ranks are named.
        (FIRST.format("10:00:00") + WRONG.format("10:00:09") + FIRST.format("10:00:12"), 1),
        (FIRST.format("10:00:00") + DATA.format("10:00:09") + FIRST.format("10:01:00"), 1),
        (
            FIRST.format("10:00:00") + DATA.format("10:00:09") + FIRST.format("10:30:00")
            + "[rank1]: step 3 loss 2.0\n",
            1,
        ),
    ],
)  # fmt: skip
def test_a_program_in_words_of_its_own_begins_again(text: str, runs: int) -> None:
    assert len(diagnose.load_text(text).events.attempts) == runs


def test_a_long_last_run_counts_though_no_entry_knows_its_words() -> None:
    above = FIRST.format("10:00:00") + WRONG.format("10:00:09")
    short = FIRST.format("11:00:00") + DATA.format("11:00:05") * 20
    long = FIRST.format("11:00:00") + DATA.format("11:00:05") * 300
    assert judged(above + short)[1:] == ("failed", "env.config")
    assert judged(above + long)[1] != "failed"


def test_first_words_open_a_run_if_both_get_past_the_start() -> None:
    begin, load = (
        "Meu programa de treino\n",
        "Loading checkpoint shards: 100%|####| 4/4 [00:09<00:00]\n",
    )
    # However many wrote into the file above.
    above = (begin + load) * 2 + raised(OOM)
    assert judged(above + begin + load + raised(KEY)) == (2, "failed", "crash.exception")
    assert judged(above + begin + raised(KEY))[::2] == (1, "crash.gpu_oom")
    assert judged(begin * 2 + raised(OOM) + begin + load + raised(KEY))[::2] == (1, "crash.gpu_oom")


def test_first_words_open_a_run_below_an_end() -> None:
    begin = "Meu programa de treino\n"
    text = begin + steps() + raised(OOM) + begin + raised(KEY)
    assert judged(text) == (2, "failed", "crash.exception")
    # Two processes began above, and one of them below.
    assert judged(begin + text)[::2] == (1, "crash.gpu_oom")


def begins(text: str) -> list[tuple[int, str]]:
    """The lines at which runs begin, and why."""
    return [(one.line, one.predicate) for one in diagnose.load_text(text).events.begins]


def test_why_a_run_begins() -> None:
    above = NCCL + steps() + raised(OOM)
    below = above.count("\n") + 1
    assert begins(above + NCCL + steps()) == [(below, "whole_start")]
    stopped = NCCL + steps(1, 1) + CANCELLED
    assert begins(stopped + NCCL + "Killed\n") == [(4, "start_after_stop")]
    refusal = "Cannot find primary config 'a.out'. Check that it's in your config search path.\n"
    assert begins(stopped + "hello\n" + refusal) == [(5, "start_after_stop")]
    assert begins(above + "hello\n" + refusal) == []
    silent = FIRST.format("10:00:00") + DATA.format("10:00:09") + FIRST.format("10:30:00")
    assert begins(silent) == [(3, "words_after_silence")]


def test_several_consoles_of_one_job() -> None:
    text = BANNER + NCCL + steps() + raised(OOM) + table()
    sources = [text_source(text + text, "node0.log"), text_source(text, "node1.log")]
    found = read(sources).events
    assert [(one.source, one.attempt) for one in found.begins] == [("node0.log", 1)]
    assert {(one.source, one.attempt) for one in found.role("cause")} == {
        ("node0.log", 0), ("node0.log", 1), ("node1.log", 1),
    }  # fmt: skip


def test_the_order_of_files_changes_nothing() -> None:
    text = BANNER + NCCL + steps() + raised(OOM) + table()
    sources = [text_source(text * 2, "a.log"), text_source(text * 3, "b.log")]
    there, back = read(sources).events.begins, read(sources[::-1]).events.begins
    assert there == back
    assert [(one.source, one.attempt) for one in there] == [
        ("a.log", 2), ("b.log", 1), ("b.log", 2),
    ]  # fmt: skip
