"""Crashes of processes that had raised an exception already."""

from __future__ import annotations

import pytest

import diagnose
from diagnose.ingest import text_source
from diagnose.job.load import read

RAISED = (
    "{0}Traceback (most recent call last):\n"
    '{0}  File "train.py", line 9, in <module>\n'
    "{0}    main()\n"
    "{0}{1}\n"
)
SEGFAULT = (
    "FatalError: `Segmentation fault` is detected by the operating system.\n"
    "  [SignalInfo: *** SIGSEGV (@0x65) received by PID 197 (TID 0x7f19) from PID 101 ***]\n"
)
HEAP = "free(): invalid pointer\nAborted (core dumped)\n"
STEPS = "".join(f"step {n} loss 2.0\n" for n in range(20))


def cause(text: str) -> str:
    """The cause class told of a log."""
    return diagnose.diagnose(read([text_source(text, "job.log")])).root_cause.cause


@pytest.mark.parametrize(
    "crash", [SEGFAULT, HEAP, "terminate called without an active exception\n"]
)
def test_the_exception_comes_first(crash: str) -> None:
    raised = RAISED.format("", "ValueError: bad batch")
    assert cause(f"{STEPS}{raised}\n{crash}") == "crash.exception"


@pytest.mark.parametrize("crash", [SEGFAULT, HEAP])
def test_a_crash_above_the_exception_is_the_cause(crash: str) -> None:
    raised = RAISED.format("", "ValueError: bad batch")
    assert cause(f"{STEPS}{crash}{raised}") == "crash.native"


def test_a_caught_exception_explains_no_crash() -> None:
    caught = RAISED.format("", "ValueError: bad batch").replace("<module>", "load")
    assert cause(f"{STEPS}{caught}{STEPS}{SEGFAULT}") == "crash.native"


def test_an_interrupt_is_what_ended_it() -> None:
    raised = RAISED.format("", "KeyboardInterrupt")
    assert cause(f"{STEPS}{raised}{SEGFAULT}") == "user.interrupt"


def test_the_crash_of_another_rank_is_its_own() -> None:
    raised = RAISED.format("[rank0]: ", "ValueError: bad batch")
    text = f"{STEPS}{raised}[rank3]: {SEGFAULT}".replace("  [Sig", "[rank3]:  [Sig")
    assert cause(text) == "crash.native"
