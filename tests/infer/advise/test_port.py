"""What to do about a port in use."""

from __future__ import annotations

import diagnose

LINE = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local "
    "network address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address "
    "already in use\n"
)


def test_processes_of_one_start_that_compete_for_a_port_are_named_as_a_reason() -> None:
    result = diagnose.diagnose(diagnose.load_text(LINE * 6))
    now = [step.do for step in result.remedies if step.when == "now"]
    assert now == [
        "Find the process that holds the port, and end it if it is left over from an earlier run.",
        "If several processes of this start report the port, each acts as rank 0. Print rank and "
        "world size in each.",
    ]
