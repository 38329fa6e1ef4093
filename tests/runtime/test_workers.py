"""Workers end with their parent, however it ends, and Ctrl-C is not theirs."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import pytest

from diagnose.batch.work import Options
from diagnose.errors import InputError
from diagnose.ingest.sniff import Container
from diagnose.runtime import workers
from diagnose.runtime.children import _PR_SET_PDEATHSIG
from diagnose.runtime.workers import (
    KILLED,
    Pool,
    Stopped,
    TooLongError,
    Worker,
    WorkerDiedError,
    dumps,
    loads,
    tell,
)

ROOT = Path(__file__).parents[2]


def deaf(folder: Path, count: int) -> bool:
    """Whether this process does not hear Ctrl-C, told once `count` processes ask."""
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < count:
        time.sleep(0.01)
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.slow
def test_no_worker_hears_ctrl_c(tmp_path: Path) -> None:
    with Pool(2) as pool:
        assert list(pool.map(deaf, [tmp_path] * 2, [2] * 2)) == [True, True]
    assert not deaf(tmp_path, 1)  # this process does


def hold_the_interpreter() -> None:
    """Sleep in C, so that no other thread of Python's runs."""
    print("up", flush=True)
    ctypes.PyDLL(None).sleep(600)


def sleep() -> None:
    """Sleep without the kernel's promise to end this process with its parent."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
    print("up", flush=True)
    time.sleep(600)


def parent(folder: str, work: str) -> None:
    """Keep one worker busy and one idle."""
    pool = Pool(2)
    list(pool.map(deaf, [Path(folder)] * 2, [2] * 2))
    pool.submit(globals()[work]).result()


@pytest.mark.parametrize(
    ("work", "number"),
    [
        ("sleep", signal.SIGTERM),
        ("sleep", signal.SIGKILL),
        ("hold_the_interpreter", signal.SIGKILL),
    ],
)
@pytest.mark.slow
def test_workers_end_with_their_parent(tmp_path: Path, work: str, number: signal.Signals) -> None:
    if work == "hold_the_interpreter" and sys.platform != "linux":
        pytest.skip("needs the kernel's help")
    code = "import sys; from tests.runtime.test_workers import parent; parent(*sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), work],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert len(alive(process.pid)) == 5  # with two of Python's own
        os.kill(process.pid, number)
        assert left(process) == []
        assert process.stderr is not None
        assert process.stderr.read() == ""


def left(process: subprocess.Popen[str]) -> list[int]:
    """Wait for the end of a process and of its session; which others had to be killed."""
    process.wait(timeout=60)
    end = time.monotonic() + 30
    while alive(process.pid) and time.monotonic() < end:
        time.sleep(0.02)
    found = alive(process.pid)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return found


def alive(session: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.fixture(scope="module")
def worker() -> Worker:
    return Worker()


def test_one_call_after_the_other_and_then_another_process(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "JOBS", 2)
    pids = [worker.run(os.getpid) for _ in range(3)]
    assert pids[0] == pids[1] != pids[2]
    assert worker.replaced == 0
    worker.close()


def counted(to: int) -> int:
    for number in range(to):
        tell(number)
    return to


@pytest.mark.slow
def test_news_come_before_the_result(worker: Worker) -> None:
    news: list[int] = []
    assert worker.run(partial(counted, 3), on_news=news.append) == 3
    assert news == [0, 1, 2]


def wrong() -> None:
    raise InputError("no log")


def odd() -> None:
    raise subprocess.SubprocessError("odd")


def test_what_goes_wrong_in_a_worker_is_raised_here(worker: Worker) -> None:
    with pytest.raises(InputError, match="no log"):
        worker.run(wrong)
    with pytest.raises(RuntimeError, match="SubprocessError: odd"):
        worker.run(odd)


def test_a_worker_that_dies_is_replaced(worker: Worker) -> None:
    with pytest.raises(WorkerDiedError, match=KILLED):
        worker.run(partial(os._exit, 1))
    assert worker.run(partial(pow, 2, 3)) == 8
    worker.close()


def test_a_call_ends_in_time_or_when_nobody_wants_it(worker: Worker) -> None:
    with pytest.raises(TooLongError, match=r"exceeded the limit of 0\.1 s"):
        worker.run(partial(time.sleep, 60), 0.1)
    with pytest.raises(Stopped):
        worker.run(partial(time.sleep, 60), stop=lambda: True)
    worker.close()


def half_a_message(size: int) -> None:
    assert workers._parent is not None
    os.write(workers._parent.fileno(), struct.pack("!i", size) + b"x")
    time.sleep(600)


def stop_itself() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def news_without_end() -> None:
    while True:
        tell("more")


@pytest.mark.parametrize("call", [partial(half_a_message, 1 << 20), stop_itself, news_without_end])
@pytest.mark.slow
def test_a_worker_that_hangs_while_it_answers_is_ended(
    worker: Worker, call: Callable[[], None]
) -> None:
    began = time.monotonic()
    with pytest.raises(TooLongError):
        worker.run(call, 0.5)
    with pytest.raises(Stopped):
        worker.run(call, 60, stop=lambda: time.monotonic() > began + 2)
    assert time.monotonic() - began < 20
    assert worker.run(partial(pow, 2, 3)) == 8
    worker.close()


@pytest.mark.slow
def test_an_answer_is_bounded(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_MOST", 1000)
    with pytest.raises(WorkerDiedError):
        worker.run(partial(half_a_message, 1001), 60)


def test_a_worker_that_cannot_start_is_no_end(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    with monkeypatch.context() as patch:
        patch.setattr("multiprocessing.context.ForkServerProcess.start", refuse)
        with pytest.raises(WorkerDiedError):
            worker.run(os.getpid)
    assert worker.run(partial(pow, 2, 3)) == 8
    worker.close()


def test_a_call_that_kills_its_worker_takes_no_other_with_it() -> None:
    with Pool(2) as pool:
        futures = [pool.submit(os._exit, 1), *(pool.submit(pow, n, 2) for n in range(20))]
        assert isinstance(futures[0].exception(), WorkerDiedError)
        assert [future.result() for future in futures[1:]] == [n * n for n in range(20)]


def test_a_pool_that_is_not_waited_for_ends_at_once() -> None:
    pool = Pool(1)
    futures = [pool.submit(time.sleep, 600) for _ in range(2)]
    while not futures[0].running():
        time.sleep(0.01)
    pool.shutdown(wait=False)
    assert isinstance(futures[0].exception(), Stopped)
    assert futures[1].cancelled()


class Evil:
    """Runs a program where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch evil",)


@pytest.mark.parametrize(
    "value", [Evil(), os.getpid, Path.touch, subprocess.Popen, workers.Pool, workers.share]
)
def test_an_answer_is_data(value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(pickle.UnpicklingError, match="a worker sent "):
        loads(dumps("result", value))
    assert list(tmp_path.iterdir()) == []


def test_plain_values_and_data_classes_come_as_they_were() -> None:
    value = [{1: (b"x", 2.5, None)}, {"a"}, Counter("aab"), datetime(2025, 1, 2), Path("/a")]
    value += [Options(("/p",)), Container.TWICE]
    assert loads(dumps("news", value)) == ("news", value)
