"""Copies of a process share its work, and end with it."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from diagnose.runtime import workers

ROOT = Path(__file__).parents[2]
HEAD = (
    "import os, signal, time\nfrom functools import partial\nfrom diagnose.runtime import workers\n"
)
SHOW = "print(sorted(workers.share(calls, 2, lambda: None)))\n"


def python(code: str) -> subprocess.CompletedProcess[str]:
    """What a process of its own says: this one has threads, and is not to be copied."""
    return subprocess.run(
        [sys.executable, "-c", HEAD + code],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 7, 3000])
def test_each_call_is_made_once(count: int) -> None:
    done = python(f"calls = [partial(pow, n, 2) for n in range({count})]\n{SHOW}")
    assert (done.stderr, done.stdout) == ("", f"{[(n, n * n) for n in range(count)]}\n")


def test_all_processes_work() -> None:
    """Each of them waits until all three have begun."""
    code = """
read, write = os.pipe()
def call():
    os.write(write, b"x")
    while len(os.listdir(folder)) < 3:
        open(folder + str(os.getpid()), "w").close()
    return os.getpid()
import tempfile
with tempfile.TemporaryDirectory() as folder:
    folder += "/"
    found = dict(workers.share([call] * 3, 2, lambda: None))
print(len(set(found.values())), os.getpid() in found.values())
"""
    assert python(code).stdout == "3 True\n"


def test_large_results_come_whole() -> None:
    code = "calls = [partial(bytes, 3_000_000)] * 9\n"
    code += "print({len(found) for _, found in workers.share(calls, 2, lambda: None)})"
    assert python(code).stdout == "{3000000}\n"


def test_a_copy_goes_on_before_its_result_is_taken() -> None:
    """This process takes none before the copy has begun its third call."""
    code = """
begun, desk = os.pipe()
def call():
    os.write(desk, b"x")
    return bytes(400_000)
found = list(workers.share([call] * 3, 1, lambda: [os.read(begun, 1) for _ in range(3)]))
print(len(found))
"""
    assert python(code).stdout == "3\n"


def test_meanwhile_is_done_once_and_here() -> None:
    code = "calls = [time.time] * 4\ndone = []\n"
    code += "list(workers.share(calls, 2, lambda: done.append(os.getpid())))\n"
    code += "print(done == [os.getpid()])"
    assert python(code).stdout == "True\n"


ELSEWHERE = """
here = os.getpid()
def call():
    if os.getpid() == here:
        time.sleep(0.1)
    else:
        {what}
calls = [call] * 9
"""


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("raise ValueError('bad call')", "ValueError: bad call"),
        ("os.kill(os.getpid(), signal.SIGKILL)", f"InputError: {workers.KILLED}"),
    ],
    ids=["raises", "killed"],
)
def test_what_goes_wrong_in_a_copy_is_raised_here(what: str, message: str) -> None:
    done = python(ELSEWHERE.format(what=what) + SHOW)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(message)


def test_where_no_process_can_start_this_one_does_it_all() -> None:
    code = "def fork():\n    raise BlockingIOError(11, 'too many')\nos.fork = fork\n"
    code += "found = dict(workers.share([os.getpid] * 5, 2, lambda: None))\n"
    code += "print(found == dict.fromkeys(range(5), os.getpid()))"
    assert python(code).stdout == "True\n"


def test_copies_end_where_nobody_wants_the_rest() -> None:
    code = ELSEWHERE.format(what="time.sleep(600)")
    code += "next(workers.share(calls, 2, lambda: None))\n"
    code += "try:\n    os.wait()\nexcept ChildProcessError:\n    print('none left')"
    assert python(code).stdout == "none left\n"


def test_copies_do_not_hear_ctrl_c() -> None:
    code = "def blocked():\n    return [*map(int, signal.pthread_sigmask(signal.SIG_BLOCK, ()))]\n"
    code += (
        "calls = [blocked] * 2\nfound = dict(workers.share(calls, 2, lambda: time.sleep(0.3)))\n"
    )
    code += "print(sorted(found.items()), blocked())"
    assert python(code).stdout == "[(0, [2]), (1, [2])] []\n"


def test_a_process_with_threads_is_not_copied() -> None:
    assert python("print(workers.possible())").stdout == f"{sys.platform == 'linux'}\n"
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    assert not workers.possible()
    end.set()
    thread.join()
