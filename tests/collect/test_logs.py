from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diagnose.collect import processes
from diagnose.collect.bundle import Probe, Process, Sink
from diagnose.collect.node import lacking
from diagnose.collect.processes import Output, outputs, tail
from diagnose.redact.redactor import Redactor
from diagnose.runtime.children import Unavailable
from tests.collect.machines import Machine

TOKEN = "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY2z"


def rank(pid: int, number: int | None = 0, role: str = "rank") -> Process:
    name = f"pid-{pid}" if number is None else f"rank-{number}"
    return Process(pid, role, number, folder=name)  # type: ignore[arg-type]


def test_each_file_is_there_once_and_of_the_rank_that_has_it_alone(machine: Machine) -> None:
    for pid in (20, 21, 22):
        machine.process(pid)
    for fd in (1, 2):
        machine.open(20, fd, "/w/rank0.log")
    machine.open(21, 1, "/w/out")
    machine.open(21, 2, "/w/shared")
    machine.open(22, 2, "/w/shared")
    found = outputs([rank(20), rank(21, 1), rank(22, None, "launcher"), rank(23, 3), rank(99, 9)])
    assert found == [
        Output(20, 1, "/w/rank0.log", "rank-0", "output.log"),
        Output(21, 1, "/w/out", "rank-1", "stdout.log"),
        Output(21, 2, "/w/shared", "", "output-1.log"),
    ]
    # Workers print where their rank does.
    assert outputs([rank(20, 0, "loader"), rank(20, 0, "child")]) == []


@contextmanager
def printing(into: object) -> Iterator[int]:
    """A process whose standard output is this."""
    words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=into) as child:  # type: ignore[call-overload]
        yield child.pid


def output(pid: int) -> Output:
    return Output(pid, 1, "", "", "stdout.log")


@pytest.mark.slow
def test_the_end_of_a_file_masked_and_as_old_as_it_is(tmp_path: Path, sink: Sink) -> None:
    path = tmp_path / "job.log"
    path.write_text("".join(f"step {n:9} token={TOKEN}\n" for n in range(10_000)))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    with path.open("ab") as file, printing(file) as pid:
        assert tail(sink, output(pid)) is None
    copy = sink.folder / "stdout.log"
    text = copy.read_text()
    lines = text.splitlines()
    assert len(lines) * len(f"step {0:9} token={TOKEN}\n") > processes.TAIL  # as printed
    assert lines[-1] == "step      9999 token=[masked]"
    assert {line[:5] for line in lines} == {"step "}
    assert TOKEN[3:] not in text
    assert copy.stat().st_mtime == 1_700_000_000
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_of_a_secret_that_is_cut_nothing_is_seen(
    tmp_path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "TAIL", 2000)
    body = "".join(f"{n:02}" + "Ab3/" * 15 + "\n" for n in range(30))
    key = f"-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n"
    path = tmp_path / "job.log"
    path.write_text("start\n" + key + "step 1\n" * 150)
    with path.open("ab") as file, printing(file) as pid:
        tail(sink, output(pid))
    text = (sink.folder / "stdout.log").read_text()
    assert "Ab3/" not in text
    assert text.endswith("step 1\n")


def test_a_log_stays_within_the_limit_of_its_probe(tmp_path: Path) -> None:
    sink = Sink(tmp_path / "out", Redactor(people=False, numbers=False), 50)
    path = tmp_path / "job.log"
    path.write_text("a line\n" * 100)
    with path.open("ab") as file, printing(file) as pid:
        tail(sink, output(pid))
    assert (sink.folder / "stdout.log").read_text() == "a line\n" * 7


@pytest.fixture
def unopened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a descriptor of another process fails."""
    real = os.open

    def no(path: object, *more: int) -> int:
        assert "/fd/" not in str(path), "opened"
        return real(path, *more)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(os, "open", no)


@pytest.mark.parametrize(
    ("into", "why"),
    [
        (subprocess.PIPE, "it prints into a pipe"),
        (subprocess.DEVNULL, "it prints to a terminal or a device"),
    ],
)
def test_what_is_no_file_is_not_opened(into: int, why: str, sink: Sink, unopened: None) -> None:
    with printing(into) as pid, pytest.raises(Unavailable, match=why):
        tail(sink, output(pid))
    assert not sink.folder.exists()


def test_a_file_of_another_user_is_not_opened(
    tmp_path: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch, unopened: None
) -> None:
    monkeypatch.setattr(processes, "uid", lambda _pid: 4711)
    with (tmp_path / "x").open("wb") as file, printing(file) as pid:
        file.write(b"a line")
        with pytest.raises(Unavailable, match="it prints into a file of another user"):
            tail(sink, output(pid))


def test_nothing_printed_is_no_log(tmp_path: Path, sink: Sink) -> None:
    nothing = pytest.raises(Unavailable, match="nothing was printed")
    with (tmp_path / "x").open("wb") as file, printing(file) as pid, nothing:
        tail(sink, output(pid))
    assert not sink.folder.exists()


def test_what_is_lacking_is_a_line_of_its_own() -> None:
    def probe(name: str, problem: str = "") -> Probe:
        return Probe(name, "not available" if problem else "ok", problem=problem)

    missing = "py-spy is not installed: pip install py-spy"
    bare = [probe(f"rank-{n}/stack-1", missing) for n in range(4)]
    piped = [probe(f"rank-{n}/output", "it prints into a pipe") for n in range(4)]
    assert lacking([*bare, *piped, probe("gpus", "no nvidia-smi")]) == [
        f"no stacks of 4 processes: {missing}",
        "no log of the job: it prints into a pipe; give its log beside this bundle",
    ]
    assert lacking([probe("rank-0/stack-1"), *piped, probe("output-1")]) == []
