from __future__ import annotations

import textwrap

import pytest

from diagnose.ingest.unwrap import EACH, ONCE, display_width, join_wrapped, may_be_wrapped
from diagnose.search import places

WATCHDOG = (
    "[rank{0}]:[E513 12:53:57.714781669 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=532451, OpType=BROADCAST, NumelIn=5164000, "
    "NumelOut=5164000, Timeout(ms)=1800000) ran for 1800101 milliseconds before timing out."
)


def closely(data: bytes) -> bool:
    """Whether a source is looked at closely."""
    return may_be_wrapped(data, places(data, ONCE, EACH))


def wrapped(lines: list[str], width: int) -> list[str]:
    return [line[at : at + width] for line in lines for at in range(0, len(line) or 1, width)]


def join(lines: list[str]) -> list[str]:
    rows = list(enumerate(lines, 1))
    assert join_wrapped(rows) == rows or closely(("\n".join(lines) + "\n").encode())
    return [text for _, text in join_wrapped(rows)]


@pytest.mark.parametrize("width", [80, 100, 120, 132, 181])
def test_lines_wrapped_by_a_terminal_become_whole(width: int) -> None:
    lines = [
        "Train:  12%|█▏        | 3/24 [00:15<01:50,  5.2s/it]",
        *(WATCHDOG.format(rank) for rank in range(3)),
        "[E ProcessGroupNCCL.cpp:489] Some NCCL operations have failed or timed out.",
        "",
        "[E ProcessGroupNCCL.cpp:495] To avoid data inconsistency, we are taking the entire process"
        " down.",
    ]
    assert join(wrapped(lines, width)) == lines


def test_numbers_are_those_of_the_first_row() -> None:
    lines = wrapped([WATCHDOG.format(0), "next"], 100)
    assert len(lines) == 4
    assert [number for number, _ in join_wrapped(list(enumerate(lines, 1)))] == [1, 4]


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (
            ["WorkNCCL(SeqNum=5, OpType=REDUCE, NumelIn=1, NumelOut=5", "164000, Timeout(ms)=9) x"],
            "WorkNCCL(SeqNum=5, OpType=REDUCE, NumelIn=1, NumelOut=5164000, Timeout(ms)=9) x",
        ),
        (
            ["WorkNCCL(SeqNum=5,", "  OpType=BARRIER, Timeout(ms)=18", "00000) ran"],
            "WorkNCCL(SeqNum=5, OpType=BARRIER, Timeout(ms)=1800000) ran",
        ),
        (
            ["a CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[3],",
             "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (def",
             "ault), device=cpu)), but Rank 1 is"],
            "a CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[3], "
            "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default), "
            "device=cpu)), but Rank 1 is",
        ),
    ],
)  # fmt: skip
def test_an_open_description_is_completed(pieces: list[str], whole: str) -> None:
    assert join(["before", *pieces, "after"]) == ["before", whole, "after"]


@pytest.mark.parametrize(
    "lines",
    [
        ["WorkNCCL(SeqNum=5, OpType=BROADCAST, Num", "[rank1]: something else", "x"],
        ["WorkNCCL(SeqNum=5, OpType=BROADCAST, Num", "something else", "x"],
        ["CollectiveFingerPrint(SequenceNumber=1, OpType=ALL", "step 3 of (9)", "x"],
        ["WorkNCCL(SeqNum=5, OpType=A", "1", "2", "3", "4, Timeout(ms)=1)"],
        # several lines of the greatest width, nothing cut
        [
            f"step {step:06d} loss 0.123456 learning rate 0.000100 tokens 123456"
            for step in range(9)
        ],
        ["=" * 80, "Setting OMP_NUM_THREADS", "=" * 80, "text", "=" * 80],
        ["| NVIDIA-SMI 535.104.05 |" + " " * 60 + "|", "| GPU  Name |" + " " * 72 + "|"] * 2,
        [textwrap.fill("the watchdog waits for all of it " * 9, 70).replace("\n", " ")[:70]] * 4,
        # a word ends and another begins at the greatest width
        [("x" * 60) + " the last word is Work", "NCCL INFO comm 0x1 rank 0 init complete"] * 3,
    ],
)
def test_ordinary_lines_stay(lines: list[str]) -> None:
    assert join(lines) == lines


def test_a_break_at_a_space_that_was_lost() -> None:
    lines = [
        "[rank0]: Watchdog caught collective opera",
        "tion timeout and the watchdog thread has",
        "[rank1]: Watchdog caught collective opera",
        "tion timeout",
    ]
    assert [len(line) for line in lines] == [41, 40, 41, 12]
    assert join([*lines[:2], "been told to stop", *lines[2:]]) == [
        "[rank0]: Watchdog caught collective operation timeout and the watchdog thread has been"
        " told to stop",
        "[rank1]: Watchdog caught collective operation timeout",
    ]


def test_display_width_counts_columns() -> None:
    assert display_width("abc") == 3
    assert display_width("█▏é") == 3
    assert display_width("训练") == 4
    assert display_width("e\u0301") == 1


@pytest.mark.parametrize(("end", "start"), [("Watch", "dog"), ("TCPSto", "re"), ("Watcher", "dog")])
def test_a_source_is_looked_at_closely_where_a_long_word_is_cut(end: str, start: str) -> None:
    lines = [f"the following line of the log ends with {end}", start]
    lines.append("and another one that is as long as it".ljust(len(lines[0]), "."))
    cut = end + start in ("Watchdog", "TCPStore")
    assert closely(("\n".join(lines) + "\n").encode()) == cut
