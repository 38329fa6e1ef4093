"""The timeline: order and attempts."""

from __future__ import annotations

from dataclasses import replace

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.ingest import text_source
from diagnose.job.load import read
from diagnose.parse.stamps import Stamp
from diagnose.timeline.build import build
from diagnose.timeline.event import Event, Meaning, Work
from diagnose.timeline.readings import PENDING, document

from .told import ERROR, RESTART, matches, of, timeline

SECOND = 10**9
HOUR = 3600 * SECOND
# --------------------------------------------------------------------------- order


def test_inside_a_source_odd_times_change_nothing() -> None:
    stamps = ["08:00:10", "08:00:05", "09:59:00", "", "08:00:20"]
    lines = [
        f"2026-06-02 {stamp} {ERROR} {n}" if stamp else f"{ERROR} {n}"
        for n, stamp in enumerate(stamps)
    ]
    found = matches(timeline(a="\n".join(lines)))
    assert [event.line for event in found] == [1, 2, 3, 4, 5]


def test_sources_are_merged_by_time() -> None:
    def text(*stamps: str) -> str:
        return "".join(f"2026-06-02 {stamp} {ERROR}\n" for stamp in stamps)

    found = timeline(b=text("08:00:00", "08:00:04"), a=text("08:00:02", "08:00:06"))
    assert [event.place for event in matches(found)] == [("b", 1), ("a", 1), ("b", 2), ("a", 2)]


def test_logs_without_any_line_that_counts_are_known_to_be_there() -> None:
    job = diagnose.load_text(f"2026-06-02 08:00:00 {ERROR}\n")
    assert job.events.silent == frozenset()
    found = timeline(a=f"2026-06-02 08:00:00 {ERROR}\n")
    assert build([], load_catalog(), files=["a", "b"]).silent == {"a", "b"}
    assert found.only(lambda _: False).silent == found.silent


def test_the_order_of_reading_does_not_matter() -> None:
    files = {"b": f"{ERROR} 1\n{ERROR} 2\n", "a": f"2026-06-02 08:00:00 {ERROR} 3\n"}
    found, turned = timeline(**files), timeline(**dict(reversed(files.items())))
    assert [*found] == [*turned]
    assert [event.index for event in found] == [*range(len(found))]


# --------------------------------------------------------------------------- attempts


def test_a_restart_line_begins_the_next_attempt() -> None:
    found = timeline(job=f"{ERROR} a\n{RESTART}{ERROR} b\n{RESTART}{ERROR} c\n")
    assert [of(found, f"{ERROR} {name}").attempt for name in "abc"] == [0, 1, 2]
    restarts = found.kind("restart")
    assert [event.attempt for event in restarts] == [0, 1], (
        "the line itself ends the attempt before it"
    )


def test_files_without_times_may_be_of_any_attempt_that_another_file_tells_of() -> None:
    """By name `a.log` comes before the restart and `c.log` after it; that says nothing."""
    texts = {
        "a.log": f"{ERROR} a",
        "b.log": f"{ERROR} b\n{RESTART}{ERROR} c",
        "c.log": f"{ERROR} d",
    }
    found = timeline(**texts)
    assert [of(found, f"{ERROR} {name}").attempt for name in "bc"] == [0, 1]
    assert [of(found, f"{ERROR} {name}").attempt for name in "ad"] == [None, None]


def test_a_death_in_a_file_without_times_is_not_hidden_by_a_restart_elsewhere() -> None:
    steps = "".join(f"step {n} loss 2.0\n" for n in range(20))
    texts = {"rank_3.log": "torch.OutOfMemoryError: CUDA out of memory.\n", "torchrun.log": RESTART}
    sources = [
        replace(text_source(text), name=name, rank=rank)
        for (name, text), rank in zip([*texts.items(), ("z.log", steps)], (3, None, 4), strict=True)
    ]
    result = diagnose.diagnose(read(sources))
    assert (result.verdict, result.culprits.ranks) == ("failed", [3])


def test_folders_name_the_attempt() -> None:
    sources = [
        replace(text_source(f"{ERROR} {n}"), name=f"attempt_{n}/0/stderr.log", attempt=n)
        for n in (1, 0)
    ]
    numbers = {event.text: event.attempt for event in matches(read(sources).events)}
    assert numbers == {f"{ERROR} 0": 0, f"{ERROR} 1": 1}


# --------------------------------------------------------------------------- documents


def dumped(rank: int, seq: int, ns: int | None, **more: object) -> Event:
    """A pending operation of a dump."""
    meaning = Meaning(kind="collective", signal=PENDING)
    draft = document(f"fr_{rank}", 0, rank, "", meaning, Work(seq=seq))
    draft.stamp = Stamp(ns, utc_offset_s=0) if ns is not None else None
    draft.host = "node"
    return replace(draft, **more)


def built(drafts: list[Event], log: str = "", **clocks: int) -> list[Event]:
    job = read([text_source(log or "quiet", "job.log")])
    return [*build(job.scans, job.catalog, drafts, clocks)]


NOON = 1_748_865_600 * SECOND  # 2025-06-02 12:00:00 UTC


def test_a_document_is_of_the_last_attempt_and_keeps_its_rank() -> None:
    found = built([dumped(3, 7, None)], f"{ERROR}\n{RESTART}{ERROR}\n")
    told = [event for event in found if event.signal == PENDING]
    assert [(event.attempt, event.rank, event.time) for event in told] == [(1, 3, None)]
    assert {event.rank for event in found if event.source == "job.log"} == {None}


def test_times_of_dumps_are_shown_in_order() -> None:
    found = built([dumped(0, 2, NOON + SECOND), dumped(1, 1, NOON)])
    assert [(e.rank, e.time) for e in found if e.signal] == [(1, NOON), (0, NOON + SECOND)]


def test_a_clock_that_is_ahead_is_put_back() -> None:
    drafts = [dumped(0, 2, NOON + SECOND), dumped(1, 1, NOON, host="other")]
    found = built(drafts, node=3 * SECOND)
    assert [(e.rank, e.time) for e in found if e.signal] == [(0, NOON - 2 * SECOND), (1, NOON)]


def test_times_of_dumps_that_fit_no_printed_one_are_left_out() -> None:
    log = "2025-06-02 {:02}:00:00 [rank0]: ValueError: x\n"
    near, far = (
        built([dumped(0, 2, NOON)], log.format(14)),
        built([dumped(0, 2, NOON)], log.format(15)),
    )
    assert [e.time for e in near if e.signal == PENDING] == [NOON]
    assert [e.time for e in far if e.signal == PENDING] == [None]


def test_a_watchdog_of_the_same_operation_proves_the_zone_of_the_logs() -> None:
    line = (
        "[rank0]:[E602 20:10:00.000000000 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
        "Timeout(ms)=600000) ran for 600000 milliseconds before timing out.\n"
    )
    (pending,) = [e for e in built([dumped(0, 2, NOON)], line) if e.signal == PENDING]
    assert pending.time == NOON + 8 * HOUR
