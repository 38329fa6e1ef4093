"""Whether an exception was caught, by its traceback."""

from __future__ import annotations

import json

import pytest

import diagnose
from diagnose.timeline.ends import tracebacks

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


_TEXT = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nKeyError: 1'
_FRAMES = [{"filename": "t.py", "lineno": 1, "name": "<module>", "line": ""}]
_INNER = {"exc_type": "OSError", "exc_value": "stale handle", "frames": _FRAMES}
_OUTER = {"exc_type": "KeyError", "exc_value": "1", "frames": _FRAMES}


@pytest.mark.parametrize(
    "fields",
    [
        {"message": "unhandled", "exc_info": _TEXT},
        {"exc_info": _TEXT},
        {"exception": _TEXT},
        {"stack_trace": _TEXT},
        {"message": _TEXT},
        {"error": {"stack_trace": _TEXT}},
        {"event": "unhandled", "exception": [_OUTER]},
        {"exception": [_OUTER, _INNER]},
    ],
    ids="-".join,
)
def test_a_json_record_holds_a_whole_traceback(fields: dict[str, object]) -> None:
    record = json.dumps({"level": "ERROR", "rank": 3, **fields})
    step = '{"level":"INFO","rank":0,"message":"step %d loss 2.1"}'
    lines = [step % 1, record, step % 2, step % 3, step % 4]
    result = diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))
    assert (result.verdict, result.culprits.ranks) == ("failed", [3])
    assert result.root_cause.summary.startswith("KeyError: 1 in t.py:1 (<module>)")


def test_the_traceback_of_a_json_record_says_who_caught_it() -> None:
    assert fate(json.dumps({"level": "ERROR", "rank": 3, "exc_info": _TEXT})) == "uncaught"


@pytest.mark.parametrize("value", [[], [1], [{"frames": 1}], [{"exc_type": 1, "frames": []}], {}])
def test_a_json_record_without_a_traceback_is_its_own_message(value: object) -> None:
    record = json.dumps({"rank": 3, "exception": value})
    assert fate(record) == "unknown"


BEGUN = [HEADER, '  File "/usr/lib/python3.12/multiprocessing/process.py", line 314, in _bootstrap']
WORK = [
    '  File "/w/t.py", line 9, in work',
    "    if bad: raise KeyError('labels')",
    "KeyError: 'labels'",
]


def test_what_ends_a_process_of_a_program_is_not_caught() -> None:
    assert fate(*BEGUN, *WORK) == "uncaught"
    thread = [line.replace("multiprocessing/process", "threading") for line in BEGUN]
    assert fate(*thread, *WORK) == "caught"


@pytest.mark.parametrize(("further", "verdict"), [(0, "failed"), (400, "running")])
def test_what_a_process_held_back_until_it_died_is_no_further_work(
    further: int, verdict: str
) -> None:
    steps = [f"step {step} loss 2.1 lr 0.0001 norm 1.2" for step in range(1, 13)]
    more = [f"step {step} loss 2.1 lr 0.0001 norm 1.2" for step in range(13, 13 + further)]
    lines = [*steps, "Process SpawnProcess-2:", *BEGUN, *WORK, *steps, *more]
    result = diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))
    assert result.verdict == verdict


def test_a_line_of_code_is_not_what_was_raised() -> None:
    events = diagnose.load_text("\n".join(["step 1 loss 2.1", *BEGUN, *WORK]) + "\n").events
    found = tracebacks(events)
    code, raised = (
        [event.index for event in events.role("cause") if event.line == line] for line in (5, 6)
    )
    assert code
    assert found.code == {*code}
    assert not found.stacks.keys() & {*code}
    assert found.ends.keys() <= {*raised}


LAUNCHER = "torch.distributed.elastic.multiprocessing.api"


@pytest.mark.parametrize(
    ("last", "nameless"),
    [
        (["DatasetExhausted"], True),
        (LAST, False),
        ([f"{LAUNCHER}.SignalException: got signal: 15"], False),
        ([f"{LAUNCHER}.SignalException: Process 9 got signal: 2"], False),  # it names a process
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


def test_what_a_line_of_code_says_did_not_happen() -> None:
    lines = [
        "step 1 loss 2.1",
        "Traceback (most recent call last):",
        '  File "/w/train.py", line 40, in <module>',
        '    if torch.isnan(loss): raise ValueError("loss is nan, stopping")',
    ]
    titles = []
    for raised in ("ValueError: bad batch 17", "ValueError: loss is nan, stopping"):
        result = diagnose.diagnose(diagnose.load_text("\n".join([*lines, raised]) + "\n"))
        titles.append((result.verdict, result.root_cause.title))
    assert titles == [
        ("failed", "A Python exception ended a rank"),
        ("failed", "Training stopped because a loss or gradient was not finite"),
    ]


@pytest.mark.parametrize("raised", ["StopIteration", "acme.Odd: shard 17", "KeyError: 'x'"])
@pytest.mark.parametrize("of_all", [True, False])
def test_whatever_the_exception_is_called_it_ended_its_rank(raised: str, of_all: bool) -> None:
    """Also where others go on, as ranks do until they need the dead one."""
    steps = [f"[rank{rank}]: step {step} loss 2.1" for step in range(1, 19) for rank in (0, 3)]
    died = [
        "Traceback (most recent call last):",
        '  File "/w/t.py", line 3, in <module>',
        "    next(batches)",
        raised,
    ]
    more = [f"[rank0]: step {step} loss 2.1" for step in range(19, 61)]
    lines = [*steps, *(f"[rank3]: {line}" for line in died), *(more if of_all else [])]
    result = diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))
    assert (result.verdict, result.root_cause.cause) == ("failed", "crash.exception")
    assert result.culprits.ranks == [3]
    assert result.root_cause.summary == f"{raised} in t.py:3 (<module>), rank 3."


@pytest.mark.parametrize("end", ["\n", "\r", ""])
def test_a_bar_before_the_first_frame_hides_none(end: str) -> None:
    bar = " 18%|###  | 18/100 [00:18<00:50,  1.20it/s]"
    frames = '  File "/w/t.py", line 2, in <module>\n    main()\n'
    frames += '  File "/w/t.py", line 9, in main\n    x[1]\n'
    text = f"step 1 loss 2\nTraceback (most recent call last):\n{bar}{end}{frames}KeyError: 1\n"
    raised = diagnose.diagnose(diagnose.load_text(text)).exception
    assert raised is not None
    assert raised.where is not None
    assert (raised.type, raised.where.line) == ("KeyError", 9)


def interleaved(second: str) -> list[str]:
    """Two tracebacks that nothing tells apart, written line by line by turns."""
    frames = ['  File "/w/train.py", line 9, in <module>', '  File "/w/data.py", line 7, in read']
    others = [frames[0], f'  File "/w/{second}", line 7, in read']
    pairs = zip(frames, others, strict=True)
    header = "Traceback (most recent call last):"
    mixed = [header, header, *(line for pair in pairs for line in pair)]
    return ["step 1 loss 2.1", *mixed, "KeyError: 'text'", "RuntimeError: peer"]


def test_tracebacks_written_at_once_show_no_place_of_their_own() -> None:
    """What the second one's frames say is not where the first exception was raised."""
    job = diagnose.load_text("\n".join(interleaved("model.py")) + "\n")
    found = tracebacks(job.events)
    (error,) = (event for event in job.events if event.text.startswith("KeyError") and event.cause)
    assert found.stacks[error.index].frames == []
    assert error.index in found.mixed
    assert error.index in found.uncaught


def test_tracebacks_of_one_place_show_it_also_when_written_at_once() -> None:
    job = diagnose.load_text("\n".join(interleaved("data.py")) + "\n")
    found = tracebacks(job.events)
    (error,) = (event for event in job.events if event.text.startswith("KeyError") and event.cause)
    assert {frame.fields["line"] for frame in found.stacks[error.index].frames} == {"7", "9"}


def test_whose_exit_belongs_to_which_of_them_nobody_knows() -> None:
    exited = (
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 2"
    )
    lines = [*interleaved("model.py"), f"{exited} (pid: 4494) of binary: /usr/bin/python"]
    found = diagnose.diagnose(diagnose.load_text("\n".join(lines) + "\n"))
    assert (found.verdict, found.root_cause.cause) == ("failed", "crash.exception")
    assert (found.root_cause.summary, found.culprits.ranks) == ("KeyError: 'text'.", [])
