"""Stacks that people paste: without headings, wrapped, between sentences; the kernel's tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.ingest.sniff import sniff
from diagnose.parse.stacks import Frame, is_stacks, read_stacks

MUTEX = """\
#0  __lll_lock_wait (futex=0x7f00aa10, private=0) at lowlevellock.c:52
#1  0x00007f11aa0c40a3 in __GI___pthread_mutex_lock (mutex=0x7f00aa10) at ../nptl/mutex.c:80
#2  0x00007f11b2f00001 in acme_pool_take () from /opt/acme/lib/libacme.so.3   [12/404]
"""
WRAPPED = """\
#0  0x00007f22cc001122 in pthread_cond_timedwait@@GLIBC_2.3.2 () from /lib/libpthread.so.0
#1  0x000055aa00112233 in PyCOND_TIMEDWAIT (cond=0x55aa <_PyRuntime+1208>,
    mut=0x55ab <_PyRuntime+1256>, us=5000)
    at /build/python/Python/condvar.h:73
#2  take_gil (tstate=0x55aa50)
    at /build/python/Python/ceval_gil.h:206
#3  0x000055aa00223344 in acme::run(int) ()
   from /opt/acme/lib/libacme.so.3
"""
DRIVER = """\
#0  0x00007f33dd000c50 in ?? () from /usr/lib/libcuda.so.1
#1  0x00007f33dd111f06 in cudaLaunchKernel () from /opt/cuda/lib/libcudart.so.12
"""
BLOCKED = """\
[ 5120.100001] sysrq: Show Blocked State
[ 5120.100002] task:python3         state:D stack:    0 pid: 4242 ppid:  4000 flags:0x00004000
[ 5120.100003] Call Trace:
[ 5120.100004]  <TASK>
[ 5120.100005]  __schedule+0x2cb/0x760
[ 5120.100006]  ? __kmalloc+0x177/0x330
[ 5120.100007]  rwsem_down_read.constprop.0+0x1b0/0x3f0
[ 5120.100008]  uvm_ioctl+0x13e0/0x16f0 [nvidia_uvm]
[ 5120.100009]  </TASK>
[ 5120.100010] RIP: 0033:0x7f44ee
[ 5120.100011] task:mount.acme      state:S stack:    0 pid: 4300 ppid:     1 flags:0x00004000
[ 5120.100012]  schedule+0x4e/0xb0
"""
PROSE = ["My run hangs, so I attached gdb:", "```", "(gdb) bt", "", "What does it wait for?", "- b"]


def funcs(text: str) -> list[list[str]]:
    return [[frame.func for frame in stack.frames] for stack in read_stacks(text.encode(), "x")]


def test_a_stack_without_a_heading() -> None:
    (stack,) = read_stacks(f"(gdb) bt\n{MUTEX}".encode(), "x")
    assert (stack.kind, stack.main, stack.line, stack.rank) == ("gdb", True, 2, None)
    assert stack.frames == (
        Frame("__lll_lock_wait", "lowlevellock.c", 52, True),
        Frame("__GI___pthread_mutex_lock", "../nptl/mutex.c", 80, True),
        Frame("acme_pool_take", "/opt/acme/lib/libacme.so.3", None, True),
    )


def test_what_gdb_writes_below_a_frame_belongs_to_it() -> None:
    (stack,) = read_stacks(WRAPPED.encode(), "x")
    assert stack.frames == (
        Frame("pthread_cond_timedwait", "/lib/libpthread.so.0", None, True),
        Frame("PyCOND_TIMEDWAIT", "/build/python/Python/condvar.h", 73, True),
        Frame("take_gil", "/build/python/Python/ceval_gil.h", 206, True),
        Frame("acme::run", "/opt/acme/lib/libacme.so.3", None, True),
    )


def test_several_stacks_are_threads_of_one_process_and_the_first_is_its_main_one() -> None:
    found = read_stacks(f"{MUTEX}\n{DRIVER}\n{WRAPPED}".encode(), "x")
    assert [(stack.dump, stack.main) for stack in found] == [(0, True), (0, False), (0, False)]
    assert [len(stack.frames) for stack in found] == [3, 2, 4]


@pytest.mark.parametrize("colon", [":", ""])
def test_headings_with_and_without_a_colon(colon: str) -> None:
    text = f"Thread 7 (Thread 0x7f00 (LWP 70)){colon}\n{MUTEX}Thread 1 (LWP 64){colon}\n{DRIVER}"
    found = read_stacks(text.encode(), "x")
    assert [(stack.thread, stack.main, len(stack.frames)) for stack in found] == [
        ("70", False, 3),
        ("64", True, 2),
    ]


@given(st.permutations([MUTEX, DRIVER, WRAPPED]), st.lists(st.sampled_from(PROSE), max_size=9))
def test_neither_order_nor_the_text_between_matters(order: list[str], prose: list[str]) -> None:
    between = "\n".join(["", *prose, ""])
    text = between + between.join(order) + between
    assert sniff(text.encode(), "x") == "stacks"
    assert funcs(text) == [funcs(block)[0] for block in order]


PYSPY = "    compile (jax/_src/compiler.py:9)\n    main (train.py:3)\n"


def test_py_spy_between_sentences() -> None:
    head = '```\nThread 77 (idle): "MainThread"\n'
    text = f"1. all ranks save\n2. rank 3 starves:\n{head}{PYSPY}```\n"
    assert sniff(text.encode(), "x") == "stacks"
    assert funcs(text) == [["compile", "main"]]


@pytest.mark.parametrize(
    "crash",
    [
        "Program received signal SIGSEGV, Segmentation fault.",
        "Program terminated with signal SIGABRT, Aborted.",
        "terminate called after throwing an instance of 'acme::Error'",
        "Backtrace for this error:",
        "==77==ERROR: AddressSanitizer: heap-use-after-free",
        "[node1:77] *** Process received signal ***",
    ],
)
def test_the_stack_of_a_crash_is_none_of_a_process_that_hangs(crash: str) -> None:
    assert not is_stacks(f"{crash}\n{MUTEX}".encode(), "x")


def test_the_stack_below_an_interrupt_is_that_of_a_process_that_ran() -> None:
    text = f"Program received signal SIGINT, Interrupt.\n{MUTEX}"
    assert is_stacks(text.encode(), "x")


@pytest.mark.parametrize(
    "frames",
    [
        "frame #0: c10::Error::Error() + 0x96 (0x7f0 in /opt/libc10.so)\nframe #1: f() + 0x1\n",
        "    #0 0x7f0011 in acme_free /src/acme.c:3\n    #1 0x7f0012 in main /src/main.c:4\n",
        "[node1:77] [ 0] /lib/libpthread.so.0(+0x12730)[0x7f0]\n[node1:77] [ 1] /lib/libc.so.6\n",
        "#0  first item of a list\n#1  second item\n",
        " #0 0x00007f00 acme::print(int) /src/a.cpp:1:2\n #1 0x00007f01 acme::main()\n",
    ],
)
def test_other_backtraces_are_no_stacks_of_gdb(frames: str) -> None:
    assert read_stacks(frames.encode(), "x") == []
    assert sniff(frames.encode(), "x") == "text"


def test_a_log_with_a_stack_in_it_stays_a_log() -> None:
    line = "2026-11-21 10:00:00 INFO step 3 loss 0.4\n"
    assert is_stacks((line * 30 + MUTEX).encode(), "x")
    assert not is_stacks((MUTEX + line * 3).encode(), "x")
    assert not is_stacks((line * 41 + MUTEX).encode(), "x")


def test_blocked_tasks_of_the_kernel() -> None:
    (stack,) = read_stacks(BLOCKED.encode(), "x")
    assert sniff(BLOCKED.encode(), "dmesg.txt") == "stacks"
    assert (stack.kind, stack.thread, stack.pid, stack.status) == ("kernel", "python3", 4242, "D")
    assert (stack.main, stack.line) == (True, 2)
    assert stack.frames == (
        Frame("__schedule", "", None, True),
        Frame("rwsem_down_read", "", None, True),
        Frame("uvm_ioctl", "[nvidia_uvm]", None, True),
    )


@pytest.mark.parametrize("stamp", ["", "[  +0.000049] ", "Jun 17 20:18:08 node7 kernel: "])
def test_blocked_tasks_as_each_tool_prints_them(stamp: str) -> None:
    lines = [line.partition("] ")[2] for line in BLOCKED.splitlines()[1:]]
    text = "\n".join(stamp + line for line in lines)
    assert funcs(text) == [["__schedule", "rwsem_down_read", "uvm_ioctl"]]


def test_call_traces_of_other_messages_of_the_kernel_are_no_stacks() -> None:
    oom = BLOCKED.splitlines()
    oom[1] = "[ 5120.100002] python3 invoked oom-killer: gfp_mask=0x100cca, order=0"
    assert read_stacks("\n".join(oom).encode(), "x") == []
    assert sniff("\n".join(oom).encode(), "x") == "text"


@pytest.mark.parametrize("margin", ["    ", "> ", "\t", "  | "])
@pytest.mark.parametrize("sample", [MUTEX, WRAPPED, f"Thread 9 (LWP 9):\n{DRIVER}{MUTEX}"])
def test_stacks_that_are_set_off_from_the_text(margin: str, sample: str) -> None:
    quoted = "".join(margin + line for line in sample.splitlines(keepends=True))
    assert sniff(f"It hangs:\n\n{quoted}".encode(), "x") == "stacks"
    assert funcs(f"It hangs:\n\n{quoted}") == funcs(sample)


def test_the_kernels_stack_of_one_process() -> None:
    text = "# cat /proc/7/stack\n[<0>] nfs_wait+0x1e/0x80 [nfs]\n[<0>] vfs_read+0x9d/0x1a0\n"
    assert sniff(text.encode(), "x") == "stacks"
    (stack,) = read_stacks(text.encode(), "x")
    assert (stack.kind, stack.main, stack.status, stack.pid) == ("kernel", True, "", None)
    assert stack.frames == (
        Frame("nfs_wait", "[nfs]", None, True),
        Frame("vfs_read", "", None, True),
    )


def test_gdbs_python_stack_without_a_heading() -> None:
    text = """\
(gdb) py-bt
Traceback (most recent call first):
  File "/usr/lib/python3.11/queue.py", line 171, in get
    self.not_empty.wait()
  File "/job/train.py", line 9, in main
"""
    assert sniff(text.encode(), "x") == "stacks"
    (stack,) = read_stacks(text.encode(), "x")
    assert (stack.kind, stack.main, stack.line) == ("gdb", True, 2)
    assert stack.frames == (
        Frame("get", "/usr/lib/python3.11/queue.py", 171, False),
        Frame("main", "/job/train.py", 9, False),
    )
