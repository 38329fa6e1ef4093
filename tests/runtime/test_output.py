from __future__ import annotations

import time

import pytest

from diagnose.runtime.children import TimedOut, Unavailable, found, output


def test_what_a_program_prints_and_says() -> None:
    assert output(["sh", "-c", "echo out; echo err >&2"], 5) == ("out\n", "err\n")
    assert output(["sh", "-c", "echo out; exit 3"], 5) == ("out\n", "")
    with pytest.raises(OSError, match="sh: it went wrong"):
        output(["sh", "-c", "echo it went wrong >&2; exit 3"], 5)
    with pytest.raises(OSError, match="exit status 3"):
        output(["sh", "-c", "exit 3"], 5)


def test_a_program_has_so_much_time() -> None:
    began = time.monotonic()
    with pytest.raises(TimedOut, match=r"sleep: no end in 0\.1 s"):
        output(["sleep", "30"], 0.1)
    with pytest.raises(TimedOut, match="enough"):
        output(["sleep", "30"], 20, lambda: "enough")
    assert time.monotonic() - began < 5


def test_a_program_that_is_not_here() -> None:
    assert found("sh").endswith("/sh")
    with pytest.raises(Unavailable, match="there is no nosuchprogram here"):
        found("nosuchprogram")
