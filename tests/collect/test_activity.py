from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from diagnose.collect import proc, processes
from diagnose.collect.bundle import Process, Sink
from diagnose.collect.processes import judge, observe, sample, waits
from tests.collect.machines import Machine

TICKS = os.sysconf("SC_CLK_TCK")


def at(second: float, state: str, spent: float) -> dict[str, Any]:
    return {"at": second, "state": state, "user_s": spent, "system_s": 0.0}


@pytest.mark.parametrize(
    ("first", "second", "doing"),
    [
        (at(0, "S", 1), at(5, "S", 1.1), "waiting"),
        (at(0, "S", 1), at(5, "S", 2), "running"),
        (at(0, "R", 1), at(5, "R", 6), "running"),
        (at(0, "D", 1), at(5, "D", 1), "stuck"),
        (at(0, "D", 1), at(5, "S", 1), "waiting"),
        (at(0, "T", 1), at(5, "T", 1), "stopped"),
        (at(0, "S", 1), at(5, "T", 1), "waiting"),
        (at(0, "S", 1), at(5, "Z", 1), "ended"),
        (at(0, "S", 1), None, "ended"),
        (None, at(5, "S", 1), "ended"),
    ],
)
def test_two_samples_say_what_a_process_does(first: Any, second: Any, doing: str) -> None:
    assert judge(first, second)[0] == doing


def test_a_sample_of_a_real_process() -> None:
    told = sample(os.getpid())
    assert told is not None
    assert told["state"] in "RS"
    assert told["threads"] >= 1
    assert told["rchar"] > 0
    assert told["voluntary"] + told["involuntary"] > 0
    assert sample(1 << 22) is None


def test_a_blocked_read_tells_its_file_and_mount(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "_NAMES", {"0": "read", "202": "futex"})
    machine.process(20, state="D", call="0 0x5 0x0 0x0 0x0 0x0 0x0 0x7 0x8\n", wchan="rpc_wait")
    machine.open(20, 5, "/data/rows.bin")
    assert waits(20) == [
        {
            "thread": 20, "name": "python", "state": "D", "wchan": "rpc_wait", "call": "read",
            "file": "/data/rows.bin", "mount": "/data", "type": "nfs4",
            "source": "server:/export/my data",
        }
    ]  # fmt: skip
    machine.process(21, call="202 0x5 0x0 0x0 0x0 0x0 0x0 0x7 0x8\n")
    assert waits(21) == [
        {"thread": 21, "name": "python", "state": "S", "wchan": "0", "call": "futex"}
    ]
    machine.process(22, call="999 0x5 0x0 0x0 0x0 0x0 0x0 0x7 0x8\n")
    assert waits(22)[0]["call"] == "999"
    machine.process(23)
    assert "call" not in waits(23)[0]
    assert waits(24) == []


def test_the_activity_of_processes_is_written(machine: Machine, sink: Sink) -> None:
    machine.process(20, ticks=5, switches=7)
    one = Process(20, "rank", rank=0, folder="rank-0")
    gone = Process(21, "rank", rank=1, folder="rank-1")
    assert observe(sink, [one, gone], 0.01) is None
    told = json.loads((sink.folder / "rank-0" / "activity.json").read_text())
    assert (told["diagnose"], told["activity"], told["cpu"]) == ("activity/1", "waiting", 0.0)
    assert [one["voluntary"] for one in told["samples"]] == [7, 7]
    assert told["busy"] == []
    told = json.loads((sink.folder / "rank-1" / "activity.json").read_text())
    assert (told["activity"], told["samples"], told["waits"]) == ("ended", [None, None], [])


def test_a_process_that_shows_nothing_keeps_nobody_waiting(
    machine: Machine, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    release = threading.Event()
    monkeypatch.setattr(processes, "waits", lambda _pid: release.wait(20))
    monkeypatch.setattr(processes, "_LOOK_S", 0.05)
    machine.process(20)
    try:
        one = Process(20, "rank", rank=0, folder="rank-0")
        assert observe(sink, [one], 0.01) == "process 20 does not show where it waits"
    finally:
        release.set()
    assert json.loads((sink.folder / "rank-0" / "activity.json").read_text())["waits"] == []


def test_the_busiest_threads_are_named() -> None:
    before = {1: ("python", 10), 2: ("loop", 10), 3: ("idle", 5)}
    after = {1: ("python", 10 + TICKS), 2: ("loop", 10 + 2 * TICKS), 3: ("idle", 5), 4: ("new", 9)}
    assert processes._busy(before, after) == [
        {"thread": 2, "name": "loop", "cpu_s": 2.0}, {"thread": 1, "name": "python", "cpu_s": 1.0},
    ]  # fmt: skip


@pytest.mark.skipif(not proc._NAMES, reason="no table of system calls for this machine")
def test_a_real_process_blocked_on_a_fifo_shows_which(tmp_path: Path) -> None:
    fifo = tmp_path / "rows.fifo"
    os.mkfifo(fifo)
    child = subprocess.Popen([sys.executable, "-c", f"open({str(fifo)!r})"])
    try:
        for _ in range(200):
            told = waits(child.pid)[0]
            if told.get("file") == str(fifo):
                break
            import time

            time.sleep(0.05)
        if "call" not in told:
            pytest.skip("this user may not see the system calls of a process")
        assert (told["call"], told["file"]) == ("openat", str(fifo))
    finally:
        child.kill()
        child.wait()


def test_paths_are_made_absolute(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "_string", lambda _pid, _address: "rows/a.bin")
    machine.process(20)
    machine.open(20, 4, "/data/set")
    call = proc.Call("openat", (0xFFFFFF9C, 1, 0, 0, 0, 0))
    assert proc.file_of(20, call) == "/work/rows/a.bin"
    assert proc.file_of(20, proc.Call("newfstatat", (4, 1))) == "/data/set/rows/a.bin"
    assert proc.file_of(20, proc.Call("stat", (1,))) == "/work/rows/a.bin"
    assert proc.file_of(20, proc.Call("futex", (1,))) is None
    assert proc.file_of(20, proc.Call("read", (9,))) is None


def test_the_mount_of_a_path_is_the_innermost(machine: Machine) -> None:
    machine.process(20)
    mounted = proc.mounts(20)
    told = {
        path: mount.type
        for path in ("/data/local/x", "/data/x", "/datax", "/data")
        if (mount := proc.mount_of(path, mounted))
    }
    assert told == {"/data/local/x": "xfs", "/data/x": "nfs4", "/datax": "ext4", "/data": "nfs4"}
    assert proc.mount_of("/x", []) is None
