from __future__ import annotations

from dataclasses import replace

import pytest

from diagnose.catalog.load import load_catalog
from diagnose.infer.rules.stacks import cause_of
from diagnose.infer.stacks.classify import Place
from diagnose.infer.stacks.frame_table import State
from diagnose.infer.stacks.groups import at_work, divide, fold, hang, together
from diagnose.infer.stacks.processes import refined
from diagnose.parse.probes import Look, Wait
from diagnose.parse.stacks import Frame, Stack

QUEUE = Frame("get", "/lib/python3.11/multiprocessing/queues.py", 103, native=False)
OWN = Frame("step", "/w/train.py", 7, native=False)


def place(
    rank: int, state: State = "collective_wait", *, owns_gil: bool = False, frame: Frame = OWN,
    still: bool | None = None,
) -> Place:  # fmt: skip
    stack = Stack("s", 1, rank, "n", 100 + rank, "", True, "", owns_gil, (frame,), "py-spy")
    waits = state == "collective_wait"
    call, op = ("all_reduce", "ALLREDUCE") if waits else (None, None)
    return Place(
        rank, state, "detail", "train.py:7", None, call, op, (state,), False, False, stack,
        still=still,
    )  # fmt: skip


def look(rank: int, activity: str = "waiting", wait: Wait | None = None, **more: object) -> Look:
    pid = 100 + rank
    known = {"rank": rank, "role": "rank", "local_rank": rank, "cpu": 0.0, **more}
    waits = (wait,) if wait else ()
    return Look("a.json", "n", pid, activity=activity, waits=waits, **known)  # type: ignore[arg-type]


def told(rank_place: Place, *looks: Look, silent: list[str] | None = None) -> Place:
    (found,) = refined([rank_place], looks, silent or [])
    return found


READ = {"thread": 102, "state": "D", "call": "read", "file": "/data/x", "mount": "/data"}


@pytest.mark.parametrize(
    ("activity", "wait", "state", "detail", "cause"),
    [
        ("stopped", None, "stopped", "SIGSTOP or SIGTSTP; it goes on with SIGCONT", "stall.host"),
        (
            "stuck", Wait(**READ, type="nfs4", where="rpc_wait_bit_killable"), "file_read",
            "read of /data/x on /data (nfs4)", "slow.storage",
        ),
        (
            "waiting", Wait(**READ, type="fuse.s3", where="request_wait_answer"), "file_read",
            "read of /data/x on /data (fuse.s3)", "slow.storage",
        ),
        (
            "stuck", Wait(**READ, type="ext4", where="folio_wait_bit_common"), "file_read",
            "read of /data/x on /data (ext4), in the kernel's folio_wait_bit_common (D state)",
            "slow.storage",
        ),
        (
            "waiting", Wait(102, "S", "pipe_read", "read", "/tmp/rows.fifo", "ext4", "/"), "pipe",
            "read of /tmp/rows.fifo", "stall.host",
        ),
        (
            "stuck", Wait(102, "D", "uvm_lock", "ioctl", "/dev/nvidia-uvm"), "device_driver",
            "ioctl of /dev/nvidia-uvm, in the kernel's uvm_lock (D state)", "hw.gpu",
        ),
        (
            "stuck", Wait(102, "D", "mutex_lock", "futex"), "kernel_wait",
            "futex, in the kernel's mutex_lock", "stall.host",
        ),
    ],
)  # fmt: skip
def test_what_the_kernel_says_counts_more_than_the_stack(
    activity: str, wait: Wait | None, state: State, detail: str, cause: str
) -> None:
    found = told(place(2), look(2, activity, wait))
    assert (found.state, found.detail, found.certain) == (state, detail, True)
    assert (found.site, found.call, found.waits) == ("train.py:7", None, False)
    assert cause_of(found.state, None, load_catalog()) == cause


def test_a_mount_without_an_answer_is_one_whatever_its_type() -> None:
    found = told(place(2), look(2, "stuck", Wait(**READ, type="xfs", where="x")), silent=["/data"])
    assert found.detail == "read of /data/x on /data (xfs), which gives no answer"


def test_a_read_that_goes_on_says_nothing() -> None:
    before = place(2, "file_read")
    wait = Wait(**READ, type="nfs4", where="rpc_wait")
    assert told(before, look(2, "running", wait, cpu=0.5)).certain is False
    assert (
        told(before, look(2, "waiting", Wait(102, "S", "ep_poll", "epoll_wait"))).certain is False
    )


@pytest.mark.parametrize(("activity", "what"), [("ended", "has died"), ("stopped", "is stopped")])
def test_who_waits_for_a_worker_that_gives_nothing(activity: str, what: str) -> None:
    worker = Look("b", "n", 7, role="loader", parent=102, activity=activity)
    found = told(place(2, "lock", frame=QUEUE), look(2), worker)
    assert found.state == "data_loading"
    assert found.detail.startswith(f"its worker process 7 {what}")
    # Who waits for something else has a child that ended and nobody asked about.
    assert told(place(2, "lock"), look(2), worker).state == "lock"
    healthy = Look("b", "n", 7, role="loader", parent=102, activity="waiting")
    assert told(place(2, "lock", frame=QUEUE), look(2), healthy).state == "lock"


def test_the_global_lock_held_by_a_call_that_sleeps() -> None:
    assert told(place(2, "python", owns_gil=True), look(2)).state == "gil_held"
    assert told(place(2, "python", owns_gil=True), look(2, "running", cpu=0.9)).state == "python"


def test_a_rank_at_work_says_how_much() -> None:
    found = told(place(2, "preprocessing"), look(2, "running", cpu=0.99))
    assert found.detail == "detail, at 99% of a CPU"


@pytest.mark.parametrize(
    ("call", "state"),
    [("futex", "lock"), ("clock_nanosleep", "sleep"), ("wait4", "lock"), ("poll", "unknown")],
)
def test_a_system_call_names_what_frames_do_not(call: str, state: State) -> None:
    found = told(place(2, "unknown"), look(2, "waiting", Wait(102, "S", "", call)))
    assert found.state == state


def test_without_stacks_the_kernel_is_all_there_is() -> None:
    found = refined([], [look(0), look(1), look(2, "stopped"), look(3, cpu=0.9)], [])
    assert [(one.rank, one.state) for one in found] == [
        (0, "unknown"), (1, "unknown"), (2, "stopped"), (3, "unknown"),
    ]  # fmt: skip
    classes = fold(found)
    assert divide(classes).held == (2,)
    assert hang(classes)


def test_a_rank_that_its_node_should_have_and_has_not() -> None:
    looks = [look(rank, ranks_here=4) for rank in (0, 1, 3)]
    places = [place(rank) for rank in (0, 1, 3)]
    found = refined(places, looks, [])
    assert [(one.rank, one.state) for one in found if one.certain] == [(2, "exited")]
    other_order = [replace(look(rank, ranks_here=4), rank=7 - rank) for rank in (0, 1, 3)]
    assert not any(one.certain for one in refined([], other_order, []))


def test_documents_of_one_process_are_one_look() -> None:
    node = Look("node.json", "n", 102, rank=2, role="rank", parent=10, ranks_here=1)
    doing = Look("act.json", "n", 102, activity="stopped", cpu=0.0)
    (found,) = refined([], [node, doing], [])
    assert (found.rank, found.state, found.stack.source) == (2, "stopped", "act.json")


def test_a_job_hangs_where_those_who_wait_make_no_step() -> None:
    waiting = [place(rank, still=True) for rank in (0, 1, 3)]
    busy = place(2, "python", still=False)
    assert hang(fold([*waiting, busy]))
    assert not hang(fold([*waiting[:2], place(3, still=False), busy]))
    # one look, as of py-spy alone, shows no hang
    assert not hang(fold([*(place(rank) for rank in (0, 1, 3)), place(2, "python")]))


def test_a_rank_that_has_ended_is_missed_only_by_those_who_wait() -> None:
    gone = replace(place(2, "exited"), certain=True)
    assert hang(fold([*(place(rank, still=True) for rank in (0, 1, 3)), gone]))
    assert not hang(fold([*(place(rank, still=False) for rank in (0, 1, 3)), gone]))


def test_who_waited_and_ended_while_it_was_looked_at_is_no_rank_that_left() -> None:
    """Its watchdog ended it; a rank that did something else has left those who wait."""
    busy = told(place(2, "python"), look(2, "ended"))
    assert (busy.state, busy.detail, busy.certain) == ("exited", "its process has ended", True)
    assert cause_of(busy.state, None, load_catalog()) == "desync.missing_rank"
    assert told(place(2), look(2, "ended")).state == "collective_wait"


def test_where_all_have_ended_nobody_is_missed() -> None:
    gone = [replace(place(rank, "exited"), certain=True) for rank in range(4)]
    assert not hang(fold(gone))
    assert divide(fold(gone)).held == ()
    assert divide(fold([*gone[1:], place(0, still=True)])).held == (1, 2, 3)


def test_ranks_that_all_make_steps_are_at_work() -> None:
    assert at_work(fold([place(rank, "python", still=False) for rank in range(4)]))
    assert not at_work(fold([place(0, "python", still=False), place(1, "python", still=True)]))
    assert not at_work([])


def test_how_a_step_is_seen() -> None:
    assert told(place(2), look(2, switches=0)).still is True
    assert told(place(2), look(2, switches=3)).still is False
    assert told(place(2), look(2, switches=0, cpu=1.0)).still is None
    assert told(place(2), look(2)).still is None


def test_all_at_one_line_that_says_nothing_of_a_wait_are_together() -> None:
    alike = [place(rank, "unknown") for rank in range(2)]
    assert together(fold(alike))
    assert not together(fold([place(rank) for rank in range(2)]))  # each waits in a collective
    assert not together(fold(alike), world=3)  # one is missed
    assert not together(fold([*alike, place(2, "file_read")]))
