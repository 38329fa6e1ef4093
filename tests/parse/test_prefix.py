from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.parse.prefix import Prefix, peel, repeated

from .said import said

PIECES = [
    "[rank3]:", "[rank3]: ", "[default3]:", "[trainer8]<0>: ", "[E820 11:47:24.069865760 a.cpp:1] ",
    "[E a.cpp:1] ", "E0517 08:24:03.805000 14 torch/a.py:826] ", "[2024-05-01 10:00:00,123] ",
    "[INFO] ", "[logging.py:96:log_dist] ", "[Rank 0] ", "[PG ID 0 PG GUID 0(x) Rank 2] ",
    "[PID:1] ", "[RANK:1] ", "[RANK 1] ", "worker-0: ", " 3: ", "[1,3]<stderr>:", "[0]<stdout>:",
    "[3] ", "2024-05-01T10:00:00.1Z ", "stderr F ", "(A pid=1, ip=10.0.0.1) ", "(raylet) ",
    "host:1:2 [3] NCCL INFO ", "host:1:2 [3] a.cc:1 NCCL WARN ", "[INFO|a.py:1] ", " >> ",
    "[INFO:swift] ", "[NeMo I 2024-05-01 10:00:00 m:1] ", "INFO:m:", "INFO 01-02 10:00:00 a.py:1] ",
    "Oct 10 03:06:53 n1 kernel: ", "[12345.678901] ", "[  +0.000316] ", "4,1,2,-;", "<3>",
    "<stdout rank=\"3\">", "[10:00:00] ", "Thu Oct 10 03:06:53 2024", "[pod/a/b] ", "[n1:1 :0:2] ",
    '{"log": "', '"}', "{", "99999999999", "\u0663", "\u00b2", " [repeated 7x across cluster]",
    "]", ":", " ", "\t", "-", "x",
]  # fmt: skip


def test_prefixes_stack_and_every_number_keeps_its_kind() -> None:
    line = (
        "2026-08-20T10:00:00.123456789Z stderr F [default3]:[rank11]:"
        "[E820 10:00:00.069865760 ProcessGroupNCCL.cpp:607] [Rank 5] Watchdog caught"
    )

    assert said(line) == {
        "line": line,
        "message": "[Rank 5] Watchdog caught",
        "rank": 11,
        "local_rank": 3,
        "group_rank": 5,
        "stream": "stderr",
        "time": "2026-08-20 10:00:00.123456789Z",
        "level": "ERROR",
        "origin": "ProcessGroupNCCL.cpp:607",
    }
    assert peel(line).names == ["cri", "torchrun", "rank", "c10"]


@pytest.mark.parametrize(
    ("line", "at"),
    [
        # the outermost time is kept ...
        ("2024-05-01 10:00:00 [2024-05-02 11:00:00] x", "2024-05-01 10:00:00"),
        # ... unless it lacks the date
        ("[10:00:00] [2024-05-02 11:00:00] x", "2024-05-02 11:00:00"),
    ],
)
def test_one_time_is_kept(line: str, at: str) -> None:
    assert said(line)["time"] == at


def test_what_stands_behind_a_c10_or_nccl_prefix_is_the_message() -> None:
    assert peel("[E a.cpp:1] [rank3]: x").rank is None
    assert peel("n1:1:2 [0] NCCL INFO [rank3]: x").message == "[rank3]: x"


@pytest.mark.parametrize("line", ["", " ", "plain text", '  File "a.py", line 1', "\u2502 box"])
def test_a_line_without_prefix_is_its_message(line: str) -> None:
    assert peel(line) == Prefix(message=line)


def test_the_number_of_layers_is_bounded() -> None:
    prefix = peel("[rank1]: " * 100)

    assert len(prefix.names) == 12


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=8).map("".join))
def test_never_raises_and_the_message_is_a_piece_of_the_line(line: str) -> None:
    prefix = peel(line)

    decoded = {"docker", "json", "stern", "journal", "mpi-xml"} & set(prefix.names)
    assert decoded or prefix.message in line
    assert decoded or prefix.repeated > 1 or line.endswith(prefix.message)
    if prefix.stamp is not None:
        assert 0 <= prefix.stamp.ns < 2**63


@given(st.text(max_size=200))
def test_a_rank_in_front_hides_nothing(text: str) -> None:
    line = "[rank3]: " + text

    assert peel(line).rank is not None


def test_hosts_of_the_job_are_recognised_whatever_their_names() -> None:
    prefix = peel("trinity: x", hosts={"trinity"})

    assert (prefix.host, prefix.message) == ("trinity", "x")
    assert peel("neo: x", hosts={"trinity"}).host is None


def test_afternoon() -> None:
    times = [peel(f"02/03/2031 {time} x").stamp for time in ("12:00:01 AM", "12:00:01 PM")]
    assert [time.ns // 1_000_000_000 % 86_400 for time in times if time] == [1, 43_201]


@pytest.mark.parametrize(
    "line",
    [
        "train.py:12: UserWarning: x",  # no log
        "run.log: No such file or directory",  # tells nobody
        "loss   | 0.31",
        "worker-3 finished",
        "[lr-3] x",
        "[gpu0]: 70 C",
        "{'rank': 3} x",
        "(a, b) x",
        "2031-02-03 04:05:06 worker-3 finished",
    ],
)
def test_words_that_are_no_author(line: str) -> None:
    found = said(line)
    assert not found.keys() & {"rank", "local_rank", "task", "host", "pid", "dev"}


@pytest.mark.parametrize(
    ("message", "group_rank"),
    [
        ("[Rank 7] Work", 7),
        ("[Rank 0]: Rank 0 failed to pass monitoredBarrier", 0),
        ("[PG 0 (default_pg) Rank 12] Process group watchdog", 12),
        ("[PG 1 Rank 3] Timeout", 3),
        ("[PG ID 1 PG GUID 1 Rank 2] ", 2),
        ("[PG ID 3 PG GUID 5f2c(mesh_tp) Rank 1]  failure", 1),
        ("what(): [Rank 7] Work", None),
        ("[Rank x] Work", None),
        ("[RANK 1] accelerate", None),
    ],
)
def test_in_group(message: str, group_rank: int | None) -> None:
    assert peel(message).group_rank == group_rank


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("x [repeated 7x across cluster]", ("x", 7)),
        (
            "x [repeated 2x across cluster] (Ray deduplicates logs by default. Set "
            "RAY_DEDUP_LOGS=0 to disable log deduplication, or see https://docs.ray.io)",
            ("x", 2),
        ),
        ("x [repeated 7x across cluster] more", ("x [repeated 7x across cluster] more", 1)),
        ("x [repeated many]", ("x [repeated many]", 1)),
    ],
)
def test_repeated(message: str, expected: tuple[str, int]) -> None:
    assert repeated(message) == expected
    prefix = peel("(A pid=1) " + message)
    assert (prefix.message, prefix.repeated) == expected
