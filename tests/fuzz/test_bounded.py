"""What a line costs is bounded, whatever it says and however often it stands there.

Work is counted in calls of functions, which no busy machine changes.
"""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from diagnose.catalog.load import load_catalog
from tests.fuzz.case import Case, job, run
from tests.sizes import few

LINES = 200
# Reading and judging a small job, and what each further line may cost.
CALLS, CALLS_A_LINE = 500_000, 1_500


class TooMuchWork(BaseException):
    """Ends what would go on for too long; no handler of the engine catches it."""


def calls(case: Case, limit: int) -> int:
    """The calls that a diagnosis takes, up to a limit."""
    count = 0

    def counted(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1
            if count > limit:
                raise TooMuchWork

    sys.setprofile(counted)
    try:
        run(case)
    except TooMuchWork:
        return count
    finally:
        sys.setprofile(None)
    return count


def _examples() -> dict[str, str]:
    """One line for each thing that a signature may tell the engine, or role where it tells none."""
    found: dict[str, str] = {}
    for signature in load_catalog(examples=True).signatures:
        if signature.match:  # else a record states it, no line
            line = signature.examples[0].line
            found.setdefault(f"{signature.role} {signature.signal}", line)
    return found


EXAMPLES = _examples()


@pytest.mark.parametrize("kind", few(EXAMPLES, 8))
def test_a_line_that_floods_a_log_costs_little(kind: str) -> None:
    rows = EXAMPLES[kind].split("\n")
    times = LINES // len(rows)
    run(job(kind, {"a.log": "\n".join(rows).encode()}))  # what is compiled once does not count
    text = "step 1 loss 2.0\n" + (EXAMPLES[kind] + "\n") * times + "step 2 loss 2.0\n"
    limit = CALLS + CALLS_A_LINE * LINES
    assert calls(job(kind, {"a.log": text.encode()}), limit) <= limit


# The last call may be that of a generator that is closed, where Python can raise nothing.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_calls_are_counted_up_to_a_limit() -> None:
    case = job("x", {"a.log": b"step 1 loss 2.0\nKilled\n"})
    assert calls(case, 1000) == 1001
