"""The queue: order, positions, bounds, cancelling, and what outlives the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from diagnose.runtime.workers import Stopped
from diagnose.serve import desk
from diagnose.serve.model import Done, Failed, Progress, Summary, Task
from diagnose.serve.run import tidy

from .running import API, TEXT, Running, running

SUMMARY = Summary("hung", "x.y", "high", "A headline", "", "", 1, "words")


class Slow:
    """A worker whose jobs end when the test says so."""

    gate = threading.Event()
    began: ClassVar[list[str]] = []

    def __init__(self, *_: object) -> None:
        self.replaced = 0

    def start(self) -> None: ...

    def close(self) -> None: ...

    def run(
        self,
        call: partial[Done | Failed],
        seconds: float,
        heard: Callable[[Progress], None],
        stop: Callable[[], bool],
    ) -> Done | Failed:
        task: Task = call.args[0]
        self.began.append(task.title)
        heard(Progress("Reading", 1, 2, 3 << 20, 4 << 20))
        while not self.gate.wait(0.01):
            if stop():
                raise Stopped
        if "fail" in task.title:
            return Failed("no luck")
        return Done(SUMMARY, {"json": b"", "input": b""})


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Slow]]:
    monkeypatch.setattr(desk, "Worker", Slow)
    monkeypatch.setattr(desk, "check", lambda *_: None)
    monkeypatch.setattr("diagnose.serve.run.STOP_SECONDS", 0.05)
    monkeypatch.setattr("diagnose.serve.pages._WAIT", 0.05)
    Slow.gate.clear()
    Slow.began.clear()
    yield Slow
    Slow.gate.set()


def put(server: Running, title: str, size: int = 10) -> str:
    reply = server.http.post(API, content="x" * size, headers=TEXT, params={"title": title})
    assert reply.status_code == 202, reply.text
    return str(reply.json()["id"])


def state(server: Running, id_: str) -> tuple[str, int | None]:
    found = server.http.get(f"{API}/{id_}").json()
    return found["state"], found["position"]


@pytest.mark.slow
def test_positions_are_honest_and_the_queue_ends(slow: type[Slow], tmp_path: Path) -> None:
    with running(tmp_path, workers=1, queue=2) as server:
        first = put(server, "1")
        server.until(first, "running")
        second, third = put(server, "2"), put(server, "3")
        assert [state(server, id_) for id_ in (first, second, third)] == [
            ("running", None), ("queued", 1), ("queued", 2),
        ]  # fmt: skip
        running_now = server.http.get(f"{API}/{first}").json()
        assert running_now["progress"] == {
            "stage": "Reading", "done": 1, "total": 2, "read": 3 << 20, "size": 4 << 20,
        }  # fmt: skip
        assert ">Reading, log 2 of 2, 3 MiB of 4 MiB</p>" in server.http.get(f"/d/{first}").text
        refused = server.http.post(API, content="x", headers=TEXT)
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.json()["error"]["code"] == "queue_full"
        page = server.paste("x")
        assert page.status_code == 429
        assert "The queue is full" in page.text
        assert server.http.delete(f"{API}/{second}").status_code == 204
        assert state(server, third) == ("queued", 1)
        waiting = server.http.get(f"/d/{third}")
        assert "Waiting: 1 in the queue" in waiting.text
        assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in waiting.text
        slow.gate.set()
        server.until(third, "done")
        assert slow.began == ["1", "3"]
        assert server.http.get("/healthz").status_code == 200
    assert list((tmp_path / "spool").iterdir()) == []


def test_large_jobs_leave_a_worker_to_the_small(slow: type[Slow], tmp_path: Path) -> None:
    with running(tmp_path, workers=2) as server:
        large = [put(server, f"large {n}", 5 << 20) for n in range(3)]
        server.until(large[0], "running")
        small = put(server, "small")
        server.until(small, "running")
        assert state(server, large[1]) == ("queued", 1)
        assert slow.began == ["large 0", "small"]


def test_a_running_job_is_cancelled_at_once(slow: type[Slow], tmp_path: Path) -> None:
    with running(tmp_path, workers=1) as server:
        job = put(server, "1")
        server.until(job, "running")
        reply = server.http.post(f"/d/{job}/delete", data={"word": server.word()})
        assert (reply.status_code, reply.headers["location"]) == (303, "/")
        assert server.http.get(f"{API}/{job}").status_code == 404
        after = put(server, "2")
        server.until(after, "running")
        assert [path.name for path in (tmp_path / "spool").iterdir()] == [after]


@pytest.mark.slow
def test_what_was_accepted_outlives_the_server(slow: type[Slow], tmp_path: Path) -> None:
    with running(tmp_path, workers=1) as server:
        ids = [put(server, str(number)) for number in range(3)]
        server.until(ids[0], "running")
    slow.gate.set()
    (tmp_path / "spool" / "stray").mkdir()
    with running(tmp_path, workers=1) as server:
        for id_ in ids:
            assert server.until(id_, "done")["verdict"] == "hung"
    assert slow.began == ["0", "0", "1", "2"]
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_job_whose_input_is_gone_fails(slow: type[Slow], tmp_path: Path) -> None:
    with running(tmp_path, workers=1) as server:
        served = server.served
        served.store.add("a" * 16, "text", "", "", 1, "json", "")
        served.store.add("b" * 16, "text", "", "", 1, "json", "")
        for _ in range(2):
            served.store.requeue()
            served.store.begin("b" * 16)
    with running(tmp_path, workers=1) as server:
        assert "lost" in server.until("a" * 16, "failed")["error"]
        assert "abandoned" in server.until("b" * 16, "failed")["error"]


def test_a_graceful_end_keeps_what_runs(
    slow: type[Slow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagnose.serve.run.STOP_SECONDS", 60.0)
    with running(tmp_path, workers=1) as server:
        job = put(server, "1")
        server.until(job, "running")
        threading.Timer(0.2, slow.gate.set).start()
    with running(tmp_path, workers=1) as server:
        assert server.http.get(f"{API}/{job}").json()["state"] == "done"


def test_failures_are_told_and_counted(slow: type[Slow], tmp_path: Path) -> None:
    slow.gate.set()
    with running(tmp_path, workers=1) as server:
        found = server.until(put(server, "fail"), "failed")
        assert found["error"] == "no luck"
        assert 'jobs_total{state="failed"} 1' in server.http.get("/metrics").text


def test_a_store_that_cannot_write_stops_nothing(
    slow: type[Slow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.gate.set()
    with running(tmp_path, workers=1) as server:

        def full(*_: Any) -> bool:
            raise OSError("no space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(server.served.store, "finish", full)
            assert "could not be kept" in server.until(put(server, "1"), "failed")["error"]
        server.until(put(server, "2"), "done")


def test_originals_are_kept_only_when_asked_for(slow: type[Slow], tmp_path: Path) -> None:
    slow.gate.set()
    with running(tmp_path, workers=1, originals=True) as server:
        id_ = put(server, "1")
        server.until(id_, "done")
        kept = tmp_path / "originals" / id_ / "paste.txt"
        assert kept.read_text() == "x" * 10
        server.http.delete(f"{API}/{id_}")
        assert not kept.exists()


def test_old_and_large_results_are_deleted(slow: type[Slow], tmp_path: Path) -> None:
    slow.gate.set()
    with running(tmp_path, workers=1, keep_days=2.0, keep_bytes=250) as server:
        store = server.served.store
        ids = []
        for number in range(4):
            id_ = put(server, str(number))
            server.until(id_, "done")
            store.add_outputs(id_, {"page": b"x" * 100})
            ids.append(id_)
        tidy(server.served, time.time())
        left = [record.id for record in store.search()]
        assert left == [ids[3], ids[2]]
        tidy(server.served, time.time() + 3 * 86400)
        assert store.search() == []


def test_a_slow_archive_does_not_end_the_streams(slow: type[Slow], tmp_path: Path) -> None:
    with running(tmp_path, workers=1) as server:
        job = put(server, "1")
        server.until(job, "running")
        with server.http.stream("GET", f"{API}/{job}/events") as reply:
            lines = reply.iter_lines()
            assert next(lines) == "event: status"
            server.http.delete(f"{API}/{job}")
            rest = list(lines)
        assert "event: deleted" in rest
