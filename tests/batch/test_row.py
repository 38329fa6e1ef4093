"""A job's own times, of all the times that its logs tell."""

from __future__ import annotations

import gzip
from datetime import datetime
from pathlib import Path

import pytest

from diagnose.batch.jobs import JobRef
from diagnose.batch.work import problems, span
from diagnose.ingest import find_sources
from diagnose.timeline.event import Event, Timeline

SECOND = 10**9


def event(index: int, second: int | None, source: str, **more: object) -> Event:
    time = None if second is None else second * SECOND
    return Event(index=index, time=time, source=source, **more)  # type: ignore[arg-type]


def at(second: int) -> datetime:
    return datetime(1970, 1, 1, 0, 0, second)


MACHINE = [event(0, 1, "syslog", host="node1"), event(9, 59, "syslog", host="node1")]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], (None, None)),
        ([event(1, None, "a.log")], (None, None)),
        ([event(1, 30, "a.log"), event(2, 10, "a.log"), event(3, None, "a.log")], (at(10), at(30))),
        # A machine's own log goes on before and after the job.
        ([MACHINE[0], event(1, 10, "a.log"), event(2, 30, "a.log"), MACHINE[1]], (at(10), at(30))),
        # One that tells a rank anywhere is the job's.
        (
            [MACHINE[0], event(1, 10, "a.log"), event(2, 30, "syslog", host="node1", rank=3)],
            (at(1), at(30)),
        ),
        (MACHINE, (at(1), at(59))),
    ],
)
def test_from_the_first_to_the_last_time_of_the_jobs_own_logs(
    events: list[Event], expected: tuple[datetime | None, datetime | None]
) -> None:
    assert span(Timeline(events)) == expected


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.log", b"step 1\n", None),
        ("core", b"\x7fELF" + bytes(99), None),
        ("a.rar", b"Rar!\x1a\x07" + bytes(99), None),
        ("notes.md", b"gzip data inside gzip data\n", None),
        (
            "b.log.gz",
            gzip.compress(gzip.compress(b"x\n", mtime=0), mtime=0),
            "b.log.gz: gzip data inside gzip data",
        ),
        (
            "c.log.gz",
            gzip.compress(b"x\n" * 99, mtime=0)[:-4],
            "c.log.gz: truncated gzip data, read up to its end",
        ),
    ],
)
def test_what_could_not_be_read_is_an_error_of_the_job(
    tmp_path: Path, name: str, data: bytes, expected: str | None
) -> None:
    (tmp_path / "z.log").write_bytes(b"step 1\n")
    (tmp_path / name).write_bytes(data)
    sources = find_sources([tmp_path])
    for source in sources:
        list(source.chunks())
    assert problems(JobRef("j", "folder", str(tmp_path)), sources) == expected
