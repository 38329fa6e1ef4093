"""Stacks that processes printed, as the places of these."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import diagnose
from diagnose.infer.stacks.classify import Place
from diagnose.infer.stacks.groups import divide, fold
from diagnose.infer.stacks.processes import with_printed
from diagnose.timeline.event import Timeline

from ..rows import catalog, stack

C10D = "/opt/site-packages/torch/distributed/distributed_c10d.py"
WAIT = (("train.py", 9, "loop"), (C10D, 3, "all_reduce"))
LOCK = (("train.py", 12, "flush"), ("/opt/site-packages/filelock/_api.py", 3, "acquire"))


def printed(timeline: Timeline) -> tuple[dict[int, Place], list[Place]]:
    classes, lone = with_printed([], [], timeline, catalog())
    return {place.rank: place for group in classes for place in group.places}, lone


def test_a_rank_is_where_its_traceback_ends_if_it_waited_there(make: Any) -> None:
    found, lone = printed(make(*stack(0, *WAIT), *stack(1, *LOCK)))
    assert {rank: (place.state, place.site) for rank, place in found.items()} == {
        0: ("collective_wait", "train.py:9")
    }
    assert lone == []


def test_an_exception_from_outside_shows_where_its_process_was(make: Any) -> None:
    rows = [row | {"line": 10 + n} for n, row in enumerate(stack(1, *LOCK))]
    ended = {"kind": "exception", "cause": "user.interrupt", "rank": 1, "line": 13}
    assert printed(make(*rows, ended))[0][1].state == "lock"
    own = ended | {"cause": "crash.exception"}
    assert printed(make(*rows, own))[0] == {}


def test_dumps_count_unless_the_job_went_on_below_them(make: Any) -> None:
    rows = [row | {"line": 10 + n} for n, row in enumerate(stack(0, *LOCK, dump=True))]
    step = {"kind": "progress", "role": "progress", "step": 7}
    assert printed(make(step | {"line": 2}, *rows))[0][0].state == "lock"
    assert printed(make(*rows, step | {"line": 30}))[0] == {}
    # What others do says nothing of this one.
    assert printed(make(*rows, step | {"line": 30, "rank": 0}))[0] == {}
    assert printed(make(*rows, step | {"line": 30, "rank": 1}))[0][0].state == "lock"


def test_a_dump_of_a_dying_process_shows_no_hang(make: Any) -> None:
    """Below "Fatal Python error: Aborted": it is compared, and nobody saw its process hang."""
    rows = [row | {"line": 10 + n} for n, row in enumerate(stack(0, *LOCK, dump=True))]
    fatal = {"kind": "other", "role": "effect", "signal": "dies", "rank": 0}
    (before,) = printed(make(fatal | {"line": 8}, *rows))[0].values()
    assert (before.state, before.running) == ("lock", False)
    for other in (fatal | {"line": 8, "rank": 1}, fatal | {"line": 90}):
        assert printed(make(other, *rows))[0][0].running


def test_a_dump_of_nobody_is_that_of_some_process(make: Any) -> None:
    rows = [row | {"rank": None} for row in stack(0, *LOCK, dump=True)]
    found, (place,) = printed(make(*rows))
    assert (found, place.state) == ({}, "lock")
    raised = [row | {"rank": None} for row in stack(0, *LOCK)]
    assert printed(make(*raised)) == ({}, [])


def test_a_phase_that_only_the_catalog_knows(make: Any) -> None:
    found, _ = printed(make(*stack(0, *WAIT, phase="checkpoint")))
    assert found[0].phase == "checkpoint"


def test_what_ranks_printed_is_compared_as_what_documents_show(make: Any) -> None:
    """The one rank in another collective than all others is apart."""
    other = (("train.py", 30, "on_train_epoch_end"), (C10D, 3, "barrier"))
    rows = [row for rank in (0, 1, 2) for row in stack(rank, *WAIT)]
    classes, _ = with_printed([], [], make(*rows, *stack(3, *other)), catalog())
    assert divide(classes).alone == (3,)
    known, _ = with_printed(classes, [], make(*stack(3, *WAIT)), catalog())
    assert divide(known).alone == (3,), "a document says more than what was printed"


def test_a_rank_that_ended_is_where_it_timed_out_by_what_it_printed(make: Any) -> None:
    """Of the others nothing but their end was seen, while the culprit was stopped."""
    timeline = make(*(row for rank in (0, 1) for row in stack(rank, *WAIT)), *stack(3, *LOCK))
    known, _ = with_printed(
        [], [], make(*(row for r in range(4) for row in stack(r, *WAIT))), catalog()
    )
    seen = [
        replace(place, state="exited", key=("exited",), call=None, op=None, certain=True)
        for group in known
        for place in group.places
    ]
    classes, _ = with_printed(fold(seen), [], timeline, catalog())
    states = {place.rank: place.state for group in classes for place in group.places}
    assert states == {
        0: "collective_wait", 1: "collective_wait",
        2: "exited", 3: "exited",  # printed nothing, or that it did something else
    }  # fmt: skip


INTERRUPTED = """\
[rank0]: Traceback (most recent call last):
[rank0]:   File "/app/train.py", line 203, in <module>
[rank0]:     main()
[rank0]:   File "/app/train.py", line 137, in train
[rank0]:     loss.backward()
[rank0]:   File "/opt/site-packages/torch/autograd/__init__.py", line 347, in backward
[rank0]:     _engine_run_backward(
[rank0]: KeyboardInterrupt
[rank1]: Traceback (most recent call last):
[rank1]:   File "/app/train.py", line 203, in <module>
[rank1]:     main()
[rank1]:   File "/app/train.py", line 129, in train
[rank1]:     {code}
[rank1]:   File "{file}", line 930, in {func}
[rank1]:     wait()
[rank1]: KeyboardInterrupt
"""
LOADER = "/opt/site-packages/torch/utils/data/dataloader.py"


@pytest.mark.parametrize(
    ("file", "func", "cause"),
    [
        (LOADER, "_next_data", "data.loader"),
        ("/usr/lib/python3.11/queue.py", "get", "stall.host"),
        ("/usr/lib/python3.11/multiprocessing/queues.py", "get", "stall.host"),
        ("/usr/lib/python3.11/ssl.py", "read", "stall.host"),
    ],
)
def test_ctrl_c_shows_who_waited_for_what(file: str, func: str, cause: str) -> None:
    """The frames of libraries tell the rank that is held up from the one that waits for it."""
    text = INTERRUPTED.format(code="batch = next(batches)", file=file, func=func)
    result = diagnose.diagnose(diagnose.load_text(text))
    assert (result.root_cause.cause, result.culprits.ranks) == (cause, [1])
