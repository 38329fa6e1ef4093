"""A command's standard streams and its end, in processes of their own."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from diagnose.runtime.command import handling, one_thread

ROOT = Path(__file__).parents[1]
START = "import os, sys; from diagnose.runtime import command; command.prepare(); "


def python(code: str, streams: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-c", START + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("streams", ["", "<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_no_file_takes_the_number_of_a_closed_stream(tmp_path: Path, streams: str) -> None:
    code = f"os._exit(open({str(tmp_path / 'x')!r}, 'w').fileno())"
    assert python(code, streams).returncode > 2


def test_no_file_of_a_worker_takes_the_number_of_a_closed_stream() -> None:
    inner = "import os; os._exit(os.open(os.devnull, os.O_RDONLY))"
    code = (
        f"import subprocess; os._exit(subprocess.run([sys.executable, '-c', {inner!r}]).returncode)"
    )
    assert python(code, "2>&-").returncode > 2


@pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-"])
def test_a_closed_stream_still_fails(streams: str) -> None:
    number = {"<": 0, ">": 1, "2": 2}[streams[0]]
    use = f"os.read({number}, 1)" if number == 0 else f"os.write({number}, b'x')"
    code = f"\ntry: {use}\nexcept OSError as error: sys.exit(error.errno)"
    assert python(code, streams).returncode == errno.EBADF


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "2>&1 >/dev/null"])
def test_stderr_that_cannot_be_written_changes_nothing(streams: str) -> None:
    done = python("print('beside', file=sys.stderr); print('answer'); sys.exit(7)", streams)
    told = "beside\n" if "&1" in streams else "answer\n"
    assert (done.returncode, done.stdout, done.stderr) == (7, told, "")


def test_stderr_says_what_it_said_before() -> None:
    done = python("print('Stra\\u00dfe \\udcff', file=sys.stderr)")
    assert done.stderr == "Straße \\udcff\n"


def test_streams_that_do_not_block_are_made_to() -> None:
    """Such an input would seem to end where it pauses."""
    read, write = os.pipe()
    for fd in (read, write):
        os.set_blocking(fd, False)
    code = "os._exit(sum(os.get_blocking(fd) for fd in range(3)))"
    command = [sys.executable, "-c", START + code]
    done = subprocess.run(command, cwd=ROOT, stdin=read, stdout=write, stderr=write, check=False)
    for fd in (read, write):
        os.close(fd)
    assert done.returncode == 3


INTERRUPT = "import signal; signal.raise_signal(signal.SIGINT); "


def test_ctrl_c_ends_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    partial = tmp_path / "partial"
    code = f"""

command.unfinished.update([{str(partial)!r}, {str(tmp_path / "gone")!r}])
open({str(partial)!r}, "w").close()
class Callback:
    def __del__(self):
        {INTERRUPT}
Callback()
print("went on")
"""
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert not partial.exists()


def test_a_command_in_the_background_does_not_hear_ctrl_c() -> None:
    """A shell without job control starts it with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = python(INTERRUPT + "print('went on')")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.returncode, done.stdout) == (0, "went on\n")


@pytest.mark.parametrize("streams", ["", ">/dev/full", "2>/dev/full", ">&-"])
@pytest.mark.parametrize("beside", ["", "threading.Thread(target=time.sleep, args=[0.1]).start();"])
def test_leaving_looks_like_any_end(streams: str, beside: str) -> None:
    begin = f"import atexit, threading, time; {beside} atexit.register(print, 'end'); print('x'); "
    left, ended = (python(begin + end, streams) for end in ("command.leave(3)", "sys.exit(3)"))
    assert (left.returncode, left.stdout) == (ended.returncode, ended.stdout)
    assert left.stderr == ended.stderr


def test_who_leaves_takes_nothing_apart() -> None:
    code = "\nclass Large:\n    def __del__(self): print('gone')\nkept = Large(); command.leave(0)"
    assert python(code).stdout == ""


def test_libraries_start_no_threads_unless_the_user_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    one_thread()
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "3"


def test_signals_that_are_ignored_stay_so() -> None:
    """As nohup does, and a shell with what it starts in the background."""

    def handler(_number: int, _frame: object) -> None:
        pass

    before = {number: signal.signal(number, signal.SIG_IGN) for number in (1, 2)}
    try:
        with handling(handler, signal.SIGALRM) as handled:
            inside = [signal.getsignal(number) for number in (1, 2, 15, signal.SIGALRM)]
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
    assert handled
    assert inside == [signal.SIG_IGN, signal.SIG_IGN, handler, handler]
    with handling(handler):
        assert signal.getsignal(signal.SIGHUP) is handler
    assert signal.getsignal(signal.SIGHUP) is before[1]


def test_only_the_main_thread_handles_signals() -> None:
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: handling(print).__enter__()).result() is False
