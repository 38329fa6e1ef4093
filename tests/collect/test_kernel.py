from __future__ import annotations

import time

import pytest

from diagnose.collect import machine
from diagnose.collect.bundle import Sink
from diagnose.runtime.children import TimedOut, Unavailable


@pytest.fixture
def kmsg(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The records of /dev/kmsg."""
    records: list[str] = []
    monkeypatch.setattr(machine, "_records", lambda: iter(records))
    return records


def test_the_real_ring_is_read_to_its_end_and_no_further() -> None:
    try:
        records = [*machine._records()]
    except OSError as error:
        pytest.skip(f"not allowed here: {error}")
    assert all(machine._RECORD.match(record) for record in records)


def test_messages_since_the_job_began(sink: Sink, kmsg: list[str]) -> None:
    now = time.clock_gettime(time.CLOCK_MONOTONIC)
    recent, before = int((now - 5) * 1e6), int((now - 500) * 1e6)
    kmsg += [
        f"4,1,{before},-;of the job before\n",
        f"4,2,{recent},-;NVRM: Xid (PCI:0000:3b:00): 79, gone.\n SUBSYSTEM=pci\n",
        f"14,3,{recent},-;systemd[1]: of a program\n",
        "no record",
    ]  # fmt: skip
    assert machine.messages(sink, "node1", time.time() - 60, 5) is None
    (line,) = (sink.folder / "kernel.log").read_text().splitlines()
    assert line.startswith("20")
    assert line.endswith("+00:00 node1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, gone.")


def test_no_messages_is_told(sink: Sink, kmsg: list[str]) -> None:
    assert machine.messages(sink, "node1", time.time(), 5) is None
    assert (sink.folder / "kernel.log").read_text().startswith("-- no kernel messages since 20")


def test_programs_are_asked_where_the_kernel_may_not_be(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_: object) -> str:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(machine, "_kmsg", closed)
    monkeypatch.setattr(machine, "found", lambda name: name)
    asked = []

    def output(words: list[str], _seconds: float) -> tuple[str, str]:
        asked.append(words[0])
        if words[0] == "dmesg":
            raise TimedOut("dmesg gave no answer in 4 s")
        return "2026-06-02T08:00:00+0000 n1 kernel: oom-kill: x\n", ""

    monkeypatch.setattr(machine, "output", output)
    machine.messages(sink, "n1", time.time(), 5)
    assert asked == ["dmesg", "journalctl"]
    assert (sink.folder / "kernel.log").read_text().endswith("kernel: oom-kill: x\n")
    monkeypatch.setattr(
        machine, "output", lambda *_: ("Hint: You are ... insufficient permissions", "")
    )
    with pytest.raises(Unavailable, match="kernel messages may not be read"):
        machine.messages(sink, "n1", time.time(), 5)
