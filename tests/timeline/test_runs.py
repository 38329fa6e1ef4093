"""Runs that were appended to one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.ingest import text_source
from diagnose.job.load import read
from diagnose.timeline import runs
from diagnose.timeline.event import Event, Timeline

from .told import RESTART, timeline

DIED = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n{}: {}\n'
KEY, VALUE = DIED.format("KeyError", "'lr'"), DIED.format("ValueError", "bad batch")
FIXTURES = sorted(path.parent for path in Path("fixtures").glob("*/expected.yaml"))
STEPS = "".join(f"step {n} loss 2.0\n" for n in range(10, 60, 10))

STOPPED = (
    "W1127 04:45:05.943000 458 torch/distributed/elastic/agent/server/api.py:739] "
    "Received 15 death signal, shutting down workers\n"
)


def opened(device: int = 1, minute: int = 0, *, stamped: bool = True) -> str:
    """What Paddle prints when a process opens its device."""
    stamp = f"W0304 13:{minute:02}:27.446852 389 device_context.cc:362] " if stamped else ""
    return f"{stamp}Please NOTE: device: {device}, GPU Compute Capability: 7.0, Driver API\n"


def attempts(found: Timeline) -> list[int | None]:
    """The attempts of the exceptions of a job, in order."""
    return [event.attempt for event in found.kind("exception")]


def of_ranks(**files: str) -> diagnose.Job:
    """A job of files that are named for ranks: r0, r1 …"""
    return read(
        [
            replace(text_source(text, name), rank=int(name.removeprefix("r")))
            for name, text in files.items()
        ]
    )


def test_who_starts_after_a_death_on_the_same_device_is_another_run() -> None:
    text = opened(stamped=False)
    assert attempts(timeline(job=f"{text}{KEY}{text}{VALUE}")) == [0, 1]


def test_files_of_a_local_rank_or_a_task_are_of_one_process_too() -> None:
    # Nothing but the name of the file tells that the second exception is of another run.
    for one in ({"local_rank": 0}, {"task": 0}):
        job = read([replace(text_source(KEY + STEPS + VALUE, "workerlog.0"), **one)])
        assert attempts(job.events) == [0, 1]
    assert attempts(timeline(job=KEY + STEPS + VALUE)) == [0, 0]


def test_a_file_of_one_rank_begins_again_after_a_pause() -> None:
    begins = "[2023/08/27 10:{}:00] ppocr INFO: Architecture : \n"
    error = (
        "RecursionError: maximum recursion depth exceeded\neval:   0%|     | 0/9 [00:01<?, ?it/s]\n"
    )
    found = of_ranks(r0=begins.format("04") + error + begins.format("07") + error)
    assert found.events.attempts == {0, 1}
    # Processes of one run begin together.
    text = begins.format("04") + error + begins.format("04") + error
    assert of_ranks(r0=text).events.attempts == {0}


def test_a_run_begins_with_its_first_words_and_not_before() -> None:
    begin, summary = (
        "Meu programa de treino\n",
        "ResourceExhaustedError: Out of memory error on GPU 1\n",
    )
    found = of_ranks(r0=begin + KEY + summary + begin + STEPS)
    told = {event.line: event.attempt for event in found.events.role("cause")}
    assert told == {4: 0, 5: 0}


def test_processes_of_several_devices_in_one_file_are_no_runs() -> None:
    text = f"{opened(0)}{opened(1)}{KEY}{opened(0)}{VALUE}"
    assert attempts(timeline(job=text)) == [0, 0]


def test_who_starts_for_the_first_time_did_not_die_above() -> None:
    assert attempts(timeline(job=f"{KEY}{opened()}{VALUE}")) == [0, 0]


def test_a_caught_exception_begins_no_run() -> None:
    caught = KEY.replace("<module>", "load")
    assert attempts(timeline(job=f"{opened()}{caught}{opened()}{VALUE}")) == [0, 0]


def test_a_start_that_names_nobody_needs_time_between() -> None:
    start = "W0304 13:{}:27.446852 389 x.cc:9] Retry to connect to 10.0.0.1:53 while the server is not yet listening\n"  # noqa: E501
    soon = timeline(job=f"{start.format('01')}{KEY}{start.format('01')}{VALUE}")
    late = timeline(job=f"{start.format('01')}{KEY}{start.format('09')}{VALUE}")
    assert (attempts(soon), attempts(late)) == ([0, 0], [0, 1])


def test_in_the_file_of_a_rank_two_deaths_are_of_two_processes() -> None:
    job = of_ranks(r0=f"{KEY}{VALUE}")
    assert attempts(job.events) == [0, 1]
    same = of_ranks(r0=f"{KEY}{KEY}")
    assert attempts(same.events) == [0, 0], "a logger and the interpreter may both print it"


def test_ranks_of_one_task_that_die_are_of_one_run() -> None:
    """torchrun below `srun --label`: the label is that of a node."""
    died = "0: [rank{0}]: Traceback (most recent call last):\n0: [rank{0}]: ValueError: {0}\n"
    found = timeline(**{"slurm-7.out": "".join(map(died.format, range(3)))})
    assert {event.attempt for event in found} == {0}


def test_in_the_file_of_a_rank_steps_begin_again() -> None:
    job = of_ranks(r0=f"{STEPS}{KEY}{STEPS}{VALUE}")
    assert attempts(job.events) == [0, 1]


def test_the_last_words_of_a_process_are_of_its_own_run() -> None:
    crash = "terminate called without an active exception\nAborted\n"
    found = timeline(job=f"{opened()}{KEY}{crash}{opened()}{VALUE}")
    (event,) = found.by_signature["program.crash.terminate"]
    assert event.attempt == 0


def test_files_end_together() -> None:
    job = of_ranks(r0=f"{KEY}{VALUE}", r1=f"{STEPS}{VALUE}")
    by_rank = {(e.rank, e.text): e.attempt for e in job.events.kind("exception")}
    assert by_rank == {
        (0, "KeyError: 'lr'"): 0, (0, "ValueError: bad batch"): 1, (1, "ValueError: bad batch"): 1,
    }  # fmt: skip


def test_what_another_file_said_before_the_last_run_is_of_an_earlier_one() -> None:
    worker = f"{opened(minute=1)}{KEY}{opened(minute=30)}{VALUE}"
    launcher = "W0304 13:{}:00.000000 7 x.cc:9] RuntimeError: {}\n"
    found = timeline(
        worker=worker, launcher=launcher.format("02", "early") + launcher.format("31", "late")
    )
    told = {e.text[-5:]: e.attempt for e in found.kind("exception") if e.source == "launcher"}
    assert told == {"early": 0, " late": 1}


def test_a_job_that_tells_of_restarts_counts_them_alone() -> None:
    found = timeline(job=f"{opened()}{KEY}{RESTART}{opened()}{VALUE}{opened()}{KEY}")
    assert attempts(found) == [0, 1, 1]
    assert [(one.line, one.attempt, one.predicate) for one in found.begins] == [
        (6, 1, "restart_reported")
    ]


def test_a_restart_is_of_all_files_and_counted_by_the_clock() -> None:
    failed = "W0602 08:{}:00.000000 7 x.cc:9] RuntimeError: {}\n"
    worker = failed.format("01", "early") + failed.format("59", "late")
    found = timeline(agent=RESTART, worker=worker)
    assert {e.text[-5:]: e.attempt for e in found.kind("exception")} == {"early": 0, " late": 1}


def test_the_last_run_is_the_one_that_is_diagnosed() -> None:
    job = of_ranks(
        r0=f"{opened()}torch.OutOfMemoryError: CUDA out of memory.\n{KEY}{opened()}{VALUE}"
    )
    result = diagnose.diagnose(job)
    assert (result.root_cause.cause, result.job.attempts) == ("crash.exception", 2)
    assert any("attempt 0 ended with" in note for note in result.notes)


USAGE = "train.py: error: argument --resume: expected one argument\n"
STOPPED = (
    "  [SignalInfo: *** SIGTERM (@0x3ff5) received by PID 164 (TID 0x7fa9) from PID 160 ***]\n"
)


def test_what_was_stopped_does_not_fail_to_start() -> None:
    stopped = "Traceback (most recent call last):\nKeyboardInterrupt\n"
    refusal = "Cannot find primary config 'a.out'. Check that it's in your config search path.\n"
    found = timeline(job=KEY + stopped + "a warning of another start\n" + refusal)
    assert found.attempts == {0, 1}
    assert {event.line for event in found if event.attempt == 1} == {7}
    assert timeline(job=KEY + "a warning\n" + refusal).attempts == {0}


def test_who_is_stopped_or_refuses_to_start_has_ended() -> None:
    for end in (STOPPED, USAGE):
        text = f"{opened(stamped=False)}{KEY}{end}{opened(stamped=False)}{VALUE}"
        caught = text.replace("<module>", "load")
        assert attempts(timeline(job=caught)) == [0, 1], end


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (opened(), "STARTING"),
        (opened() + STEPS, "AT_WORK"),
        (opened() + STEPS + KEY, "DYING"),
        (opened() + STEPS + KEY + "terminate called without an active exception\n", "DYING"),
        (STEPS + KEY + "Primary config not read\n" + STEPS[-17:], "AT_WORK"),
        (KEY + "[rank1]: Loading checkpoint shards: 100%|####| 4/4 [00:09<00:00]\n", "AT_WORK"),
        (KEY + "usage: train.py [-h]\n" + "NCCL WARN Call to connect failed\n", "ENDED"),
        (opened() + KEY + opened(2), "STARTING"),
        (opened() + KEY + opened(), "STARTING"),
    ],
)
def test_what_a_run_is_doing_where_its_log_ends(text: str, state: str) -> None:
    drafts = [event for event in timeline(job=text) if isinstance(event, Event)]
    machine = runs.Machine(drafts, load_catalog().external_ends)
    assert [*machine.begins()] == [] or text.count(opened()) == 2
    assert machine.run.state.name == state


def begins(found: Timeline) -> list[tuple[int, int, str]]:
    """Where runs begin: line, attempt, predicate."""
    return [(one.line, one.attempt, one.predicate) for one in found.begins]


LATE = "W0304 13:{}:27.446852 389 x.cc:9] Retry to connect to 10.0.0.1:53 while the server is not yet listening\n"  # noqa: E501


@pytest.mark.parametrize(
    ("text", "rank", "expected"),
    [
        (opened() + KEY + opened() + VALUE, None, [(5, 1, "starts_as_before")]),
        (LATE.format("01") + KEY + LATE.format("09"), None, [(5, 1, "starts_as_before")]),
        (STEPS + KEY + STEPS, 0, [(9, 1, "steps_from_below")]),
        # It goes on where it was: nobody died.
        (STEPS[:34] + KEY + STEPS[34:], 0, []),
        (KEY + VALUE, 0, [(4, 1, "second_exception")]),
        # A launcher that writes into it is told to stop, and raises for that: one end.
        (STOPPED + VALUE, 0, []),
        # What it did below its end belongs to the run that it shows.
        (KEY + STEPS + VALUE, 0, [(4, 1, "second_exception")]),
        (
            STEPS + KEY + STEPS + VALUE + KEY,
            0,
            [(9, 1, "steps_from_below"), (17, 2, "second_exception")],
        ),
    ],
)
def test_where_runs_begin_and_why(
    text: str, rank: int | None, expected: list[tuple[int, int, str]]
) -> None:
    job = read([replace(text_source(text, "log"), rank=rank)])
    assert begins(job.events) == expected


def test_last_words_are_of_the_run_that_ended() -> None:
    # Python's exception, that of a thread, and what Paddle prints of the signal that follows.
    thread = (
        "Exception in thread Thread-1:\nTraceback (most recent call last):\n"
        '  File "threading.py", line 932, in _bootstrap_inner\nRuntimeError: workers exit\n'
    )
    found = of_ranks(r0=opened(minute=1) + KEY + thread + STOPPED + opened(minute=9) + VALUE)
    assert begins(found.events) == [(10, 1, "starts_as_before")]


def test_an_error_is_no_first_word() -> None:
    stall = "2020-12-29 15:{}:57.724380: W /tmp/stall_inspector.cc:105] One or more tensors were submitted to be reduced by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"  # noqa: E501
    assert begins(timeline(job=stall.format(22) + "Missing ranks:\n" + stall.format(23))) == []


def test_a_rank_that_starts_after_another_one_died_is_late_and_no_other_run() -> None:
    """Below the end of the first one as many start as above it: one, but not the same."""
    log = (
        "[2025-02-10 21:15:43 TP{}] Init torch distributed begin.\n"
        "RuntimeError: CUDA error: invalid device ordinal\n"
        "[2025-02-10 21:15:43] Received sigquit from a child process. It usually means the child failed.\n"  # noqa: E501
        "[2025-02-10 21:15:43 TP{}] Init torch distributed begin.\n"
    )
    assert begins(timeline(job=log.format(6, 0))) == []
    assert begins(timeline(job=log.format(6, 6))) != []


@pytest.mark.slow
def test_a_source_that_is_not_read_for_runs_holds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of a fixture's files the signs leave out, the machine finds no run in it."""
    external_ends, left_out, several = load_catalog().external_ends, [], []
    of_several = runs._Signs.of_several

    def asked(signs: runs._Signs, drafts: Sequence[Event], own: Sequence[int]) -> bool:
        (several if of_several(signs, drafts, own) else left_out).append([*drafts])
        return True

    monkeypatch.setattr(runs._Signs, "of_several", asked)
    for folder in FIXTURES:
        assert len(diagnose.load(folder).events)
    assert len(left_out) > len(several) > 5
    assert not any([*runs.Machine(drafts, external_ends).begins()] for drafts in left_out)


def test_the_signs_of_another_run_below_an_end() -> None:
    reads: list[str] = []
    for name, text in {
        "ends": KEY,
        "one rank after the other": KEY.replace("T", "[rank1]: T") + opened(2),
        "an error that states a version": DIED.format(
            "torch.distributed.DistBackendError",
            "NCCL error in: ProcessGroupNCCL.cpp:1333, remote process exited or there was a "
            "network error, NCCL version 2.21.5",
        ),
        "starts below": KEY + opened(),
        "steps above": STEPS + KEY,
    }.items():
        found = timeline(job=text)
        seen = runs._Signs(
            begins=set(),
            starts={id(one.meaning) for one in found if runs._may_start(one.meaning)},
            ends={id(one.meaning) for one in found if runs.may_end(one.meaning, ())},
        )
        if seen.of_several(found.events, [id(one.meaning) for one in found]):
            reads.append(name)
    assert reads == ["one rank after the other", "starts below"]
