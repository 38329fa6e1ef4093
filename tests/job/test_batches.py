"""Many small files scanned in batches: nothing of the diagnosis depends on who scanned which."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import diagnose
from diagnose.ingest import Source, find_sources
from diagnose.ingest.source import Budget
from diagnose.job import batches, parallel
from diagnose.job.identity import hosts_of_ranks, ranks_of_pids
from diagnose.job.load import load, read
from diagnose.job.model import Job
from diagnose.report.html import render
from diagnose.runtime.workers import Pool
from diagnose.timeline.draft import Draft, Drafted
from diagnose.timeline.packed import Packed, pack
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
def test_a_diagnosis_is_the_same_whoever_scans(
    folder: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(batches, "_BATCH", size)
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
    """Drafts become columns where they go to another process, and only there."""
    monkeypatch.setattr(batches, "_BATCH", 1)
    packed: list[int] = []  # in this process

    def recorded(drafts: Sequence[Draft]) -> Packed:
        packed.append(len(drafts))
        return pack(drafts)

    monkeypatch.setattr(batches, "pack", recorded)
    job = read(find_sources([folder]), workers=workers)
    assert [isinstance(scan, Drafted) for scan in job.scans] == [workers > 1] * (RANKS + 3)
    assert packed == []


def test_drafts_are_held_once(folder: Path) -> None:
    job = load(folder, executor=Elsewhere())
    assert len(job.events) > RANKS
    assert not any(scan.drafts for scan in job.scans if isinstance(scan, Drafted))


def test_batches_keep_the_order_and_are_about_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "_BATCH", 3)
    sources = [Source("a", "text", size, bytes_of) for size in (1, 1, 1, 5, 1, 0)]
    assert batches.batches(range(6), sources) == [[0, 1, 2], [3], [4, 5]]
    assert batches.batches([1, 3, 5], sources) == [[1, 3], [5]]
    assert batches.batches([], sources) == []


def test_what_is_large_or_of_an_archive_is_in_no_batch(folder: Path) -> None:
    (first,) = find_sources([folder / "rank_0.log"])
    large = replace(first, size=batches.SMALL + 1)
    here, member = replace(first, chunks=bytes_of), replace(first, budget=Budget())
    assert [*map(batches.small, (first, large, here, member))] == [True, False, False, False]


def test_many_small_files_are_worth_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    few = [Source(f"{n}.log", "text", 30_000, bytes_of) for n in range(1250)]
    assert (parallel.processes(few), parallel.processes(few[:100])) == (2, 1)
    assert parallel.processes([Source("a.log", "text", 40 << 20, bytes_of)]) == 1


def bytes_of() -> Any:
    return iter(())
