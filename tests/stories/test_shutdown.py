"""What interpreters print while they end is noise; a crash before or after it stays a crash."""

from typing import Any

import pytest

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.diagnosis import WELL
from diagnose.stories.shutdown import settled
from diagnose.timeline.event import Timeline
from tests.infer.rows import finished, matched, signature, step

CLASSES = load_catalog().classes
STEPS = [f"{{'loss': 1.{9 - i}, 'learning_rate': 1e-05, 'epoch': 0.{i}}}" for i in range(1, 4)]
DONE = "Training completed."
TRACE = "Traceback (most recent call last):"
CRASH = [TRACE, '  File "/home/me/train.py", line 9, in main', "KeyError: 'k'"]
LEFT = (
    "[rank0]:[W1024 06:50:04.612121222 ProcessGroupNCCL.cpp:1496] Warning: WARNING: "
    "destroy_process_group() was not called before program exit, which can leak resources."
)
EXIT = (
    "E0101 12:00:00.000 torch/distributed/elastic/multiprocessing/api.py:833] failed "
    "(exitcode: -6) local_rank: 3 (pid: 12) of binary: /usr/bin/python"
)
NOISE = {
    "loader": [
        "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f3e3c1e5ca0>",
        TRACE,
        '  File "/opt/torch/utils/data/dataloader.py", line 1478, in __del__',
        "    self._shutdown_workers()",
        "    assert self._parent_pid == os.getpid(), 'can only test a child process'",
        "AssertionError: can only test a child process",
    ],
    "tqdm": [
        "Exception ignored in: <function tqdm.__del__ at 0x7f2a00000000>",
        TRACE,
        "AttributeError: 'tqdm' object has no attribute 'disable'",
    ],
    "socket": [
        "Exception ignored in: <function Socket.__del__ at 0x7f2a00000000>",
        TRACE,
        "OSError: [Errno 9] Bad file descriptor",
    ],
    "library": [
        "Exception ignored in: <function MjRenderContext.__del__ at 0x7fc4013dec10>",
        TRACE,
        '  File "/opt/robosuite/renderers/context/egl_context.py", line 150, in free',
        "OpenGL.raw.EGL._errors.EGLError: libGLU.so.0: cannot open shared object file: "
        "No such file or directory",
    ],
    "thread": [
        "Exception in thread QueueFeederThread:",
        TRACE,
        "OSError: [Errno 9] Bad file descriptor",
    ],
    "exit handler": ["Error in atexit._run_exitfuncs:", TRACE, "BrokenPipeError: [Errno 32]"],
    "cache": [
        "Exception ignored in atexit callback: <function update_autotune_table at 0x7fe5a1907e20>",
        TRACE,
        '  File "/opt/triton/matmul_ext.py", line 105, in put',
        "    os.replace(self.file_path + '.tmp', self.file_path)",
        "FileNotFoundError: [Errno 2] No such file or directory: '/home/me/.triton/cache/m.tmp'",
    ],
    "chain": [
        "2026-06-02 08:16:09,100 WARNING MsgRouterThr:7 [router.py:message_loop():77] "
        "message_loop has been closed",
        TRACE,
        "    raise SockClientClosedError",
        "wandb.sdk.lib.sock_client.SockClientClosedError",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        TRACE,
        "    raise MessageRouterClosedError from e",
        "wandb.sdk.interface.router.MessageRouterClosedError",
    ],
    "stdout": [
        "Exception ignored in: <_io.TextIOWrapper name='<stdout>' mode='w' encoding='utf-8'>",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ],
    "semaphores": [
        "/usr/lib/python3.10/multiprocessing/resource_tracker.py:224: UserWarning: "
        "resource_tracker: There appear to be 6 leaked semaphore objects to clean up at shutdown",
        "  warnings.warn('resource_tracker: There appear to be %d '",
    ],
    "wandb": [
        "wandb: Waiting for W&B process to finish... (success).",
        "wandb: Synced 5 W&B file(s), 0 media file(s), 0 artifact file(s) and 0 other file(s)",
    ],
    "group": [LEFT],
}


def judged(*lines: str) -> diagnose.Diagnosis:
    return diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_a_healthy_log_stays_healthy(noise: list[str]) -> None:
    assert judged(*STEPS, DONE, *noise).verdict == "healthy"
    assert judged(*STEPS, *noise).verdict in WELL


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_a_crash_stays_one_before_and_after(noise: list[str]) -> None:
    for lines in ([*CRASH, *noise], [*noise, *CRASH]):
        result = judged(*STEPS, *lines)
        assert (result.verdict, result.root_cause.cause) == ("failed", "crash.exception")


def test_an_exception_after_the_last_word_of_success_counts() -> None:
    result = judged(*STEPS, DONE, *CRASH)
    assert (result.verdict, result.root_cause.cause) == ("failed", "crash.exception")


def test_what_a_finaliser_noticed_of_a_real_fault_counts() -> None:
    bus = "RuntimeError: DataLoader worker (pid 1) is killed by signal: Bus error. "
    mark = "Exception ignored in: <function tqdm.__del__ at 0x7f2a00000000>"
    assert judged(*STEPS, mark, TRACE, bus).root_cause.cause == "net.shm"


@pytest.mark.parametrize("end", ["Aborted (core dumped)", EXIT], ids=["shell", "launcher"])
def test_an_abort_after_success_is_told_by_the_exit_status(end: str) -> None:
    said = "terminate called without an active exception"
    result = judged(*STEPS, DONE, said, end)
    assert (result.verdict, result.root_cause.cause) == ("failed", "crash.native")
    assert result.phase == "shutdown"
    assert judged(*STEPS, DONE, said).verdict == "healthy"


def test_another_rank_s_traceback_does_not_hide_in_the_ignored_one() -> None:
    lines = [f"[rank1]: {line}" for line in CRASH]
    result = judged(*STEPS, *lines[:2], *NOISE["loader"], lines[2])
    assert result.culprits.ranks == [1]


IGNORED = {"signal": "ignored", "text": "Exception ignored in: <function f>"}
RAISED = matched(
    signature("t.exception", "crash.exception", signal="exception", strength="weak"), rank=3
)


def cleared(timeline: Timeline) -> Timeline:
    return settled(timeline, CLASSES)[0]


def test_the_traceback_below_an_ignored_line_is_left_out(make: Any) -> None:
    trace = {"text": TRACE}
    timeline = make(IGNORED | {"rank": 3}, trace | {"rank": 3}, RAISED, trace | {"rank": 4})
    assert [event.index for event in cleared(timeline)] == [0, 3]
    again = make(IGNORED | {"rank": 3}, RAISED, RAISED | {"line": 4})
    assert [event.index for event in cleared(again)] == [0, 2]


def test_an_end_that_a_crash_brought_is_no_success(make: Any) -> None:
    crashed = cleared(make(RAISED, finished(3), finished(4)))
    assert [event.signal for event in crashed] == ["exception", None, "finished"]
    worked = cleared(make(RAISED, step(9, rank=3), finished(3)))
    assert [event.signal for event in worked] == ["exception", None, "finished"]


def test_an_end_after_a_traceback_is_no_success_whatever_its_exception_is_read_as(
    make: Any,
) -> None:
    read = matched(signature("t.missing", "env.config"), rank=3)
    trace = {"text": f"[rank3]: {TRACE}", "rank": 3}
    crashed = cleared(make(trace, read, finished(3), finished(4)))
    assert [event.signal for event in crashed] == [None, None, None, "finished"]


def test_a_cause_that_ended_its_rank_was_not_survived() -> None:
    path = "/data/index-cache/1f_doc_idx.npy"
    lines = [TRACE, f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"]
    result = judged(*(f"[rank4]: {line}" for line in lines), LEFT.replace("rank0", "rank4"))
    assert (result.root_cause.cause, result.root_cause.confidence) == ("crash.exception", "medium")
    assert result.root_cause.signature == "megatron.crash.index-cache-race"
    assert result.culprits.ranks == [4]


def test_without_such_lines_the_timeline_is_the_same(make: Any) -> None:
    timeline = make(step(1), RAISED)
    assert settled(timeline, CLASSES) == (timeline, [])
