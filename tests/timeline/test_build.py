"""The timeline: columns, who wrote a line, attempts, order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

import diagnose
from diagnose.ingest import text_source
from diagnose.job.load import read
from diagnose.timeline.build import COLUMNS, captured_ranks, clock_seconds, highest_rank

WATCHDOG = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, "
    "NumelIn=1000, NumelOut=1000, Timeout(ms)=600000) ran for 600{seq:03d} milliseconds before "
    "timing out."
)
ERROR = "ValueError: bad batch"

DTYPES = {
    "time": "datetime64[ns]", "source": "category", "line": "int64", "offset": "int64",
    "attempt": "Int16", "rank": "Int32", "local_rank": "Int16", "group_rank": "Int32",
    "task": "Int32", "host": "category", "pid": "Int64", "kind": "category",
    "signature": "category", "role": "category", "severity": "category", "cause": "category",
    "strength": "category", "tells": "category", "phase": "category", "group": "category",
    "op": "category", "seq": "Int64", "size_in": "Int64", "size_out": "Int64",
    "timeout_ms": "Int64", "elapsed_ms": "Int64", "step": "Int64", "text": "str",
    "fields": "object",
}  # fmt: skip


def timeline(**files: str) -> pd.DataFrame:
    """The timeline of a job of named files."""
    return read([text_source(text, name) for name, text in files.items()]).timeline


def events(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["signature"].notna()].reset_index(drop=True)


def of(frame: pd.DataFrame, text: str) -> pd.Series:
    """The first event on a line with this text."""
    rows = frame[frame["signature"].notna() & frame["text"].str.contains(text, regex=False)]
    assert len(rows), f"no event for {text!r}"
    return rows.iloc[0]


def who(row: pd.Series) -> Any:
    return None if pd.isna(row["rank"]) else int(row["rank"])


# --------------------------------------------------------------------------- columns


@pytest.mark.parametrize(
    "text",
    [
        f"2026-06-02 08:00:00 [rank3]: {WATCHDOG.format(seq=7)}",
        "nothing known",
    ],
    ids=["events", "edges"],
)
def test_columns_and_their_types(text: str) -> None:
    frame = diagnose.load_text(text).timeline
    dtypes = {name: str(dtype) for name, dtype in frame.dtypes.items()}
    assert tuple(DTYPES) == COLUMNS
    assert {name: dtypes[name] for name in COLUMNS} == DTYPES


def test_a_watchdog_line_fills_the_collective_columns() -> None:
    text = f"begin\n[rank3]:[E602 08:25:12.625763863 x.cpp:632] {WATCHDOG.format(seq=7)}\n"
    row = of(diagnose.load_text(text).timeline, "Watchdog")
    got = row[["source", "line", "offset", "rank", "kind", "role", "severity", "tells"]].tolist()
    assert got == ["<paste>", 2, 6, 3, "collective", "effect", "error", "timeout"]
    got = row[["op", "seq", "size_in", "size_out", "timeout_ms", "elapsed_ms"]].tolist()
    assert got == ["ALLREDUCE", 7, 1000, 1000, 600_000, 600_007]
    # the digits behind the seconds are another clock's
    assert row["time"].strftime("%m-%d %H:%M:%S.%f") == "06-02 08:25:12.000000"
    assert row["fields"]["seq"] == "7"


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("0, 3", [0, 3]),
        ("0-3,7", [0, 1, 2, 3, 7]),
        ("{1}", [1]),
        ("5 - 6", [5, 6]),
        ("", []),
        (None, []),
    ],
)
def test_captured_lists_of_ranks(text: str | None, ranks: list[int]) -> None:
    assert captured_ranks(text) == ranks


def test_captured_ranges_are_bounded() -> None:
    assert len(captured_ranks("0-999999")) == 100_001
    assert len(captured_ranks("0-99999,200000-299999,400000-499999")) == 100_001


@pytest.mark.parametrize(
    ("text", "rank"),
    [(None, None), ("", None), ("3", 3), ("0-3,7", 7), ("9, 2", 9), ("5-2", None), ("0-99", 99)],
)
def test_the_highest_of_captured_ranks(text: str | None, rank: int | None) -> None:
    assert highest_rank(text) == rank


def test_lines_about_many_tasks_become_rows_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("diagnose.timeline.build._TASKS_LIMIT", 10)
    frame = timeline(log="srun: error: node1: tasks 0-7: Killed\n" * 4)
    exits = frame[frame["tells"] == "exit"]
    assert exits["line"].value_counts().sort_index().tolist() == [8, 3, 1, 1]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:41", 41.0),
        ("10:00", 600.0),
        ("1:00:05", 3605.0),
        ("2 days, 1:00:00", 176_400.0),
        ("?", None),
        ("1:2:3:4:5", None),
    ],
)
def test_the_clock_of_a_bar(text: str, seconds: float | None) -> None:
    assert clock_seconds(text) == seconds


# --------------------------------------------------------------------------- order


def test_inside_a_source_odd_times_change_nothing() -> None:
    stamps = ["08:00:10", "08:00:05", "09:59:00", "", "08:00:20"]
    lines = [
        f"2026-06-02 {stamp} {ERROR} {n}" if stamp else f"{ERROR} {n}"
        for n, stamp in enumerate(stamps)
    ]
    frame = events(timeline(a="\n".join(lines)))
    assert frame["line"].tolist() == [1, 2, 3, 4, 5]


def test_sources_are_merged_by_time() -> None:
    def text(*stamps: str) -> str:
        return "".join(f"2026-06-02 {stamp} {ERROR}\n" for stamp in stamps)

    frame = events(timeline(b=text("08:00:00", "08:00:04"), a=text("08:00:02", "08:00:06")))
    places = list(zip(frame["source"].astype(str), frame["line"], strict=True))
    assert places == [("b", 1), ("a", 1), ("b", 2), ("a", 2)]


def test_the_order_of_reading_does_not_matter() -> None:
    files = {"b": f"{ERROR} 1\n{ERROR} 2\n", "a": f"2026-06-02 08:00:00 {ERROR} 3\n"}
    frame, turned = timeline(**files), timeline(**dict(reversed(files.items())))
    pd.testing.assert_frame_equal(frame, turned)


# --------------------------------------------------------------------------- authors


def test_the_rank_of_the_line_wins_over_the_file() -> None:
    text = f"[rank3]: {ERROR} a\n{ERROR} b\n"
    frame = read([replace(text_source(text), rank=0)]).timeline
    assert (who(of(frame, f"{ERROR} a")), who(of(frame, f"{ERROR} b"))) == (3, 0)


INIT = (
    "{host}:{pid}:99 [{dev}] NCCL INFO ncclCommInitRank comm 0x5581 rank {rank} nranks {size} "
    "cudaDev {dev} nvmlDev {dev} busId {bus} commId 0x77 - Init COMPLETE\n"
)


def init(host: str, pid: int, rank: int, size: int) -> str:
    return INIT.format(host=host, pid=pid, rank=rank, size=size, dev=rank % 8, bus="9b000")


def warn(host: str, pid: int) -> str:
    return f"{host}:{pid}:99 [0] transport.cc:1 NCCL WARN Cuda failure 'pid {pid} of {host}'\n"


def test_nccl_init_lines_map_processes_to_ranks() -> None:
    lines = [init("a", 500, 0, 2), init("b", 500, 1, 2), warn("a", 500), warn("b", 500)]
    frame = timeline(job="".join(lines))
    assert who(of(frame, "pid 500 of a")) == 0
    assert who(of(frame, "pid 500 of b")) == 1, "the same pid on another host is another process"


def test_only_the_world_communicator_tells_global_ranks() -> None:
    lines = [init("a", 500 + n, n, 4) for n in range(4)]
    lines += [init("a", 502, 0, 2), init("a", 503, 1, 2), warn("a", 502), warn("a", 503)]
    frame = timeline(job="".join(lines))
    assert who(of(frame, "pid 502 of a")) == 2
    assert who(of(frame, "pid 503 of a")) == 3


def test_a_local_rank_seen_with_its_rank_tells_the_rank() -> None:
    text = f"[default1]:[rank5]: {ERROR} a\n[default1]: {ERROR} b\n[default0]: {ERROR} c\n"
    frame = timeline(job=text)
    assert who(of(frame, f"{ERROR} b")) == 5
    assert who(of(frame, f"{ERROR} c")) is None, "rank 5 shows that there are more nodes"


def test_on_one_node_the_local_rank_is_the_rank() -> None:
    frame = timeline(job=f"[default0]: {ERROR} a\n[default3]: {ERROR} b\n")
    assert (who(of(frame, f"{ERROR} a")), who(of(frame, f"{ERROR} b"))) == (0, 3)


def test_a_task_is_the_rank_where_one_is_started_per_rank() -> None:
    frame = timeline(job=f"0: {ERROR} a\n1: {ERROR} b\n1: quiet\n0: quiet\n")
    assert (who(of(frame, f"{ERROR} a")), who(of(frame, f"{ERROR} b"))) == (0, 1)


def test_a_task_with_many_local_ranks_is_a_node() -> None:
    text = "".join(
        f"{task}: [default{local}]: {ERROR} t{task}l{local}\n"
        for task in (0, 1)
        for local in (0, 1)
    )
    frame = events(timeline(job=text))
    assert frame["rank"].isna().all()
    assert sorted(set(frame["task"])) == [0, 1]


def test_the_rank_in_a_group_is_global_only_where_nothing_else_names_ranks() -> None:
    line = "[Rank {}] " + WATCHDOG.format(seq=7) + "\n"
    assert who(of(timeline(job=line.format(2)), "Watchdog")) == 2
    frame = timeline(job=line.format(0) + f"[rank6]: [Rank 0] {WATCHDOG.format(seq=8)}\n")
    assert who(of(frame, "SeqNum=8")) == 6
    assert who(of(frame, "SeqNum=7")) is None


# --------------------------------------------------------------------------- tables and tasks


TABLE = """\
Root Cause (first observed failure):
[0]:
  time      : 2026-06-02_08:15:11
  host      : node1
  rank      : 5 (local_rank: 1)
  exitcode  : -9 (pid: 4242)
  error_file: <N/A>
"""


def test_the_exit_of_an_elastic_table_is_that_of_the_rank_above_it() -> None:
    row = of(timeline(job=TABLE), "exitcode")
    assert (who(row), int(row["local_rank"]), row["kind"]) == (5, 1, "exit")
    assert row["fields"]["exitcode"] == "-9"


def test_a_table_row_far_away_is_no_part_of_it() -> None:
    lines = TABLE.splitlines()
    apart = "\n".join([*lines[:5], "quiet", "quiet", "quiet", *lines[5:]])
    assert who(of(timeline(job=apart), "exitcode")) is None


def test_srun_tells_of_many_tasks_in_one_line() -> None:
    text = "0: quiet\n5: quiet\nsrun: error: node1: tasks 0-2,5: Killed\n"
    frame = events(timeline(job=text))
    exits = frame[frame["kind"] == "exit"]
    assert exits["task"].tolist() == [0, 1, 2, 5]
    assert exits["rank"].tolist() == [0, 1, 2, 5]
    assert set(exits["host"].astype(str)) == {"node1"}


# --------------------------------------------------------------------------- attempts


RESTART = (
    "W0602 08:30:00.331000 911 torch/distributed/elastic/agent/server/api.py:900] [default] Worker "
    "group FAILED. 3/3 attempts left; will restart worker group\n"
)


def test_a_restart_line_begins_the_next_attempt() -> None:
    frame = timeline(job=f"{ERROR} a\n{RESTART}{ERROR} b\n{RESTART}{ERROR} c\n")
    assert [of(frame, f"{ERROR} {name}")["attempt"] for name in "abc"] == [0, 1, 2]
    restarts = frame[frame["kind"] == "restart"]
    assert restarts["attempt"].tolist() == [0, 1], "the line itself ends the attempt before it"


def test_files_without_times_may_be_of_any_attempt_that_another_file_tells_of() -> None:
    """By name `a.log` comes before the restart and `c.log` after it; that says nothing."""
    texts = {
        "a.log": f"{ERROR} a",
        "b.log": f"{ERROR} b\n{RESTART}{ERROR} c",
        "c.log": f"{ERROR} d",
    }
    frame = timeline(**texts)
    assert [of(frame, f"{ERROR} {name}")["attempt"] for name in "bc"] == [0, 1]
    assert [pd.isna(of(frame, f"{ERROR} {name}")["attempt"]) for name in "ad"] == [True, True]


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
    frame = events(read(sources).timeline)
    numbers = dict(zip(frame["text"], frame["attempt"], strict=True))
    assert numbers == {f"{ERROR} 0": 0, f"{ERROR} 1": 1}


# --------------------------------------------------------------------------- the same line


@pytest.mark.parametrize(
    ("line", "general"),
    [
        (ERROR, True),
        ("OSError: [Errno 28] No space left on device", False),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_a_general_entry_yields_to_a_special_one_on_the_same_line(line: str, general: bool) -> None:
    job = diagnose.load_text(f"[rank0]: {line}\n")
    catch_alls = {signature.id for signature in job.catalog.signatures if signature.generic}
    found = set(events(job.timeline)["signature"].astype(str))
    assert found, "the line is known"
    assert bool(found & catch_alls) is general


def test_each_state_of_a_bar_has_the_line_it_is_on() -> None:
    bar = "Map:  {0}%|###   | {0}/100 [09:5{1}<00:10, 1.0 examples/s]"
    text = "x\n" + "\r".join(bar.format(n, n % 10) for n in (1, 50, 97)) + "\n"
    frame = events(timeline(job=text))
    assert set(frame["line"]) == {2}
    last = frame.iloc[-1]
    assert (last["phase"], int(last["elapsed_ms"])) == ("preprocessing", 597_000)


def test_a_task_on_another_host_than_its_rank_is_a_node() -> None:
    """One launcher a node: task 1 is node1's, whose ranks are 2 and 3."""
    text = """\
node0: [rank0]: step 1
node0: [rank1]: step 1
node1: [rank2]: step 1
node1: [rank3]: step 1
srun: error: node1: task 1: Exited with exit code 1
"""
    rows = diagnose.load_text(text).timeline
    exits = rows[rows["kind"] == "exit"]
    assert exits["task"].tolist() == [1]
    assert exits["rank"].isna().all()


TOO_LONG = (
    "[rank3]:[E602 08:25:12.123456 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, "
    "Timeout(ms)={0}) ran for {0} milliseconds before timing out.\n"
)
NO_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU {0} has a\n"
)


@pytest.mark.parametrize("number", [10**9 - 1, 10**13, 2**62 - 1, 2**63, 10**400])
def test_absurd_durations_and_ranks_are_not_told(number: int) -> None:
    text = TOO_LONG.format(number) + NO_MEMORY.format(number) + "[rank1]: step 3\n"
    job = read([text_source(text)])
    told = job.timeline[["timeout_ms", "elapsed_ms"]].max().dropna()
    assert set(told) == ({number} if number <= 10**12 else set())
    assert job.timeline["local_rank"].dropna().empty
    assert job.timeline["rank"].max() == 3
    assert diagnose.diagnose(job).verdict == "failed"
