"""What runs on a node: its stream, its time, and what it leaves behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

import pytest

from diagnose.collect import bundle, node
from diagnose.collect.bundle import Node, NodeOptions, Process
from diagnose.collect.node import Over, collect_within
from diagnose.collect.reach import remote
from diagnose.collect.reach.frames import split
from diagnose.collect.reach.gather import Unpacked, unpack
from diagnose.collect.reach.remote import answer, arguments, main
from diagnose.runtime import command

FD = 1  # of standard output


def quick(folder: Path, options: NodeOptions) -> Node:
    """Stands in for the probes: writes two files at once."""
    node = Node("h", "1", problems=[f"{options.pids} {options.job} {options.apart_s:g}"])
    node.processes = [Process(7, "rank")]
    place = folder / node.folder
    bundle.reserve(place / "node.json")
    (place / "kernel.log").write_text("quiet\n")
    bundle.overwrite(place / "node.json", node.to_dict())
    return node


def slow(folder: Path, options: NodeOptions) -> Node:
    """Hangs after its first file."""
    bundle.reserve(folder / "nodes" / "h" / "node.json")
    (folder / "nodes" / "h" / "kernel.log").write_text("quiet\n")
    time.sleep(60)
    return quick(folder, options)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.setattr(node, "collect_node", quick)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in remote._LOCAL:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def unpacked(data: bytes, folder: Path) -> Unpacked:
    return unpack(io.BytesIO(data), folder, 1 << 20)


def test_the_stream_of_a_node(
    probes: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    words = arguments(NodeOptions((7,), "j", apart_s=0.5), 30)
    assert main(words) == 0
    out, err = capfdbinary.readouterr()
    assert err == b""
    found = unpacked(out, tmp_path / "out")
    assert (found.hosts, found.files, found.complete) == (["h"], 2, True)
    document = json.loads((tmp_path / "out" / "nodes" / "h" / "node.json").read_text())
    assert document["problems"] == ["(7,) j 0.5"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    # Standard output is as it was.
    os.write(FD, b"after")
    assert capfdbinary.readouterr().out == b"after"


def test_in_lines(
    probes: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    assert answer(NodeOptions(), 30, lines=True) == 0
    text = io.BytesIO(capfdbinary.readouterr().out)
    (part,), others = split(text)
    data = io.BytesIO()
    part.copy(text, data)
    assert (part.missing, others) == (0, [])
    assert unpacked(data.getvalue(), tmp_path / "out").hosts == ["h"]


@pytest.mark.parametrize("name", remote._LOCAL)
def test_of_the_processes_of_a_launcher_on_a_node_one_answers(
    name: str, probes: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    probes.setenv(name, "1")
    assert answer(NodeOptions(), 30, lines=True) == 0
    assert capfdbinary.readouterr().out == b""
    probes.setenv(name, "0")
    assert answer(NodeOptions(), 30, lines=True) == 0
    assert capfdbinary.readouterr().out != b""


def test_when_the_time_is_over_what_there_is_is_sent(
    probes: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    probes.setattr(node, "collect_node", slow)
    began = time.monotonic()
    assert answer(NodeOptions(), 0.3) == 0
    assert time.monotonic() - began < 10
    out, err = capfdbinary.readouterr()
    assert err == b"diagnose: no end in 0.3 s\n"
    assert unpacked(out, tmp_path / "out").complete
    place = tmp_path / "out" / "nodes" / "h"
    document = json.loads((place / "node.json").read_text())
    assert (document["host"], document["problems"]) == ("h", ["ended early: no end in 0.3 s"])
    assert (place / "kernel.log").read_text() == "quiet\n"


def test_signals_are_as_before(probes: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (*command._TO_END, signal.SIGALRM)]
    _, over = collect_within(tmp_path, NodeOptions(), 30)
    assert over is None
    probes.setattr(node, "collect_node", slow)
    _, over = collect_within(tmp_path / "b", NodeOptions(), 0.1)
    assert isinstance(over, Over)
    assert [signal.getsignal(number) for number in (*command._TO_END, signal.SIGALRM)] == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_node_without_room_is_one_line(
    probes: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device", "/tmp")

    probes.setattr(tempfile, "mkdtemp", full)
    assert answer(NodeOptions(), 30) == 1
    assert capfd.readouterr() == ("", "diagnose: no space left on device: /tmp\n")


@pytest.mark.slow
def test_nobody_reads_any_more(probes: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As when the connection is lost: nothing is left behind."""
    script = (
        "import sys\n"
        "from tests.collect.reach.test_remote import quick\n"
        "from diagnose.collect import node\nfrom diagnose.collect.reach import remote\n"
        "from diagnose.collect.bundle import NodeOptions\n"
        "node.collect_node = quick\n"
        "sys.exit(remote.answer(NodeOptions(), 30))\n"
    )
    mine, its = os.pipe()
    os.close(mine)
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=its, stderr=subprocess.PIPE, check=False,
        cwd=Path(__file__).parents[3], env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=60,
    )  # fmt: skip
    os.close(its)
    assert (done.returncode, done.stderr) == (1, b"")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_child_that_is_stuck_does_not_keep_the_stream_open(
    probes: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A probe held by the kernel outlives the command; who reads its output must see the end."""
    script = (
        "import os, sys, time\n"
        "from tests.collect.reach import test_remote\n"
        "from diagnose.collect import node\nfrom diagnose.collect.reach import remote\n"
        "from diagnose.collect.bundle import NodeOptions\n"
        "def forks(folder, options):\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(8)\n"
        "        os._exit(0)\n"
        "    return test_remote.quick(folder, options)\n"
        "node.collect_node = forks\n"
        "sys.exit(remote.answer(NodeOptions(), 30))\n"
    )
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False,
        cwd=Path(__file__).parents[3], timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert time.monotonic() - began < 6
    assert unpacked(done.stdout, tmp_path / "out").complete


def test_a_folder_where_programs_may_run(probes: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = os.statvfs

    def noexec(path: str) -> os.statvfs_result:
        found = list(real(path))
        if path == str(tmp_path):
            found[8] |= os.ST_NOEXEC
        return os.statvfs_result(found)

    probes.setattr(os, "statvfs", noexec)
    with remote._folder() as folder:
        assert folder.parent == tmp_path
    with remote._folder(executable=True) as folder:
        assert folder.parent == Path("/dev/shm")
    assert not folder.exists()


def test_tools_that_were_sent(probes: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import platform
    import shutil
    import zipfile

    def archive(machine: str) -> IO[bytes]:
        with zipfile.ZipFile(tmp_path / "p.pyz", "w") as out:
            out.writestr(remote.ABOUT, json.dumps({"machine": machine}))
            out.writestr(remote.SPY, "#!/bin/sh\n")
        return (tmp_path / "p.pyz").open("rb")

    probes.setattr(sys, "argv", [str(tmp_path / "p.pyz")])
    probes.setenv("PATH", "/nowhere")
    probes.setattr(sys, "executable", "/nowhere/python")
    archive(platform.machine()).close()
    with remote._tools():
        found = shutil.which("py-spy")
        assert found
        assert Path(found).stat().st_mode & 0o777 == 0o700
    assert not Path(found).exists()
    archive("another").close()
    with remote._tools():
        assert shutil.which("py-spy") is None
