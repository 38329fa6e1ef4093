"""One command: its answer, its end, and its bounds."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path
from threading import Event, Timer

import pytest

from diagnose.runtime.children import Ending, run


def shell(
    script: str, stdin: bytes = b"", seconds: float = 20, limit: int = 1 << 20,
    stop: Event | None = None, environment: dict[str, str] | None = None, grace_s: float = 2,
) -> tuple[Ending, bytes]:  # fmt: skip
    out = io.BytesIO()
    ending = run(
        ("sh", "-c", script), out, seconds=seconds, limit=limit, stdin=stdin,
        stop=lambda: "interrupted" if stop and stop.is_set() else None, environment=environment,
        grace_s=grace_s,
    )  # fmt: skip
    return ending, out.getvalue()


def test_an_answer_and_its_message() -> None:
    ending, data = shell("printf abc; echo one >&2; echo two >&2; echo >&2; exit 3")
    assert (ending, data) == (Ending(3, "", b"one\ntwo\n\n"), b"abc")


def test_what_is_given_to_it_arrives() -> None:
    data = os.urandom(300_000)
    assert shell("cat", data) == (Ending(0), data)


def test_nothing_is_its_standard_input_where_nothing_is_given() -> None:
    assert shell("cat; echo end") == (Ending(0), b"end\n")


def test_one_that_does_not_want_its_input() -> None:
    ending, data = shell("exec <&-; echo no python >&2; sleep 0.1; exit 127", b"x" * 500_000)
    assert (ending, data) == (Ending(127, "", b"no python\n"), b"")


def test_a_command_that_is_not_there() -> None:
    ending = run(("/nowhere/srun",), io.BytesIO(), seconds=1)
    assert ending == Ending(None, "/nowhere/srun: no such file or directory")


def test_the_environment_is_as_given() -> None:
    assert shell('echo "$A"', environment={"A": "b", "PATH": os.defpath})[1] == b"b\n"


def gone(path: Path, patience: float = 10) -> bool:
    """Whether the process whose number is in a file ends; nobody may have looked after it.

    It was killed together with its shell, whose end is waited for: its own may be a moment later.
    """
    status = Path(f"/proc/{int(path.read_text())}/status")
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            if "State:\tZ" in status.read_text():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_one_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    ending, data = shell(f"printf first; sleep 60 & echo $! > {tmp_path}/pid; wait", seconds=0.5)
    assert (ending, data) == (Ending(None, "no end in 0.5 s"), b"first")
    assert time.monotonic() - began < 10
    assert gone(tmp_path / "pid")


def test_one_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.05; done"
    ending, _ = shell(script, seconds=0.5, grace_s=0.2)
    assert ending.why == "no end in 0.5 s"
    assert gone(tmp_path / "pid")


def test_one_that_answers_too_much_is_ended() -> None:
    ending, data = shell("exec cat /dev/zero", limit=100_000)
    assert ending == Ending(None, "more than 100000 bytes")
    assert len(data) <= 100_000


def test_it_ends_when_the_user_wants_to_stop() -> None:
    stop = Event()
    Timer(0.3, stop.set).start()
    began = time.monotonic()
    ending, data = shell("printf first; exec sleep 60", stop=stop)
    assert (ending, data) == (Ending(None, "interrupted"), b"first")
    assert time.monotonic() - began < 10


@pytest.mark.slow
def test_what_outlives_it_with_its_output_open_is_not_waited_for(tmp_path: Path) -> None:
    """As the master of a shared connection of ssh does."""
    began = time.monotonic()
    ending, data = shell(
        f"printf answer; echo said >&2; sleep 30 & echo $! > {tmp_path}/pid; exit 0"
    )
    assert (ending, data) == (Ending(0, "", b"said\n"), b"answer")
    assert time.monotonic() - began < 10
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_of_many_messages_the_last_is_kept() -> None:
    ending, _ = shell("i=0; while [ $i -lt 20000 ]; do echo line $i >&2; i=$((i+1)); done")
    assert ending.errors.endswith(b"\nline 19999\n")
    assert len(ending.errors) == 1 << 16


def test_an_output_that_is_closed_early_is_no_end() -> None:
    assert shell("printf abc; exec >&- 2>&-; sleep 0.3; exit 4") == (Ending(4), b"abc")
