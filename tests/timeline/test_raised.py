"""Whether an exception was caught, by its traceback."""

from __future__ import annotations

import pytest

import diagnose
from diagnose.timeline.raised import tracebacks

HEADER = "Traceback (most recent call last):"
RUNPY = '  File "<frozen runpy>", line 198, in _run_module_as_main'
MAIN = ['  File "/w/t.py", line 2, in <module>', "    main()"]
CALL = ['  File "/w/t.py", line 9, in load', "    return read(path)"]
LAST = ["ValueError: no such sample"]


def fate(*lines: str) -> str:
    """What is known of the exception of these lines."""
    events = diagnose.load_text("\n".join(["step 1 loss 2.1", *lines]) + "\n").events
    found = tracebacks(events)
    raised = {event.index for event in events.role("cause")}
    if raised & found.signed:
        return "signed"
    if raised & found.uncaught:
        return "uncaught"
    return "caught" if raised & found.caught else "unknown"


def signed(*lines: str) -> list[str]:
    return [f"[rank3]: {line}" for line in lines]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([HEADER, *MAIN, *CALL, *LAST], "uncaught"),
        ([HEADER, RUNPY, *MAIN, *LAST], "uncaught"),
        ([HEADER, *CALL, *LAST], "caught"),
        (LAST, "unknown"),
        (signed(HEADER, *MAIN, *LAST), "signed"),
        (signed(HEADER, *LAST), "signed"),
        # The launcher wrote the tags here: who catches prints its own frames only.
        (signed(HEADER, *CALL, *LAST), "caught"),
        # A module may do without another one.
        ([HEADER, MAIN[0], "    import wandb", "ModuleNotFoundError: No module named 'wandb'"],
         "unknown"),
    ],
)  # fmt: skip
def test_who_caught_it(lines: list[str], expected: str) -> None:
    assert fate(*lines) == expected


def test_a_json_record_holds_a_whole_traceback() -> None:
    record = (
        '{"level":"ERROR","rank":3,"message":"unhandled","exc_info":"Traceback (most recent call '
        'last):\\n  File \\"t.py\\", line 1, in <module>\\nKeyError: 1"}'
    )
    assert fate(record) == "uncaught"
    step = '{"level":"INFO","rank":0,"message":"step %d loss 2.1"}'
    lines = [step % 1, record, step % 2, step % 3, step % 4]
    result = diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))
    assert (result.verdict, result.culprits.ranks) == ("failed", [3])


@pytest.mark.parametrize(
    ("last", "nameless"),
    [
        (["DatasetExhausted"], True),
        (LAST, False),
        (["torch.distributed.elastic.multiprocessing.api.SignalException: got signal: 15"], False),
    ],
)
def test_whether_an_entry_knows_what_was_raised(last: list[str], nameless: bool) -> None:
    lines = ["step 1 loss 2.1", HEADER, *MAIN, *CALL, *last]
    found = tracebacks(diagnose.load_text("\n".join(lines) + "\n").events)
    assert bool(found.nameless) is nameless


@pytest.mark.parametrize(
    "lines", [[HEADER, *MAIN], [HEADER, *MAIN, *CALL], [HEADER, *MAIN, CALL[0]]]
)
def test_a_traceback_that_breaks_off_is_not_without_a_name(lines: list[str]) -> None:
    found = tracebacks(diagnose.load_text("\n".join(["step 1 loss 2.1", *lines]) + "\n").events)
    assert found.nameless == set()


def test_what_was_caught_needs_no_name() -> None:
    lines = ["step 1 loss 2.1", HEADER, *CALL, "DatasetExhausted"]
    assert tracebacks(diagnose.load_text("\n".join(lines) + "\n").events).nameless == set()
