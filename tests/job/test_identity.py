"""Which process is which rank, and on which host."""

from __future__ import annotations

from typing import Any

from diagnose.ingest import Source
from diagnose.job.identity import hosts_of_ranks, ranks_of_pids
from diagnose.match.lines import Reading
from diagnose.match.scanner import SourceScan
from diagnose.parse.prefix import Prefix


def source(**more: Any) -> Source:
    return Source("a.log", "text", 0, lambda: iter(()), **more)


def line(**prefix: Any) -> Reading:
    return Reading(0, 1, 0, b"", prefix=Prefix("", **prefix))


def test_a_process_is_the_rank_of_its_lines() -> None:
    scan = SourceScan(
        source(), [line(rank=3, pid=7), line(rank=3, pid=7), line(rank=4)], [line(rank=5, pid=8)]
    )
    assert ranks_of_pids([scan]) == {7: 3, 8: 5}


def test_a_number_that_two_ranks_have_tells_nothing() -> None:
    scans = [SourceScan(source(), [line(rank=rank, pid=7)]) for rank in (3, 4)]
    assert ranks_of_pids([*scans, SourceScan(source(), [line(pid=9)])]) == {}


def test_lines_without_a_rank_are_of_that_of_their_file() -> None:
    own = SourceScan(source(rank=2), [line(pid=7), line(rank=0, pid=6)])
    assert ranks_of_pids([own]) == {7: 2, 6: 0}


def test_hosts_by_names_of_files_then_by_lines() -> None:
    named = source(rank=0, host="a")
    scans = [
        SourceScan(named, [line(rank=0, host="x"), line(rank=1)]),
        SourceScan(source(), [line(rank=2, host="b"), line(rank=2, host="c"), line(rank=3)]),
    ]
    assert hosts_of_ranks([named], scans) == {0: "a", 1: "a", 2: "b"}
