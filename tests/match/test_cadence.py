"""Lines that recur while a number in them grows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import diagnose
from diagnose.ingest import text_source
from diagnose.ingest.chunks import stream_chunks
from diagnose.job.load import read
from diagnose.match.cadence import REACH, OwnWay, beats, own_way
from diagnose.match.shapes import ShapeTable
from diagnose.timeline.event import Event

SHAPES = ShapeTable(lambda _: ())


def counters(*lines: str) -> list[int]:
    return [beat.counter for beat in beats("\n".join(lines).encode(), SHAPES)]


def test_a_growing_counter_beside_words_of_work_is_progress() -> None:
    assert counters("epoch 7 CV loss 0.31", "epoch 8 CV loss 0.30", "epoch 9 CV loss 0.32") == [
        7,
        8,
        9,
    ]
    assert (
        counters("| epoch 001: | 57/11265 [02:58<9:46:26]", "| epoch 001: | 63/11265 [03:04<]")
        == []
    )
    assert counters("done 10/300 in 3 s", "done 20/300 in 4 s") == [10, 20]


def test_tasks_that_a_spark_executor_finishes_are_progress() -> None:
    said = "INFO executor.Executor: Finished task {}.0 in stage 29.0 (TID {}). 2128 bytes sent"
    assert counters(*(said.format(n, 1340 + n) for n in range(3))) == [1340, 1341, 1342]
    assert counters(*(f'  File "/home/me/reward/a.py", line {n}, in f' for n in range(3))) == []
    assert counters(*(f"[INFO] [tid {n}] message received" for n in range(3))) == []


def test_measured_times_are_of_work() -> None:
    assert counters(*(f"prompt {n} tokens, generation time:0.0{n}" for n in (32, 64))) == [32, 64]


def test_the_fill_of_a_bar_is_no_part_of_its_template() -> None:
    bars = ("loss: 0.6: 90%|████▉ | 115/128 [08:40<]", "loss: 0.6: 91%|█████ | 116/128 [08:45<]")
    assert counters(*bars) == [90, 91]
    assert counters("19/98 [=>........] loss: 0.6", "50/98 [=====>....] loss: 0.5") == [19, 50]
    assert counters("loss ━━━━━╸━━━ 3/9", "loss ━━━━━━╸━━ 4/9") == [3, 4]


def test_of_many_lines_the_first_and_the_last_are_told() -> None:
    assert counters(*(f"batch {n} loss 0.5" for n in range(100))) == [0, 96, 97, 98, 99]


@pytest.mark.parametrize(
    "line",
    [
        "waiting for step {}",
        "retry {} of the batch",
        "[Gloo] connect attempt {} for epoch store",
        "step 5 loss 0.{}",  # a loss is no counter
        "step 5 failed {} times",
        "frame #{}: step in train.py",
        "rank {} joined",
        "node01:7:9 [0] NCCL INFO Channel 0{}/0 : 80[0] -> 87[7]",
        "2026-01-01 10:00:0{} | loss is being computed",
    ],
)
def test_waiting_listing_and_times_are_none(line: str) -> None:
    assert counters(*(line.format(n) for n in range(1, 8))) == []


@pytest.mark.parametrize("line", ["Process {}/8 is ready", "Worker {}/8 up", "node {}/8: joined"])
def test_the_number_of_a_process_among_all_counts_no_work(line: str) -> None:
    assert counters(*(line.format(n) for n in range(1, 9))) == []
    assert counters(*(f"{line.format(3)}, step {n}" for n in range(2))) == [0, 1]
    assert counters(*(f"processed {n}/8" for n in range(2))) == [0, 1]


def test_lines_of_several_ranks_mix() -> None:
    assert counters(
        "[rank0]: step 5 loss 1", "[rank1]: step 5 loss 1", "[rank0]: step 6 loss 1"
    ) == [
        5,
        6,
    ]


def test_only_the_end_of_a_source_counts() -> None:
    early = [f"batch {n} loss 0.5" for n in range(50)]
    assert counters(*early, *["nothing new"] * (REACH // 8)) == []


def steps(text: str, limit: int) -> list[tuple[int, int | None]]:
    data = text.encode()
    source = replace(text_source(text), chunks=lambda: stream_chunks([data], limit=limit))
    job = read([source])
    return [(event.line, event.step) for event in job.events if _is_beat(event)]


def _is_beat(event: Event) -> bool:
    return event.signature == "progress.counter"


@given(st.integers(20, 4000))
def test_cuts_change_nothing(limit: int) -> None:
    text = "".join(f"round {n} of the game, elbo 3.{n}\n" for n in range(60))
    assert (
        steps(text, limit)
        == steps(text, 1 << 20)
        == [(1, 0), (57, 56), (58, 57), (59, 58), (60, 59)]
    )


def test_a_job_at_work_in_unknown_words_is_running() -> None:
    found = diagnose.diagnose(
        diagnose.load_text("round 1 elbo 3.1\nround 2 elbo 3.0\nround 3 elbo 2.9\n")
    )
    assert (found.verdict, found.root_cause.confidence) == ("running", "low")


def test_a_line_of_what_comes_before_the_work_counts_none() -> None:
    banner = "Initializing distributed: GLOBAL_RANK: {}, MEMBER: {}/4\n"
    job = diagnose.load_text("".join(banner.format(n, n + 1) for n in range(4)))
    assert [event.signature for event in job.events].count("lightning.progress.rendezvous") == 4
    assert not any(_is_beat(event) for event in job.events)


def test_where_a_signature_saw_progress_nothing_is_added() -> None:
    job = diagnose.load_text("step 1 loss 2.1\nstep 2 loss 2.0\nround 1 elbo 3\nround 2 elbo 4\n")
    assert not any(_is_beat(event) for event in job.events)


@pytest.mark.parametrize(
    "line",
    [
        " {n}  /apps/ucx-v2/1.14.1/lib/libucs.so.0(+0x31a{n}f) [0x15548b209a4f]",
        "[node3:12345] [ {n}] /lib64/libpthread.so.0(+0xf6{n}0)[0x7f12b0]",
        "#{n}  main () at src/v2/{n}/step.c:4{n}",
    ],
)
def test_frames_of_a_crash_are_no_progress(line: str) -> None:
    text = "".join(line.format(n=n) + "\n" for n in range(9))
    assert not any(_is_beat(event) for event in diagnose.load_text(text).events)


def way(*lines: str) -> tuple[str, int | None, int] | None:
    data = "\n".join(lines).encode()
    found: OwnWay | None = own_way(data, SHAPES)
    return found and (data[found.start : found.end].decode(), found.rank, found.others)


STEPS = [f"[rank{rank}]: step {step} loss 0.{rank}" for step in range(2) for rank in range(4)]


def test_who_alone_wrote_something_else_last() -> None:
    own = "[rank2]: reading shard 7 again"
    assert way(*STEPS, own) == (own, None, 3)
    assert way(*STEPS, own, "srun: Job step aborted") == (own, None, 3)
    assert way(*STEPS) is None


@pytest.mark.parametrize(
    "more",
    [
        ["[rank2]: reading shard 7", "[rank1]: writing shard 7"],  # two of them
        ["[rank2]: reading shard 7", "[rank2]: step 2 loss 0.1"],  # and came back
        ["[rank2]: reading shard 7", "[rank2]: reading shard 8"],  # what it does at each step
        ["[rank2]: reading shard 7", *(f"[rank{rank}]: reading shard 8" for rank in range(4))],
        ["[rank4]: reading shard 7"],  # was never on the way of the others
    ],
)
def test_whoever_did_not_leave_the_common_way_alone(more: list[str]) -> None:
    assert way(*STEPS, *more) is None


def test_rank_and_size_of_the_job_in_brackets() -> None:
    steps = [f"[{rank}/4] it {step} w 0.1" for step in range(2) for rank in range(4)]
    own = "[2/4] the copy is stale"
    assert way(*steps, own) == (own, 2, 3)
    torn = [steps[0] + steps[1], "", steps[2] + steps[3], *steps[4:], own]
    assert way(*torn) == (own, 2, 3)
    built = [f"[{n}/4] compile kernel" for n in range(1, 5)]
    assert way(*built, *built, "[2/4] link all of it") is None  # steps of a build: no rank 0
