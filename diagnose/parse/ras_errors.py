"""What RAS reports say of single ranks: that they do not answer, or their own errors.

Of the async errors only one of NCCL's codes says why: "invalid usage" is what its transports give for a message of
another size than was posted (nccl: src/transport/net_socket.cc "Message truncated",
net_ib/p2p.cc "size mismatch"), so the ranks called different things.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagnose.parse.node_signs import Sign
from diagnose.parse.ras import RasReport

_TOLD = re.compile(
    r"(?i:rank) (\d{1,9}) (?:reported (Invalid usage)"
    r"|of (0x[0-9a-f]{1,16}\S{0,40}): (?:init_state \d+, )?async_error 5\b)"
)


def signs_of_silence(report: RasReport, source: str) -> Iterator[Sign]:
    """One for each rank of the whole job that is dead or does not answer."""
    largest = _largest(report)
    for one in report.ranks:
        if one.gone and one.size == largest:
            yield Sign(
                source, one.host, "silent", f"rank {one.comm_rank}",
                "its process is dead or does not answer", rank=one.comm_rank, line=one.line,
            )  # fmt: skip


def _largest(report: RasReport) -> int:
    return max((one.size or 0 for one in report.communicators), default=0)


def signs_of_errors(report: RasReport, source: str) -> Iterator[Sign]:
    """One for each rank that reported such an error."""
    largest = _largest(report)
    sizes = {one.hash: one.size for one in report.communicators}
    for line, text in report.errors:
        if not (told := _TOLD.search(text)):
            continue
        # Text has the name of the communicator in another line, and mostly but one.
        world = sizes.get(told[3]) == largest if told[3] else len(sizes) == 1
        rank = int(told[1])
        yield Sign(
            source, None, "nccl_error", f"rank {rank}" if world else f"rank {rank} of a group",
            "NCCL's asynchronous error is Invalid usage", rank=rank if world else None, line=line,
        )  # fmt: skip
