"""The command that runs for a stall."""

from __future__ import annotations

import time
from pathlib import Path

from diagnose.watch.outlets import Hook


def ran(command: str, values: dict[str, str], limit_s: float = 20.0) -> list[str]:
    said: list[str] = []
    hook = Hook(command, said.append, limit_s)
    hook.run(values)
    hook.close(30)
    return said


def test_it_has_the_variables_and_its_output_is_shown() -> None:
    values = {"DIAGNOSE_STALL_RANKS": "1,2", "DIAGNOSE_STALL_PHASE": "training"}
    command = 'echo "ranks $DIAGNOSE_STALL_RANKS"; echo "in $DIAGNOSE_STALL_PHASE" >&2'
    assert ran(command, values) == ["ranks 1,2", "in training"]


def test_a_failure_is_said() -> None:
    assert ran("exit 3", {}) == ["exit status 3"]


def test_it_is_killed_with_all_it_started(tmp_path: Path) -> None:
    begin = time.monotonic()
    said = ran(f"(sleep 60; touch {tmp_path}/late) & sleep 60", {}, 0.3)
    assert time.monotonic() - begin < 20
    assert said == ["ended: no end in 0.3 s"]
    assert not (tmp_path / "late").exists()


def test_one_at_a_time() -> None:
    said: list[str] = []
    hook = Hook("sleep 60", said.append)
    hook.run({})
    hook.run({})
    hook.close(0.1)
    assert said == [
        "not started: it still runs for the stall before",
        "ended: the watch is over",
    ]


def test_output_is_bounded() -> None:
    said = ran("yes | head -n 100000", {})
    assert said == ["y"] * 200 + ["[...]"]


def test_too_much_for_an_environment_is_no_crash() -> None:
    assert ran("true", {"A": "x" * (4 << 20)}) == ["ended: /bin/sh: argument list too long"]
