"""Reports of NCCL 2.28.9 as a real job on four ranks gave them, cut to what says something."""

from __future__ import annotations

import json
from typing import Any

import pytest

from diagnose.parse.ras import RasReport, joined, read_ras, signs_of_errors
from diagnose.readers import weighed

TEXT = """\
NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Communicators... (0.000s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  {state}

Errors
======

{errors}Warnings
========

{warnings}"""
BEHIND = """\
#0-0 (e418cace49c756eb) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation {most}
  Rank 2 has launched up to operation {least} -- GPU 0 managed by process 498 on node 127.0.0.1
"""
USAGE = """\
#0-0 (fde5a2951bfd0f97) ERROR
  Asynchronous error on 1 rank
  Rank 1 reported Invalid usage -- GPU 0 managed by process 503 on node 127.0.0.1

"""
NONE = TEXT.partition("Group")[0] + "No communicator data collected!\n\nErrors\n======\n"


def behind(most: int, least: int) -> str:
    return TEXT.format(state="MISMATCH", errors="", warnings=BEHIND.format(most=most, least=least))


def as_json(
    second: int, counts: list[int], comm: str = "0xe418cace49c756eb", error: int = 0
) -> str:
    ranks: list[dict[str, Any]] = [
        {
            "rank": rank, "host": "127.0.0.1", "pid": 496 + rank, "cuda_dev": 0, "nvml_dev": 0,
            "status": {
                "init_state": 0, "async_error": error if rank == 1 else 0,
                "finalize_called": False, "destroy_flag": False, "abort_flag": False,
            },
            "collective_counts": {"Broadcast": 4, "AllGather": 1, "AllReduce": count},
        }
        for rank, count in enumerate(counts)
    ]  # fmt: skip
    told = {
        "nccl_version": "2.28.9", "cuda_runtime_version": 13000, "cuda_driver_version": 13000,
        "timestamp": f"2026-11-27 04:25:{second:02}", "communicators_count": 1,
        "communicators": [
            {
                "hash": comm, "secondary_hash": "0xf6:0xb3", "size": len(counts),
                "ranks_count": len(counts), "missing_ranks_count": 0, "ranks": ranks,
                "missing_ranks": [],
            }
        ],
    }  # fmt: skip
    return json.dumps(told, indent=2)


def read(**files: str) -> list[tuple[str, RasReport]]:
    return joined((name, read_ras(text.encode(), name)) for name, text in files.items())


def launched(report: RasReport) -> list[int | None]:
    return [rank.launched for rank in report.ranks]


def test_two_reports_with_the_same_counts_show_who_is_stuck() -> None:
    ((name, report),) = read(
        ras_2=as_json(27, [17, 17, 15, 17]), ras_1=as_json(17, [17, 17, 15, 17])
    )
    assert name == "ras_2"
    assert report.moving is False
    assert report.snapshots == 2
    assert launched(report) == [22, 22, 20, 22]
    found = weighed([(name, report)])
    assert not found.passing
    assert len(found.ras) == 4
    assert not found.notes


def test_the_later_report_is_the_last_whatever_its_name() -> None:
    ((name, report),) = read(a=as_json(27, [30, 30, 29, 30]), b=as_json(17, [17, 17, 15, 17]))
    assert name == "a"
    assert report.moving is True


def test_text_and_json_of_one_job_are_one_report() -> None:
    files = {
        "ras-1.json": as_json(17, [17, 17, 15, 17]),
        "ras-2.json": as_json(27, [17, 17, 15, 17]),
    }
    files |= {"ras-1.txt": behind(17, 15), "ras-2.txt": behind(17, 15), "ras-0.txt": NONE}
    ((name, report),) = read(**files)
    assert name == "ras-2.json"
    assert report.json
    assert launched(report) == [22, 22, 20, 22]


def test_text_has_no_time_and_is_in_the_order_of_names() -> None:
    ((name, report),) = read(**{"ras-10.txt": behind(17, 15), "ras-9.txt": behind(17, 15)})
    assert name == "ras-10.txt"
    assert report.moving is False
    assert launched(report)[2] == 15
    # Whichever was first: counts that differ show that it moved.
    ((_, report),) = read(**{"ras-1.txt": behind(19, 17), "ras-2.txt": behind(17, 15)})
    assert report.moving is True


def test_other_communicators_are_another_job() -> None:
    found = read(a=as_json(17, [3, 3]), b=as_json(27, [5, 4], comm="0x1b1858dcd7fdd754"))
    assert [(name, launched(report)) for name, report in found] == [("a", [8, 8]), ("b", [10, 9])]
    assert all(report.moving is None for _, report in found)


def test_of_reports_at_one_time_the_fullest_counts() -> None:
    """A node that the others cannot reach has data of itself only."""
    alone = json.loads(as_json(18, [17, 17, 15, 17]))
    comm = alone["communicators"][0]
    comm["missing_ranks"] = [
        {**rank, "status": {"unresponsive": True, "considered_dead": True}}
        for rank in comm["ranks"]
        if rank["rank"] != 3
    ]
    comm["ranks"] = comm["ranks"][3:]
    ((name, report),) = read(a=as_json(17, [17, 17, 15, 17]), b=json.dumps(alone, indent=2))
    assert name == "a"
    assert launched(report) == [22, 22, 20, 22]


def test_all_alike_and_nothing_moves_is_told() -> None:
    ((_, report),) = read(a=as_json(17, [17] * 4), b=as_json(27, [17] * 4))
    assert any("none launched any between two reports" in note for note in report.notes)
    ((_, report),) = read(a=as_json(17, [17] * 4), b=as_json(27, [18] * 4))
    assert not report.notes


def test_no_communicator_at_all_is_told() -> None:
    assert read_ras(NONE.encode(), "ras.txt").notes == [
        "RAS knows of no communicator: no rank is through with NCCL's initialization"
    ]


@pytest.mark.parametrize(
    "said",
    [TEXT.format(state="ERROR", errors=USAGE, warnings=""), as_json(17, [16] * 4, error=5)],
)
def test_a_rank_that_reported_invalid_usage(said: str) -> None:
    ((name, report),) = read(ras=said)
    (sign,) = signs_of_errors(report, name)
    assert (sign.rank, sign.kind, sign.source) == (1, "nccl_error", "ras")
    assert "1" in said.split("\n")[sign.line - 1]
    assert weighed([(name, report)]).signs == [sign]


def test_another_error_is_no_sign_of_different_calls() -> None:
    assert not [*signs_of_errors(read(ras=as_json(17, [16] * 4, error=6))[0][1], "ras")]
