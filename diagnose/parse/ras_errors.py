"""What RAS reports say of single ranks: that they are dead or late, or which errors they had.

Of NCCL's asynchronous errors only one says why: "invalid usage" is what its transports give for a
message of another size than was posted (nccl: src/transport/net_socket.cc "Message truncated",
net_ib/p2p.cc "size mismatch"), so the ranks called different things.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from diagnose.parse.comm_rank import CommRank
from diagnose.parse.node_signs import Sign
from diagnose.parse.ras import RasReport

_ERROR = re.compile(
    r"(?i:rank) (\d{1,9}) (?:reported (Invalid usage)"
    r"|of (0x[0-9a-f]{1,16}\S{0,40}): (?:init_state \d+, )?async_error 5\b)"
)


def signs_of_death(report: RasReport, source: str) -> Iterator[Sign]:
    """One for each rank of the whole job that is dead, else for each process of no known rank."""
    largest, text = _largest(report), "its process is considered dead"
    dead = [one for one in report.ranks if one.dead]
    ranks = [one for one in dead if one.size == largest]
    for one in ranks or dead:
        rank = one.comm_rank if ranks else None
        what = f"process {one.pid}" if rank is None else f"rank {rank}"
        yield Sign(source, one.host, "dead", what, text, rank=rank, line=one.line)


def signs_of_lateness(report: RasReport, source: str) -> Iterator[Sign]:
    """The one process that has launched fewer calls than the others, where none has moved.

    Of several the one that lacks more than each of them.
    """
    top: dict[str, int] = defaultdict(int)
    for one in report.ranks:
        top[one.comm] = max(top[one.comm], one.launched or 0)
    lacks: dict[tuple[str | None, int], int] = defaultdict(int)
    first: dict[tuple[str | None, int], CommRank] = {}
    for one in sorted(report.ranks, key=lambda one: one.rank is None):
        if one.pid is not None and one.launched is not None:
            lacks[one.host, one.pid] += top[one.comm] - one.launched
            first.setdefault((one.host, one.pid), one)
    most = max(lacks.values(), default=0)
    late = [first[who] for who, lack in lacks.items() if lack == most > 0]
    if report.moving is False and len(late) == 1:
        yield Sign(
            source, late[0].host, "late", f"process {late[0].pid}",
            f"it has launched {most} calls fewer than the others", rank=late[0].rank,
            line=late[0].line,
        )  # fmt: skip


def _largest(report: RasReport) -> int:
    return max((one.size or 0 for one in report.communicators), default=0)


def signs_of_errors(report: RasReport, source: str) -> Iterator[Sign]:
    """One for each rank that reported such an error."""
    largest = _largest(report)
    sizes = {one.hash: one.size for one in report.communicators}
    for line, text in report.errors:
        if not (found := _ERROR.search(text)):
            continue
        # Text has the name of the communicator in another line, and mostly but one.
        world = sizes.get(found[3]) == largest if found[3] else len(sizes) == 1
        rank = int(found[1])
        yield Sign(
            source, None, "nccl_error", f"rank {rank}" if world else f"rank {rank} of a group",
            "NCCL's asynchronous error is Invalid usage", rank=rank if world else None, line=line,
        )  # fmt: skip
