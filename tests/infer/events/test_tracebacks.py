"""Where each rank stood when it stopped."""

from typing import Any

import pytest

from diagnose.infer.events.exceptions import LastTraceback, last_printed, last_tracebacks

from ..rows import stack

SITE = "/opt/env/site-packages/torch/distributed/distributed_c10d.py"
BACKWARD = (
    ("/job/train.py", 90, "main"),
    ("/job/train.py", 41, "train"),
    (SITE, 2501, "all_reduce"),
)


@pytest.mark.parametrize("dump", [False, True], ids=["traceback", "dump"])
def test_the_innermost_frames_tell_whatever_the_order_of_printing(make: Any, dump: bool) -> None:
    timeline = make(*stack(3, *BACKWARD, dump=dump))
    row = 0 if dump else 2
    assert last_tracebacks(timeline) == {3: LastTraceback(3, "ALLREDUCE", "train.py:41", None, row)}


def test_py_spy_prints_the_innermost_frame_first(make: Any) -> None:
    rows = stack(0, *BACKWARD, dump=True)
    for row in rows:
        row["text"] = "    {func} ({file}:{line})".format(**row["fields"])
    assert last_tracebacks(make(*rows))[0].site == "train.py:41"


@pytest.mark.parametrize(
    ("func", "op"),
    [
        ("broadcast_object_list", "BROADCAST"),
        ("all_gather_into_tensor", "_ALLGATHER_BASE"),
        ("reduce_scatter_tensor", "_REDUCE_SCATTER_BASE"),
        ("all_to_all_single", "ALLTOALL_BASE"),
        ("monitored_barrier", "BARRIER"),
        ("_engine_run_backward", "ALLREDUCE"),
        ("recv", "RECV"),
        ("forward", None),
    ],
)
def test_calls_and_their_operations(make: Any, func: str, op: str | None) -> None:
    assert last_tracebacks(make(*stack(0, ("m.py", 1, "main"), (SITE, 9, func))))[0].op == op


def test_the_last_stack_of_a_rank_counts(make: Any) -> None:
    first = stack(0, ("train.py", 5, "main"), (SITE, 9, "broadcast"), phase="init")
    last = stack(0, ("train.py", 8, "main"), (SITE, 9, "barrier"), phase="training")
    rows = [row | {"line": 10 + n} for n, row in enumerate(first)]
    rows += [row | {"line": 90 + n} for n, row in enumerate(last)]
    found = last_tracebacks(make(*rows))[0]
    assert (found.op, found.site, found.phase) == ("BARRIER", "train.py:8", "training")


def test_a_traceback_right_below_another_is_one_of_its_own(make: Any) -> None:
    """Nor does one of which only the launcher's program is known show where a rank was."""
    own = stack(0, ("/job/train.py", 9, "<module>"), ("/job/train.py", 5, "main"))
    other = stack(0, ("/job/train.py", 9, "<module>"), ("/job/train.py", 7, "save"))
    launcher = stack(0, ("/opt/bin/torchrun", 8, "<module>"))
    rows = [row | {"line": 10 + n} for n, row in enumerate([*own, *other, *launcher])]
    (found,) = last_printed(make(*rows))
    assert [event.line for event in found.frames] == [12, 13]
    (alone,) = last_printed(make(*launcher))
    assert len(alone.frames) == 1


def test_frames_of_libraries_are_no_call_site(make: Any) -> None:
    rows = stack(0, ("/usr/lib/python3.11/runpy.py", 3, "run"), ("<string>", 1, "x"))
    assert last_tracebacks(make(*rows))[0].site is None


def test_frames_without_a_rank_tell_of_nobody(make: Any) -> None:
    assert last_tracebacks(make(*[row | {"rank": None} for row in stack(0, *BACKWARD)])) == {}


def test_stacks_that_somebody_took_are_known_by_their_form(make: Any) -> None:
    taken, raised = stack(0, *BACKWARD, dump=True), stack(1, *BACKWARD)
    found = last_printed(make(*taken, *raised))
    assert [(one.dump, one.frames[-1].index) for one in found] == [(True, 0), (False, 5)]


def test_processes_that_no_line_names_are_told_apart_by_their_source(make: Any) -> None:
    rows = [row | {"rank": None} for row in stack(0, *BACKWARD, dump=True)]
    other = [row | {"source": "other.log"} for row in rows]
    assert [len(one.frames) for one in last_printed(make(*rows, *other))] == [3, 3]
