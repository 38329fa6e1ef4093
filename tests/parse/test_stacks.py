"""Stack dumps: excerpts of real ones (py-spy 0.4.3, Python 3.11, gdb 13, elfutils, torch 2.13)."""

from __future__ import annotations

import json
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.parse import stack_blocks
from diagnose.parse.stacks import Frame, Stack, is_stacks, native_name, read_stacks

PYSPY = """\
Process 12521: /opt/env/bin/python3 -u train.py data
Python v3.11.7 (/usr/bin/python3.11)

Thread 12521 (idle): "MainThread"
    _PollLikeSelector.select (selectors.py:415)
    _MultiProcessingDataLoaderIter._try_get_data (torch/utils/data/dataloader.py:1291)
    step (train.py:16)
    <module> (train.py:61)
Thread 12794 (active+gil): "Thread-1 (bg)"
    Condition.wait (threading.py:327)
    Thread._bootstrap (threading.py:1002)
"""
CHILD = """\

--------------------------------------------------------------------------------
Process 12814: /opt/env/bin/python3 -u train.py data
Python v3.11.7 (/usr/bin/python3.11)
Parent Process 12521: /opt/env/bin/python3 -u train.py data

Thread 12814 (idle): "MainThread"
    Slow.__getitem__ (train.py:8)
    _worker_loop (torch/utils/data/_utils/worker.py:374)
"""
FAULT = """\
Timeout (0:00:18)!
Thread 0x00007f0682ffd6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/job/train.py", line 12 in prefetch
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Thread 0x00007f06b1fbab80 (most recent call first):
  File "/opt/env/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/job/train.py", line 41 in step
  File "/job/train.py", line 61 in <module>
"""
DEBUG_SERVER = """\
PARTIAL DATA: 1/2 workers responded
  Rank 1: Timeout: HTTPConnectionPool(host='node7', port=54619): Read timed out.

=== Rank 0: http://node7:55631/handler/dump_traceback? ===
Current thread 0x00007ffa0bfff6c0 (most recent call first):
  <no Python frame>

Thread 0x00007ffa3a697b80 (most recent call first):
  File "/opt/env/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/job/train.py", line 61 in <module>

=== Rank 1: http://node7:54619/handler/dump_traceback? ===
Error: 408"""
GDB = """\
[New LWP 12764]
[Thread debugging using libthread_db enabled]
Using host libthread_db library "/lib/x86_64-linux-gnu/libthread_db.so.1".
0x00007fb3ddb1a26f in __GI___poll (fds=0x7fb3bee3e050, nfds=1) at ../sysdeps/linux/poll.c:29

Thread 2 (Thread 0x7f06918276c0 (LWP 12764) "pt_gloo_runloop"):
#0  0x00007f06b189d8bc in __pthread_cond_wait_common (abstime=0x0) at ./nptl/pthread_cond_wait.c:503
#1  0x00007f06a356475a in gloo::(anonymous namespace)::ring(gloo::detail::Impl const&, std::function<void (unsigned long)>) () from /opt/env/torch/lib/libtorch_cpu.so
#2  0x00007f069a6d44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6

Thread 1 (Thread 0x7f06b1fbab80 (LWP 12521) "python3"):
#0  0x00007f06a116984b in c10d::Work::wait(std::chrono::duration<long, std::ratio<1l, 1000l> >) () from /opt/env/torch/lib/libtorch_cpu.so
#1  <signal handler called>
#2  _PyEval_EvalFrameDefault (tstate=0x7f06b1f76ef8 <_PyRuntime+166328>, frame=<optimized out>) at Python/ceval.c:4769
[Inferior 1 (process 12521) detached]
"""  # noqa: E501
EU_STACK = """\
PID 19016 - process
TID 19018:
#0  0x00007f01e92a3f16 __futex_abstimed_wait_common
TID 19016:
#0  0x00007f01e92ed545 clock_nanosleep@GLIBC_2.2.5
#1  0x00007f01e9715ada - 1 time_sleep - /usr/lib/libpython3.11.so.1.0
    ./Modules/timemodule.c:383:9
"""
SAMPLES = [PYSPY, PYSPY + CHILD, FAULT, DEBUG_SERVER, GDB, EU_STACK]


def mains(text: str, name: str = "dump.txt") -> list[Stack]:
    return [stack for stack in read_stacks(text.encode(), name) if stack.main]


def ranks(text: str, name: str = "dump.txt") -> list[int | None]:
    return [stack.rank for stack in mains(text, name)]


def test_py_spy_text() -> None:
    main, other = read_stacks(PYSPY.encode(), "pyspy_rank3.txt")
    assert main == Stack(
        "pyspy_rank3.txt", 4, 3, None, 12521, "MainThread", True, "idle", False,
        (
            Frame("_PollLikeSelector.select", "selectors.py", 415, False),
            Frame("_MultiProcessingDataLoaderIter._try_get_data",
                  "torch/utils/data/dataloader.py", 1291, False),
            Frame("step", "train.py", 16, False),
            Frame("<module>", "train.py", 61, False),
        ),
        "py-spy", None, 0, None,
    )  # fmt: skip
    assert (other.line, other.thread, other.main) == (9, "Thread-1 (bg)", False)
    assert (other.status, other.owns_gil) == ("active+gil", True)


def test_native_frames_between_python_ones() -> None:
    text = PYSPY.replace(
        "    step",
        "    0x7f06b189af16 (libc.so.6)\n"
        "    c10d::Work::wait(std::chrono::duration<long>) (libtorch_cpu.so)\n"
        "    fcntl_flock (clinic/fcntlmodule.c.h:165)\n    step",
    )
    assert mains(text)[0].frames[2:6] == (
        Frame("??", "libc.so.6", None, True),
        Frame("c10d::Work::wait", "libtorch_cpu.so", None, True),
        Frame("fcntl_flock", "clinic/fcntlmodule.c.h", 165, True),
        Frame("step", "train.py", 16, False),
    )


def test_values_of_variables_are_no_frames() -> None:
    text = PYSPY.replace(
        "    step (train.py:16)\n",
        "    step (train.py:16)\n        Arguments:\n            rank: 3\n        Locals:\n"
        '            text: "a (b.py:3)"\n            where: f (b.py:3)\n',
    )
    assert mains(text)[0].frames == mains(PYSPY)[0].frames
    assert is_stacks(text.encode(), "x")


def test_colours_of_a_terminal_do_not_matter() -> None:
    text = PYSPY.replace("Process 12521", "Process \x1b[33m\x1b[1m12521\x1b[0m").replace(
        "    step (train.py:16)",
        "    \x1b[32mstep\x1b[0m (\x1b[36mtrain.py\x1b[0m:\x1b[2m16\x1b[0m)",
    )
    assert mains(text.replace("\n", "\r\n")) == mains(PYSPY)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks(encoding: str) -> None:
    assert read_stacks(PYSPY.encode(encoding), "a") == read_stacks(PYSPY.encode(), "a")


def test_a_process_started_by_another_shares_its_rank() -> None:
    parent, child = mains(PYSPY + CHILD, "rank_3.txt")
    assert (parent.pid, parent.rank, parent.parent, parent.dump) == (12521, 3, None, 0)
    assert (child.pid, child.rank, child.parent, child.dump) == (12814, 3, 12521, 1)
    text = "# rank 5\n" + PYSPY + CHILD + PYSPY.replace("12521", "99")
    assert ranks(text) == [5, 5, None]


def test_faulthandler_prints_the_main_thread_last() -> None:
    other, main = read_stacks(FAULT.encode(), "fh_rank1.txt")
    assert (other.main, main.main) == (False, True)
    assert (main.line, main.rank, main.thread, main.kind) == (
        7, 1, "0x00007f06b1fbab80", "faulthandler",
    )  # fmt: skip
    assert main.frames[1] == Frame("step", "/job/train.py", 41, False)


def test_repeated_dumps_of_one_process_are_told_apart() -> None:
    repeated = FAULT.replace("line 41", "line 55")
    assert [(s.dump, s.frames[1].line) for s in mains(FAULT + repeated)] == [(0, 41), (1, 55)]
    without = repeated.partition("\n")[2]
    assert [(s.dump, s.frames[1].line) for s in mains(FAULT + without)] == [(0, 41), (1, 55)]


def test_names_of_threads_in_python_3_14() -> None:
    text = FAULT.replace("0x00007f0682ffd6c0", "0x00007f0682ffd6c0 [MainThread]")
    assert [stack.thread for stack in mains(text)] == ["MainThread"]


def test_debug_server() -> None:
    answered, silent = mains(DEBUG_SERVER, "stacks_20261121_161616.txt")
    assert (answered.rank, answered.host, answered.kind) == (0, "node7", "debug-server")
    assert [frame.func for frame in answered.frames] == ["all_reduce", "<module>"]
    assert (silent.rank, silent.host, silent.line) == (1, "node7", 13)
    assert (silent.status, silent.frames) == ("error 408", ())


def test_py_spy_without_thread_numbers() -> None:
    text = (
        'Thread (idle): "MainThread"\n    wait (threading.py:359)\n    _next_data (loader.py:15)\n'
        'Thread (active): "Thread-1 (_pin_memory_loop)"\n    select (selectors.py:415)\n'
    )
    found = list(read_stacks(text.encode(), "dump.txt"))
    assert [(stack.thread, stack.status, stack.main, len(stack.frames)) for stack in found] == [
        ("MainThread", "idle", True, 2),
        ("Thread-1 (_pin_memory_loop)", "active", False, 1),
    ]


def test_py_spy_below_the_debug_servers_headings() -> None:
    text = f"=== Rank 7: http://node1:1/handler/pyspy_dump?nonblocking=1 ===\n{PYSPY}{CHILD}"
    assert [(s.rank, s.host, s.pid, s.kind) for s in mains(text)] == [
        (7, "node1", 12521, "debug-server"),
        (7, "node1", 12814, "debug-server"),
    ]


def test_gdb() -> None:
    loop, main = read_stacks(GDB.encode(), "gdb.txt")
    assert (main.main, main.pid, main.thread, main.line) == (True, 12521, "python3", 11)
    assert main.frames == (
        Frame("c10d::Work::wait", "/opt/env/torch/lib/libtorch_cpu.so", None, True),
        Frame("<signal handler called>", "", None, True),
        Frame("_PyEval_EvalFrameDefault", "Python/ceval.c", 4769, True),
    )
    assert loop.thread == "pt_gloo_runloop"
    assert [frame.func for frame in loop.frames] == [
        "__pthread_cond_wait_common", "gloo::(anonymous)::ring", "??",
    ]  # fmt: skip


def test_gdb_with_python_frames() -> None:
    text = (
        'Thread 1 (Thread 0x7f06b1fbab80 (LWP 7) "python3"):\n'
        "Traceback (most recent call first):\n  <built-in method wait of Work object>\n"
        '  File "/job/train.py", line 41, in step\n    dist.all_reduce(x)\n'
    )
    assert mains(text)[0].frames == (Frame("step", "/job/train.py", 41, False),)


def test_eu_stack() -> None:
    other, main = read_stacks(EU_STACK.encode(), "eu.txt")
    assert (main.main, main.pid, main.thread, other.thread) == (True, 19016, "19016", "19018")
    assert [frame.func for frame in main.frames] == ["clock_nanosleep", "time_sleep"]
    assert (main.kind, main.frames[1].file) == ("eu-stack", "/usr/lib/libpython3.11.so.1.0")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("foo", "foo"),
        ("void at::native::add<float>(at::Tensor&)", "at::native::add"),
        ("c10d::X::operator()(int) const", "c10d::X::operator()"),
        ("(anonymous namespace)::run(int)", "(anonymous)::run"),
        ("sem_wait.constprop.0 [clone .isra.3]", "sem_wait.constprop.0"),
        ("__libc_start_main@@GLIBC_2.34", "__libc_start_main"),
        ("0x7f06b189af16", "??"),
    ],
)
def test_names_of_native_functions(text: str, name: str) -> None:
    assert native_name(text) == name


def as_json(pid: int = 12521) -> str:
    def thread(name: str, tid: int, gil: bool, *frames: tuple[str, str, int]) -> dict[str, object]:
        told = [
            {"name": n, "filename": f, "module": None, "line": line, "locals": None}
            for n, f, line in frames
        ]
        return {
            "pid": pid, "thread_id": 140409653126848, "thread_name": name, "os_thread_id": tid,
            "active": gil, "owns_gil": gil, "frames": told,
        }  # fmt: skip

    return json.dumps(
        [
            thread("QueueFeederThread", 12815, False, ("_feed", "/py/queues.py", 231)),
            thread("MainThread", pid, True, ("step", "/job/train.py", 16), ("poll", "libc.so", 0)),
        ],
        indent=2,
    )


def test_py_spy_json() -> None:
    feeder, main = read_stacks(as_json().encode(), "rank3.json")
    assert (feeder.thread, feeder.main, feeder.status) == ("QueueFeederThread", False, "idle")
    assert main == Stack(
        "rank3.json", as_json().split("\n").index("  {", 2) + 1, 3, None, 12521,
        "MainThread", True, "active+gil", True,
        (Frame("step", "/job/train.py", 16, False), Frame("poll", "libc.so", None, True)),
        "py-spy", None, 0, None,
    )  # fmt: skip


def test_several_json_lists_below_headings() -> None:
    text = f"# rank 4\n{as_json()}\n# rank 9\n{as_json(77)}\n"
    assert is_stacks(text.encode(), "x")
    assert [(s.rank, s.pid) for s in mains(text)] == [(4, 12521), (9, 77)]


def test_cut_json_gives_its_whole_threads() -> None:
    text = as_json()
    found = read_stacks(text[: text.index('"MainThread"')].encode(), "x")
    assert [stack.thread for stack in found] == ["QueueFeederThread"]


@pytest.mark.parametrize(
    ("heading", "rank", "host", "pid"),
    [
        ("==> rank3 <==", 3, None, None),
        ("==> logs/rank_3.txt <==", 3, None, None),
        ("# rank 3", 3, None, None),
        ("--- Rank: 3 (pid 77) ---", 3, None, 77),
        ("=== a100-01 4242 ===", None, "a100-01", 4242),
        ("=== node1 rank=3 pid=4242 ===", 3, "node1", 4242),
        ("[rank3]:", 3, None, None),
        ("rank 3 pid 77:", 3, None, 77),
        ("node07:", None, "node07", None),
        ("# local_rank 2", None, None, None),
        ("# tp_rank 2", None, None, None),
        ("RANK=3", 3, None, None),
        ("OMPI_COMM_WORLD_RANK=3", 3, None, None),
        ("SLURM_PROCID=3", 3, None, None),
        ("NODE_RANK=3", None, None, None),
        ("+ py-spy dump --pid 77", None, None, 77),
        ("=== step 12 ===", None, None, None),
    ],
)
def test_headings(heading: str, rank: int | None, host: str | None, pid: int | None) -> None:
    text = f"{heading}\n{GDB.partition('[Inferior')[0]}"
    found = mains(text)[0]
    assert (found.rank, found.host, found.pid) == (rank, host, pid)
    assert is_stacks(text.encode(), "x")


def test_a_heading_holds_for_one_process_and_its_host_for_all() -> None:
    text = "=== node1 ===\n# rank 3\n" + PYSPY + PYSPY.replace("12521", "77") + "# rank 8\n" + PYSPY
    assert [(s.rank, s.host, s.pid) for s in mains(text)] == [
        (3, "node1", 12521),
        (None, "node1", 77),
        (8, "node1", 12521),
    ]


@pytest.mark.parametrize("order", [("RANK=11", "LOCAL_RANK=3"), ("LOCAL_RANK=3", "RANK=11")])
def test_variables_above_or_below_a_process(order: tuple[str, str]) -> None:
    told = "\n".join([*order, "WORLD_SIZE=16", "MASTER_ADDR=node3"]) + "\n"
    for text in (told + PYSPY, PYSPY + told, PYSPY + told + PYSPY.replace("12521", "8")):
        first = mains(text)[0]
        assert (first.rank, first.local_rank, first.host) == (11, 3, None)
    assert ranks(PYSPY + told + PYSPY.replace("12521", "8")) == [11, None]


@pytest.mark.parametrize(
    ("command", "rank", "local"),
    [
        ("python train.py --rank=3", 3, None),
        ("python train.py --local_rank=3", None, 3),
        ("python train.py --local-rank 3 --node_rank 1", None, 3),
        ("env RANK=3 LOCAL_RANK=1 python train.py", 3, 1),
        ("python /data/rank_3/train.py --lora_rank=64", None, None),
    ],
)
def test_ranks_in_command_lines(command: str, rank: int | None, local: int | None) -> None:
    found = mains(PYSPY.replace("/opt/env/bin/python3 -u train.py data", command))[0]
    assert (found.rank, found.local_rank) == (rank, local)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("0: ", "1: ", [(0, None), (1, None)]),
        ("node1: ", "node2: ", [(None, "node1"), (None, "node2")]),
        ("big-x7: ", "big-y8: ", [(None, "big-x7"), (None, "big-y8")]),
        ("[rank4]: ", "[rank5]: ", [(4, None), (5, None)]),
        ("[1,0]<stdout>:", "[1,1]<stdout>:", [(0, None), (1, None)]),
        ("[pod/train-worker-0/a] ", "[pod/train-worker-1/a] ",
         [(None, "train-worker-0"), (None, "train-worker-1")]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("sample", [PYSPY, FAULT, GDB], ids=["py-spy", "faulthandler", "gdb"])
def test_lines_of_several_writers_interleaved(
    sample: str, first: str, second: str, told: list[tuple[int | None, str | None]]
) -> None:
    text = "".join(
        f"{first}{line}\n{second}{line}\n"
        for line in sample.replace("line 41", "line 42").split("\n")
    )
    found = mains(text)
    assert [(stack.rank, stack.host) for stack in found] == told
    assert [stack.frames for stack in found] == [
        mains(sample.replace("line 41", "line 42"))[0].frames
    ] * 2
    assert is_stacks(text.encode(), "x")


def test_a_launchers_task_with_several_processes_is_no_rank() -> None:
    text = PYSPY + PYSPY.replace("12521", "77")
    assert ranks("".join(f"3: {line}\n" for line in text.split("\n"))) == [None, None]
    assert ranks("".join(f"3: {line}\n" for line in (PYSPY + CHILD).split("\n"))) == [3, 3]


@pytest.mark.parametrize("sample", SAMPLES)
def test_files_of_stacks(sample: str) -> None:
    assert is_stacks(sample.encode(), "x.txt")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "epoch 3 loss 0.1\n" * 9,
        "[rank3]: watchdog caught a timeout\n" + FAULT,
        "Fatal Python error: Segmentation fault\n\n" + FAULT.partition("\n")[2],
        PYSPY + "2026-11-21 10:00:00 INFO step 3 loss 0.4\n" * 5,
        PYSPY + 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n',
        "Process 77: python a.py\nPython v3.11.7 (/usr/bin/python3)\n",
        '[{"pid_of": 3}]',
        "=== Rank 0: http://node1:1/handler/stacks? ===\nError: 503\n",
    ],
)
def test_other_files(text: str) -> None:
    assert not is_stacks(text.encode(), "stacks.txt")


def test_lines_of_tools_do_not_hide_stacks() -> None:
    text = "Sampling process, please wait\n" + PYSPY + "done in 0.1 s\n"
    assert is_stacks(text.encode(), "x")
    assert len(read_stacks(text.encode(), "x")) == 2


def test_a_head_that_ends_inside_a_line() -> None:
    assert is_stacks((FAULT * 200).encode()[: 64 << 10], "x")


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = 'Thread 1 (idle): "MainThread"\n' + "    f (a.py:1)\n" * 600
    assert len(mains(deep)[0].frames) == 512
    monkeypatch.setattr(stack_blocks, "MAX_STACKS", 3)
    many = "".join(f"Thread {n} (idle)\n    f (a.py:1)\n" for n in range(9))
    assert len(read_stacks(many.encode(), "x")) == 3


def test_deep_json_is_refused_without_harm() -> None:
    text = '[{"pid": 1, "thread_id": 1, "frames": ' + "[" * 200_000
    assert read_stacks(text.encode(), "x") == []


@given(st.sampled_from([*SAMPLES, as_json()]), st.integers(0, 2000), st.binary(max_size=20))
def test_damage_never_raises_and_keeps_what_is_before_it(
    sample: str, at: int, noise: bytes
) -> None:
    data = sample.encode()
    cut = min(at, len(data))
    is_stacks(data[:cut] + noise, "x")
    found = read_stacks(data[:cut] + noise + data[cut:], "x")
    assert all(isinstance(stack, Stack) for stack in found)
    if sample is PYSPY:
        whole = read_stacks(data, "x")
        kept = [stack for stack in read_stacks(data[:cut], "x") if stack.frames]
        assert [s.frames[:-1] for s in kept] == [
            w.frames[: len(s.frames) - 1] for s, w in zip(kept, whole, strict=False)
        ]


@pytest.mark.parametrize("sample", [*SAMPLES, as_json()], ids=range(len(SAMPLES) + 1))
def test_a_dump_cut_anywhere_keeps_the_stacks_before_the_cut(sample: str) -> None:
    whole = [stack.frames for stack in read_stacks(sample.encode(), "x")]
    for cut in range(len(sample)):
        is_stacks(sample[:cut].encode(), "x")
        found = [stack.frames for stack in read_stacks(sample[:cut].encode(), "x")]
        assert found[:-1] == whole[: max(len(found) - 1, 0)], cut
        read_stacks(sample[cut:].encode(), "x")


@pytest.mark.parametrize("sample", SAMPLES, ids=range(len(SAMPLES)))
def test_lines_lost_doubled_or_swapped_invent_no_frame(sample: str) -> None:
    lines = sample.splitlines()
    known = {frame for stack in read_stacks(sample.encode(), "x") for frame in stack.frames}
    for low, high in combinations(range(len(lines) + 1), 2):
        lost = lines[:low] + lines[high:]
        doubled = lines[:high] + lines[low:]
        swapped = lines[:low] + lines[high - 1 : high] + lines[low + 1 : high - 1]
        swapped += lines[low : low + 1] + lines[high:]
        for damaged in (lost, doubled, swapped):
            found = read_stacks("\n".join(damaged).encode(), "x")
            assert {frame for stack in found for frame in stack.frames} <= known, damaged
