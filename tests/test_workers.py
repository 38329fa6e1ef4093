"""Workers end with their parent, however it ends, and Ctrl-C is not theirs."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diagnose.errors import InputError
from diagnose.process import _PR_SET_PDEATHSIG
from diagnose.workers import pool

ROOT = Path(__file__).parents[1]


def test_a_machine_without_shared_memory_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("multiprocessing.synchronize.SemLock.__init__", refuse)
    with pytest.raises(InputError, match="is there a /dev/shm"):
        pool(2)


def deaf(folder: Path, count: int) -> bool:
    """Whether this process does not hear Ctrl-C, told once `count` processes ask."""
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < count:
        time.sleep(0.01)
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_no_worker_hears_ctrl_c(tmp_path: Path) -> None:
    with pool(2) as workers:
        assert list(workers.map(deaf, [tmp_path] * 2, [2] * 2)) == [True, True]
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
    workers = pool(2)
    list(workers.map(deaf, [Path(folder)] * 2, [2] * 2))
    workers.submit(globals()[work]).result()


@pytest.mark.parametrize(
    ("work", "number"),
    [
        ("sleep", signal.SIGTERM),
        ("sleep", signal.SIGKILL),
        ("hold_the_interpreter", signal.SIGKILL),
    ],
)
def test_workers_end_with_their_parent(tmp_path: Path, work: str, number: signal.Signals) -> None:
    if work == "hold_the_interpreter" and sys.platform != "linux":
        pytest.skip("needs the kernel's help")
    code = "import sys; from tests.test_workers import parent; parent(*sys.argv[1:])"
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
        assert len(alive(process.pid)) == 4  # with the tracker of Python's own
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
