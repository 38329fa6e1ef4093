"""Stacks of processes whose ranks nothing tells."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagnose
from diagnose.infer.stacks.processes import worked_below
from tests.infer.conftest import Make
from tests.infer.rows import step


def told(*frames: str) -> diagnose.Diagnosis:
    head = 'Thread 0x7FA6E7C01740 (idle): "MainThread"'
    return diagnose.diagnose(diagnose.load_text("\n".join([head, *frames]) + "\n"))


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        ("    __next__ (torch/utils/data/dataloader.py:648)", "data.loader"),
        ("    __next__ (acme/data/iterators.py:648)", "data.loader"),
        ("    save_file (safetensors/torch.py:286)", "slow.storage"),
    ],
)
def test_what_the_process_is_busy_with_is_a_lead(frame: str, cause: str) -> None:
    result = told(
        "    wait (threading.py:302)", "    get (queue.py:170)", frame, "    main (t.py:1)"
    )
    assert (result.verdict, result.root_cause.cause) == ("hung", cause)
    assert result.root_cause.confidence == "low"
    assert result.culprits.ranks == []


def test_who_waits_for_the_process_that_writes_a_checkpoint_saves() -> None:
    result = told(
        "    poll (multiprocessing/popen_fork.py:27)",
        "    wait (multiprocessing/popen_fork.py:43)",
        "    join (multiprocessing/process.py:149)",
        "    close (core/dist_checkpointing/strategies/async_utils.py:248)",
        "    is_current_async_call_done (core/dist_checkpointing/strategies/async_utils.py:236)",
        "    save (core/dist_checkpointing/serialization.py:396)",
    )
    assert (result.verdict, result.root_cause.cause) == ("hung", "slow.checkpoint")
    assert (result.root_cause.confidence, result.culprits.ranks) == ("low", [])


def test_who_only_waits_or_computes_shows_nothing() -> None:
    assert (
        told("    all_reduce (torch/distributed/distributed_c10d.py:2)").root_cause.cause
        == "unknown"
    )
    assert told("    forward (model.py:2)", "    main (t.py:1)").root_cause.cause == "unknown"


LOCKED = """\
#0  __lll_lock_wait (futex=0x7f00aa10) at lowlevellock.c:52
#1  0x00007f11aa0c40a3 in __GI___pthread_mutex_lock (mutex=0x7f00aa10) at ../nptl/mutex.c:80
#2  0x00007f11b2f00001 in acme_pool_take () from /opt/acme/lib/libacme.so.3
"""
GIL = """\
#0  0x00007f22cc001122 in pthread_cond_timedwait@@GLIBC_2.3.2 () from /lib/libpthread.so.0
#1  0x000055aa00112233 in take_gil (tstate=0x55aa50)
    at /build/python/Python/ceval_gil.h:206
#2  0x000055aa00223344 in PyGILState_Ensure ()
"""
DRIVER = """\
#0  0x00007f33dd000c50 in ?? () from /usr/lib/libcuda.so.1
#1  0x00007f33dd111f06 in cudaLaunchKernel () from /opt/cuda/lib/libcudart.so.12
"""
IDLE = """\
#0  0x00007f44cc001122 in epoll_wait () from /lib/libc.so.6
#1  0x00007f44cc001133 in acme_loop () from /opt/acme/lib/libacme.so.3
"""
WAITS = """\
#0  0x00007f33dd000c50 in ?? () from /usr/lib/libcuda.so.1
#1  0x00007f33dd111f06 in cudaStreamSynchronize () from /opt/cuda/lib/libcudart.so.12
#2  0x00007f33dd111f07 in at::native::copy_ () from /opt/libtorch_cuda.so
"""
STUCK = {
    LOCKED: "waiting for a mutex: acme_pool_take",
    GIL: "waiting for the GIL: take_gil",
    DRIVER: "in a call of the GPU driver: cudaLaunchKernel",
}


def pasted(text: str) -> diagnose.Diagnosis:
    return diagnose.diagnose(diagnose.load_text(text))


@pytest.mark.parametrize("stack", STUCK)
@pytest.mark.parametrize("above", ["", IDLE, IDLE + "\nand another thread:\n" + WAITS])
@pytest.mark.parametrize("below", ["", IDLE])
def test_one_stuck_thread_among_idle_ones(stack: str, above: str, below: str) -> None:
    result = pasted(f"It hangs here:\n{above}\n{stack}\n{below}")
    assert (result.verdict, result.root_cause.cause) == ("hung", "stall.host")
    assert result.root_cause.confidence == "low"
    assert result.root_cause.summary == f"The stack shows a process {STUCK[stack]}."
    assert (result.culprits.ranks, result.culprits.hosts) == ([], [])


@pytest.mark.parametrize("stack", [IDLE, WAITS, IDLE + WAITS, WAITS + "\n" + IDLE])
def test_idle_and_waiting_threads_show_nothing(stack: str) -> None:
    result = pasted(f"It hangs here:\n{stack}")
    # That it hangs is what the user says.
    assert (result.verdict, result.root_cause.cause) == ("hung", "unknown")


def test_the_stack_of_a_crash_is_no_hang() -> None:
    result = pasted(f"Program received signal SIGSEGV, Segmentation fault.\n{LOCKED}")
    assert (result.verdict, result.root_cause.cause) == ("failed", "crash.native")


def test_a_stack_above_which_the_job_died_is_not_why() -> None:
    result = pasted(f"{LOCKED}\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    assert (result.verdict, result.root_cause.cause) == ("failed", "crash.gpu_oom")


STEPS = "".join(f"step {n}/900 loss 0.{n}\n" for n in range(100, 106))


def test_a_stack_taken_in_passing_is_no_hang() -> None:
    assert pasted(f"{STEPS}{LOCKED}").verdict == "running"
    assert pasted(f"{LOCKED}{STEPS}").verdict == "running"


def test_faulthandlers_dump_after_a_time_in_a_healthy_log_is_no_hang() -> None:
    dump = """\
Timeout (0:00:30)!
Thread 0x00007f06b1fbab80 (most recent call first):
  File "/usr/lib/python3.11/queue.py", line 171 in get
  File "/job/train.py", line 61 in <module>
"""
    assert pasted(f"{STEPS}{dump}{STEPS}").verdict == "running"


@pytest.mark.parametrize(
    ("frame", "cause", "says"),
    [
        ("uvm_ioctl+0x13e0/0x16f0 [nvidia_uvm]", "stall.host",
         "in a call of the GPU driver: uvm_ioctl [nvidia_uvm]"),
        ("amdgpu_cs_ioctl+0x12/0x34 [amdgpu]", "stall.host",
         "in a call of the GPU driver: amdgpu_cs_ioctl [amdgpu]"),
        ("nfs4_proc_getattr+0x12/0x34 [nfsv4]", "slow.storage",
         "reading files: nfs4_proc_getattr [nfsv4]"),
        ("cl_page_wait+0x12/0x34 [lustre]", "slow.storage", "reading files: cl_page_wait [lustre]"),
        ("request_wait_answer+0x12/0x34 [fuse]", "slow.storage",
         "reading files: request_wait_answer [fuse]"),
        ("acme_wait+0x12/0x34 [acme]", "stall.host",
         "blocked in the kernel (D state): acme_wait [acme]"),
    ],
)  # fmt: skip
def test_blocked_tasks_of_the_kernel(frame: str, cause: str, says: str) -> None:
    task = "task:python3.11 state:{} stack:    0 pid: 4242 ppid:  4000 flags:0x00000002"
    trace = f"Call Trace:\n <TASK>\n __schedule+0x2cb/0x760\n schedule+0x4e/0xb0\n {frame}\n"
    result = pasted(f"dmesg says:\n{task.format('D')}\n{trace}")
    assert (result.verdict, result.root_cause.cause) == ("hung", cause)
    assert result.root_cause.confidence == "low"
    assert result.root_cause.summary == f"The stack shows a process {says}."
    assert pasted(f"dmesg says:\n{task.format('S')}\n{trace}").root_cause.cause == "unknown"


@pytest.mark.parametrize(
    "frame",
    [
        "backend_compile_and_load (jax/_src/compiler.py:362)",
        "_compile_and_write_cache (jax/_src/compiler.py:746)",
        "from_hlo (jax/_src/interpreters/pxla.py:3066)",
        "compile_fx (torch/_inductor/compile_fx.py:1200)",
        "compile (triton/compiler/compiler.py:280)",
    ],
)
def test_compiling_is_slow_compilation(frame: str) -> None:
    result = pasted(f'It hangs:\nThread 7 (idle): "MainThread"\n    {frame}\n    main (t.py:1)\n')
    assert (result.verdict, result.root_cause.cause) == ("hung", "slow.compile")


@pytest.mark.parametrize(
    ("frames", "cause"),
    [
        (["nfs_wait_bit_killable+0x1e/0x80 [nfs]", "vfs_read+0x9d/0x1a0"], "slow.storage"),
        (["uvm_ioctl+0x1e/0x80 [nvidia_uvm]"], "stall.host"),
        (["futex_wait_queue_me+0xb6/0x110", "do_futex+0x1/0x2"], "unknown"),
        (["ep_poll+0xb6/0x110"], "unknown"),
    ],
)
def test_the_kernels_stack_of_one_process(frames: list[str], cause: str) -> None:
    text = "".join(f"[<0>] {frame}\n" for frame in frames)
    assert pasted(f"$ cat /proc/7/stack\n{text}").root_cause.cause == cause


@pytest.mark.parametrize(
    ("frame", "cause"),
    [
        ("acme_wait+0x12/0x34", "slow.storage"),
        ("uvm_ioctl+0x13e0/0x16f0 [nvidia_uvm]", "stall.host"),
        ("nfs4_wait+0x12/0x34 [nfsv4]", "slow.storage"),
    ],
)
def test_the_stack_of_a_hung_task_says_more_where_it_names_a_module(frame: str, cause: str) -> None:
    lines = [
        "INFO: task python3:4242 blocked for more than 120 seconds.",
        "task:python3 state:D stack:    0 pid: 4242 ppid:  4000 flags:0x00004000",
        "Call Trace:",
        " schedule+0x4e/0xb0",
        f" {frame}",
    ]
    assert pasted("\n".join(lines) + "\n").root_cause.cause == cause


def test_gdbs_python_stack_in_the_data_loader() -> None:
    result = pasted(
        "(gdb) py-bt\nTraceback (most recent call first):\n"
        '  File "/opt/site-packages/torch/utils/data/dataloader.py", line 11, in _try_get_data\n'
        "    data = self._data_queue.get(timeout=timeout)\n"
        '  File "/job/train.py", line 9, in main\n'
    )
    assert (result.verdict, result.root_cause.cause) == ("hung", "data.loader")


POOL = """\
Process {pid}: /usr/bin/python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
"""
RECEIVES = "    _recv (multiprocessing/connection.py:395)\n    work (train.py:22)\n"
SLEEPS = "    progress (util.py:44)\n    on_step (callbacks.py:12)\n    work (train.py:23)\n"


@pytest.mark.parametrize(("waits", "cause"), [(3, "stall.host"), (1, "unknown"), (0, "unknown")])
def test_the_one_process_that_does_not_wait_as_the_others_do_is_held_up(
    tmp_path: Path, waits: int, cause: str
) -> None:
    for pid in range(100, 100 + waits):
        (tmp_path / f"stack-{pid}.txt").write_text(POOL.format(pid=pid) + RECEIVES)
    (tmp_path / "stack-200.txt").write_text(POOL.format(pid=200) + SLEEPS)
    result = diagnose.diagnose(diagnose.load([tmp_path]))
    assert (result.root_cause.cause, result.culprits.ranks) == (cause, [])
    assert result.verdict != "failed"  # the heading of a stack is like no message


def test_steps_of_another_rank_do_not_say_that_a_stack_was_taken_in_passing(make: Make) -> None:
    timeline = make(step(1, rank=0), step(2, rank=1), step(3), step(1, rank=0, source="b.log"))
    below = [
        worked_below("job.log", line, timeline, rank)
        for line, rank in ((1, None), (3, None), (1, 0), (1, 1), (2, 1), (3, 1), (0, 5))
    ]
    assert below == [True, False, True, True, True, False, True]
    timeline = make(step(1, rank=0), step(2, rank=1))
    assert [worked_below("job.log", 1, timeline, rank) for rank in (0, 1)] == [False, True]
