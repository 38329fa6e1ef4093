from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from diagnose.collect import machine as module
from diagnose.collect import proc
from diagnose.collect.bundle import Process, Sink
from diagnose.runtime.children import TimedOut, Unavailable
from tests.collect.machines import Machine

ONE = Process(20, "rank", rank=0, folder="rank-0")


def told(sink: Sink, name: str) -> Any:
    return json.loads((sink.folder / name).read_text())


def test_pressure_and_memory(machine: Machine, sink: Sink) -> None:
    (machine.root / "pressure").mkdir()
    (machine.root / "pressure" / "io").write_text("some avg10=99.00\nfull avg10=98.00\n")
    (machine.root / "meminfo").write_text("MemTotal: 10 kB\nDirty: 3 kB\nOther: 1 kB\n")
    (machine.root / "loadavg").write_text("1.0 2.0 3.0 4/5 6\n")
    assert module.pressure(sink) is None
    found = told(sink, "pressure.json")
    assert found["diagnose"] == "pressure/1"
    assert found["io"] == ["some avg10=99.00", "full avg10=98.00"]
    assert found["meminfo"] == {"MemTotal": "10 kB", "Dirty": "3 kB"}
    assert found["loadavg"] == "1.0 2.0 3.0 4/5 6"


def test_limits_of_the_groups(
    machine: Machine, sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CGROUP", tmp_path / "cg")
    machine.process(20)
    with pytest.raises(Unavailable, match="no limits can be read"):
        module.cgroups(sink, [ONE])
    (tmp_path / "cg" / "job").mkdir(parents=True)
    (tmp_path / "cg" / "job" / "memory.max").write_text("100\n")
    (tmp_path / "cg" / "job" / "memory.events").write_text("oom_kill 2\n")
    module.cgroups(sink, [ONE])
    (group,) = told(sink, "cgroup.json")["groups"].values()
    assert group == {
        "pids": [20], "folder": str(tmp_path / "cg" / "job"), "memory.max": "100",
        "memory.events": "oom_kill 2",
    }  # fmt: skip
    (machine.root / "20" / "cgroup").write_text("4:memory:/in/a/container\n")
    (tmp_path / "cg" / "memory").mkdir()
    (tmp_path / "cg" / "memory" / "memory.failcnt").write_text("7\n")
    module.cgroups(sink, [ONE])
    assert told(sink, "cgroup.json")["groups"]["memory:/in/a/container"]["memory.failcnt"] == "7"


def test_a_mount_that_does_not_answer_hangs_nobody(
    machine: Machine, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.process(20)

    def statvfs(path: str) -> os.statvfs_result:
        if path.endswith("/data"):
            time.sleep(30)
        if path.endswith("/data/local"):
            raise OSError(5, "Input/output error", path)
        return os.statvfs_result((4096, 4096, 100, 50, 40, 30, 20, 10, 1, 255))

    monkeypatch.setattr(os, "statvfs", statvfs)
    monkeypatch.setattr(module, "_STAT_S", 0.5)
    began = time.monotonic()
    assert module.filesystems(sink, [ONE]) == "no answer in 0 s: /data"
    assert time.monotonic() - began < 10
    root, data, local = told(sink, "filesystems.json")["mounts"]
    assert root == {
        "point": "/", "type": "ext4", "source": "/dev/vda", "answers": True, "size": 409600,
        "free": 163840, "inodes": 30, "inodes_free": 10, "read_only": 1,
    }  # fmt: skip
    assert (data["type"], data["answers"]) == ("nfs4", False)
    assert local["error"].startswith("input/output error: ")


def test_file_systems_of_this_machine(sink: Sink) -> None:
    module.filesystems(sink, [])
    mounts = told(sink, "filesystems.json")["mounts"]
    assert any(mount["point"] == "/" for mount in mounts)


def test_gpus_by_whichever_program_is_here(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"nvidia-smi"}

    def found(name: str) -> str:
        if name in here:
            return f"/usr/bin/{name}"
        raise Unavailable(f"there is no {name} here")

    def output(words: list[str], _seconds: float) -> tuple[str, str]:
        if "nvlink" in words:
            raise TimedOut("nvidia-smi gave no answer in 2 s")
        return f"{words[1]}\n", ""

    monkeypatch.setattr(module, "found", found)
    monkeypatch.setattr(module, "output", output)
    assert module.gpus(sink, 8) == "nvidia-smi gave no answer in 2 s"
    said = told(sink, "gpus.json")
    assert (said["program"], sorted(said["said"])) == (
        "nvidia-smi", ["gpus", "processes", "remapped"],
    )  # fmt: skip
    here.clear()
    with pytest.raises(Unavailable, match="no nvidia-smi and no rocm-smi"):
        module.gpus(sink, 8)
    here.add("rocm-smi")
    assert module.gpus(sink, 8) is None
    assert told(sink, "gpus.json")["program"] == "rocm-smi"

    def broken(*_: object) -> tuple[str, str]:
        raise OSError("rocm-smi: no device")

    monkeypatch.setattr(module, "output", broken)
    with pytest.raises(OSError, match="no device"):
        module.gpus(sink, 8)


def test_rdma_ports_and_what_grows(
    sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_INFINIBAND", tmp_path)
    with pytest.raises(Unavailable, match="no RDMA devices"):
        module.rdma(sink)
    port = tmp_path / "mlx5_0" / "ports" / "1"
    (port / "counters").mkdir(parents=True)
    (port / "state").write_text("1: DOWN\n")
    counter = port / "counters" / "symbol_error"
    counter.write_text("7\n")
    monkeypatch.setattr(time, "sleep", lambda _s: counter.write_text("9\n"))
    module.rdma(sink)
    (found,) = told(sink, "rdma.json")["ports"]
    assert found == {
        "device": "mlx5_0", "port": "1", "state": "1: DOWN", "counters": {"symbol_error": 9},
        "grew": {"symbol_error": 2},
    }  # fmt: skip


def test_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "found", lambda name: name)
    line = "A29FC801,162.159.200.1,3,1600000000.1,-0.000123,0.1,0.2,1,2,3,4,5,64.2,Normal\n"
    monkeypatch.setattr(module, "output", lambda *_: (line, ""))
    told = module.clock(1.0)
    assert (told["offset_s"], told["servers"]) == (-0.000123, "162.159.200.1")
    assert isinstance(told["synchronised"], bool)
    assert told["most_s"] >= 0


def test_connections_of_a_real_process(sink: Sink) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
    ):
        other, _ = server.accept()
        with other:
            other.send(b"12345")
            time.sleep(0.05)
            here = Process(os.getpid(), "rank", rank=0)
            assert module.sockets(sink, [here, Process(1 << 22, "rank")]) is None
            name = "{}:{}".format(*ours.getsockname())
    (process,) = told(sink, "sockets.json")["processes"]
    (mine,) = [one for one in process["sockets"] if one["local"] == name]
    assert (mine["state"], mine["unread"], mine["unsent"]) == ("established", 5, 0)


def test_nobody_shows_his_connections(machine: Machine, sink: Sink) -> None:
    machine.process(20)
    with pytest.raises(Unavailable, match="open files of the processes may not be read"):
        module.sockets(sink, [ONE])


def test_addresses_as_the_kernel_writes_them() -> None:
    assert module._end("0100007F:1F90") == "127.0.0.1:8080"
    assert module._end("0000000000000000FFFF00000100007F:0050") == "127.0.0.1:80"
    assert module._end("B80D01200000000000000000" + "01000000:0016").startswith("[2001:0db8:")


def test_reads_of_proc_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" * 5000)
    assert len(proc.text(tmp_path / "long", 100)) == 100
    assert proc.stat(1 << 22) is None
    assert proc.threads(1 << 22) == []
