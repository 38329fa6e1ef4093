"""What a launcher killed itself is no cause."""

from __future__ import annotations

import pytest

import diagnose

SIGQUIT = "SIGQUIT received. signum=None, frame=None. It usually means one child failed."
OLDER = "Received sigquit from a child proces. It usually means the child failed."
KILLED = "./launch.sh: line 31:  2467 Killed                  python3 -m sglang.launch_server"


@pytest.mark.parametrize("stops", [SIGQUIT, OLDER])
def test_a_kill_after_the_server_says_why_it_stops(stops: str) -> None:
    raised = "RuntimeError: The expanded size of the tensor (3) must match the existing size (7)"
    result = diagnose.diagnose(diagnose.load_text(f"{raised}\n{stops}\n{KILLED}\n"))
    assert (result.verdict, result.root_cause.cause) == ("failed", "crash.exception")
    waited = "[2025-03-09 00:57:15 TP4] Watchdog timeout (self.watchdog_timeout=300)"
    result = diagnose.diagnose(diagnose.load_text(f"{waited}\n{stops}\nKilled\n"))
    assert (result.verdict, result.root_cause.cause) == ("hung", "desync.missing_rank")
    assert result.culprits.ranks == [], "of the one that waited"


def test_a_kill_before_it_is_one() -> None:
    result = diagnose.diagnose(diagnose.load_text(f"{KILLED}\n{SIGQUIT}\n"))
    assert result.root_cause.cause == "crash.killed"
