"""A worker that is at its bound of memory, where its Python cannot even raise a MemoryError."""

from __future__ import annotations

import subprocess
import sys
import threading
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any, cast

import pytest

from diagnose.runtime.workers import Relief, Worker, dumps

# All of its memory is numbers, and the `with` is so far below that its place is one, too.
FULL = """\
import contextlib, resource
code = "def fill(held):\\n" + "".join(f"    x{n} = {n}\\n" for n in range(200))
code += "    with contextlib.nullcontext():\\n        while True:\\n"
code += "            held = (held, int('1000'))\\n"
names = {"contextlib": contextlib}
exec(code, names)
resource.setrlimit(resource.RLIMIT_DATA, (120 << 20, -1))
try:
    names["fill"](None)
except MemoryError:
    print("MemoryError")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has such a bound")
@pytest.mark.slow
def test_a_worker_that_hangs_at_its_bound_gets_through() -> None:
    ours, theirs = Pipe()
    with subprocess.Popen([sys.executable, "-c", FULL], stdout=subprocess.PIPE) as full:

        def told() -> None:
            assert full.stdout is not None
            theirs.send_bytes(dumps("result", full.stdout.read().decode().strip()))

        thread = threading.Thread(target=told)
        thread.start()
        worker = Worker()
        process = SimpleNamespace(
            pid=full.pid, is_alive=lambda: True, kill=full.kill, join=lambda _: full.wait()
        )
        worker._process, worker._connection = cast(Any, process), ours
        result = worker.run(int, 60)
        thread.join()
    assert result == "MemoryError"


def test_a_process_without_a_bound_or_that_ended_is_left_alone() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    for pid in (0, ended.pid):
        relief = Relief(pid)
        relief.look()
        assert relief._since is None
