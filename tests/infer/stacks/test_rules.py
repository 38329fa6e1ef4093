"""What frames tell, and in which order of precedence."""

from __future__ import annotations

from typing import get_args

import pytest

from diagnose.catalog.schema import Phase
from diagnose.infer.stacks.frame_table import BARE, PHASES, RULES, State
from diagnose.infer.stacks.rules import is_helper, is_library, names, phase, read
from diagnose.parse.stacks import Frame

PACKAGES = "/opt/conda/lib/python3.10/site-packages/"
C10D = "torch/distributed/distributed_c10d.py"


def frames(*told: str) -> list[Frame]:
    """`func@file:line` is Python, `func@lib` native; innermost first."""
    found = []
    for text in told:
        func, _, file = text.partition("@")
        path, _, line = file.rpartition(":")
        number = int(line) if path and line.isdecimal() else None
        found.append(Frame(func, path if number else file, number, number is None))
    return found


def state(*told: str) -> tuple[State, int] | None:
    decided = read(frames(*told))
    return (decided[0].state, decided[1]) if decided else None


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (f"all_reduce@{C10D}:3252", "collective_wait"),
        (f"barrier@{C10D}:5356", "collective_wait"),
        ("wait_tensor@torch/distributed/_functional_collectives.py:3", "collective_wait"),
        ("_verify_param_shape_across_processes@torch/distributed/utils.py:286", "collective_wait"),
        ("_engine_run_backward@torch/autograd/graph.py:979", "collective_wait"),
        ("backward@torch/autograd/__init__.py:347", "collective_wait"),
        ("Accelerator.wait_for_everyone@accelerate/accelerator.py:3", "collective_wait"),
        ("c10d::Work::wait@libtorch_cpu.so", "collective_wait"),
        ("c10d::ProcessGroupNCCL::WorkNCCL::synchronizeInternal@libtorch_cuda.so",
         "collective_wait"),
        ("gloo::transport::tcp::UnboundBuffer::waitRecv@libtorch_cpu.so", "collective_wait"),
        ("ncclGroupEndInternal@libnccl.so.2", "collective_wait"),
        ("??@/usr/lib/libnccl.so.2.21.5", "collective_wait"),
        ("PMPI_Allreduce@libmpi.so.40", "collective_wait"),
        ("ncclCommInitRankConfig@libnccl.so.2", "comm_init"),
        ("bootstrapInit@libnccl.so.2", "comm_init"),
        ("c10d::ProcessGroupNCCL::initNCCLComm@libtorch_cuda.so", "comm_init"),
        (f"new_group@{C10D}:4", "comm_init"),
        (f"_store_based_barrier@{C10D}:4", "store_get"),
        ("c10d::TCPStore::doWait@libtorch_cpu.so", "store_get"),
        ("c10d::ProcessGroupNCCL::broadcastUniqueNCCLID@libtorch_cuda.so", "store_get"),
        ("_tcp_rendezvous_handler@torch/distributed/rendezvous.py:3", "store_get"),
        ("cudaStreamSynchronize@libcudart.so.12", "cuda_sync"),
        ("cuStreamSynchronize@libcuda.so.1", "cuda_sync"),
        ("??@/usr/lib/x86_64-linux-gnu/libcuda.so.535.104", "cuda_sync"),
        ("at::native::_local_scalar_dense_cuda@libtorch_cuda.so", "cuda_sync"),
        ("cudaFree@libcudart.so.12", "cuda_sync"),
        ("synchronize@torch/cuda/__init__.py:3", "cuda_sync"),
        ("ioctl@libc.so.6", "device_driver"),
        ("_MultiProcessingDataLoaderIter._try_get_data@torch/utils/data/dataloader.py:1291",
         "data_loading"),
        ("fetch@torch/utils/data/_utils/fetch.py:54", "data_loading"),
        ("wait@torch/utils/file_baton.py:42", "lock"),
        ("acquire@filelock/_api.py:3", "lock"),
        ("__GI_flock@libc.so.6", "lock"),
        ("__lll_lock_wait@libc.so.6", "lock"),
        ("Event.wait@threading.py:629", "lock"),
        ("_wait@subprocess.py:3", "lock"),
        ("_jit_compile@torch/utils/cpp_extension.py:3", "compile"),
        ("compile_fx@torch/_inductor/compile_fx.py:3", "compile"),
        ("http_get@huggingface_hub/file_download.py:3", "download"),
        ("SSLSocket.read@ssl.py:1134", "reply"),
        ("save@torch/serialization.py:3", "file_write"),
        ("_write_item@torch/distributed/checkpoint/filesystem.py:3", "file_write"),
        ("fsync@libc.so.6", "file_write"),
        ("__libc_write@libc.so.6", "file_write"),
        ("load@torch/serialization.py:3", "file_read"),
        ("__libc_pread64@libc.so.6", "file_read"),
        ("exists@genericpath.py:3", "file_read"),
        ("get_data@<frozen importlib._bootstrap_external>:3", "file_read"),
        ("_map_single@datasets/arrow_dataset.py:3", "preprocessing"),
        ("evaluation_loop@transformers/trainer.py:3", "evaluation"),
        ("_sample@transformers/generation/utils.py:3", "evaluation"),
        ("forward@torch/nn/modules/linear.py:3", "python"),
        ("at::native::addmm_out@libtorch_cpu.so", "python"),
        ("take_gil@libpython3.11.so.1.0", "gil_wait"),
        ("PyEval_RestoreThread@libpython3.11.so.1.0", "gil_wait"),
        ("clock_nanosleep@libc.so.6", "sleep"),
        ("abort@libc.so.6", "crashing"),
        ("<signal handler called>@", "crashing"),
        # the same names elsewhere tell nothing
        ("all_reduce@/job/train.py:3", None),
        ("reduce@functools.py:3", None),
        ("save@/job/train.py:3", None),
        ("read@/job/io.py:3", None),
        ("poll@libc.so.6", None),
        ("_PyEval_EvalFrameDefault@Python/ceval.c", None),
        ("_fn@torch/_dynamo/eval_frame.py:3", None),
    ],
)  # fmt: skip
def test_single_frames(frame: str, expected: State | None) -> None:
    found = state(frame)
    assert (found and found[0]) == expected


@pytest.mark.parametrize("prefix", [PACKAGES, "/usr/local/lib/python3.12/dist-packages/", ""])
def test_paths_of_all_tools_look_alike(prefix: str) -> None:
    assert state(f"all_reduce@{prefix}{C10D}:3") == ("collective_wait", 0)
    assert names(frames(f"f@{prefix}torch/a.py:3")[0]) == ("f", "torch/a.py")


def test_the_innermost_frame_with_a_meaning_decides() -> None:
    assert state(
        "select@selectors.py:415", "poll@multiprocessing/connection.py:257",
        "get@multiprocessing/queues.py:113", "_try_get_data@torch/utils/data/dataloader.py:1291",
        "evaluation_loop@transformers/trainer.py:9",
    ) == ("data_loading", 3)  # fmt: skip
    assert state(f"all_reduce@{C10D}:3", "save@torch/serialization.py:3") == ("collective_wait", 0)
    assert state("save@torch/serialization.py:3", f"all_reduce@{C10D}:3") == ("file_write", 0)
    assert state("ncclSocketAccept@libnccl.so.2", f"all_reduce@{C10D}:3") == ("comm_init", 0)


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("futex_wait@libc.so.6", "c10d::Work::wait@libtorch_cpu.so", "collective_wait"),
        ("clock_nanosleep@libc.so.6", "wait@torch/utils/file_baton.py:4", "lock"),
        ("read@libc.so.6", "_recv@multiprocessing/connection.py:3", "message_wait"),
        ("_recv@multiprocessing/connection.py:3", "get@multiprocessing/queues.py:3", "lock"),
        ("readinto@socket.py:706", "urlopen@urllib/request.py:216", "reply"),
        ("readinto@socket.py:706", "download_weights@/job/train.py:3", "download"),
        ("read@requests/models.py:1", "cached_file@huggingface_hub/utils.py:3", "download"),
        ("read@libc.so.6", "evaluate@/job/train.py:3", "file_read"),
        ("pthread_cond_wait@libc.so.6", "evaluate@/job/train.py:3", "evaluation"),
        ("forward@torch/nn/modules/linear.py:3", "evaluate@/job/train.py:3", "evaluation"),
        ("pthread_cond_wait@libc.so.6", "main@/job/train.py:3", "lock"),
    ],
)
def test_a_system_call_yields_to_what_it_is_for(inner: str, outer: str, expected: State) -> None:
    found = state(inner, outer)
    assert found is not None
    assert found[0] == expected


@pytest.mark.parametrize(
    "backward",
    ["_engine_run_backward@torch/autograd/graph.py:979", "backward@torch/autograd/__init__.py:347"],
)
def test_a_backward_pass_that_computes_waits_for_nobody(backward: str) -> None:
    assert state("pthread_cond_wait@libc.so.6", backward) == ("collective_wait", 1)
    assert state("at::native::mm@libtorch_cpu.so", backward) == ("python", 0)
    assert state("c10d::Reducer::finalize_backward@libtorch_cpu.so",
                 "at::native::mm@libtorch_cpu.so", backward) == ("collective_wait", 0)  # fmt: skip


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (["_worker_loop@torch/utils/data/_utils/worker.py:374", "<module>@train.py:1"], True),
        (["sleep@x.so", "_invoke_run@torch/distributed/elastic/agent/server/api.py:9"], True),
        (["worker@multiprocess/pool.py:125"], True),
        (["_next_data@torch/utils/data/dataloader.py:3", "<module>@train.py:1"], False),
        (["_wrap@torch/multiprocessing/spawn.py:69", "run@multiprocessing/process.py:3"], False),
    ],
)
def test_processes_that_are_no_rank(stack: list[str], expected: bool) -> None:
    assert is_helper(frames(*stack)) is expected


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ("step@train.py:41", False),
        ("step@/job/pkg/train.py:41", False),
        ("step@<ipython-input-3-abc>:4", False),
        ("wait@threading.py:327", True),
        ("wait@/usr/lib/python3.11/threading.py:327", True),
        ("train@transformers/trainer.py:3", True),
        (f"train@{PACKAGES}ours/loop.py:3", True),
        ("call@/tmp/torchinductor_root/ab/cd.py:3", True),
        ("forward@<eval_with_key>.12:3", True),
        ("all_reduce@/opt/pytorch/pytorch/torch/distributed/distributed_c10d.py:3", True),
        ("poll@libc.so.6", True),
    ],
)
def test_the_users_own_code(frame: str, expected: bool) -> None:
    assert is_library(frames(frame)[0]) is expected


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (["all_gather@x.py:3", "evaluate@train.py:3", "train@train.py:9"], "evaluation"),
        (["all_reduce@x.py:3", "save_checkpoint@train.py:3", "train@train.py:9"], "checkpoint"),
        (["_sample@transformers/generation/utils.py:3", "generate@x.py:3"], "inference"),
        (["f@train.py:3", "_map_single@datasets/arrow_dataset.py:9"], "preprocessing"),
        (["get@x.py:3", "from_pretrained@transformers/modeling_utils.py:9"], "model_load"),
        ([f"init_process_group@{C10D}:3"], "init"),
        (["_verify@torch/x.py:3", "__init__@torch/nn/parallel/distributed.py:4"], "init"),
        (["_engine_run_backward@torch/autograd/graph.py:3"], "training"),
        (["wait@x.py:3", f"destroy_process_group@{C10D}:3"], "shutdown"),
        (["main@train.py:3"], None),
    ],
)
def test_phases(stack: list[str], expected: Phase | None) -> None:
    assert phase(frames(*stack)) == expected


def test_every_rule_and_phase_can_be_asked() -> None:
    assert {rule.level for rule in RULES} == set(range(BARE + 1))
    assert {row[0] for row in PHASES} <= set(get_args(Phase))
