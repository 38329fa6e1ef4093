"""Hosts whose connections broke, where nothing says that a process ended."""

from __future__ import annotations

import diagnose
from diagnose.diagnosis import Diagnosis

RESET = (
    "worker{}:25:64 [3] include/socket.h 398 NCCL WARN "
    "Call to {} failed : Connection reset by peer."
)


def verdict(*lines: str) -> Diagnosis:
    return diagnose.diagnose(diagnose.load_text("\n".join(lines)))


def test_connections_that_both_ends_lost_are_a_fault_of_the_network() -> None:
    found = verdict(RESET.format(0, "write"), RESET.format(1, "recv"))
    assert (found.verdict, found.root_cause.cause) == ("failed", "net.socket")
    assert (found.root_cause.confidence, found.culprits.ranks) == ("low", [])
    assert found.root_cause.summary == (
        "Processes of 2 hosts lost their connections; nothing says that one had ended."
    )


def test_one_end_alone_says_nothing_of_the_other() -> None:
    found = verdict(RESET.format(0, "write"), RESET.format(0, "recv"))
    assert found.root_cause.cause == "unknown"


def test_an_end_of_which_something_is_said_says_more() -> None:
    end = "worker1: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    found = verdict(end, RESET.format(0, "write"), RESET.format(2, "recv"))
    assert found.root_cause.cause == "crash.gpu_oom"
