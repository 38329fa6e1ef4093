"""What native threads of one process are stuck in."""

from __future__ import annotations

import pytest

from diagnose.infer.stacks.rules import in_kernel, stuck
from diagnose.parse.stacks import Frame

LOCK = ["__lll_lock_wait@lowlevellock.c", "__GI___pthread_mutex_lock@pthread_mutex_lock.c"]
SEMAPHORE = ["do_futex_wait@sem_waitcommon.c", "__new_sem_wait_slow@sem_waitcommon.c"]
GIL = ["pthread_cond_timedwait@libpthread.so.0", "take_gil@ceval_gil.h"]
CUDA = ["??@/usr/lib/libcuda.so.1", "??@/usr/lib/libcuda.so.1"]
RUNTIME = "/opt/cuda/lib64/libcudart.so.12"


def frames(*told: str) -> list[Frame]:
    """`func@file`, innermost first."""
    parts = (text.split("@") for text in told)
    return [Frame(func, file, None, native=True) for func, file in parts]


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ([*LOCK, "__kmp_suspend@libiomp5.so"], ("mutex", 2)),
        ([*LOCK, "std::mutex::lock@std_mutex.h", "acme::Pool::get@libacme.so"], ("mutex", 3)),
        ([*LOCK, "??@libcuda.so.1", f"cudaEventRecord@{RUNTIME}"], ("mutex", 2)),
        ([*CUDA, f"cudaLaunchKernel@{RUNTIME}"], ("driver_call", 2)),
        ([*CUDA, "cuMemcpyHtoDAsync_v2@libcuda.so.1"], ("driver_call", 2)),
        (["ioctl@libc.so.6", *CUDA, "cuInit@libcuda.so.1"], ("driver_call", 3)),
        ([*CUDA, "acme@libacme.so", "ncclGroupEndInternal@libnccl.so"], ("driver_call", 3)),
        (
            [*CUDA, f"cudaStreamSynchronize@{RUNTIME}", "ncclCommAbort@libnccl.so"],
            ("driver_call", 3),
        ),
        (["??@libamdhip64.so.6", "hipModuleLoadData@libamdhip64.so.6"], ("driver_call", 1)),
        ([*GIL, "PyGILState_Ensure@libpython3.11.so", "??@libcuda.so.1"], ("gil_wait", 1)),
    ],
)
@pytest.mark.parametrize("shown", [True, False])
def test_what_does_not_last_in_a_healthy_process(
    stack: list[str], expected: tuple[str, int], shown: bool
) -> None:
    assert stuck(frames(*stack), shown=shown) == expected


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ([*GIL, "PyEval_RestoreThread@ceval.c"], ("gil_wait", 1)),
        ([*SEMAPHORE, "_nv0313cupti@libtorch_cpu.so"], ("driver_call", 2)),
        ([*SEMAPHORE, "??@libcuda.so.1"], ("driver_call", 2)),
    ],
)
def test_where_only_who_was_shown_says_something(
    stack: list[str], expected: tuple[str, int]
) -> None:
    assert stuck(frames(*stack), shown=True) == expected
    assert stuck(frames(*stack), shown=False) is None


@pytest.mark.parametrize(
    "stack",
    [
        ["pthread_cond_wait@libc.so.6", "acme::ThreadPool::work@libacme.so"],
        ["__GI___poll@poll.c", *CUDA],
        ["epoll_wait@libc.so.6", "uv_run@libuv.so"],
        ["__select@select.c", "acme@libacme.so"],
        ["accept4@libc.so.6", "acme@libacme.so"],
        [*SEMAPHORE, "PyThread_acquire_lock_timed@thread_pthread.h"],
        [*SEMAPHORE, "acme::work@libacme.so"],
        [*LOCK, "PyThread_release_lock@thread_pthread.h"],
        [*LOCK, "pthread_cond_wait@libc.so.6"],
        [*CUDA, f"cudaStreamSynchronize@{RUNTIME}"],
        [*CUDA, f"cudaStreamSynchronize@{RUNTIME}", "ncclGroupEnd@libnccl.so"],
        [*CUDA, f"cudaMemcpyAsync@{RUNTIME}", "at::native::_local_scalar_dense_cuda@libtorch.so"],
        [*CUDA, f"cudaMemcpyAsync@{RUNTIME}", "at::native::copy_kernel_cuda@libtorch_cuda.so"],
        CUDA,
        ["acme::compute@libacme.so", f"cudaLaunchKernel@{RUNTIME}"],
        LOCK,
        [],
    ],
)
@pytest.mark.parametrize("shown", [True, False])
def test_what_idle_threads_and_victims_do_says_nothing(stack: list[str], shown: bool) -> None:
    assert stuck(frames(*stack), shown=shown) is None


@pytest.mark.parametrize(
    ("stack", "asleep", "expected"),
    [
        (["__schedule@", "uvm_ioctl@[nvidia_uvm]"], True, ("driver_call", 1)),
        (["__schedule@", "uvm_ioctl@[nvidia_uvm]"], False, ("driver_call", 1)),
        (["__schedule@", "schedule@", "__mutex_lock@", "acme@"], True, ("kernel_wait", 3)),
        (["__schedule@", "schedule@"], True, ("kernel_wait", 0)),
        (["__schedule@", "schedule@", "ep_poll@"], False, None),
    ],
)
def test_where_a_task_is_in_the_kernel(
    stack: list[str], asleep: bool, expected: tuple[str, int] | None
) -> None:
    assert in_kernel(frames(*stack), asleep=asleep) == expected
