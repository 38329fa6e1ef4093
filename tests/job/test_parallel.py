"""Sources scanned elsewhere: the same scans, in the same order."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import Any

import pytest

from diagnose.catalog.load import load_catalog
from diagnose.errors import InputError
from diagnose.ingest import Source, find_sources, text_source
from diagnose.job.load import load, read
from diagnose.job.parallel import scan_in
from diagnose.match.compile import compile_matcher
from diagnose.match.scanner import SourceScan, scan_source
from diagnose.timeline.readings import events_of_scans


class Elsewhere(Executor):
    """Runs what it is given on copies, as another process would."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        call, given = pickle.loads(pickle.dumps((fn, args)))
        given_to = call.args[1]
        batch = given_to if isinstance(given_to, list) else [given_to]
        self.sent += [source.name for source in batch]
        future: Future[Any] = Future()
        future.set_result(pickle.loads(pickle.dumps(call(*given))))
        return future


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for rank in range(3):
        (tmp_path / f"rank_{rank}.log").write_text(f"[rank{rank}]: ValueError: {rank}\n")
    return tmp_path


@pytest.fixture(autouse=True)
def one_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.job.parallel._BATCH", 1)


def told(scans: list[SourceScan]) -> list[object]:
    return [
        (
            scan.source.name,
            scan.total_lines,
            scan.counts,
            events_of_scans([scan], signatures),
        )
        for signatures in [load_catalog([]).signatures]
        for scan in scans
    ]


def scanned(sources: list[Source]) -> tuple[Elsewhere, list[SourceScan]]:
    executor = Elsewhere()
    return executor, scan_in(sources, (), compile_matcher(load_catalog([])), executor=executor)


def test_scans_come_in_the_order_of_their_sources(files: Path) -> None:
    sources = [*find_sources([files])]
    executor, scans = scanned(sources)
    matcher = compile_matcher(load_catalog([]))
    assert executor.sent == ["rank_0.log", "rank_1.log", "rank_2.log"]
    assert told(scans) == told([scan_source(source, matcher) for source in sources])
    assert [scan.source is source for scan, source in zip(scans, sources, strict=True)] == [
        True
    ] * 3


def test_what_only_exists_here_is_scanned_here(files: Path) -> None:
    here = Source("<stdin>", "text", 0, lambda: iter(()))
    first, *others = find_sources([files])
    executor, scans = scanned([first, here, *others])
    assert executor.sent == ["rank_0.log", "rank_1.log", "rank_2.log"]
    assert [scan.source.name for scan in scans] == ["rank_0.log", "<stdin>", *executor.sent[1:]]


def test_what_reading_told_elsewhere_is_known_here(files: Path) -> None:
    (files / "rank_1.log").write_bytes(b"[rank1]: ValueError: 1\n" + bytes(100_000))
    (files / "rank_1.log.gz").write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03cut")
    here = load(files)
    there = load(files, executor=Elsewhere())
    assert (there.notes, there.unread) == (here.notes, here.unread)
    assert there.unread
    assert [*there.events] == [*here.events]
    assert [*there.events] == [*here.events]


@pytest.mark.slow
def test_own_entries_are_known_elsewhere(files: Path, tmp_path: Path) -> None:
    entry = tmp_path / "own.yaml"
    entry.write_text(
        "signatures:\n  - id: own.two\n    title: Two\n    role: cause\n    class: env.config\n"
        "    strength: strong\n    culprit: self\n"
        "    match: [{regex: 'ValueError: 2', example: 'ValueError: 2'}]\n"
        "    references: ['https://example.org']\n    remedies: [{when: now, do: Look}]\n"
        "    restart: fix_first\n"
        "    near_miss: ['ValueError: 1']\n"
    )
    job = load([*files.glob("*.log")], patterns=[entry], executor=Elsewhere())
    assert [event.rank for event in job.events.by_signature["own.two"]] == [2]


def test_a_killed_worker_is_an_error_for_people(files: Path) -> None:
    class Killed(Elsewhere):
        def submit(self, fn: Callable[..., Any], /, *_: Any, **__: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(BrokenExecutor())
            return future

    with pytest.raises(InputError, match="a worker process was killed"):
        load(files, executor=Killed())


def test_a_single_source_is_not_sent() -> None:
    executor = Elsewhere()
    read([text_source("quiet\n")], executor=executor)
    assert executor.sent == []
