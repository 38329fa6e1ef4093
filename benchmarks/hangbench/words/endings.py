"""How a job is ended from outside: by a limit, a signal, a person; and what is printed of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from benchmarks.hangbench.words.job import Job, Line
from benchmarks.hangbench.words.layouts import Launcher, Layout, pod

# The lines of an ending at a time in seconds after the start of the job.
Print = Callable[[Job, Layout, float], list[Line]]


@dataclass(frozen=True, slots=True)
class Ending:
    """One way to be ended. right: classes that name it; launchers: under whom it happens.

    Its lines tell when it was, or how long the job had run.
    """

    name: str
    right: tuple[str, ...]
    launchers: tuple[Launcher, ...]
    print: Print


LIMIT = ("scheduler.limit",)
SIGNAL = ("scheduler.preempted", "user.interrupt")
PERSON = ("user.interrupt",)


def _end(at: float, *texts: str) -> list[Line]:
    return [Line(at + 0.01 * place, None, text, "end") for place, text in enumerate(texts)]


def _iso(when: datetime) -> str:
    return f"{when:%Y-%m-%dT%H:%M:%S}"


def agent_line(job: Job, at: float, level: str, place: str, text: str) -> str:
    """A line of torchrun's agent, as torch 2.4 and later print it."""
    now = job.clock(at)
    stamp = f"{now:%m%d %H:%M:%S}.{now.microsecond // 1000 * 1000:06d}"
    return f"{level}{stamp} {job.pids[0] - 2} torch/distributed/elastic/{place}] {text}"


def _closing_ranks(job: Job, at: float, signal: str) -> list[str]:
    return [
        agent_line(
            job,
            at,
            "W",
            "multiprocessing/api.py:900",
            f"Sending process {job.pids[rank]} closing signal {signal}",
        )
        for rank in job.neighbours(0)
    ]


def agent_stopped(job: Job, at: float, number: int, signal: str) -> list[Line]:
    """The agent of the first host gets a signal, ends its workers, and raises."""
    first = agent_line(
        job,
        at,
        "W",
        "agent/server/api.py:719",
        f"Received {number} death signal, shutting down workers",
    )
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/usr/local/bin/torchrun", line 8, in <module>\n'
        "    sys.exit(main())\n"
        '  File "/usr/local/lib/python3.11/site-packages/torch/distributed/run.py", line 918, in '
        "main\n"
        "    run(args)\n"
        '  File "/usr/local/lib/python3.11/site-packages/torch/distributed/elastic/'
        'multiprocessing/api.py", line 84, in _terminate_process_handler\n'
        '    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)\n'
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process "
        f"{job.pids[0] - 2} got signal: {number}"
    )
    return _end(at, first, *_closing_ranks(job, at + 0.1, signal), trace)


def _sigterm(job: Job, layout: Layout, at: float) -> list[Line]:
    if layout.launcher == "torchrun":
        return agent_stopped(job, at, 15, "SIGTERM")
    now = job.clock(at)
    return _end(at, f"{now:%Y-%m-%d %H:%M:%S} entrypoint.sh: received SIGTERM, stopping children")


def _slurm_limit(job: Job, layout: Layout, at: float) -> list[Line]:
    when = _iso(job.clock(at))
    waiting = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."
    step, batch = (
        f"slurmstepd: error: *** {what} ON {job.hosts[0]} CANCELLED AT {when} DUE TO TIME LIMIT ***"
        for what in (f"STEP {job.number}.0", f"JOB {job.number}")
    )
    orders = ((waiting, step, batch), (batch, waiting, step), (step, waiting), (batch,))
    return _end(at, *job.rng.choice(orders))


def _slurm_preempted(job: Job, layout: Layout, at: float) -> list[Line]:
    when = _iso(job.clock(at))
    return _end(
        at,
        f"slurmstepd: error: *** JOB {job.number} ON {job.hosts[0]} CANCELLED AT {when} DUE TO "
        "PREEMPTION ***",
    )


def _scancel(job: Job, layout: Layout, at: float) -> list[Line]:
    when = _iso(job.clock(at))
    tail = job.rng.choice((" ***", " ***", " DUE to SIGNAL Terminated ***"))
    tasks = f"tasks 0-{job.per_host - 1}" if job.per_host > 1 else "task 0"
    return _end(
        at,
        f"slurmstepd: error: *** STEP {job.number}.0 ON {job.hosts[0]} CANCELLED AT {when}{tail}",
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        f"srun: error: {job.hosts[0]}: {tasks}: Terminated",
    )


def _pod_deleted(job: Job, layout: Layout, at: float) -> list[Line]:
    when = _iso(job.clock(at))
    return [
        Line(at + rank * 0.02, None, f"{when}Z   Normal   Killing   pod/{pod(job, rank)}   "
             "Stopping container pytorch", "end")
        for rank in range(job.world)
    ]  # fmt: skip


def _pod_evicted(job: Job, layout: Layout, at: float) -> list[Line]:
    when = _iso(job.clock(at))
    name = pod(job, job.rng.randrange(job.world))
    return _end(
        at,
        f"{when}Z   Warning  Preempted   pod/{name}   Preempted by pod "
        f"7c1f{job.number:x} on node {job.hosts[0]}",
        f"{when}Z   Normal   Killing     pod/{name}   Stopping container pytorch",
    )


def _pod_deadline(job: Job, layout: Layout, at: float) -> list[Line]:
    when = _iso(job.clock(at))
    return _end(
        at,
        f"{when}Z   Normal   SuccessfulDelete   job/{job.name}   Deleted pod: {pod(job, 0)}",
        f"{when}Z   Warning  DeadlineExceeded   job/{job.name}   Job was active longer than "
        "specified deadline",
    )


# Where Ctrl-C finds a rank that works or waits for others, and one that is held up outside of
# any collective: file, line, function and source of the frames below `main`.
Frames = tuple[tuple[str, int, str, str], ...]
SITE = "/usr/local/lib/python3.11/site-packages"
AT_WORK: tuple[Frames, ...] = (
    (("{folder}/{script}", 142, "train", "    loss_value = loss.item()"),),
    (
        ("{folder}/{script}", 137, "train", "    loss.backward()"),
        (f"{SITE}/torch/_tensor.py", 581, "backward", "    torch.autograd.backward("),
        (f"{SITE}/torch/autograd/__init__.py", 347, "backward", "    _engine_run_backward("),
    ),
    (
        ("{folder}/{script}", 151, "train", "    torch.cuda.synchronize()"),
        (f"{SITE}/torch/cuda/__init__.py", 954, "synchronize",
         "    return torch._C._cuda_synchronize()"),
    ),
)  # fmt: skip
AT_WORK_ELSEWHERE: dict[str, Frames] = {
    "jax": (
        ("{folder}/{script}", 142, "train", "    jax.block_until_ready(loss)"),
        (f"{SITE}/jax/_src/api.py", 2934, "block_until_ready",
         "    return jax.tree.map(try_to_block, x)"),
    ),
    "keras": (
        ("{folder}/{script}", 142, "train", "    model.fit(dataset, epochs=epochs, verbose=2)"),
        (f"{SITE}/keras/src/utils/traceback_utils.py", 117, "error_handler",
         "    return fn(*args, **kwargs)"),
    ),
}  # fmt: skip
HELD_UP: tuple[Frames, ...] = (
    (
        ("{folder}/{script}", 129, "train", "    batch = next(batches)"),
        (f"{SITE}/torch/utils/data/dataloader.py", 1448, "_next_data",
         "    idx, data = self._get_data()"),
        ("/usr/lib/python3.11/multiprocessing/connection.py", 930, "wait",
         "    ready = selector.select(timeout)"),
    ),
    (
        ("{folder}/{script}", 129, "train", "    batch = next(batches)"),
        ("{folder}/data.py", 88, "__next__", "    item = self.queue.get()"),
        ("/usr/lib/python3.11/queue.py", 171, "get", "    self.not_empty.wait()"),
    ),
    (
        ("{folder}/{script}", 160, "train", "    log_metrics(metrics)"),
        ("{folder}/metrics.py", 41, "log_metrics",
         "    response = session.post(url, json=payload)"),
        ("/usr/lib/python3.11/ssl.py", 1163, "read", "    return self._sslobj.read(len, buffer)"),
    ),
)  # fmt: skip


def at_work(family: str) -> tuple[Frames, ...]:
    """Places of a rank that works or waits for its device, of programs of a family."""
    return (AT_WORK_ELSEWHERE[family],) if family in AT_WORK_ELSEWHERE else AT_WORK


def interrupted(
    job: Job, at: float, places: tuple[Frames, ...], *, signed: bool = False
) -> list[Line]:
    """The KeyboardInterrupt traceback of every rank; `places[rank]`: where it was.

    signed: each line holds the rank (`excepthook`).
    """
    lines = []
    for rank, frames in enumerate(places):
        stack = (("{folder}/{script}", 203, "<module>", "    main()"),
                 ("{folder}/{script}", 190, "main", "    train(config)"), *frames)  # fmt: skip
        text = ["Traceback (most recent call last):"]
        for form, number, function, source in stack:
            file = form.format(folder=job.folder, script=job.script)
            text += [f'  File "{file}", line {number}, in {function}', source]
        text.append("KeyboardInterrupt")
        shown = "\n".join(text)
        shown = excepthook(rank, shown) if signed else shown
        lines.append(Line(at + 0.003 * rank, rank, shown, "end", err=True))
    return lines


def excepthook(rank: int, text: str) -> str:
    """A traceback as torch 2.4 and later prints it: each line with the global rank."""
    return "\n".join(f"[rank{rank}]: {line}" for line in text.split("\n"))


def _ctrl_c(job: Job, layout: Layout, at: float) -> list[Line]:
    """Each rank's traceback, then what the launcher says; all ranks of a torch job are at work."""
    place = job.rng.choice(AT_WORK)
    return interrupted(job, at, (place,) * job.world) + launcher_interrupted(job, layout, at)


def launcher_interrupted(job: Job, layout: Layout, at: float) -> list[Line]:
    """What the launcher prints of Ctrl-C."""
    if layout.launcher == "torchrun":
        return agent_stopped(job, at + 0.5, 2, "SIGINT")
    if layout.launcher == "slurm":
        return _end(at + 0.5, f"srun: sending Ctrl-C to StepId={job.number}.0",
                    "srun: forcing job termination",
                    f"slurmstepd: error: *** STEP {job.number}.0 ON {job.hosts[0]} CANCELLED AT "
                    f"{_iso(job.clock(at + 1))} ***")  # fmt: skip
    if layout.launcher == "compose":
        return _end(at + 0.5, "Gracefully stopping... (press Ctrl+C again to force)")
    minutes, seconds = divmod(at + 1, 60)
    return _end(at + 0.5, "", f"real\t{int(minutes)}m{seconds:.3f}s", "user\t0m1.482s")


def _timeout_command(job: Job, layout: Layout, at: float) -> list[Line]:
    """`timeout N command`: SIGTERM, then the wrapper tells the exit status 124."""
    now = job.clock(at)
    before = agent_stopped(job, at, 15, "SIGTERM") if layout.launcher == "torchrun" else []
    form = job.rng.choice(
        (
            "[{now:%Y-%m-%d %H:%M:%S}] run.sh: command timed out after {took} s (exit status 124)",
            "{now:%Y-%m-%dT%H:%M:%S}Z run.sh[1]: timeout {took} reached, exit status 124",
        )
    )
    return before + _end(at + 1, form.format(now=now, took=int(at)))


def _ci_deadline(job: Job, layout: Layout, at: float) -> list[Line]:
    now = job.clock(at)
    minutes = int(at // 60)
    hours = f"{minutes // 60}h" if minutes >= 60 else ""
    return _end(
        at,
        job.rng.choice(
            (
                f"{_iso(now)}.1834510Z ##[error]The job running on runner gpu-runner-3 has "
                f"exceeded the maximum execution time of {minutes} minutes.",
                f"ERROR: Job failed: execution took longer than {hours}{minutes % 60}m0s seconds",
                f"[{now:%Y-%m-%d, %H:%M:%S} UTC] {{timeout.py:68}} ERROR - Process timed out, PID: "
                f"{job.pids[0] - 9}\n[{now:%Y-%m-%d, %H:%M:%S} UTC] {{taskinstance.py:2698}} ERROR "
                "- Task failed with exception\nairflow.exceptions.AirflowTaskTimeout: Timeout, "
                f"PID: {job.pids[0] - 9}",
            )
        ),
    )


def _batch_limit(job: Job, layout: Layout, at: float) -> list[Line]:
    return _end(
        at,
        job.rng.choice(
            (
                f"=>> PBS: job killed: walltime {int(at)} exceeded limit {int(at) // 60 * 60}",
                "TERM_RUNLIMIT: job killed after reaching LSF run time limit.\nExited with exit "
                "code 140.\n\nResource usage summary:\n\n    CPU time :                  "
                f"{at * job.world:.2f} sec.\n    Run time :                  {int(at)} sec.",
            )
        ),
    )


def _mpirun_timeout(job: Job, layout: Layout, at: float) -> list[Line]:
    rule = "-" * 74
    word = job.rng.choice(("Timeout", "MPIEXEC_TIMEOUT"))
    return _end(
        at,
        f"{rule}\nThe user-provided time limit for job execution has been reached:\n\n  {word}: "
        f"{int(at)} seconds\n\nThe job will now be aborted.  Please check your code and/or\n"
        "adjust/remove the job execution time limit (as specified by --timeout\ncommand line "
        f"option or MPIEXEC_TIMEOUT environment variable).\n\n{rule}",
    )


def _ray_stopped(job: Job, layout: Layout, at: float) -> list[Line]:
    now = job.clock(at)
    stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}"
    return _end(
        at,
        f"{stamp}\tINFO tune.py:250 -- SIGINT received (e.g. via Ctrl+C), ending Ray Train run.",
        f"{stamp}\tWARNING tune.py:1039 -- Experiment has been interrupted, but the most recent "
        "state was saved.",
    )


ENDINGS: tuple[Ending, ...] = (
    Ending("slurm limit", LIMIT, ("slurm",), _slurm_limit),
    Ending("slurm preempted", ("scheduler.preempted",), ("slurm",), _slurm_preempted),
    Ending("scancel", SIGNAL, ("slurm",), _scancel),
    Ending("SIGTERM", SIGNAL, ("torchrun", "ray", "shell", "compose"), _sigterm),
    Ending("pods deleted", SIGNAL, ("kubernetes",), _pod_deleted),
    Ending("pod evicted", ("scheduler.preempted",), ("kubernetes",), _pod_evicted),
    Ending("pod deadline", LIMIT, ("kubernetes",), _pod_deadline),
    Ending("Ctrl-C", PERSON, ("torchrun", "slurm", "shell", "compose"), _ctrl_c),
    Ending("timeout", LIMIT, ("torchrun", "shell", "compose", "mpirun"), _timeout_command),
    Ending("ci deadline", LIMIT, ("torchrun", "shell"), _ci_deadline),
    Ending("batch limit", LIMIT, ("mpirun", "shell"), _batch_limit),
    Ending("mpirun timeout", LIMIT, ("mpirun",), _mpirun_timeout),
    Ending("ray stopped", PERSON, ("ray",), _ray_stopped),
)
