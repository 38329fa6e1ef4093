"""Where ranks stand, and who of them stands out."""

from __future__ import annotations

import random
from typing import get_args

import pytest

from diagnose.infer.stacks.classify import Place, places
from diagnose.infer.stacks.frame_table import RULES, SAYS, State
from diagnose.infer.stacks.groups import PlaceClass, divide, fold
from diagnose.parse.stacks import Frame, Stack, read_stacks

C10D = "torch/distributed/distributed_c10d.py"
WAIT = f"all_reduce ({C10D}:3252)", "step (train.py:41)", "main (train.py:58)"
BARRIER = f"barrier ({C10D}:5356)", "step (train.py:23)", "main (train.py:58)"
DATA = (
    "select (selectors.py:415)", "get (multiprocessing/queues.py:113)",
    "_try_get_data (torch/utils/data/dataloader.py:1291)", "step (train.py:16)",
    "main (train.py:58)",
)  # fmt: skip
VAGUE = "step (train.py:50)", "main (train.py:58)"
SYNC = "synchronize (torch/cuda/__init__.py:9)", "step (train.py:44)", "main (train.py:58)"
BACKWARD = "_engine_run_backward (torch/autograd/graph.py:979)", "step (train.py:39)"
SAVE = "_save (torch/serialization.py:9)", "save_checkpoint (train.py:70)", "main (train.py:59)"


def text(rank: int, *frames: str, status: str = "idle", pid: int | None = None) -> str:
    pid = 100 + rank if pid is None else pid
    head = f'# rank {rank}\nProcess {pid}: python train.py\nThread {pid} ({status}): "MainThread"\n'
    return head + "".join(f"    {frame}\n" for frame in frames)


def stacks(*texts: str, name: str = "all.txt") -> list[Stack]:
    return read_stacks("".join(texts).encode(), name)


def classes(*texts: str) -> list[PlaceClass]:
    return fold(places(stacks(*texts)))


def one(*texts: str) -> Place:
    (place,) = places(stacks(*texts))
    return place


def odd(found: list[PlaceClass]) -> list[int]:
    return [*divide(found).held]


def told(found: list[PlaceClass]) -> list[tuple[str, str]]:
    return [(group.label, group.state) for group in found]


def test_a_rank_may_be_held_at_the_line_from_which_the_others_went_on() -> None:
    """As in `all_reduce(loss.item())`. What a debugger writes has lost no lines."""
    found = classes(*(text(rank, *(WAIT[-2:] if rank == 3 else WAIT)) for rank in range(8)))
    assert (odd(found), found[0].site) == ([3], "train.py:41")


def test_one_rank_does_not_come() -> None:
    found = classes(*(text(rank, *(DATA if rank == 7 else WAIT)) for rank in range(16)))
    assert told(found) == [("7", "data_loading"), ("0-6, 8-15", "collective_wait")]
    alone, others = found
    assert (alone.site, alone.detail) == (
        "train.py:16",
        "_try_get_data in torch/utils/data/dataloader.py",
    )
    assert (others.site, others.call, others.op) == ("train.py:41", "all_reduce", "ALLREDUCE")
    assert (others.ranks[:2], others.differs, others.moving) == ((0, 1), False, ())
    assert odd(found) == [7]


def test_a_place_names_its_evidence() -> None:
    place = one(text(3, *WAIT))
    assert (place.stack.source, place.stack.line, place.phase) == ("all.txt", 3, None)
    assert place.detail == f"all_reduce in {C10D}"
    assert place.key == (f"all_reduce@{C10D}", "train.py:41", "train.py:58")


def test_the_order_of_stacks_does_not_matter() -> None:
    told_by = stacks(*(text(rank, *(DATA if rank == 2 else WAIT)) for rank in range(5)))
    told_by += stacks(text(4, *BARRIER), name="later.txt")
    shuffled = told_by.copy()
    random.Random(1).shuffle(shuffled)
    assert fold(places(shuffled)) == fold(places(told_by))


def test_tools_that_print_alike_places_differently_fold_together() -> None:
    fault = (
        "Thread 0x00007f06b1fbab80 (most recent call first):\n"
        f'  File "/opt/env/lib/python3.11/site-packages/{C10D}", line 3252 in all_reduce\n'
        '  File "/job/train.py", line 41 in step\n  File "/job/train.py", line 58 in main\n'
    )
    native = "poll (libc.so.6)", "c10d::Work::wait (libtorch_cpu.so)", *WAIT
    found = stacks(fault, name="rank0.txt") + stacks(text(1, *WAIT), text(2, *native))
    assert told(fold(places(found))) == [("0-2", "collective_wait")]


def test_lines_inside_libraries_do_not_divide_and_the_users_do() -> None:
    other = f"all_reduce ({C10D}:99)", *WAIT[1:]
    assert told(classes(text(0, *WAIT), text(1, *other))) == [("0-1", "collective_wait")]
    other = WAIT[0], "step (train.py:77)", WAIT[2]
    assert len(classes(text(0, *WAIT), text(1, *other))) == 2


def test_who_calls_from_a_library_only_is_shown_by_the_frameworks_line() -> None:
    place = one(text(0, WAIT[0], "_inner_training_loop (transformers/trainer.py:2388)"))
    assert (place.site, place.phase) == ("transformers/trainer.py:2388", "training")


def test_the_call_is_the_programs_and_the_operation_the_innermost() -> None:
    inner = f"all_gather ({C10D}:4287)", f"all_gather_object ({C10D}:3513)", "step (train.py:28)"
    place = one(text(0, *inner))
    assert (place.call, place.op, place.site) == ("all_gather_object", "ALLGATHER", "train.py:28")


def test_collectives_in_native_frames() -> None:
    place = one(text(0, "ncclAllReduce (libnccl.so.2)", "step (train.py:4)"))
    assert (place.call, place.op) == ("all_reduce", "ALLREDUCE")
    gdb = (
        'Thread 2 (Thread 0x7f (LWP 9) "pt_gloo_runloop"):\n'
        "#0  0x1 in c10d::AsyncBroadcastWork::run() () from libtorch_cpu.so\n\n"
        'Thread 1 (Thread 0x7f (LWP 8) "python3"):\n'
        "#0  0x1 in c10d::Work::wait(int) () from libtorch_cpu.so\n"
    )
    place = one("# rank 0\n", gdb)
    assert (place.state, place.call, place.op) == ("collective_wait", "broadcast", "BROADCAST")


def test_stacks_that_mpirun_takes_at_its_time_limit() -> None:
    """Open MPI's `--get-stack-traces`: one trace a rank, indented below its heading."""
    trace = "STACK TRACE FOR PROC [[23660,1],{}] (vm, PID 124{})\n\tThread 1 (LWP 7):\n{}\n"
    waits = (
        "\t#0  0x1 in ompi_request_wait () from libmpi.so.40\n\t#1  0x2 in PMPI_Bcast () from l.so"
    )
    sleeps = "\t#0  0x1 in __GI___clock_nanosleep () from libc.so.6\n\t#1  0x2 in load () at a.c:5"
    found = stacks(*(trace.format(r, r, sleeps if r == 2 else waits) for r in range(4)))
    folded = fold(places(found))
    assert [(group.label, group.state, group.call) for group in folded] == [
        ("2", "sleep", None), ("0-1, 3", "collective_wait", "broadcast"),
    ]  # fmt: skip
    assert odd(folded) == [2]


def test_a_hook_in_autograds_thread_tells_what_the_backward_pass_does() -> None:
    hook = "Thread 0x7F01 (idle)\n    {}\n    hook (train.py:12)\n"
    place = one(text(0, *BACKWARD), hook.format(f"reduce ({C10D}:9)"))
    assert (place.state, place.call, place.site) == ("collective_wait", "reduce", "train.py:12")
    place = one(text(0, *BACKWARD), hook.format("save (torch/serialization.py:9)"))
    assert (place.state, place.site) == ("file_write", "train.py:12")
    bystander = hook.replace("hook (train.py:12)", "Thread._bootstrap (threading.py:1002)")
    place = one(text(0, *BACKWARD), bystander.format("save (torch/serialization.py:9)"))
    assert (place.state, place.call, place.op) == ("collective_wait", "backward", "ALLREDUCE")


def test_the_global_lock_and_who_holds_it() -> None:
    other = 'Thread 9 (active+gil): "logger"\n    f (train.py:3)\n'
    place = one(text(0, "take_gil (libpython3.11.so)", "step (train.py:4)"), other)
    assert (place.state, place.detail) == (
        "gil_wait",
        "take_gil, held by thread logger at train.py:3",
    )
    assert one(text(0, *VAGUE, status="active+gil")).state == "python"
    assert one(text(0, *VAGUE), other).state == "unknown"


def test_workers_and_launchers_are_no_rank() -> None:
    worker = (
        "Process 900: python train.py\nParent Process 103: python train.py\n"
        'Thread 900 (idle): "MainThread"\n    read (train.py:8)\n'
        "    _worker_loop (torch/utils/data/_utils/worker.py:374)\n"
    )
    child = worker.replace("_worker_loop (torch/utils/data/_utils/worker.py", "f (train.py")
    for extra in (worker, child, worker.replace("Parent Process 103: python train.py\n", "")):
        assert one(text(3, *WAIT), extra).state == "collective_wait"
    agent = "_invoke_run (torch/distributed/elastic/agent/server/api.py:923)"
    assert places(stacks(text(0, agent))) == []


def test_of_other_processes_in_a_file_the_first_is_the_rank() -> None:
    both = text(3, *WAIT).partition("\n")[2] + text(3, *SAVE, pid=99).partition("\n")[2]
    (place,) = places(stacks(both, name="rank_3.txt"))
    assert (place.state, place.moving) == ("collective_wait", False)


def test_ranks_unknown_to_the_dump_count_nothing() -> None:
    assert places(stacks(text(0, *WAIT).partition("\n")[2])) == []


def test_the_last_dump_counts_and_a_change_is_movement() -> None:
    early = stacks(text(0, *WAIT), text(1, *DATA), text(2, *WAIT), name="s_20261121_101500.txt")
    late = stacks(text(0, *WAIT), text(1, *SAVE), text(2, *BARRIER), name="s_20261121_101600.txt")
    found = {place.rank: (place.state, place.moving) for place in places(late + early)}
    assert found == {
        0: ("collective_wait", False),
        1: ("file_write", True),
        2: ("collective_wait", True),
    }
    assert [group.moving for group in fold(places(late + early))] == [(), (1,), (2,)]


def test_only_the_last_two_dumps_show_movement() -> None:
    times = [(VAGUE, "01"), (WAIT, "02"), (WAIT, "03")]
    found = [s for f, t in times for s in stacks(text(0, *f), name=f"s_20261121_1015{t}.txt")]
    assert [place.moving for place in places(found)] == [False]


def test_repeated_dumps_in_one_file() -> None:
    place = one(text(5, *DATA), text(5, *WAIT))
    assert (place.state, place.moving, place.stack.line) == ("collective_wait", True, 11)


def test_flicker_below_the_deciding_frame_is_no_movement() -> None:
    place = one(text(5, *DATA), text(5, *DATA[1:]))
    assert (place.state, place.moving) == ("data_loading", False)


def test_native_stacks_tell_what_pythons_leave_open() -> None:
    gdb = 'Thread 1 (Thread 0x7f (LWP 8) "python3"):\n#0  0x1 in {} () from libc.so.6\n'
    found = stacks(text(3, *VAGUE)) + stacks(gdb.format("__GI_flock"), name="gdb_rank3.txt")
    (place,) = places(found)
    assert (place.state, place.detail, place.site, place.vague) == (
        "lock", "__GI_flock", "train.py:50", False,
    )  # fmt: skip
    found = stacks(text(3, *DATA)) + stacks(gdb.format("__GI_flock"), name="gdb_rank3.txt")
    assert [place.state for place in places(found)] == ["data_loading"]


def test_ranks_that_gave_no_stacks() -> None:
    page = "=== Rank {0}: http://node1:5/handler/dump_traceback? ===\nError: {1}\n"
    gone, silent = places(stacks(page.format(0, 503), page.format(1, 408)))
    assert (gone.state, gone.detail) == ("exited", "no stacks (error 503)")
    assert (silent.state, silent.detail) == ("unknown", "no stacks (error 408)")
    with_others = [text(rank, *WAIT) for rank in (2, 3, 4)]
    assert odd(classes(page.format(0, 503), page.format(1, 408), *with_others)) == [0]
    (place,) = places(stacks(page.format(0, 503), name="b") + stacks(text(0, *WAIT), name="a"))
    assert place.state == "collective_wait"


@pytest.mark.parametrize(
    ("majority", "minority", "expected"),
    [
        (WAIT, DATA, [3]),
        (WAIT, SAVE, [3]),
        (SYNC, SAVE, [3]),
        (WAIT, SYNC, []),  # both wait
        (SYNC, WAIT, []),
        (WAIT, BARRIER, []),
        (WAIT, VAGUE, [3]),  # it has not come
        (SYNC, VAGUE, []),  # it may wait for the GPU as well
        (BACKWARD, VAGUE, []),
        (BACKWARD, ("forward (torch/nn/modules/linear.py:9)", *VAGUE), []),
        (BACKWARD, DATA, [3]),
        (DATA, WAIT, []),  # nobody to blame: the majority is late
        (VAGUE, DATA, [3]),  # where the many are at one line, they meet there
        (("wait (torch/utils/file_baton.py:42)",), SAVE, [3]),
        (WAIT, ("wait (torch/utils/file_baton.py:42)",), [3]),
    ],
)
def test_who_is_odd(
    majority: tuple[str, ...], minority: tuple[str, ...], expected: list[int]
) -> None:
    found = classes(
        *(text(rank, *(minority if rank == 3 else majority), status="active") for rank in range(5))
    )
    assert odd(found) == expected


def test_a_thread_that_sleeps_below_the_programs_own_line_does_not_wait_for_the_gpu() -> None:
    asleep = text(3, *VAGUE, status="idle")
    assert odd(classes(*(text(rank, *BACKWARD) for rank in range(3)), asleep)) == [3]


def test_few_are_apart_from_a_line_that_only_the_many_make_a_meeting() -> None:
    ranks = [VAGUE] * 5 + [DATA, SAVE]
    assert odd(classes(*(text(r, *f) for r, f in enumerate(ranks)))) == []
    assert odd(classes(*(text(r, *f) for r, f in enumerate([VAGUE, *ranks])))) == [6, 7]
    others = [("step (train.py:7)", "main (train.py:58)"), ("step (train.py:8)",), VAGUE, DATA]
    assert odd(classes(*(text(r, *f) for r, f in enumerate(others)))) == []


def missed(ranks: list[int], world: int | None = None) -> tuple[tuple[int, ...], bool]:
    division = divide(classes(*(text(rank, *WAIT) for rank in ranks)), world)
    return division.absent, division.missed


def test_ranks_without_a_stack() -> None:
    assert missed([0, 1, 3]) == ((2,), True)
    assert missed([0, 1, 2], world=4) == ((3,), True)
    assert missed([1]) == ((0,), False)
    both = classes(text(0, *WAIT), text(1, *WAIT))
    assert not divide(both, 3).missed
    assert divide(both, 3, named=(0, 1, 2)).missed, "its lines were collected"
    assert missed([*range(8), *range(16, 24)]) == ((*range(8, 16),), True)
    assert missed([0, 1], world=4) == ((2, 3), False), "they may be left out by chance"
    assert missed([0, 2, 3, 5, 6, 7]) == ((1, 4), False)
    vague = [text(0, *VAGUE, status="active"), text(1, *WAIT), text(3, *WAIT)]
    assert odd(classes(*vague)) == [], "its GPU may wait for the rank that nobody saw"
    assert divide(classes(*vague)).absent == (2,)
    others = [text(rank, *WAIT) for rank in (0, 1, 3)]
    assert divide(classes(*others, text(4, *DATA))).absent == (), "who is held up is seen"


def test_several_odd_ranks_and_ties() -> None:
    ranks = {0: WAIT, 1: WAIT, 2: WAIT, 3: DATA, 4: SAVE}
    assert odd(classes(*(text(rank, *f) for rank, f in ranks.items()))) == [3, 4]
    del ranks[0]
    assert odd(classes(*(text(rank, *f) for rank, f in ranks.items()))) == []
    assert odd([]) == []


def test_smallest_class_first_then_lowest_rank() -> None:
    ranks = {0: WAIT, 1: SAVE, 2: WAIT, 3: DATA}
    found = classes(*(text(rank, *f) for rank, f in ranks.items()))
    assert [group.label for group in found] == ["1", "3", "0, 2"]


def differing(*ranks: tuple[str, ...]) -> dict[str, bool]:
    found = classes(*(text(rank, *frames) for rank, frames in enumerate(ranks)))
    assert odd(found) == []
    return {group.label: group.differs for group in found}


def test_ranks_in_different_collectives_are_told_and_not_blamed() -> None:
    assert differing(WAIT, WAIT, BARRIER) == {"2": True, "0-1": False}
    other_site = WAIT[0], "step (train.py:77)", WAIT[2]
    assert differing(WAIT, WAIT, other_site) == {"2": True, "0-1": False}
    assert differing(WAIT, WAIT, BARRIER, BARRIER) == {"0-1": True, "2-3": True}  # a tie
    assert differing(WAIT, WAIT, WAIT) == {"0-2": False}
    # Where one waits for the GPU, and between neighbours of a pipeline, nothing can be compared.
    assert differing(WAIT, WAIT, SYNC) == {"2": False, "0-1": False}
    send = f"send ({C10D}:3)", "step (train.py:9)"
    assert differing(WAIT, WAIT, send) == {"2": False, "0-1": False}
    # Behind a rank that is stuck elsewhere, other groups wait in other collectives.
    for stuck in (SYNC, VAGUE, DATA):
        ranks = enumerate([WAIT, WAIT, BARRIER, stuck])
        assert not any(group.differs for group in classes(*(text(r, *f) for r, f in ranks)))


def test_every_state_has_words() -> None:
    assert set(SAYS) == set(get_args(State))
    assert {rule.state for rule in RULES} <= set(SAYS)


def test_frames_without_an_innermost_meaning_are_shown() -> None:
    stack = stacks(text(0, *VAGUE))[0]
    bare = stack._replace(frames=(Frame("??", "libc.so.6", None, True), *stack.frames))
    (place,) = places([bare])
    assert (place.state, place.site, place.detail) == (
        "unknown", "train.py:50", "step in train.py:50",
    )  # fmt: skip


LOOP = "main (train.py:36)", "<module> (train.py:44)"


def below(*frames: str) -> tuple[str, ...]:
    return (*frames, "main (train.py:33)", "<module> (train.py:44)")


@pytest.mark.parametrize(
    ("others", "held"),
    [
        ([below("read_rows (data.py:16)", "batches (data.py:23)")], [1]),
        ([below("readinto (socket.py:706)")], [1]),
        ([below("average (util.py:9)")], []),  # it may wrap the call that the other is in
        ([LOOP], []),
        ([("elsewhere (other.py:3)", "run (other.py:9)")], []),
        ([], []),
    ],
)
def test_who_stands_in_the_loop_itself_waits_for_those_that_left_it(
    others: list[tuple[str, ...]], held: list[int]
) -> None:
    """Collectives of compiled libraries show no frame of their own."""
    found = [text(rank, *frames) for rank, frames in enumerate([LOOP, *others])]
    assert odd(classes(*found)) == held


RECEIVES = "_recv (multiprocessing/connection.py:395)", "recv (multiprocessing/connection.py:250)"
CHILD = "work (train.py:22)", "run (multiprocessing/process.py:108)"
CHILD += ("_bootstrap (multiprocessing/process.py:314)",)


def test_a_process_of_a_pool_waits_for_messages_of_the_others() -> None:
    busy = "add (callbacks.py:29)", "on_step (callbacks.py:39)", *CHILD
    found = classes(text(0, *RECEIVES, *CHILD), text(1, *busy))
    assert (odd(found), one(text(0, *RECEIVES, *CHILD)).state) == ([1], "message_wait")
    # Who is no child may read what a child of its own sends.
    assert one(text(0, *RECEIVES, "main (train.py:51)")).state == "lock"
