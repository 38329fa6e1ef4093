from __future__ import annotations

import gzip

import pytest

from diagnose.ingest.raw import BytesStore
from diagnose.ingest.read import TextChunks, look
from diagnose.ingest.source import Budget

START = 1_751_364_000_000_000  # 2025-07-01 10:00:00 UTC


def record(second: int, message: bytes, *, priority: int = 6, binary: bool = False) -> bytes:
    fields = (
        b"__CURSOR=s=1f;i=%x\n__REALTIME_TIMESTAMP=%d\n_HOSTNAME=gpu-3\nPRIORITY=%d\n"
        b"SYSLOG_IDENTIFIER=trainer\n_PID=711\n_CMDLINE=python train.py\n"
    ) % (second, START + second * 1_000_000, priority)
    if binary:
        text = b"MESSAGE\n" + len(message).to_bytes(8, "little") + message + b"\n"
    else:
        text = b"MESSAGE=" + message + b"\n"
    return fields + text + b"\n"


def lines(data: bytes) -> list[str]:
    store = BytesStore(data)
    source = look(store, "journal.txt")
    assert source.kind == "text"
    chunks = TextChunks(store, source, Budget(), chunk_limit=4096)()
    return b"".join(chunk.data for chunk in chunks).decode().splitlines()


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_records_are_lines_with_time_host_and_process(pack: type[bytes]) -> None:
    data = record(0, b"step 1 loss=2.5") + record(1, b"cannot read shard 4", priority=3)
    assert lines(pack(data)) == [
        "2025-07-01T10:00:00.000000+00:00 gpu-3 trainer[711]: step 1 loss=2.5",
        "<3>2025-07-01T10:00:01.000000+00:00 gpu-3 trainer[711]: cannot read shard 4",
    ]


@pytest.mark.parametrize("first", [False, True])
def test_each_line_of_a_binary_message_has_the_prefix(first: bool) -> None:
    start = b"" if first else record(0, b"step 1")
    found = lines(start + record(1, b"one\n\ntwo\n__REALTIME_TIMESTAMP=5", binary=True))
    assert [line.partition("]: ")[2] for line in found[not first :]] == [
        "one",
        "",
        "two",
        "__REALTIME_TIMESTAMP=5",
    ]
    assert all(line.startswith("2025-07-01T10:00:01") for line in found[not first :])


def test_a_record_without_a_message_is_no_line() -> None:
    silent = b"__REALTIME_TIMESTAMP=%d\n_HOSTNAME=gpu-3\n\n" % START
    assert len(lines(silent + record(1, b"step 1"))) == 1


@pytest.mark.parametrize("length", [1 << 63, (1 << 64) - 1])
def test_a_damaged_length_loses_no_record_below_it(length: int) -> None:
    damaged = b"__REALTIME_TIMESTAMP=%d\nMESSAGE\n" % START + length.to_bytes(8, "little") + b"\n\n"
    assert lines(damaged + record(1, b"step 1"))[-1].endswith("]: step 1")


def test_a_record_that_is_cut_off() -> None:
    whole = record(0, b"step 1") + record(1, b"step 2\nloss 3", binary=True)
    assert [line.partition("]: ")[2] for line in lines(whole[:-5])] == ["step 1", "step 2", "los"]


def test_verbose_records() -> None:
    data = (
        b"Tue 2025-07-01 10:00:00.250000 UTC [s=0a1b2c3d;i=1;b=4e;m=5;t=6;x=7]\n"
        b"    PRIORITY=6\n    _HOSTNAME=gpu-3\n    _PID=711\n"
        b"    SYSLOG_IDENTIFIER=trainer\n    MESSAGE=step 1\n"
    )
    assert lines(data) == ["2025-07-01T10:00:00.250000Z gpu-3 trainer[711]: step 1"]


def test_a_log_that_mentions_a_field_stays_as_it_is() -> None:
    text = b"step 1\n__REALTIME_TIMESTAMP=1751364000000000\nMESSAGE=step 2\n\n"
    assert lines(text) == text.decode().splitlines()
