"""Texts of the death of one rank: what the rank, its launcher or its host's kernel prints."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Literal

from benchmarks.hangbench.words.endings import SITE, agent_line, excepthook
from benchmarks.hangbench.words.job import Job
from benchmarks.hangbench.words.layouts import Layout, container, pod, ray_ip
from benchmarks.hangbench.words.programs import Family, Program

# How the death is told:
#   signed     the traceback of torch's excepthook, each line with the rank: nobody caught it
#   traceback  Python's own, from the outermost frame on
#   logged     a line of the program's logger, then the traceback
#   json       the same in one JSON object
#   bare       the exception's last line alone
#   native     a signal or an abort, told by the process or its shell
#   launcher   an exit that only the launcher tells
#   kernel     a line of the OOM killer or of the kernel's fault handler
Form = Literal["signed", "traceback", "logged", "json", "bare", "native", "launcher", "kernel"]


@dataclass(frozen=True, slots=True)
class Fatal:
    """One death.

    words: what figures are sliced by. classes: those that name it, empty where the text does not
    decide. outside: a launcher or the kernel prints it. names_rank: the text holds the global rank.
    code: exit status, a signal is negative.
    """

    form: Form
    words: str
    text: str
    classes: tuple[str, ...]
    outside: bool = False
    names_rank: bool = False
    code: int = 1

    @property
    def proves(self) -> bool:
        """Whether the text itself shows that the process ended."""
        return self.form in ("signed", "logged", "json", "launcher")


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception.

    source: the line of the user's program that raised it. below: the frame under it, if a library
    raised it. families: programs in which it can happen; empty: any.
    """

    words: str
    text: str
    classes: tuple[str, ...]
    source: str
    below: tuple[str, int, str, str] | None = None
    families: tuple[Family, ...] = ()


ALL: tuple[Family, ...] = ("torch", "jax", "keras", "mpi", "ray")
CODE = ("crash.exception",)
GPU_OOM = ("crash.gpu_oom",)
CUDA = ("crash.cuda_error",)
NATIVE = ("crash.native",)
KILLED = ("crash.killed", "crash.host_oom")
CUDA_HINT = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
LINEAR = (f"{SITE}/torch/nn/modules/linear.py", 125, "forward",
          "return F.linear(input, self.weight, self.bias)")  # fmt: skip
CALL = (f"{SITE}/torch/nn/modules/module.py", 1553, "_call_impl",
        "return forward_call(*args, **kwargs)")  # fmt: skip
LOADER = (f"{SITE}/torch/utils/data/dataloader.py", 1251, "_try_get_data",
          "raise RuntimeError(f'DataLoader worker (pid(s) {pids_str}) exited "
          "unexpectedly')")  # fmt: skip

RAISED: tuple[Raised, ...] = (
    Raised("KeyError", "KeyError: 'labels'", CODE, "targets = batch['labels']"),
    Raised("KeyError number", "KeyError: {number}", CODE, "name = id_to_name[index]"),
    Raised("ValueError", "ValueError: expected 2 columns in {folder}/data/part-{number}.csv, got 3",
           CODE, "rows = parse(path)"),
    Raised("IndexError", "IndexError: list index out of range", CODE, "sample = samples[cursor]"),
    Raised("TypeError", "TypeError: unsupported operand type(s) for +: 'NoneType' and 'float'",
           CODE, "total = total + metrics.get('loss')"),
    Raised("AttributeError", "AttributeError: 'NoneType' object has no attribute 'shape'", CODE,
           "height, width = image.shape[-2:]"),
    Raised("ZeroDivisionError", "ZeroDivisionError: division by zero", CODE,
           "accuracy = correct / seen"),
    Raised("AssertionError", "AssertionError: loss is nan at step {step}", ("numeric.nan", *CODE),
           "assert not math.isnan(value), f'loss is nan at step {{step}}'"),
    Raised("StopIteration", "StopIteration", CODE, "batch = next(batches)"),
    Raised("size", "RuntimeError: The size of tensor a (512) must match the size of tensor b "
           "({number}) at non-singleton dimension 1", CODE, "hidden = hidden + self.positions",
           families=("torch", "ray")),
    Raised("device", "RuntimeError: Expected all tensors to be on the same device, but found at "
           "least two devices, cuda:{local} and cpu!", CODE, "loss = criterion(output, target)",
           families=("torch", "ray")),
    Raised("unicode", "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x8b in position 1: "
           "invalid start byte", CODE, "text = raw.decode('utf-8')"),
    Raised("json", "json.decoder.JSONDecodeError: Expecting value: line {number} column 1 (char "
           "{number})", CODE, "record = json.loads(line)"),
    Raised("image", "PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at "
           "0x7f3a5c0e{number}>", CODE, "image = Image.open(buffer)"),
    Raised("own error", "shardio.errors.ShardMismatch: shard {number} holds 4095 samples, index "
           "says 4096", CODE, "batch = reader.read(shard)"),
    Raised("own bare error", "DatasetExhausted", CODE, "raise DatasetExhausted"),
    Raised("missing file", "FileNotFoundError: [Errno 2] No such file or directory: "
           "'{folder}/data/shard-{number}.tar'", (), "handle = open(path, 'rb')"),
    Raised("permission", "PermissionError: [Errno 13] Permission denied: "
           "'{folder}/cache/index-{number}.npy'", (), "index = numpy.load(path)"),
    Raised("disk full", "OSError: [Errno 28] No space left on device", (), "handle.write(block)"),
    Raised("input/output", "OSError: [Errno 5] Input/output error", (), "block = "
         "handle.read(size)"),
    Raised("http", "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: "
           "https://data.example.com/{data}/{number}.parquet", (), "response.raise_for_status()"),
    Raised("memory", "MemoryError", ("crash.host_oom", "crash.exception"),
           "buffer = bytearray(size)"),
    Raised("numpy memory", "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 93.1 GiB "
           "for an array with shape (12500000, 1000) and data type float64",
           ("crash.host_oom", "crash.exception"), "table = numpy.zeros(shape)"),
    Raised("OOM", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU "
           "{local} has a total capacity of 79.15 GiB of which 1.20 GiB is free. Including "
           "non-PyTorch memory, this process has 77.94 GiB memory in use. Of the allocated memory "
           "74.31 GiB is allocated by PyTorch, and 2.35 GiB is reserved by PyTorch but "
           "unallocated.", GPU_OOM, "output = model(batch)", LINEAR, ("torch", "ray")),
    Raised("OOM of torch 2.1", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate "
           "512.00 MiB (GPU {local}; 39.39 GiB total capacity; 36.81 GiB already allocated; 210.56 "
           "MiB free; 38.11 GiB reserved in total by PyTorch)", GPU_OOM, "loss.backward()", CALL,
           ("torch", "ray")),
    Raised("OOM of XLA", "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory "
           "while trying to allocate 8589934592 bytes.", GPU_OOM,
           "state, metrics = train_step(state, batch)", families=("jax",)),
    Raised("OOM of TF", "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{{{"
           "function_node __wrapped__Conv2D_device_/job:localhost/replica:0/task:0/device:GPU:0}}}}"
           " OOM when allocating tensor with shape[256,512,28,28]", GPU_OOM,
           "model.fit(dataset, epochs=epochs, verbose=2)", families=("keras",)),
    Raised("assert on device", "RuntimeError: CUDA error: device-side assert triggered" + CUDA_HINT,
           CUDA, "loss = model(batch).loss", CALL, ("torch", "ray")),
    Raised("illegal access", "RuntimeError: CUDA error: an illegal memory access was encountered"
           + CUDA_HINT, CUDA, "value = loss.item()", None, ("torch", "ray")),
    Raised("launch failure", "RuntimeError: CUDA error: unspecified launch failure" + CUDA_HINT,
           CUDA, "torch.cuda.synchronize()", None, ("torch", "ray")),
    Raised("cuBLAS", "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling "
           "`cublasGemmEx( handle, opa, opb, m, n, k, &falpha, a, CUDA_R_16BF, lda, b, "
           "CUDA_R_16BF, "
           "ldb, &fbeta, c, CUDA_R_16BF, ldc, compute_type, CUBLAS_GEMM_DEFAULT_TENSOR_OP)`", CUDA,
           "output = model(batch)", LINEAR, ("torch", "ray")),
    Raised("cuDNN", "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", CUDA,
           "loss.backward()", CALL, ("torch", "ray")),
    Raised("ECC", "RuntimeError: CUDA error: uncorrectable ECC error encountered" + CUDA_HINT,
           ("hw.gpu",), "value = loss.item()", None, ("torch", "ray")),
    Raised("worker killed", "RuntimeError: DataLoader worker (pid {pid}) is killed by signal: "
           "Killed. ", ("data.loader", "crash.host_oom", "crash.killed"), "batch = next(batches)",
           LOADER, ("torch", "ray")),
    Raised("worker exited", "RuntimeError: DataLoader worker (pid(s) {pid}) exited unexpectedly",
           ("data.loader", "crash.host_oom", "crash.killed"), "batch = next(batches)", LOADER,
           ("torch", "ray")),
    Raised("worker shm", "RuntimeError: DataLoader worker (pid {pid}) is killed by signal: Bus "
           "error. It is possible that dataloader's workers are out of shared memory. Please try "
           "to raise your shared memory limit.", ("net.shm", "data.loader", "crash.native"),
           "batch = next(batches)", LOADER, ("torch", "ray")),
    Raised("worker raised", "KeyError: Caught KeyError in DataLoader worker process 2.",
           ("crash.exception", "data.loader"), "batch = next(batches)",
           (f"{SITE}/torch/_utils.py", 733, "reraise", "raise exception"), ("torch", "ray")),
    Raised("checkpoint", "safetensors_rust.SafetensorError: Error while deserializing header: "
           "MetadataIncompleteBuffer", ("checkpoint.corrupt", "checkpoint.partial",
           "crash.exception"), "weights = load_file(path)", None, ("torch", "ray")),
    Raised("mpi4py", "mpi4py.MPI.Exception: MPI_ERR_TRUNCATE: message truncated", (),
           "comm.Recv(halo, source=left)", families=("mpi",)),
)  # fmt: skip

# What a process or its shell prints of a fatal signal.
DIED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("segfault", "Segmentation fault (core dumped)", NATIVE),
    ("faulthandler", "Fatal Python error: Segmentation fault\n\nCurrent thread "
     "0x00007f0c{number}700 "
     "(most recent call first):\n  File \"{folder}/{script}\", line 140 in train\n  File "
     "\"{folder}/{script}\", line 190 in main\n  File \"{folder}/{script}\", line 203 in <module>",
     NATIVE),
    ("faulthandler bus", "Fatal Python error: Bus error\n\nThread 0x00007f0c{number}700 (most "
     "recent call first):\n  File \"{folder}/data.py\", line 88 in __getitem__",
     ("crash.native", "net.shm")),
    ("bus error", "Bus error (core dumped)", ("crash.native", "net.shm")),
    ("double free", "double free or corruption (!prev)\nAborted (core dumped)", NATIVE),
    ("corrupted size", "corrupted size vs. prev_size", NATIVE),
    ("invalid pointer", "free(): invalid pointer", NATIVE),
    ("munmap", "munmap_chunk(): invalid pointer\nAborted (core dumped)", NATIVE),
    ("stack smashing", "*** stack smashing detected ***: terminated", NATIVE),
    ("floating point", "Floating point exception (core dumped)", NATIVE),
    ("illegal instruction", "Illegal instruction (core dumped)", ("crash.native", "env.version")),
    ("terminate", "terminate called after throwing an instance of 'std::out_of_range'\n  what():  "
     "vector::_M_range_check: __n (which is {number}) >= this->size() (which is 512)", NATIVE),
    ("bad alloc", "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  "
     "std::bad_alloc", ("crash.native", "crash.host_oom")),
    ("c10 error", "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA "
     "error: an illegal memory access was encountered", ("crash.cuda_error", "crash.native")),
    ("killed", "Killed", KILLED),
    ("shell killed", "{folder}/run.sh: line 14: {pid} Killed                  python {script}",
     KILLED),
    ("shell segfault", "{folder}/run.sh: line 14: {pid} Segmentation fault      (core dumped) "
     "python {script}", NATIVE),
    ("FATAL", "FATAL: cannot allocate optimizer state", ()),
    ("CRITICAL", "CRITICAL: unrecoverable error in the data pipeline, exiting with status 3", ()),
)  # fmt: skip

# Those that a program of a family cannot print.
NOT_OF: dict[Family, tuple[str, ...]] = {
    "jax": ("c10 error",),
    "keras": ("c10 error",),
    "mpi": ("c10 error", "FATAL", "CRITICAL"),
}
# Words of a launcher, `{how}` after the signal or status that the rank ended by.
EXITS: tuple[tuple[str, int, str, tuple[str, ...]], ...] = (
    ("status 1", 1, "Exited with exit code 1", ()),
    ("SIGSEGV", -11, "Segmentation fault (core dumped)", NATIVE),
    ("SIGKILL", -9, "Killed", KILLED),
    ("SIGBUS", -7, "Bus error (core dumped)", ("crash.native", "net.shm")),
    ("SIGABRT", -6, "Aborted (core dumped)", NATIVE),
)
# What a program logs before the traceback of the exception that ends it.
LAST_WORDS = (
    "unhandled exception, exiting",
    "fatal error in the training loop, aborting",
    "training failed, shutting this process down",
    "uncaught exception in main()",
)
SIGNALS = {-11: "Segmentation fault", -9: "Killed", -7: "Bus error", -6: "Aborted"}
SIGNAL_NAMES = {
    -11: "SIGSEGV",
    -9: "SIGKILL",
    -7: "SIGBUS",
    -6: "SIGABRT",
    -8: "SIGFPE",
    -4: "SIGILL",
}


def draw(
    job: Job,
    layout: Layout,
    program: Program,
    rank: int,
    at: float,
    step: int,
    *,
    uncaught: bool,
) -> Fatal:
    """A death of `rank` at `at` seconds, in a form that this layout and program can have.

    uncaught: only Python's traceback of an exception that nobody caught.
    """
    rng = job.rng
    form = rng.choice(_forms(layout, program, uncaught=uncaught))
    if form == "logged" and program.name.startswith("json"):
        form = "json"
    facts = _facts(job, rank, step)
    if form == "native":
        strange = NOT_OF.get(program.family, ())
        words, text, classes = rng.choice([one for one in DIED if one[0] not in strange])
        return Fatal(form, words, text.format(**facts), classes, code=_status(words, text))
    if form == "launcher":
        return _by_launcher(rng, job, layout, rank, at)
    if form == "kernel":
        return _by_kernel(rng, job, layout, rank, at)
    raised = rng.choice([one for one in RAISED if program.family in (one.families or ALL)])
    text = raised_text(job, program, raised, form, rank, at, facts)
    return Fatal(form, raised.words, text, raised.classes, names_rank=form == "signed")


def _forms(layout: Layout, program: Program, *, uncaught: bool) -> list[Form]:
    if program.name == "openfoam":  # no Python
        return ["native", "launcher"]
    python: list[Form] = ["traceback", "traceback"]
    if program.family in ("torch", "ray"):
        python += ["signed", "signed"]
    if uncaught:
        return python
    forms: list[Form] = [*python, "native", "native", "launcher", "bare"]
    if program.family != "mpi":
        forms += ["logged"] * (6 if program.name.startswith("json") else 2)
    if layout.launcher in ("slurm", "kubernetes", "shell", "torchrun") and layout.files is None:
        forms += ["kernel", "kernel"]
    return forms


def _status(words: str, text: str) -> int:
    """The exit status of a native death. Where a shell told of the signal, the shell's own."""
    if words in ("FATAL", "CRITICAL"):
        return 3
    known = (("Killed", 9), ("Segmentation", 11), ("Bus", 7), ("Floating", 8), ("Illegal", 4))
    signal = next((number for word, number in known if word in text), 6)
    by_shell = "core dumped" in text or "Killed" in text
    return 128 + signal if by_shell else -signal


def _facts(job: Job, rank: int, step: int) -> dict[str, object]:
    return {
        "number": 100 + job.number % 900,
        "folder": job.folder,
        "script": job.script,
        "data": job.data,
        "local": job.local(rank),
        "pid": job.pids[rank] + 40_000,
        "step": step,
    }


def raised_text(
    job: Job,
    program: Program,
    raised: Raised,
    form: Form,
    rank: int,
    at: float,
    facts: dict[str, object],
) -> str:
    """An uncaught exception as its form prints it."""
    last = raised.text.format(**facts)
    if form == "bare":
        return last.split("\n", maxsplit=1)[0]
    frames = [
        (f"{job.folder}/{job.script}", 203, "<module>", "main()"),
        (f"{job.folder}/{job.script}", 190, "main", "train(config)"),
        (f"{job.folder}/{job.script}", 137, "train", raised.source.format(**facts)),
    ]
    if raised.below:
        frames.append(raised.below)
    text = "Traceback (most recent call last):\n" + "".join(
        f'  File "{file}", line {line}, in {function}\n    {source}\n'
        for file, line, function, source in frames
    )
    text += last
    if form == "signed":
        return excepthook(rank, text)
    if form == "logged":
        head = as_error(program.write(job, rank, job.clock(at), job.rng.choice(LAST_WORDS)))
        return f"{head}\n{text}"
    if form == "json":
        record = json.loads(program.write(job, rank, job.clock(at), job.rng.choice(LAST_WORDS)))
        level = "level" if "level" in record else "log.level"
        key = "exc_info" if level == "level" else "error.stack_trace"
        return json.dumps({**record, level: "ERROR", key: text})
    return text


def as_error(line: str) -> str:
    """A line of a logger at the level ERROR instead of INFO."""
    for info, error in (("INFO", "ERROR"), ("[NeMo I", "[NeMo E")):
        if info in line:
            return line.replace(info, error, 1)
    return "E" + line[1:] if line[:1] == "I" and line[1:5].isdigit() else line


def _by_launcher(rng: random.Random, job: Job, layout: Layout, rank: int, at: float) -> Fatal:
    """An exit of a rank that printed nothing itself."""
    words, code, how, classes = rng.choice(EXITS)
    pid, host = job.pids[rank], job.host(rank)
    status = code if code > 0 else 128 - code
    names_rank = True
    if layout.launcher == "slurm":
        text = f"srun: error: {host}: task {rank}: {how}"
    elif layout.launcher == "mpirun":
        text = _mpi_exit(rng, job, rank, code)
    elif layout.launcher == "kubernetes":
        names_rank = False
        classes = ("crash.host_oom",) if code == -9 else ()
        text = _pods(job, rank, "OOMKilled" if code == -9 else "Error", int(at // 60))
    elif layout.launcher == "compose":
        names_rank = False
        text = f"{container(rank)} exited with code {status}"
    elif layout.launcher == "ray":
        classes = ()
        text = (
            "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this "
            f"task.\n\tclass_name: RayTrainWorker\n\tactor_id: {job.number:032x}\n\tpid: {pid}\n"
            f"\tip: {ray_ip(job, rank)}\nThe actor is dead because its worker process has died. "
            "Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a "
            "connection error code 2. End of file."
        )
    elif layout.launcher == "shell":
        text = f"launch.py: rank {rank} (pid {pid}) exited with status {status}"
    else:
        text = agent_failed(job, rank, at, code)
    return Fatal("launcher", words, text, classes, outside=True, names_rank=names_rank)


def _pods(job: Job, dead: int, status: str, minutes: int) -> str:
    """What `kubectl get pods` shows after one pod ended."""
    wide = len(pod(job, job.world - 1)) + 3
    rows = [f"{'NAME':<{wide}}READY   STATUS      RESTARTS   AGE"]
    for rank in range(job.world):
        ready, state = ("0/1", status) if rank == dead else ("1/1", "Running")
        rows.append(f"{pod(job, rank):<{wide}}{ready:<8}{state:<12}0          {minutes}m")
    return "\n".join(rows)


def _mpi_exit(rng: random.Random, job: Job, rank: int, code: int) -> str:
    rule, pid, host = "-" * 74, job.pids[rank], job.host(rank)
    if code > 0:
        return (
            f"{rule}\nMPI_ABORT was invoked on rank {rank} in communicator MPI_COMM_WORLD\nwith "
            f"errorcode {code}.\n\nNOTE: invoking MPI_ABORT causes Open MPI to kill all MPI "
            f"processes.\nYou may or may not see output from other processes, depending on\n"
            f"exactly when Open MPI kills them.\n{rule}"
        )
    if rng.random() < 0.4:
        wide = "=" * 83
        return (
            f"\n{wide}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   RANK {rank} "
            f"PID {pid} RUNNING AT {host}\n=   EXIT CODE: {-code}\n=   CLEANING UP REMAINING "
            f"PROCESSES\n=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES\n{wide}"
        )
    return (
        f"{rule}\nmpirun noticed that process rank {rank} with PID {pid} on node {host} exited on "
        f"signal {-code} ({SIGNALS[code]}).\n{rule}"
    )


def agent_failed(job: Job, rank: int, at: float, code: int) -> str:
    """What torchrun's agent prints of a failed rank: its line, and the failure table."""
    lines = [
        agent_line(job, at, "W", "multiprocessing/api.py:900",
                   f"Sending process {job.pids[other]} closing signal SIGTERM")
        for other in job.neighbours(rank)
        if other != rank
    ]  # fmt: skip
    lines.append(
        agent_line(job, at + 0.4, "E", "multiprocessing/api.py:874",
                   f"failed (exitcode: {code}) local_rank: {job.local(rank)} (pid: "
                   f"{job.pids[rank]}) of binary: /usr/bin/python")
    )  # fmt: skip
    name = f" ({SIGNAL_NAMES[code]})" if code < 0 else ""
    reason = (
        f"Signal {-code} ({SIGNAL_NAMES[code]}) received by PID {job.pids[rank]}"
        if code < 0
        else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    )
    wide, thin = "=" * 60, "-" * 60
    lines.append(
        "Traceback (most recent call last):\n"
        '  File "/usr/local/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        f'  File "{SITE}/torch/distributed/run.py", line 918, in main\n    run(args)\n'
        f'  File "{SITE}/torch/distributed/launcher/api.py", line 138, in __call__\n'
        "    return launch_agent(self._config, self._entrypoint, list(args))\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{wide}\n{job.script} FAILED\n{thin}\nFailures:\n  <NO_OTHER_FAILURES>\n{thin}\nRoot "
        f"Cause (first observed failure):\n[0]:\n  time      : {job.clock(at):%Y-%m-%d_%H:%M:%S}\n"
        f"  host      : {job.host(rank)}\n  rank      : {rank} (local_rank: {job.local(rank)})\n"
        f"  exitcode  : {code} (pid: {job.pids[rank]}){name}\n  error_file: <N/A>\n"
        f"  traceback : {reason}\n{wide}"
    )
    return "\n".join(lines)


def _by_kernel(rng: random.Random, job: Job, layout: Layout, rank: int, at: float) -> Fatal:
    """A line of the kernel or of slurmstepd in the job's console; it names a process, no rank."""
    pid = job.pids[rank]
    size = f"total-vm:{90_000_000 + job.number}kB, anon-rss:{60_000_000 + job.number}kB"
    stamp = f"[{job.clock(at):%a %b %d %H:%M:%S %Y}]"
    texts: list[tuple[str, str, tuple[str, ...]]] = [
            ("step OOM", f"slurmstepd: error: Detected 1 oom_kill event in StepId={job.number}.0. "
             "Some of the step tasks have been OOM Killed.", ("crash.host_oom",)),
            ("cgroup OOM", f"{stamp} Memory cgroup out of memory: Killed process {pid} (python) "
             f"{size}, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:180000kB oom_score_adj:0",
             ("crash.host_oom",)),
            ("host OOM", f"{stamp} Out of memory: Killed process {pid} (python) {size}, "
             "file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:180000kB oom_score_adj:0",
             ("crash.host_oom",)),
            ("kernel segfault", f"{stamp} python[{pid}]: segfault at 0 ip 00007f0c3a0e1c2b sp "
             "00007ffd1c2b3a40 error 4 in libtorch_cuda.so[7f0c1a000000+4000000]", NATIVE),
    ]  # fmt: skip
    words, text, classes = rng.choice(texts if layout.launcher == "slurm" else texts[1:])
    return Fatal("kernel", words, text, classes, outside=True)
