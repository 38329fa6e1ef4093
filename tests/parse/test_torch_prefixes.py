from __future__ import annotations

from typing import Any

import pytest

from diagnose.parse.prefix import peel
from diagnose.parse.torch_prefixes import in_group

from .said import MS, US, said, stamp

NCCL_607 = "ProcessGroupNCCL.cpp:607"
API = "torch/distributed/elastic/multiprocessing/api.py"


@pytest.mark.parametrize(
    ("line", "message", "expected"),
    [
        # 1.9-2.1: no rank, no time
        (
            "[E ProcessGroupNCCL.cpp:341] Some NCCL operations have failed",
            "Some NCCL operations have failed",
            {"level": "ERROR", "origin": "ProcessGroupNCCL.cpp:341", "names": ["c10"]},
        ),
        # 2.2-2.3: rank, no time; [Rank k] is a rank in the group and stays
        (
            "[rank2]:[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught",
            "[Rank 1] Watchdog caught",
            {
                "rank": 2,
                "group_rank": 1,
                "level": "ERROR",
                "origin": "ProcessGroupNCCL.cpp:563",
                "names": ["rank", "c10"],
            },
        ),
        # 2.4+: month*100+day unpadded; the nanoseconds are another clock's
        (
            "[rank10]:[E820 11:47:24.069865760 ProcessGroupNCCL.cpp:607] "
            "[PG ID 0 PG GUID 0(default_pg) Rank 5] failure",
            "[PG ID 0 PG GUID 0(default_pg) Rank 5] failure",
            {
                "rank": 10,
                "group_rank": 5,
                "stamp": stamp("-08-20 11:47:24"),
                "level": "ERROR",
                "origin": NCCL_607,
                "names": ["rank", "c10"],
            },
        ),
        (
            "[I1121 12:04:08.218538311 debug.cpp:48] [c10d] The debug level is set to INFO.",
            "[c10d] The debug level is set to INFO.",
            {
                "stamp": stamp("-11-21 12:04:08"),
                "level": "INFO",
                "origin": "debug.cpp:48",
                "names": ["c10"],
            },
        ),
        (
            "[F101 00:00:00.000000001 ../torch/csrc/a-b/c.h:9] x",
            "x",
            {
                "stamp": stamp("-01-01 00:00:00"),
                "level": "FATAL",
                "origin": "../torch/csrc/a-b/c.h:9",
                "names": ["c10"],
            },
        ),
        # USE_GLOG build: padded, with a thread id
        (
            "W0820 11:47:24.069865 12345 ProcessGroupNCCL.cpp:607] msg",
            "msg",
            {
                "stamp": stamp("-08-20 11:47:24.069865", US),
                "level": "WARNING",
                "origin": NCCL_607,
                "names": ["glog"],
            },
        ),
        # glog 0.5+ prints the year
        (
            "E20240229 11:47:24.069865   77 file.cc:1] msg",
            "msg",
            {
                "stamp": stamp("2024-02-29 11:47:24.069865", US),
                "level": "ERROR",
                "origin": "file.cc:1",
                "names": ["glog"],
            },
        ),
        # torch._logging 2.4: a thread id; 2.7+: the pid
        (
            f"[rank1]:E0517 08:24:03.805000 140617718325696 {API}:826] failed (exitcode: -6)",
            "failed (exitcode: -6)",
            {
                "rank": 1,
                "stamp": stamp("-05-17 08:24:03.805", US),
                "level": "ERROR",
                "origin": f"{API}:826",
                "names": ["rank", "glog"],
            },
        ),
        (
            f"W1121 12:01:51.037000 16649 {API}:1028] Sending process 16652 closing signal SIGTERM",
            "Sending process 16652 closing signal SIGTERM",
            {
                "pid": 16649,
                "stamp": stamp("-11-21 12:01:51.037", US),
                "level": "WARNING",
                "origin": f"{API}:1028",
                "names": ["glog"],
            },
        ),
        # 2.1-2.3 python loggers
        (
            "[rank0]:[2024-04-04 11:42:17,400] torch.distributed.run: [WARNING] Setting",
            "Setting",
            {
                "rank": 0,
                "stamp": stamp("2024-04-04 11:42:17.4", MS),
                "level": "WARNING",
                "names": ["rank", "torch-logger"],
            },
        ),
        # excepthook: one space goes, indentation stays, blank lines too
        ("[rank3]:   File \"a.py\"", '  File "a.py"', {"rank": 3, "names": ["rank"]}),
        ("[rank3]: ", "", {"rank": 3, "names": ["rank"]}),
        ("[rank3]:", "", {"rank": 3, "names": ["rank"]}),
        ("[rank3] connecting", "connecting", {"rank": 3, "names": ["rank"]}),
        # Lightning
        ("[rank: 3] Received SIGTERM: 15", "Received SIGTERM: 15",
         {"rank": 3, "names": ["lightning"]}),
        # torchrun
        ("[default3]:  File", "  File", {"local_rank": 3, "names": ["torchrun"]}),
        ("[actor_a12]:x", "x", {"local_rank": 12, "names": ["torchrun"]}),
        ("[trainer8]<0>: hello", "hello", {"rank": 8, "local_rank": 0, "names": ["torchrun"]}),
        # torchtitan calls its torchrun role "rank"
        (
            "[rank0]:[titan] 2024-05-01 10:00:00,000 - root - INFO - step: 1",
            "step: 1",
            {
                "local_rank": 0,
                "stamp": stamp("2024-05-01 10:00:00", MS),
                "level": "INFO",
                "names": ["torchrun", "iso"],
            },
        ),
        ("[rank0]:[rank8]: Traceback", "Traceback",
         {"rank": 8, "local_rank": 0, "names": ["torchrun", "rank"]}),
    ],
)  # fmt: skip
def test_says(line: str, message: str, expected: dict[str, Any]) -> None:
    prefix = peel(line)

    assert said(prefix) == expected
    assert prefix.message == message


@pytest.mark.parametrize(
    "line",
    [
        "[E1320 11:47:24.069865760 a.cpp:1] no month 13",
        "[E230 11:47:24.069865760 a.cpp:1] no Feb 30",
        "[E820 25:47:24.069865760 a.cpp:1] no hour 25",
        "E0820 11:47:24.069865 12345 nofile] x",
        "[step3]: loss 1.0",
        "[epoch12]:x",
        "[gpu0]: 70 C",
        "[worker1]: a space follows, so not torchrun",
        "[rankings]: x",
        "[Erank] x",
        "EOFError: Ran out of input",
        "E123 is an error code",
    ],
)
def test_leaves_alone(line: str) -> None:
    prefix = peel(line)

    assert prefix.message == line
    assert said(prefix) == {}


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
    assert in_group(message) == group_rank
