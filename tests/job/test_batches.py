"""Many small files scanned in batches: nothing of the diagnosis depends on who scanned which."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose.ingest import Source, find_sources
from diagnose.ingest.source import Budget
from diagnose.job import parallel
from diagnose.job.identity import hosts_of_ranks, ranks_of_pids
from diagnose.job.load import load, read
from diagnose.job.model import Job
from diagnose.job.parallel import pack, unpack
from diagnose.parse.stamps import Stamp
from diagnose.report.html import render
from diagnose.runtime.workers import Pool
from diagnose.timeline.event import Event, Learned, Meaning, Work
from tests.job.test_parallel import Elsewhere
from tests.sizes import few

RANKS = 9


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Logs of a hang, of which each kind of line and of author is told in some."""
    for rank in range(RANKS):
        nccl = f"n{rank // 2}:{100 + rank}:{900 + rank} [0] NCCL INFO"
        lines = [
            f"{nccl} ncclCommInitRank comm 0x5{rank} rank {rank} nranks {RANKS} cudaDev 0 nvmlDev 0"
            f" busId 1000 commId 0xabc - Init COMPLETE",
            f"[rank{rank}]: 2025-11-03 08:00:0{rank},000 INFO step 3 loss 1.{rank}",
            f"[rank{rank}]: é \x1b[31mValueError: bad {rank}\x1b[0m",
        ]
        if rank != 4:
            lines.append(
                f"[rank{rank}]:[E1103 08:10:03.905 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog"
                " caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE,"
                " NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600377 milliseconds before"
                " timing out."
            )
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(lines * 3) + "\n")
    (tmp_path / "srun.log").write_text("srun: error: n1: tasks 2-5: Exited with exit code 1\n")
    (tmp_path / "cut.log.gz").write_bytes(
        gzip.compress(b"[rank1]: OSError: x\n" * 99, mtime=0)[:-9]
    )
    (tmp_path / "empty.log").write_bytes(b" \n")
    return tmp_path


def told(job: Job) -> list[object]:
    names = hosts_of_ranks(job.sources, job.scans), ranks_of_pids(job.scans)
    scans = [(scan.source.name, scan.counts, scan.total_lines, scan.problem) for scan in job.scans]
    events = [*job.events]
    found = diagnose.diagnose(job)
    page = render(job, found)
    return [found.to_json(), page, events, names, scans, job.notes, job.unread]


@pytest.mark.parametrize("size", few([2000, 1, 1 << 20], 1))
@pytest.mark.slow
def test_a_diagnosis_is_the_same_whoever_scans(
    folder: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(parallel, "_BATCH", size)
    here = told(load(folder))
    assert here[-1]
    assert told(load(folder, executor=Elsewhere())) == here
    assert told(read(find_sources([folder]), workers=2)) == here
    with Pool(2) as executor:
        assert told(load(folder, executor=executor)) == here


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_who_scans_here_sends_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """Events become columns where they go to another process, and only there."""
    monkeypatch.setattr(parallel, "_BATCH", 1)
    packed: list[int] = []  # in this process

    def recorded(kind: type[Any], events: Sequence[Any]) -> object:
        packed.append(len(events))
        return pack(kind, events)

    monkeypatch.setattr(parallel, "pack", recorded)
    job = read(find_sources([folder]), workers=workers)
    assert [scan.events is not None for scan in job.scans] == [workers > 1] * (RANKS + 3)
    assert packed == []


def test_events_are_held_once(folder: Path) -> None:
    job = load(folder, executor=Elsewhere())
    assert len(job.events) > RANKS
    assert not any(scan.events for scan in job.scans)


FIRST = Event(
    "a.log", 1, 0, "text é \udcff", Meaning("signature", "a.b", "cause", "error"),
    rank=3, host="n1", pid=12, stamp=Stamp(5, has_year=False, boot=True),
)  # fmt: skip
EVENTS = [
    FIRST,
    replace(FIRST, line=2, offset=9, rank=0, learned=Learned.LINE),
    Event(
        "b.log", 1, 0, "", Meaning("progress", ends_phase=True), Work(step=7), {"step": "7"},
        document=True, mtime=1.5,
    ),
]  # fmt: skip


@pytest.mark.parametrize("size", [3, 1, 0])
def test_what_is_sent_as_columns_comes_back(size: int) -> None:
    sent = pickle.loads(pickle.dumps(pack(Event, EVENTS[:size])))
    assert unpack(sent) == EVENTS[:size]


def test_lines_that_mean_the_same_share_what_they_mean() -> None:
    first, second, _ = unpack(pack(Event, EVENTS))
    assert first.meaning is second.meaning
    assert first.work is second.work
    assert first.stamp is second.stamp


def test_a_column_of_one_value_is_sent_once() -> None:
    _, _, columns = pack(Event, [FIRST] * 3)
    inside = [column for _, shared in columns if shared for column in shared[2]]
    assert all(isinstance(values, tuple) for values, _ in (*columns, *inside))


def test_batches_keep_the_order_and_are_about_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_BATCH", 3)
    sources = [Source("a", "text", size, bytes_of) for size in (1, 1, 1, 5, 1, 0)]
    assert parallel.batches(range(6), sources) == [[0, 1, 2], [3], [4, 5]]
    assert parallel.batches([1, 3, 5], sources) == [[1, 3], [5]]
    assert parallel.batches([], sources) == []


def test_what_is_large_or_of_an_archive_is_in_no_batch(folder: Path) -> None:
    (first,) = find_sources([folder / "rank_0.log"])
    large = replace(first, size=parallel.SMALL + 1)
    here, member = replace(first, chunks=bytes_of), replace(first, budget=Budget())
    assert [*map(parallel.small, (first, large, here, member))] == [True, False, False, False]


def test_many_small_files_are_worth_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    few = [Source(f"{n}.log", "text", 30_000, bytes_of) for n in range(1250)]
    assert (parallel.processes(few), parallel.processes(few[:100])) == (2, 1)
    assert parallel.processes([Source("a.log", "text", 40 << 20, bytes_of)]) == 1


def bytes_of() -> Any:
    return iter(())
