from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diagnose.collect import processes
from diagnose.collect.bundle import Process, Sink
from diagnose.runtime.children import Unavailable
from tests.collect.machines import Machine

DUMP = 'Process 20: python train.py\n\nThread 20 (idle): "MainThread"\n    f (/w/train.py:3)'


@pytest.fixture
def pyspy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that does as py-spy, by a script that a test writes."""
    place = tmp_path / "py-spy"
    monkeypatch.setattr(processes, "found", lambda _name: str(place))

    def script(text: str) -> None:
        place.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{text}\n')
        place.chmod(0o700)

    monkeypatch.setattr(processes, "script", script, raising=False)
    return tmp_path / "calls"


def says(text: str) -> None:
    processes.script(text)  # type: ignore[attr-defined]


def full(sink: Sink, pause_s: float = 0.8, left: float = 5.0) -> str | None:
    return processes.full(sink, Process(20, "rank", rank=0), pause_s, time.monotonic() + left)


def test_both_looks_at_a_process(machine: Machine, sink: Sink, pyspy: Path) -> None:
    machine.process(20)
    says(f"cat <<'X'\n{DUMP}\nX")
    assert processes.quick(sink, Process(20, "rank", rank=0)) is None
    assert full(sink) is None
    assert pyspy.read_text().splitlines() == [
        "dump --nonblocking --full-filenames --pid 20", "dump --native --full-filenames --pid 20",
    ]  # fmt: skip
    assert (sink.folder / "stack-1.txt").read_text() == DUMP + "\n"
    assert (sink.folder / "stack-2.txt").read_text() == DUMP + "\n"


@pytest.mark.parametrize(
    ("state", "pause_s", "left", "told"),
    [
        ("T", 0.8, 5, "no native stacks: it is stopped"),
        ("D", 0.8, 5, "no native stacks: it is stuck"),
        ("t", 0.8, 5, "no native stacks: another debugger has it"),
        ("S", 0.8, 0, "no native stacks: no time left"),
        ("S", 0.0, 5, None),
    ],
)
def test_who_must_not_be_paused_is_not(
    machine: Machine, sink: Sink, pyspy: Path, state: str, pause_s: float, left: float,
    told: str | None,
) -> None:  # fmt: skip
    machine.process(20, state=state)
    says("echo Process 20: x")
    assert full(sink, pause_s, left) == told
    assert pyspy.read_text() == "dump --nonblocking --full-filenames --pid 20\n"


def test_who_waits_for_files_of_others_is_not_paused(
    machine: Machine, sink: Sink, pyspy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes.proc, "_NAMES", {"0": "read"})
    machine.process(20, call="0 0x5 0x0 0x0 0x0 0x0 0x0 0x7 0x8\n")
    machine.open(20, 5, "/data/rows.bin")
    says("echo Process 20: x")
    assert full(sink) == "no native stacks: it waits for /data"
    assert "native" not in pyspy.read_text()


def test_a_pause_that_is_too_long_is_ended(machine: Machine, sink: Sink, pyspy: Path) -> None:
    machine.process(20)
    stat = machine.root / "20" / "stat"
    paused = stat.read_text().replace(") S ", ") t ")
    says(f"case $2 in --native) echo '{paused}' > {stat}; exec sleep 30;; esac\necho Process 20: x")
    began = time.monotonic()
    why = "the process was paused for 0.2 s, and let go"
    assert full(sink, 0.2) == f"no native stacks: py-spy: {why}"
    assert time.monotonic() - began < 5
    assert (sink.folder / "stack-2.txt").read_text() == "Process 20: x\n"


def test_without_the_right_to_look_it_says_so(machine: Machine, sink: Sink, pyspy: Path) -> None:
    machine.process(20)
    says("echo 'Permission Denied: Try running again with elevated permissions' >&2; exit 1")
    with pytest.raises(Unavailable, match="it needs the capability SYS_PTRACE, or root"):
        processes.quick(sink, Process(20, "rank"))
    assert len(pyspy.read_text().splitlines()) == 1
    with pytest.raises(Unavailable, match="SYS_PTRACE"):
        full(sink)


@pytest.mark.slow
def test_a_process_that_changes_is_looked_at_again(
    machine: Machine, sink: Sink, pyspy: Path
) -> None:
    machine.process(20)
    says(f"[ $(wc -l < {pyspy}) -ge 3 ] && echo Process 20: x || {{ echo torn >&2; exit 1; }}")
    assert processes.quick(sink, Process(20, "rank")) is None
    says("echo 'Error: Failed to find python version from target process' >&2; exit 1")
    with pytest.raises(OSError, match="no Python in it that py-spy knows"):
        processes.quick(sink, Process(20, "rank"))


def test_a_process_that_has_ended(machine: Machine, sink: Sink, pyspy: Path) -> None:
    says("exit 1")
    with pytest.raises(Unavailable, match="the process has ended"):
        processes.quick(sink, Process(21, "rank"))
    with pytest.raises(Unavailable, match="the process has ended"):
        processes.full(sink, Process(21, "rank"), 0.8, time.monotonic() + 5)


def test_where_pyspy_is_not_installed_it_says_what_to_install(
    machine: Machine, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(20)

    def missing(name: str) -> str:
        raise Unavailable(f"there is no {name} here")

    monkeypatch.setattr(processes, "found", missing)
    with pytest.raises(Unavailable, match="pip install py-spy"):
        processes.quick(sink, Process(20, "rank"))


def test_stacks_of_a_real_process(sink: Sink) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time\ntime.sleep(60)"])
    try:
        for _ in range(100):
            if "nanosleep" in Path(f"/proc/{child.pid}/wchan").read_text():
                break
            time.sleep(0.05)
        try:
            processes.quick(sink, Process(child.pid, "rank"))
        except (OSError, Unavailable) as error:
            pytest.skip(f"not allowed here: {error}")
        assert "<string>:2" in (sink.folder / "stack-1.txt").read_text()
        assert os.waitpid(child.pid, os.WNOHANG) == (0, 0)
    finally:
        child.kill()
        child.wait()
