"""What a stack frame tells: the one table of it, for Python and native frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from diagnose.diagnosis import CulpritKind
from diagnose.infer.events.tracebacks import OP_OF_CALL

State = Literal[
    "collective_wait", "cuda_sync", "comm_init", "store_get", "data_loading", "file_read",
    "file_write", "download", "preprocessing", "compile", "lock", "gil_wait", "evaluation",
    "python", "device_driver", "crashing", "exited", "sleep", "mutex", "driver_call", "kernel_wait",
    "stopped", "pipe", "gil_held", "reply", "message_wait", "unknown",
]  # fmt: skip


# What a state means, after "the rank is".
SAYS: dict[State, str] = {
    "collective_wait": "waiting in a collective",
    "cuda_sync": "waiting for the GPU",
    "comm_init": "waiting for other ranks to set up a communicator",
    "store_get": "waiting for a key in the store",
    "data_loading": "blocked in the data loader",
    "file_read": "reading files",
    "file_write": "writing files",
    "download": "waiting for a download",
    "preprocessing": "preparing data",
    "compile": "compiling",
    "lock": "waiting for a lock, a thread or a process",
    "gil_wait": "waiting for the GIL",
    "evaluation": "evaluating or generating",
    "python": "running Python code",
    "device_driver": "inside the GPU driver",
    "crashing": "crashing",
    "exited": "no longer running",
    "sleep": "sleeping",
    "mutex": "waiting for a mutex",
    "driver_call": "in a call of the GPU driver",
    "kernel_wait": "blocked in the kernel (D state)",
    "stopped": "stopped by a signal (state T)",
    "pipe": "waiting for the other end of a named pipe",
    "reply": "waiting for a reply over the network",
    "message_wait": "waiting for a message of another process",
    "gil_held": "holding the GIL in a call that sleeps",
    "unknown": "in an unrecognised frame",
}


# Waiting for other ranks: whoever stands here has come, and is a victim.
WAITING: frozenset[State] = frozenset(
    {"collective_wait", "cuda_sync", "comm_init", "store_get", "message_wait"}
)

# What is said of a rank that is there, where that does not depend on whether it moves.
KINDS: dict[State, CulpritKind] = {
    "device_driver": "stuck_device", "crashing": "crashed", "exited": "missing",
}  # fmt: skip
# States that hold a process up whatever it was about.
WHATEVER_FOR: frozenset[State] = frozenset({*KINDS, "stopped", "pipe", "kernel_wait"})


CALL, CHANNEL, PIPE, SYSTEM, CONTEXT, COMPUTE, BARE = range(7)


@dataclass(frozen=True, slots=True)
class Rule:
    """Frames whose function and file match whole stand in `state`.

    Python functions are matched without their class, native ones without leading `_`, `__GI_` and
    `__libc_`; files from their package on (`torch/…`), native ones without their folder.
    """

    level: int
    state: State
    func: str
    file: str = ".*"
    native: bool = False


def _native(level: int, state: State, func: str, file: str = ".*") -> Rule:
    return Rule(level, state, func, file, native=True)


_C10D = r"torch/distributed/(distributed_c10d|_functional_collectives|nn/functional)\.py"


_OPS = "|".join(sorted(set(OP_OF_CALL) - {"_engine_run_backward"}))


_BACKWARD = r"_engine_run_backward|run_backward"
# What calls the engine, in tracebacks of which a log keeps no more, and in torch before 2.2.
_ENTRY = "backward"


_ENGINE = r"torch::autograd::(ReadyQueue::pop|Engine::execute_with_graph_task)"


# Modules of the kernel.
_FILE_SYSTEMS = (
    r"\[(nfs\w*|sunrpc|lustre|ptlrpc|mdc|osc|lov|fuse|ceph|libceph|mmfs\w*|beegfs|wekafs\w*|xfs"
    r"|ext4|jbd2|btrfs|cifs)\]"
)


RULES: tuple[Rule, ...] = (
    # -- calls
    _native(CALL, "crashing", r"abort|raise|gsignal|pthread_kill(_.*)?|<signal handler called>"),
    _native(CALL, "crashing", r"std::terminate|c10::FatalSignalHandler::.*|google::FailureSig.*"),
    _native(CALL, "gil_wait", r"take_gil|PyEval_(Restore|Acquire)Thread|PyGILState_Ensure"),
    _native(CALL, "gil_wait", r"PyThreadState_Attach|pybind11::gil_scoped_acquire::.*"),
    _native(CALL, "device_driver", r".*", r"\[(nvidia\w*|amdgpu|amdkfd|gdrdrv|nv_peer_mem)\]"),
    _native(CALL, "device_driver", r"ioctl|nvidia_.*|rm_ioctl|uvm_.*|kgd2?kfd_.*|amdgpu_.*"),
    _native(CALL, "comm_init", r"ncclComm(Init|Split|Grow|Shrink).*|p?nccl.*bootstrap.*"),
    _native(CALL, "comm_init", r"bootstrap(Init|Split|AllGather|Send|Recv|Ring|Create|Net|Root).*"),
    _native(CALL, "comm_init", r"nccl(Socket|Transport|Net|Ib|Topo|Bootstrap).*"),
    _native(CALL, "comm_init", r"c10d::NCCLComm::.*|c10d::ProcessGroupNCCL::(get|init)NCCLComm.*"),
    _native(CALL, "comm_init", r"gloo::rendezvous::.*|c10d::ProcessGroupGloo::ProcessGroupGloo"),
    Rule(CALL, "comm_init", r"_?new_(sub)?groups?\w*|split_group|_new_process_group_helper", _C10D),
    Rule(CALL, "comm_init", r"init_process_group", _C10D),
    Rule(CALL, "comm_init", r".*", r"torch/distributed/device_mesh\.py"),
    _native(CALL, "store_get", r"c10d::\w*Store::.*|c10d::(detail|tcputil)::.*"),
    _native(CALL, "store_get", r"c10d::ProcessGroupNCCL::broadcastUniqueNCCLID.*"),
    Rule(CALL, "store_get", r"_store_based_barrier", _C10D),
    Rule(CALL, "store_get", r".*", r"torch/distributed/(rendezvous\.py|elastic/rendezvous/.*)"),
    Rule(CALL, "store_get", r".*", r"torch/distributed/elastic/utils/store\.py"),
    _native(CALL, "cuda_sync", r"cuda(Stream|Event|Device|Ctx)?Synchronize|hip\w*Synchronize"),
    _native(CALL, "cuda_sync", r"cu(Stream|Event|Ctx)(Synchronize|WaitEvent).*"),
    _native(CALL, "cuda_sync", r"(cuda|cu|hip)(Mem|Malloc|Free|Host|Launch|ModuleLoad|Event).*"),
    _native(CALL, "cuda_sync", r"at::.*_local_scalar_dense.*|at::.*::(item|nonzero|is_nonzero)"),
    _native(CALL, "cuda_sync", r".*", r"lib(cuda|cudart|amdhip64|hsa-runtime64)[.\-].*"),
    Rule(CALL, "cuda_sync", r"synchronize|wait|empty_cache", r"torch/(cuda|xpu|npu)/.*"),
    Rule(CALL, "cuda_sync", r".*", r"torch/_tensor_str\.py"),
    _native(CALL, "collective_wait", r"c10d::.*|gloo::.*|nccl.*|hostStreamPlan\w*|ucc_.*"),
    _native(CALL, "collective_wait", r"P?MPI_\w+|ompi_.*|opal_progress|horovod::.*"),
    _native(CALL, "collective_wait", r".*", r"lib(nccl|rccl|hccl|mpi)[.\-_].*"),
    Rule(CALL, "collective_wait", _OPS, _C10D),
    Rule(CALL, "collective_wait", r"wait(_tensor)?|batch_isend_irecv|all_\w+|reduce_\w+", _C10D),
    Rule(CALL, "collective_wait", _OPS, r"deepspeed/comm/\w+\.py"),
    Rule(CALL, "collective_wait", r"synchronize|_?(allreduce|allgather|broadcast|join)\w*|poll",
         r"horovod/.*"),
    Rule(CALL, "collective_wait", r"_(verify_param|sync_module|sync_params)\w*",
         r"torch/distributed/utils\.py"),
    Rule(CALL, "collective_wait", r"wait_for_everyone", r"accelerate/.*"),
    Rule(CALL, "collective_wait", _BACKWARD, r"torch/autograd/.*"),
    Rule(CALL, "collective_wait", _ENTRY, r"torch/autograd/__init__\.py"),
    _native(CALL, "collective_wait", _ENGINE),
    Rule(CALL, "data_loading", r".*", r"torch/utils/data/(dataloader\.py|_utils/.*)"),
    Rule(CALL, "data_loading", r"_?_?(next|iter|fetch|get_batch|next_batch|chunk_iterator)_?_?\w*",
         r".*(data|datasets?|dataloaders?|input_pipeline)/[\w/]*(iterat|load|sampl|fetch|pipeline)\w*\.py"),
    Rule(CALL, "data_loading", r".*", r"(webdataset|streaming|ffcv|torchdata|nvidia/dali)/.*"),
    Rule(CALL, "lock", r"wait", r"torch/utils/file_baton\.py"),
    Rule(CALL, "lock", r".*", r"(filelock|portalocker|fasteners)/.*"),
    _native(CALL, "lock", r"flock|lockf|fcntl_(flock|lockf).*"),
    Rule(CALL, "compile", r".*", r"torch/utils/cpp_extension\.py"),
    Rule(CALL, "compile", r"compile\w*|_compile\w*|codegen\w*|_call_user_compiler",
         r"torch/(_inductor|_dynamo)/.*"),
    Rule(CALL, "compile", r".*", r"torch/_inductor/(async_compile|scheduler|graph)\.py"),
    Rule(CALL, "compile", r".*", r"triton/(compiler|backends)/.*|(numba|jax|torch_xla)/.*compil.*"),
    Rule(CALL, "compile", r".*compil\w*|from_hlo", r"jax/_src/(interpreters/\w+|pjit|api)\.py"),
    Rule(CALL, "compile", r"_bench|autotune|_do_compile|warmup", r"triton/runtime/.*"),
    Rule(CALL, "download", r".*", r"(huggingface_hub|modelscope)/.*|torch/hub\.py"),
    Rule(CALL, "download", r".*", r"(botocore|boto3|s3fs|gcsfs|aiobotocore)/.*"),
    Rule(CALL, "download", r"urlretrieve|\w*download\w*"),
    Rule(CALL, "file_write", r"_?(legacy_)?save|__exit__|write_\w+", r"torch/serialization\.py"),
    Rule(CALL, "file_write", r"_?(write|save|split_by_size)\w*|_serialize\w*",
         r"torch/distributed/checkpoint/filesystem\.py"),
    Rule(CALL, "file_write", r"serialize\w*|save_file|save", r"safetensors/.*"),
    Rule(CALL, "file_write", r".*", r"shutil\.py"),
    _native(CALL, "file_write", r"fsync|fdatasync|msync|syncfs|copy_file_range|ftruncate(64)?"),
    _native(CALL, "file_write", r"caffe2::serialize::PyTorchStreamWriter::.*|mz_zip_writer.*"),
    Rule(CALL, "file_read", r"_?(legacy_)?load\w*|persistent_load", r"torch/serialization\.py"),
    Rule(CALL, "file_read", r"read_\w+|load_\w+|_slice_file",
         r"torch/distributed/checkpoint/filesystem\.py"),
    Rule(CALL, "file_read", r"load_file|load|safe_open|get_tensor", r"safetensors/.*"),
    Rule(CALL, "file_read", r"exists|isfile|isdir|getsize|getmtime|glob\d?|_?i?glob\w*|walk|_walk",
         r"(genericpath|posixpath|glob|os|pathlib(/\w+)?)\.py|<frozen (genericpath|posixpath|os)>"),
    Rule(CALL, "file_read", r"get_data|_path_stat|_fill_cache|get_code|_path_is\w+",
         r"<frozen importlib._bootstrap_external>"),
    Rule(CALL, "file_read", r"load|open|_open", r"(PIL|pyarrow|h5py|numpy|cv2|decord|av)/.*"),
    _native(CALL, "file_read", r"nfs_.*|rpc_wait.*|cl_sync_io_wait|ll_\w+|fuse_.*|lustre_.*"),
    _native(CALL, "file_read", r".*", _FILE_SYSTEMS),
    _native(CALL, "file_read", r"[fl]?stat(x|at)?(64)?|open(at)?(64)?|getdents.*|readdir.*"),
    _native(CALL, "file_read", r"caffe2::serialize::PyTorchStreamReader::.*|mz_zip_reader.*"),
    Rule(CALL, "preprocessing", r"_?map\w*|filter|iflatmap\w*|_prepare_split\w*|shuffle|sort",
         r"datasets/(arrow_dataset|builder|dataset_dict|utils/py_utils)\.py"),
    # -- what comes from another thread, process or machine
    Rule(CHANNEL, "reply", r".*", r"(requests|urllib3|httpx|httpcore|aiohttp)/.*|ssl\.py"),
    Rule(CHANNEL, "reply", r".*", r"(urllib/request|http/client)\.py"),
    Rule(CHANNEL, "reply", r"readinto|create_connection|getaddrinfo|connect", r"socket\.py"),
    Rule(CHANNEL, "lock", r".*", r"subprocess\.py"),
    Rule(CHANNEL, "lock", r"wait|poll", r"multiprocess(ing)?/popen_\w+\.py"),
    Rule(CHANNEL, "lock", r".*", r"multiprocess(ing)?/(queues|pool|synchronize|managers)\.py"),
    Rule(CHANNEL, "lock", r"result|wait|as_completed", r"concurrent/futures/.*"),
    # -- what these channels are made of, where the program uses it itself
    Rule(PIPE, "message_wait", r"_?recv\w*", r"multiprocess(ing)?/connection\.py"),
    Rule(PIPE, "lock", r".*", r"multiprocess(ing)?/connection\.py"),
    # -- system calls
    _native(SYSTEM, "file_read", r"p?readv?(64)?2?|fread|new_file_read"),
    _native(SYSTEM, "file_read", r"io_schedule\w*|wait_on_page\w*|folio_wait\w*|jbd2_\w+|ext4_\w+"),
    _native(SYSTEM, "file_write", r"p?writev?(64)?2?|fwrite"),
    _native(SYSTEM, "sleep", r"(clock_)?nanosleep|u?sleep|time_sleep|pysleep"),
    # -- what the work is for
    Rule(CONTEXT, "file_write", r"save_pretrained|save_(model|state|checkpoint)|_save_checkpoint"),
    Rule(CONTEXT, "file_read", r"from_pretrained|load_(state_dict|checkpoint|model)"),
    Rule(CONTEXT, "file_read", r"_find_and_load.*", r"<frozen importlib._bootstrap>"),
    Rule(CONTEXT, "evaluation", r"evaluat\w+|prediction_(loop|step)|compute_metrics|_?validat\w+"),
    Rule(CONTEXT, "evaluation", r"generate\w*|_sample|_(greedy|beam|contrastive|assisted)\w*",
         r"(transformers/generation|trl|verl|vllm|sglang)/.*"),
    Rule(CONTEXT, "evaluation", r"execute_model|step|generate", r"(vllm|sglang)/.*"),
    Rule(CONTEXT, "preprocessing", r".*", r"(tokenizers|sentencepiece|tiktoken)/.*"),
    Rule(CONTEXT, "preprocessing", r".*", r"transformers/tokenization_\w+\.py"),
    # -- computing
    Rule(COMPUTE, "python", r".*", r"torch/optim/.*|torch/nn/utils/clip_grad\.py"),
    Rule(COMPUTE, "python", r".*", r"torch/nn/(modules|functional).*"),
    _native(COMPUTE, "python", r"at::(native|cpu)::.*|[sd]gemm.*|(mkl|dnnl|cblas).*"),
    # -- waiting for nobody knows what
    Rule(BARE, "lock", r"wait|acquire|join|_wait_for_tstate_lock|__enter__", r"threading\.py"),
    Rule(BARE, "lock", r"get|put|join", r"queue\.py"),
    _native(BARE, "lock", r"(do_)?futex.*|lll_lock_wait.*|pthread_(mutex|cond|rwlock|join)\w*"),
    _native(BARE, "lock", r"(new_)?sem_(timed)?wait.*|PyThread_acquire_lock\w*"),
)  # fmt: skip


# Processes that are no rank of their own: workers of one, compilers, launchers.
HELPERS: tuple[tuple[str, str], ...] = (
    (r"_worker_loop", r"torch/utils/data/_utils/worker\.py"),
    (r"worker", r"multiprocess(ing)?/pool\.py"),
    (r"_process_worker", r"concurrent/futures/process\.py"),
    (r"main|serve_one", r"multiprocess(ing)?/(resource_tracker|forkserver|semaphore_tracker)\.py"),
    (r".*", r"torch/_inductor/compile_worker/.*"),
    # not errors/, whose @record is around the main function of a rank
    (r".*", r"torch/distributed/(launcher|elastic/agent|elastic/multiprocessing(?!/errors))/.*"),
    (r".*", r"torch/distributed/debug/_frontend\.py"),
    (r".*", r"deepspeed/launcher/.*|accelerate/commands/.*"),
)


# Phases by functions of the user's own code, whose names would say nothing in a library.
OWN_PHASES: tuple[tuple[str, str], ...] = (
    ("checkpoint", r"_?(save|checkpoint)"),
    (
        "preprocessing",
        r"_?(prepare(_\w*data\w*|_\w*dataset\w*)?|map_(batch|dataset|examples?)|encode_(batch|dataset))",
    ),
)


# Phases by precedence: a frame of an earlier row anywhere in the stack wins.
PHASES: tuple[tuple[str, str, str], ...] = (
    ("shutdown", r"destroy_process_group|_exit_function|_run_exitfuncs|_shutdown", r".*"),
    (
        "checkpoint",
        r"_?save_(checkpoint|model|state|pretrained|state_dict|to_checkpoint)\w*",
        r".*",
    ),
    ("checkpoint", r"_?(legacy_)?save", r"torch/(serialization|distributed/checkpoint/.*)\.py"),
    ("checkpoint", r"_?save\w*|\w*async_call\w*", r"(?:megatron/)?core/dist_checkpointing/.*\.py"),
    ("evaluation", r"_?evaluat\w+|prediction_(loop|step)|compute_metrics|_?validat\w+", r".*"),
    ("inference", r"generate\w*|execute_model|rollout\w*", r".*"),
    ("preprocessing", r".*", r"datasets/(arrow_dataset|builder|dataset_dict)\.py"),
    ("preprocessing", r"preprocess\w*|prepare_datasets?|tokenize\w*", r".*"),
    ("model_load", r"_?load_(checkpoint|state_dict|model|pretrained)\w*|from_pretrained", r".*"),
    ("init", r"init_process_group|_store_based_barrier|init_device_mesh|initialize_\w+", r".*"),
    ("init", r"__init__", r"torch/nn/parallel/distributed\.py|torch/distributed/fsdp/.*"),
    ("training", rf"{_BACKWARD}|backward|train\w*|_?training_\w+|_inner_training_loop", r".*"),
    ("training", r"optimizer_step|forward_backward\w*", r".*"),
    ("training", r"step", r"torch/optim/.*"),
)
