"""Rows of dumps in the timeline: which they are, what they say, and on which clock."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

import diagnose

SECOND = 10**9
NOON = 1_741_435_200 * SECOND  # 2025-03-08 12:00:00 UTC


def entry(record: int, seq: int, state: str, at: int) -> dict[str, object]:
    return {
        "record_id": record,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": seq,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": at,
        "input_sizes": [[4, 2]],
        "output_sizes": [[4, 2]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        "state": state,
        "retired": state == "completed",
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def write_dump(folder: Path, rank: int, *entries: dict[str, object]) -> None:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    content = {"version": "2.10", "pg_config": config, "entries": entries}
    (folder / f"fr_rank_{rank}").write_text(json.dumps(content))


def two_ranks(folder: Path) -> None:
    """Rank 0 waits in operation 2 since noon, which rank 1 never enqueued."""
    first = entry(0, 1, "completed", NOON - SECOND)
    write_dump(folder, 0, first, entry(1, 2, "scheduled", NOON), entry(2, 3, "scheduled", NOON))
    write_dump(folder, 1, first)


def test_pending_operations_and_the_last_of_an_idle_rank(tmp_path: Path) -> None:
    two_ranks(tmp_path)
    rows = diagnose.load(tmp_path).timeline
    told = rows[["source", "rank", "kind", "signal", "seq", "text"]].to_dict("records")
    what = "all_reduce [4, 2] Float"
    assert [tuple(row.values()) for row in told] == [
        (
            *("fr_rank_1", 1, "collective", "idle", 1),
            f"idle; the last operation was {what} seq 1 of default_pg (0)",
        ),
        *(
            (
                *("fr_rank_0", 0, "collective", "pending", seq),
                f"{what} seq {seq} of default_pg (0): enqueued, not finished",
            )
            for seq in (2, 3)
        ),
    ]
    assert rows["time"].tolist()[1] == pd.Timestamp("2025-03-08 12:00:00")


def watchdog(clock: str) -> str:
    return (
        f"[rank0]:[E308 {clock}.000000000 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught "
        "collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, "
        "Timeout(ms)=600000) ran for 600000 milliseconds before timing out.\n"
    )


def test_the_watchdog_proves_the_zone_of_the_log(tmp_path: Path) -> None:
    two_ranks(tmp_path)
    (tmp_path / "train.log").write_text(watchdog("20:10:00"))  # eight hours ahead of UTC
    rows = diagnose.load(tmp_path).timeline
    pending = rows[(rows["signal"] == "pending") & (rows["seq"] == 2)]
    assert pending["time"].dt.time.tolist() == [pd.Timestamp("20:00:00").time()]


def test_times_that_fit_no_printed_one_are_left_out(tmp_path: Path) -> None:
    two_ranks(tmp_path)
    (tmp_path / "train.log").write_text("2025-03-08 20:10:00,000 INFO step 4 loss 1.0\n")
    rows = diagnose.load(tmp_path).timeline
    assert rows.loc[rows["signal"] == "pending", "time"].isna().all()


def test_a_log_without_a_rank_is_not_given_to_the_rank_of_a_dump(tmp_path: Path) -> None:
    two_ranks(tmp_path)
    (tmp_path / "train.log").write_text("RuntimeError: boom\n")
    rows = diagnose.load(tmp_path).timeline
    assert rows.loc[rows["source"] == "train.log", "rank"].isna().all()
