"""How the releases of torch differ in what they print: prefixes, line numbers, versions.

The forms are those of the shipped libraries: which literal exists in which release was read from
their wheels; the numbers of lines are those seen in public reports, of 2.13 those of a real run of
2.11.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

Torch = Literal["1.13", "2.1", "2.4", "2.7", "2.13"]
TORCHES: tuple[Torch, ...] = get_args(Torch)

_FILE = "ProcessGroupNCCL.cpp"


@dataclass(frozen=True, slots=True)
class Release:
    """One release.

    nccl, cuda: versions that its wheel brings. source: line numbers in ProcessGroupNCCL.cpp by
    message. root: where its library was built, as printed in C++ traces. recorder: version of the
    Flight Recorder's dumps, empty for none. poll_s: how often the launcher looks at its processes.
    rank_prefix: lines of C++ and tracebacks begin with `[rank3]:`. clock: they carry the time.
    group_prefix: lines of a process group name it.
    """

    torch: Torch
    python: str
    nccl: str
    cuda: str
    source: Mapping[str, int]
    root: str
    recorder: str
    poll_s: float
    rank_prefix: bool
    clock: bool
    group_prefix: Literal["none", "name", "guid"]


RELEASES: Mapping[str, Release] = {
    "1.13": Release(
        "1.13",
        "3.8",
        "2.14.3",
        "11.7",
        {"caught": 821, "corrupt": 456, "down": 461},
        "../",
        "",
        5.0,
        False,
        False,
        "none",
    ),
    "2.1": Release(
        "2.1",
        "3.10",
        "2.18.1",
        "12.1",
        {"caught": 474, "corrupt": 488, "down": 494, "ended": 915, "check": 475, "loop": 919},
        "../",
        "",
        5.0,
        False,
        False,
        "none",
    ),
    "2.4": Release(
        "2.4",
        "3.11",
        "2.20.5",
        "12.4",
        {
            "caught": 607,
            "detected": 1664,
            "first": 1668,
            "timeout_at": 1709,
            "corrupt": 621,
            "down": 627,
            "ended": 1515,
            "check": 609,
            "loop": 1521,
            "local": 1277,
            "remote": 1290,
            "seen": 1282,
            "prepare": 1091,
            "destroyed": 1168,
        },
        "../",
        "2.1",
        0.1,
        True,
        True,
        "name",
    ),
    "2.7": Release(
        "2.7",
        "3.12",
        "2.26.2",
        "12.2",
        {
            "caught": 632,
            "detected": 2271,
            "stack": 670,
            "first": 2106,
            "corrupt": 684,
            "down": 698,
            "ended": 1899,
            "check": 635,
            "loop": 1905,
            "local": 1682,
            "remote": 1682,
            "seen": 1619,
            "prepare": 1541,
            "destroyed": 1479,
        },
        "/pytorch/",
        "2.4",
        0.1,
        True,
        True,
        "guid",
    ),
    "2.13": Release(
        "2.13",
        "3.12",
        "2.29.3",
        "13.0",
        {
            "caught": 689,
            "detected": 2303,
            "stack": 736,
            "first": 2636,
            "corrupt": 750,
            "down": 764,
            "ended": 2068,
            "check": 692,
            "loop": 2074,
            "local": 1914,
            "remote": 1914,
            "seen": 1849,
            "prepare": 1628,
            "destroyed": 1538,
        },
        "/pytorch/",
        "2.10",
        0.1,
        True,
        True,
        "guid",
    ),
}

# How torch's OpType spells what `Work.op` names. A barrier is an all-reduce of one element.
OP_TYPES: Mapping[str, str] = {
    "all_reduce": "ALLREDUCE",
    "barrier": "ALLREDUCE",
    "broadcast": "BROADCAST",
    "reduce": "REDUCE",
    "all_gather": "ALLGATHER",
    "_allgather_base": "_ALLGATHER_BASE",
    "reduce_scatter": "REDUCE_SCATTER",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE",
    "all_to_all": "ALLTOALL_BASE",
    "gather": "GATHER",
    "scatter": "SCATTER",
    "send": "SEND",
    "recv": "RECV",
    "coalesced": "COALESCED",
}


class Clock:
    """The clock of one process's C++ log: wall time to the second, then monotonic nanoseconds."""

    def __init__(self, release: Release, rank: int | None, offset: int) -> None:
        """offset: nanoseconds between the monotonic clock of the node and the wall clock."""
        self._release = release
        self._rank = "" if rank is None or not release.rank_prefix else f"[rank{rank}]:"
        self._offset = offset

    def prefix(self, when: datetime, severity: str, message: str) -> str:
        """What begins a line of ProcessGroupNCCL.cpp; `message`: a key of `Release.source`."""
        return self.of(when, severity, _FILE, self._release.source[message])

    def of(self, when: datetime, severity: str, file: str, line: int) -> str:
        """What begins a line of any C++ file."""
        if not self._release.clock:
            return f"{self._rank}[{severity} {file}:{line}] "
        nanoseconds = (when.microsecond * 1000 + self._offset) % 1_000_000_000
        stamp = f"{when.month * 100 + when.day} {when:%H:%M:%S}.{nanoseconds:09d}"
        return f"{self._rank}[{severity}{stamp} {file}:{line}] "
