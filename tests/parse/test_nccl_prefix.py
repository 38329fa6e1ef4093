from __future__ import annotations

from typing import Any

import pytest

from diagnose.parse.prefix import peel

from .said import MS, said, stamp

WHO = {"host": "ip-10-0-1-2", "pid": 77}


@pytest.mark.parametrize(
    ("line", "message", "expected"),
    [
        (
            "ip-10-0-1-2:77:123 [3] NCCL INFO Bootstrap : Using eth0:10.0.1.2<0>",
            "Bootstrap : Using eth0:10.0.1.2<0>",
            WHO | {"dev": 3, "level": "INFO", "names": ["nccl"]},
        ),
        (
            "ip-10-0-1-2:77:123 [0] transport/net_ib.cc:1372 NCCL WARN NET/IB : Got completion",
            "NET/IB : Got completion",
            WHO | {"dev": 0, "level": "WARNING", "origin": "transport/net_ib.cc:1372",
                   "names": ["nccl"]},
        ),
        (
            "[2025-06-01 10:00:00] ip-10-0-1-2:77:88 [0] misc/socket.cc:12 NCCL WARN x",
            "x",
            WHO | {"dev": 0, "level": "WARNING", "origin": "misc/socket.cc:12",
                   "stamp": stamp("2025-06-01 10:00:00"), "names": ["date", "nccl"]},
        ),
        (
            "[2026-01-01 10:00:00.123] ip-10-0-1-2:77:88 [0] "
            "transport/net_ib/p2p.cc:123 (ncclIbTest) NCCL WARN x",
            "x",
            WHO | {"dev": 0, "level": "WARNING", "origin": "transport/net_ib/p2p.cc:123",
                   "stamp": stamp("2026-01-01 10:00:00.123", MS), "names": ["date", "nccl"]},
        ),
        ("ip-10-0-1-2:77:88 NCCL CALL ncclGroupStart()", "ncclGroupStart()",
         WHO | {"level": "DEBUG", "names": ["nccl"]}),
        # no device yet
        ("ip-10-0-1-2:77:88 [-1] NCCL INFO x", "x", WHO | {"level": "INFO", "names": ["nccl"]}),
        # the front was cut off
        ("misc/socket.cc:12 NCCL WARN x", "x",
         {"level": "WARNING", "origin": "misc/socket.cc:12", "names": ["nccl"]}),
        # a message that looks like a prefix stays
        ("4node:7:8 [1] NCCL INFO [3] x", "[3] x",
         {"host": "4node", "pid": 7, "dev": 1, "level": "INFO", "names": ["nccl"]}),
    ],
)  # fmt: skip
def test_says(line: str, message: str, expected: dict[str, Any]) -> None:
    prefix = peel(line)

    assert said(prefix) == expected
    assert prefix.message == message


@pytest.mark.parametrize(
    "line",
    [
        "NCCL version 2.21.5+cuda12.4",
        "an error in NCCL INFO lines",
        "host:77 NCCL INFO x",
        "RuntimeError: NCCL error in: ../torch/csrc/a.cpp:1, NCCL version 2.14.3",
    ],
)
def test_leaves_alone(line: str) -> None:
    prefix = peel(line)

    assert prefix.message == line
    assert said(prefix) == {}
