"""Frightening lines of jobs that are well: caught errors, retries, warnings, noise of libraries.

Each text is in the form of the program that prints it; `{…}` are facts of the job. None of them
says that the job, a rank or its work ended: whoever knows the program goes on reading.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.hangbench.words.programs import Family


@dataclass(frozen=True, slots=True)
class Harmless:
    """One frightening text.

    kind: what figures are sliced by. texts: printed a few seconds apart, the later ones tell that
    it went well. logged: by the program's own logger. families: programs in which it can appear;
    empty: any. outside: a launcher or a host prints it.
    """

    kind: str
    texts: tuple[str, ...]
    logged: bool = False
    families: tuple[Family, ...] = ()
    outside: bool = False


RULE = "-" * 74
TORCH: tuple[Family, ...] = ("torch", "ray")
ANY: tuple[Family, ...] = ()
LEARNING: tuple[Family, ...] = ("torch", "ray", "jax", "keras")


def _log(kind: str, *texts: str, families: tuple[Family, ...] = LEARNING) -> Harmless:
    return Harmless(kind, texts, logged=True, families=families)


def _raw(kind: str, *texts: str, families: tuple[Family, ...] = TORCH) -> Harmless:
    return Harmless(kind, texts, families=families)


def _host(kind: str, text: str) -> Harmless:
    return Harmless(kind, (text,), outside=True)


HARMLESS: tuple[Harmless, ...] = (
    # ------------------------------------------------ signal handlers that are installed
    _log("signal handler", "installed handlers for SIGTERM, SIGUSR1 (checkpoint on "
         "preemption)", families=ANY),
    _log("signal handler", "SIGTERM handler registered; a checkpoint is saved if the job is "
         "preempted"),
    _raw("signal handler", "SLURM auto-requeueing enabled. Setting signal handlers."),
    _log("signal handler", "faulthandler enabled, a segmentation fault will print the stacks of "
         "all threads"),
    # ------------------------------------------------ ports
    _raw("port", "WARNING: Port 6006 is in use, TensorBoard uses 6007 (Address already in use)"),
    _log("port", "port {port} is already in use, trying {port2}", "metrics server listens on "
         "{port2}", families=ANY),
    _raw("port", "OSError: [Errno 98] Address already in use (prometheus exporter, port {port}); "
         "the exporter is off on this process"),
    # ------------------------------------------------ errors that the program caught
    _log("caught", "test: caught expected KeyError: 'foo'"),
    _log("caught", "skipped a damaged sample ({number} so far): PIL.UnidentifiedImageError: cannot "
         "identify image file '{folder}/data/{number}.jpg'"),
    _log("caught", "failed to decode {folder}/data/{number}.mp4 (RuntimeError: Invalid data found "
         "when processing input), using another sample instead"),
    _log("caught", "ValueError in sample {number}: token sequence is empty; sample dropped"),
    _log("caught", "could not read the cached index (FileNotFoundError: [Errno 2] No such file or "
         "directory: '{folder}/cache/index.npy'), building it", "index built"),
    _log("caught", "cache is unreadable: EOFError: Ran out of input; rebuilding", "cache rebuilt"),
    _log("caught", "UnicodeDecodeError in document {number}, replaced invalid bytes"),
    _log("caught", "ignoring exception in the callback that plots: ModuleNotFoundError: No module "
         "named 'matplotlib'"),
    _log("caught", "Traceback of the sample that was skipped (training goes on):\n"
         "Traceback (most recent call last):\n  File \"{folder}/data.py\", line 71, in "
         "__getitem__\n    return self.transform(image)\n  File \"{folder}/data.py\", line 40, in "
         "transform\n    return image.resize(size)\nOSError: image file is truncated (12 bytes not "
         "processed)"),
    # ------------------------------------------------ retries
    _log("retry", "read of shard {number} failed: ConnectionResetError: [Errno 104] Connection "
         "reset by peer; retrying in 2 s (1/5)", "shard {number} read at the second attempt"),
    _log("retry", "TimeoutError: upload of metrics timed out, attempt 1 of 3", "upload succeeded "
         "at attempt 2"),
    _raw("retry", "WARNING:urllib3.connectionpool:Retrying (Retry(total=4, connect=None, "
         "read=None, "
         "redirect=None, status=None)) after connection broken by 'RemoteDisconnected('Remote end "
         "closed connection without response')': /v1/{data}/{number}.tar"),
    _raw("retry", "botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint "
         "URL: \"https://data.s3.amazonaws.com/{number}.tar\" - retry 1 of 10",
         "read {number}.tar after 1 retry"),
    _log("retry", "NFS returned ESTALE for {folder}/data/{number}.bin, reopened the "
         "file", families=ANY),
    _log("retry", "RuntimeError while saving step {step}: [Errno 11] Resource temporarily "
         "unavailable; trying again", "checkpoint of step {step} saved"),
    # ------------------------------------------------ the hub
    _raw("hub", "'HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out. (read "
         "timeout=10)' thrown while requesting HEAD https://huggingface.co/{model}/resolve/main/"
         "config.json\nRetrying in 1s [Retry 1/5]."),
    _raw("hub", "Error while downloading from https://cdn-lfs.huggingface.co/repos/{number}: "
         "HTTPSConnectionPool(host='cdn-lfs.huggingface.co', port=443): Read timed out.\nTrying to "
         "resume download..."),
    _raw("hub", "Couldn't connect to the Hub: 504 Server Error: Gateway Time-out for url: "
         "https://huggingface.co/api/datasets/{data}.\nWill try to load from local cache."),
    # ------------------------------------------------ wandb and other trackers
    _raw("wandb", "wandb: Network error (ReadTimeout), entering retry loop."),
    _raw("wandb", "wandb: Network error (ConnectionError), entering retry loop.",
         "wandb: Network error resolved after 0:00:41.{number}, resuming normal operation."),
    _raw("wandb", "wandb: 429 encountered (Filestream rate limit exceeded, retrying in 2.3 "
         "seconds.), retrying request"),
    _raw("wandb", "wandb: ERROR Error while calling W&B API: context deadline exceeded (<Response "
         "[500]>)", "wandb: Network error resolved after 0:00:12.{number}, resuming normal "
         "operation."),
    _raw("mlflow", "WARNING mlflow.utils.rest_utils: API request to /api/2.0/mlflow/runs/log-batch "
         "failed with exception HTTPConnectionPool: Max retries exceeded; metrics of this step "
         "are dropped"),
    _log("tracker", "could not send metrics to http://pushgateway:9091: ConnectionRefusedError: "
         "[Errno 111] Connection refused (ignored)", families=ANY),
    # ------------------------------------------------ memory that was enough in the end
    _log("OOM caught", "CUDA out of memory with batch size {batch}, auto_find_batch_size: "
         "decreasing batch size to {half}.", families=TORCH),
    _log("OOM caught", "torch.OutOfMemoryError caught while probing batch size {batch}; falling "
         "back to {half}", families=TORCH),
    _raw("OOM caught", "Batch size {batch} failed, trying batch size {half}"),
    _log("OOM caught", "estimate: batch size {batch} would run out of memory (needs 91.2 GiB), "
         "using {half}"),
    _raw("allocator", "2 pytorch allocator cache flushes since last step. this happens when there "
         "is high memory pressure and is detrimental to performance. if this is happening "
         "frequently consider adjusting settings to reduce memory consumption."),
    _raw("allocator", "W tensorflow/core/common_runtime/bfc_allocator.cc:296] Allocator "
         "(GPU_0_bfc) "
         "ran out of memory trying to allocate 2.29GiB with freed_by_count=0. The caller indicates "
         "that this is not a failure, but this may mean that there could be performance gains if "
         "more memory were available.", families=("keras",)),
    _raw("XLA", "W external/xla/xla/hlo/transforms/simplifiers/hlo_rematerialization.cc:3020] "
         "Can't "
         "reduce memory use below 17.63GiB (18927837184 bytes) by rematerialization; only reduced "
         "to 30.02GiB", families=("jax",)),
    _raw("XLA", "E external/xla/xla/stream_executor/cuda/cuda_fft.cc:485] Unable to register cuFFT "
         "factory: Attempting to register factory for plugin cuFFT when one has already been "
         "registered", families=("jax", "keras")),
    # ------------------------------------------------ kernels that are missing or too large
    _raw("triton", "triton.runtime.errors.OutOfResources: out of resource: shared memory, "
         "Required: 180224, Hardware limit: 101376. Reducing block sizes or `num_stages` may help. "
         "(autotuning: configuration skipped)"),
    _raw("triton", "AUTOTUNE mm(4096x4096, 4096x11008)\n  triton_mm_12 0.2140 ms 100.0%\n  "
         "triton_mm_9 0.2212 ms 96.7%\nRuntime error during autotuning: \nNo valid triton configs. "
         "OutOfResources: out of resource: shared memory. \nIgnoring this choice."),
    _raw("missing kernel", "flash_attn not found (ImportError: No module named 'flash_attn'), "
         "using sdpa"),
    _raw("missing kernel", "bitsandbytes was compiled without GPU support. 8-bit optimizers, 8-bit "
         "multiplication, and GPU quantization are unavailable."),
    _raw("missing kernel", "FusedLayerNorm not available (apex is missing), falling back to "
         "torch.nn.LayerNorm"),
    _raw("missing kernel", "xFormers can't load C++/CUDA extensions. xFormers was built for: "
         "PyTorch 2.4.1 with CUDA 1201 (you have 2.6.0)\n    Memory-efficient attention won't be "
         "available."),
    _raw("compile", "[rank{rank}]:W{md} {hms}.{number}000 {pid} "
         "torch/_dynamo/convert_frame.py:906] [2/8] torch._dynamo hit config.recompile_limit (8)"),
    _raw("compile", "W{md} {hms}.{number}000 {pid} torch/_inductor/utils.py:1137] [0/0] Not enough "
         "SMs to use max_autotune_gemm mode"),
    _raw("compile", "torch._dynamo WARNING: graph break from `Tensor.item()`, consider setting "
         "torch._dynamo.config.capture_scalar_outputs = True; falling back to eager"),
    # ------------------------------------------------ loaders
    _raw("loader", "/usr/local/lib/python3.11/site-packages/torch/utils/data/dataloader.py:557: "
         "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max "
         "number of worker in current system is 8, which is smaller than what this DataLoader is "
         "going to create. Please be aware that excessive worker creation might get DataLoader "
         "running slow or even freeze, lower the worker number to avoid potential "
         "slowness/freeze if necessary."),
    _raw("loader", "huggingface/tokenizers: The current process just got forked, after parallelism "
         "has already been used. Disabling parallelism to avoid deadlocks..."),
    _log("loader", "worker 3 of the loader was restarted after it died (exit code 1); no sample "
         "was lost"),
    _raw("loader", "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at "
         "0x7f2c{number}5e0>\nTraceback (most recent call last):\n  File "
         "\"/usr/local/lib/python3.11/"
         "site-packages/torch/utils/data/dataloader.py\", line 1604, in __del__\n    self."
         "_shutdown_workers()\nAssertionError: can only test a child process"),
    # ------------------------------------------------ NCCL and torch.distributed
    _raw("NCCL", "{host}:{pid}:{pid} [{local}] NCCL INFO NET/Plugin: Could not find: "
         "libnccl-net.so. Using internal network plugin."),
    _raw("NCCL", "{host}:{pid}:{pid} [{local}] NCCL INFO Failed to open libibverbs.so[.1]\n"
         "{host}:{pid}:{pid} [{local}] NCCL INFO NET/Socket : Using [0]eth0:10.1.4.{local}<0>"),
    _raw("NCCL", "\n{host}:{pid}:{pid} [{local}] /tmp/rccl/src/init.cc:1934 NCCL WARN Missing "
         "\"iommu=pt\" from kernel command line which can lead to system instablity or hang!"),
    _raw("NCCL", "{host}:{pid}:{pid} [{local}] NCCL INFO Could not enable P2P between dev "
         "1(=1b000) and dev 0(=1a000)"),
    _raw("NCCL", "[rank{rank}]:[W{md} {hms}.{number}318538 ProcessGroupNCCL.cpp:4561] [PG ID 0 PG "
         "GUID 0 Rank {rank}]  using GPU {local} to perform barrier as devices used by this "
         "process "
         "are currently unknown. This can potentially cause a hang if this rank to GPU mapping is "
         "incorrect. Specify device_ids in barrier() to force use of a particular device, or call "
         "init_process_group() with a device_id."),
    _raw("socket", "[W{md} {hms}.{number}614701 socket.cpp:204] [c10d] The hostname of the client "
         "socket cannot be retrieved. err=-3"),
    _raw("socket", "[W{md} {hms}.{number}614701 socket.cpp:755] [c10d] The IPv6 network addresses "
         "of ({host}, {port}) cannot be retrieved (gai error: -2 - Name or service not known)."),
    _raw("DDP", "[rank{rank}]:[W{md} {hms}.{number}069865 reducer.cpp:1400] Warning: "
         "find_unused_parameters=True was specified in DDP constructor, but did not find any "
         "unused "
         "parameters in the forward pass. This flag results in an extra traversal of the autograd "
         "graph every iteration, which can adversely affect performance. (function operator())"),
    _raw("DDP", "/usr/local/lib/python3.11/site-packages/torch/autograd/graph.py:824: UserWarning: "
         "c10d::broadcast_: an autograd kernel was not registered to the Autograd key(s) but we "
         "are trying to backprop through it. This may lead to silently incorrect behavior."),
    # ------------------------------------------------ numbers that overflowed
    _raw("overflow", "[deepspeed] OVERFLOW! Rank {rank} Skipping step. Attempted loss scale: "
         "65536, reducing to 32768"),
    _raw("overflow", "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to "
         "16384.0"),
    _log("overflow", "grad norm is inf, update skipped (1 in a row)"),
    _log("overflow", "loss is nan in micro batch 3 of step {step}, micro batch dropped"),
    # ------------------------------------------------ machines and other processes
    _host("Xid of another", "[{kernel}] NVRM: Xid (PCI:0000:3b:00): 13, pid={other}, "
          "name=jupyter-lab, Graphics SM Warp Exception on (GPC 1, TPC 0, SM 1): Out Of Range "
          "Address"),
    _host("Xid of another", "[{kernel}] NVRM: Xid (PCI:0000:af:00): 43, pid={other}, "
          "name=blender, Ch 00000008"),
    _host("killed another", "[{kernel}] Memory cgroup out of memory: Killed process {other} "
          "(jupyter-noteboo) total-vm:{number}0912kB, anon-rss:{number}0112kB, file-rss:0kB, "
          "shmem-rss:0kB, UID:1007 pgtables:1208kB oom_score_adj:0"),
    _host("segfault of another", "[{kernel}] nautilus[{other}]: segfault at 18 ip 00007f31c0a2 sp "
          "00007ffe21 error 4 in libgtk-3.so.0"),
    _host("corrected", "[{kernel}] EDAC MC0: 1 CE memory read error on "
         "CPU_SrcID#0_MC#0_Chan#1_DIMM#0 "
          "(channel:1 slot:0 page:0x{number}12 offset:0x0 grain:32 syndrome:0x0)"),
    _host("corrected", "[{kernel}] pcieport 0000:00:01.0: AER: Corrected error received: "
         "0000:3b:00.0"),
    _host("storage", "[{kernel}] nfs: server filer{number} not responding, still "
         "trying\n[{kernel2}] nfs: server filer{number} OK"),
    # ------------------------------------------------ texts that the job works on
    _log("data text", "sample: user: my job says \"RuntimeError: CUDA error: device-side assert "
         "triggered\", what do I do? assistant: set CUDA_LAUNCH_BLOCKING=1 and look at the labels"),
    _log("data text", "prompt: 'Explain why a program prints Segmentation fault (core dumped).'"),
    _log("data text", "decoded batch 0: 'Traceback (most recent call last): means that Python "
         "shows where the exception came from'"),
    _log("data text", "generated: \"The watchdog caught collective operation timeout because rank "
         "3 never joined.\""),
    _log("generated code", "candidate {number}: ZeroDivisionError: division by zero (reward 0.0)"),
    _log("generated code", "2 problems failed: TimeoutError in candidate 7, AssertionError in "
         "candidate 12; pass@1 0.61"),
    _log("generated code", "sandbox: process of sample {number} was killed (SIGKILL, memory limit "
         "512 MB), reward 0.0"),
    # ------------------------------------------------ words of counters and settings
    _log("counter", "health: errors=0 failed=0 timeouts=0 nccl_errors=0 restarts=0", families=ANY),
    _log("counter", "data report: 0 corrupt, 0 missing, {number} duplicates, error rate 0.00%"),
    _log("counter", "failed_steps: 0, skipped_steps: 2, hang_detected: False"),
    _log("setting", "error_handling=abort_on_exception timeout_s=1800 on_oom=kill "
         "retries=3", families=ANY),
    _log("setting", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1 NCCL_TIMEOUT=1800000 "
         "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=600", families=TORCH),
    _log("setting", "watchdog armed: the process is killed when no step ends within 1800 s"),
    # ------------------------------------------------ deprecations and other warnings
    _raw("deprecation", "FutureWarning: torch.cuda.amp.autocast(args...) is deprecated. Please use "
         "`torch.amp.autocast('cuda', args...)` instead. This will raise an error in a future "
         "release."),
    _raw("deprecation", "/usr/local/lib/python3.11/site-packages/torch/distributed/"
         "distributed_c10d.py:2829: FutureWarning: `torch.distributed._all_gather_base` is a "
         "private function and will be deprecated; it will raise an error"),
    _raw("tokens", "Token indices sequence length is longer than the specified maximum sequence "
         "length for this model ({number}4 > 1024). Running this sequence through the model will "
         "result in indexing errors"),
    _raw("weights", "Some weights of the model checkpoint at {model} were not used, and some "
         "weights "
         "were not initialized: ['lm_head.weight']\nYou should probably TRAIN this model on a "
         "down-stream task to be able to use it for predictions and inference."),
    _log("weights", "missing keys: 0, unexpected keys: 2 ['optimizer', 'error_feedback'] "
         "(ignored)"),
    # ------------------------------------------------ checkpoints
    _log("checkpoint", "no checkpoint in {folder}/out (FileNotFoundError), starting from scratch"),
    _log("checkpoint", "checkpoint step_{step} is incomplete (still being written), the evaluator "
         "took the one before"),
    _log("checkpoint", "could not delete {folder}/out/step_{step}: [Errno 39] Directory not empty; "
         "will be deleted later"),
    # ------------------------------------------------ stragglers, slow steps
    _log("slow", "straggler report: rank {rank} 1.04x slower than the median, no action"),
    _log("slow", "step {step} took 3.1x the usual time (storage timeout, recovered)"),
    # ------------------------------------------------ Ray and launchers
    _raw("ray", "(raylet) [{ymd} {hms},{number} E {pid} {pid}] (raylet) "
         "file_system_monitor.cc:116: "
         "/tmp/ray/session_{number} is over 95% full, available space: 41.2 GB; capacity: 879 GB. "
         "Object creation will fail if spilling is required.", families=("ray",)),
    _raw("ray", "(raylet) Spilled 2048 MiB, 10 objects, write throughput 512 MiB/s. Set "
         "RAY_verbose_spill_logs=0 to disable this message.", families=("ray",)),
    _raw("MPI", RULE + "\nWARNING: "
         "There was an error initializing an OpenFabrics device.\n\n  Local host:   {host}\n  "
         "Local device: mlx5_0\n" + RULE,
         families=("mpi",)),
    _raw("MPI", "[{host}:{pid}] 31 more processes have sent help message help-mpi-btl-openib.txt / "
         "error in device init", families=("mpi",)),
    _raw("MPI", "--------------------------------------------------------------------------\nA "
         "process "
         "has executed an operation involving a call to the\n\"fork()\" system call to create a "
         "child "
         "process.  Open MPI is currently\noperating in a condition that could result in memory "
         "corruption or\nother system errors; your job may hang, crash, or produce silent\ndata "
         "corruption.\n" + RULE,
         families=("mpi",)),
)  # fmt: skip
