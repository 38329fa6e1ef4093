"""The runs of the real track: programs of ten frameworks, and what goes wrong in them."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from benchmarks.hangbench.real import lab
from benchmarks.hangbench.real.scenario import End, Event, Job, Kept, Kind, Scenario, Wrong

Shape = Callable[[Random], Job]  # a healthy job of a framework, of some size and evidence
Trouble = Callable[[Job, Random], Job]  # the same job with something going wrong


# ------------------------------------------------------------------------------ shapes of jobs


def _logging(draw: Random) -> dict[str, Any]:
    style = draw.choice(["dated", "dated", "plain", "bare"])
    return {"style": style, "all_ranks_log": draw.random() < 0.5}


def _torchrun(program: str, worlds: tuple[int, ...], **settings: Any) -> Shape:
    def shape(draw: Random) -> Job:
        tee = draw.random() < 0.5
        return Job(
            program, draw.choice(worlds), "torchrun", Wrong(), tee=tee, timeout_s=12,
            kept=("console", "ranks") if tee else ("console",),
            settings={**_logging(draw), **settings}, limit_s=110,
        )  # fmt: skip

    return shape


def _accelerate(draw: Random) -> Job:
    return Job(
        "accelerated", draw.choice((2, 3)), "accelerate", Wrong(), timeout_s=12,
        settings=_logging(draw),
    )  # fmt: skip


def _spawn(draw: Random) -> Job:
    return Job(
        "spawned", draw.choice((2, 3)), "single", Wrong(), timeout_s=12, settings=_logging(draw)
    )


def _lightning(draw: Random) -> Job:
    return Job(
        "lightning_fit", 2, "single", Wrong(), timeout_s=30, settings=_logging(draw), limit_s=110
    )


def _mpi(draw: Random) -> Job:
    tagged = draw.random() < 0.4
    to_files = not tagged and draw.random() < 0.5
    options: tuple[str, ...] = ("--tag-output",) if tagged else ()
    options += ("--output-filename", "logs") if to_files else ()
    return Job(
        "mpi", draw.choice((2, 3, 4)), "mpirun", Wrong(), options=options, timeout_s=6,
        python_options=("-m", "mpi4py"),  # an uncaught exception aborts all ranks
        kept=("console", "ranks") if to_files else ("console",), settings=_logging(draw),
    )  # fmt: skip


def _jax(draw: Random) -> Job:
    tee = draw.random() < 0.6
    times = {"heartbeat_timeout_seconds": 10, "shutdown_timeout_seconds": 10}
    return Job(
        "jaxed", draw.choice((2, 3)), "processes", Wrong(), tee=tee, timeout_s=8,
        kept=("console", "ranks") if tee else ("console",),
        settings={**_logging(draw), "jax": times}, limit_s=90,
    )  # fmt: skip


def _ray(draw: Random) -> Job:
    return Job(
        "ray_actors", 2, "single", Wrong(), timeout_s=15, settings=_logging(draw), limit_s=120
    )


def _dask(draw: Random) -> Job:
    return Job(
        "dasked", draw.choice((2, 3)), "single", Wrong(), timeout_s=10, settings=_logging(draw)
    )


def _pool(draw: Random) -> Job:
    return Job(
        "pool", draw.choice((2, 3, 4)), "single", Wrong(), timeout_s=6, settings=_logging(draw)
    )


SHAPES: dict[str, tuple[str, tuple[str, ...], Shape]] = {
    "ddp": ("torchrun", ("torch", "numpy"), _torchrun("ddp", (2, 3, 3))),
    "tensor": ("torchrun", ("torch",), _torchrun("tensor", (4,))),
    "fsdp": ("torchrun", ("torch",), _torchrun("fsdp", (2, 3))),
    "pipeline": ("torchrun", ("torch",), _torchrun("pipeline", (3,))),
    "spawn": ("multiprocessing", ("torch",), _spawn),
    "accelerate": ("accelerate", ("torch", "accelerate"), _accelerate),
    "hf": ("transformers", ("torch", "transformers", "accelerate"), _torchrun("hf", (2,))),
    "lightning": ("lightning", ("torch", "lightning"), _lightning),
    "mpi": ("mpi", ("mpi4py", "numpy", "!mpirun"), _mpi),
    "jax": ("jax", ("jax", "numpy"), _jax),
    "ray": ("ray", ("torch", "ray"), _ray),
    "pool": ("multiprocessing", ("numpy",), _pool),
    "dask": ("dask", ("distributed", "numpy"), _dask),
}


# ------------------------------------------------------------------------------ what goes wrong


def _pick(job: Job, draw: Random) -> int:
    return draw.randrange(job.world)


def _set(job: Job, **settings: Any) -> Mapping[str, object]:
    return {**job.settings, **settings}


def healthy(job: Job, draw: Random) -> Job:
    """Nothing goes wrong."""
    return replace(job, steps=draw.choice((8, 12, 16)))


def caught(job: Job, _draw: Random) -> Job:
    """A healthy job whose tracking server is gone, of which it prints a traceback and goes on."""
    return replace(job, callbacks="retry", settings=_set(job, report_at=5))


def interrupted(action: str) -> Trouble:
    """A healthy job that is ended from outside while it works."""

    def trouble(job: Job, draw: Random) -> Job:
        classes: tuple[str, ...] = ("user.interrupt",)
        if action == "launcher-SIGTERM":  # a log cannot tell who sent it
            classes = ("scheduler.preempted", "user.interrupt", "crash.killed", "unknown")
        return replace(
            job, wrong=Wrong("stopped_from_outside", (), classes), steps=400,
            events=(Event(0, draw.randrange(6, 12), action),),
        )  # fmt: skip

    return trouble


def working(job: Job, draw: Random) -> Job:
    """A healthy job whose files are copied while it works."""
    return replace(job, steps=400, end="alive", events=(Event(0, draw.randrange(8, 16), "look"),))


def shard(odd: str, kind: Kind, *classes: str, workers: int = 0) -> Trouble:
    """The shard of one rank is odd."""

    def trouble(job: Job, draw: Random) -> Job:
        rank = _pick(job, draw)
        return replace(
            job, shards={rank: odd}, wrong=Wrong(kind, (rank,), classes),
            before_training=odd in ("binary", "missing"),
            settings=_set(job, num_workers=workers),
        )  # fmt: skip

    return trouble


def callback(
    name: str, kind: Kind, *classes: str, tracking: str | None = None, fifo: str | None = None,
    everybody_else: bool = False, **settings: Any,
) -> Trouble:  # fmt: skip
    """What one rank does after a step goes wrong."""

    def trouble(job: Job, draw: Random) -> Job:
        rank = 0 if everybody_else else _pick(job, draw)
        at = draw.randrange(3, 7)
        return replace(
            job, callbacks=name, wrong=Wrong(kind, (rank,), classes), tracking=tracking,
            fifos=(fifo,) if fifo else (),
            settings=_set(job, report_rank=rank, report_at=at, **settings),
        )  # fmt: skip

    return trouble


def event(action: str, kind: Kind, *classes: str, workers: int = 0) -> Trouble:
    """Something is done to one rank from outside."""

    def trouble(job: Job, draw: Random) -> Job:
        rank = _pick(job, draw)
        return replace(
            job, wrong=Wrong(kind, (rank,), classes),
            events=(Event(rank, draw.randrange(3, 8), action),),
            settings=_set(job, num_workers=workers),
        )  # fmt: skip

    return trouble


def out_of_memory(job: Job, draw: Random) -> Job:
    """A rank keeps more and more in memory, and has a limit of its address space."""
    rank = _pick(job, draw)
    return replace(
        job, callbacks="memory", settings=_set(job, report_rank=rank, report_at=5),
        wrong=Wrong("exception", (rank,), ("crash.exception", "crash.host_oom")),
        events=(Event(rank, 3, "limit-memory"),),
    )  # fmt: skip


def save_blocked(job: Job, _draw: Random) -> Job:
    """The file of a checkpoint takes nothing."""
    return replace(
        job, fifos=("checkpoints/step-6/model.pt",), settings=_set(job, save_every=6),
        wrong=Wrong("stall", (0,), ("slow.checkpoint", "slow.storage", "stall.host")),
    )  # fmt: skip


def resume_partial(content: bytes | None, *classes: str) -> Trouble:
    """A part of the checkpoint is missing, or cut off."""

    def trouble(job: Job, draw: Random) -> Job:
        rank = _pick(job, draw)
        good = _empty_state()
        parts = dict.fromkeys(range(job.world), good)
        files = {f"checkpoints/step-400/optim-rank{one}.pt": part for one, part in parts.items()}
        if content is None:
            del files[f"checkpoints/step-400/optim-rank{rank}.pt"]
        else:
            files[f"checkpoints/step-400/optim-rank{rank}.pt"] = good[: len(content) or 40]
        return replace(
            job, files=files, before_training=True,
            settings=_set(job, resume="checkpoints/step-400"),
            wrong=Wrong("exception", (rank,), ("crash.exception", *classes)),
        )  # fmt: skip

    return trouble


def _empty_state() -> bytes:
    """An empty dictionary as torch.save writes it in its old form, which is a few pickles."""
    magic, protocol = 0x1950A86A20F9469CFC6C, 1001
    sizes = {"protocol_version": protocol, "little_endian": True, "type_sizes": {}}
    parts: list[Any] = [magic, protocol, sizes, {}, []]
    return b"".join(pickle.dumps(part, protocol=2) for part in parts)


def port_in_use(job: Job, _draw: Random) -> Job:
    """Somebody else listens on the rendezvous port."""
    wrong = Wrong("port", (), ("rendezvous.port_in_use",))
    return replace(job, busy_port=True, wrong=wrong, before_training=True)


def never_joins(job: Job, _draw: Random) -> Job:
    """A node of two never starts."""
    wrong = Wrong("never_joins", (), ("rendezvous.timeout",))
    options = ("--nnodes=2", "--node-rank=0")
    return replace(job, wrong=wrong, options=options, timeout_s=6, before_training=True)


# ------------------------------------------------------------------------------ evidence and ends


def keep(trouble: Trouble, *kept: Kept, end: End = "itself", **changes: Any) -> Trouble:
    """The same trouble with other evidence or another end."""

    def changed(job: Job, draw: Random) -> Job:
        found = trouble(job, draw)
        own = tuple(dict.fromkeys([*found.kept, *kept])) if kept else found.kept
        return replace(found, kept=own, end=end, **changes)

    return changed


def only(trouble: Trouble, *kept: Kept, **changes: Any) -> Trouble:
    """The same trouble with nothing but this evidence."""

    def changed(job: Job, draw: Random) -> Job:
        return replace(trouble(job, draw), kept=kept, **changes)

    return changed


STALL = ("stall.host",)
fifo = shard("fifo", "stall", "stall.host", "data.loader", "slow.storage")
fifo_workers = shard("fifo", "stall", "stall.host", "data.loader", "slow.storage", workers=1)
no_label = shard("no_label", "exception", "crash.exception")
no_label_workers = shard("no_label", "exception", "crash.exception", "data.loader", workers=1)
torn = shard("torn", "exception", "crash.exception", "data.loader")
wide = shard("wide", "exception", "crash.exception")
text = shard("text", "exception", "crash.exception")
binary = shard("binary", "exception", "crash.exception", "data.loader")
missing = shard("missing", "exception", "crash.exception", "env.config", "data.loader")
short = shard("short", "uneven", "desync.uneven_work", "desync.missing_rank")
stops_iterating = shard("short", "exception", "crash.exception", "desync.uneven_work")
lock = callback("lock", "stall", *STALL)
push = callback("push", "stall", *STALL, tracking="silent")
refused = callback("push", "exception", "crash.exception", "net.socket")
archive = callback("archive", "stall", *STALL, "slow.storage", fifo="samples.log")
cleaning = callback("cleaning", "stall", *STALL, "slow.straggler", "data.preparation")
filelock = callback("filelock", "stall", *STALL, "slow.storage", fifo="index.lock")
leaves = callback(
    "patience", "exit", "desync.uneven_work", "desync.missing_rank", "desync.conditional"
)
summary = callback("summary", "exception", "crash.exception", window=4)
zero_window = callback("summary", "exception", "crash.exception", window=0)
native = callback("native", "native", "crash.native")
aborts = callback("native", "native", "crash.native", strict=True)
evaluate = callback(
    "evaluate", "conditional", "desync.conditional", "desync.mismatch", everybody_else=True
)
gather = callback("gather", "mismatch", "desync.mismatch", "desync.uneven_work")
share = callback("share", "mismatch", "desync.mismatch", "desync.conditional")
extra_barrier = callback("reduce", "conditional", "desync.conditional", "desync.mismatch")
render = callback(
    "slow", "stall", *STALL, "slow.straggler", "slow.evaluation", "data.preparation", render_s=40
)
killed = event("SIGKILL", "killed", "crash.killed")
segv = event("SIGSEGV", "native", "crash.native")
bus = event("SIGBUS", "native", "crash.native")
stopped = event("SIGSTOP", "stall", *STALL)
ended = event(
    "SIGTERM", "killed", "crash.killed", "user.interrupt", "scheduler.preempted", "unknown"
)
worker_killed = event(
    "kill-worker", "exception", "data.loader", "crash.killed", "crash.host_oom", "crash.exception",
    workers=1,
)  # fmt: skip
not_there = resume_partial(None, "checkpoint.partial")
cut_off = resume_partial(b"", "checkpoint.partial", "checkpoint.corrupt")


RUNS: dict[str, dict[str, Trouble]] = {
    "mpi": {
        "healthy": healthy, "caught": caught, "fifo, stacks": keep(fifo, "stacks", end="limit"),
        "fifo, limit": keep(fifo, end="limit"), "no label": no_label, "torn": torn,
        "missing": missing, "binary": binary, "wide": wide, "killed": killed, "segv": segv,
        "bus": bus, "native": native, "aborts": aborts, "refused": refused, "memory": out_of_memory,
        "stopped, stacks": only(stopped, "stacks", end="alive"), "summary": summary,
        "short, limit": keep(short, "stacks", end="limit"), "lock, term": keep(lock, end="term"),
        "lock, stacks": keep(lock, "stacks", end="term"),
        "push, term": keep(push, "stacks", end="term"),
        "leaves, stacks": keep(leaves, "stacks", end="limit"), "killed again": killed,
        "extra barrier, stacks": keep(extra_barrier, "stacks", end="limit"),
        "cleaning, faulthandler": keep(cleaning, "faulthandler", end="limit"),
        "zero window": zero_window, "ended": ended,
        "archive, int": keep(archive, "stacks", end="int"), "text": text,
        "no label, plain": keep(no_label, end="limit", python_options=()),
        "summary, plain, stacks": keep(summary, "stacks", end="limit", python_options=()),
        "missing, plain": keep(
            missing, end="term", python_options=(), look_early=True
        ),
        "SIGINT": interrupted("launcher-SIGINT"), "SIGTERM": interrupted("launcher-SIGTERM"),
        "working": working, "working, stacks": keep(working, "stacks", end="alive"),
    },
    "pool": {
        "healthy": healthy, "caught": caught, "working": working, "no label": no_label,
        "torn": torn, "missing": missing, "text": text, "wide": wide, "refused": refused,
        "summary": summary, "killed": killed, "segv": segv, "native": native, "aborts": aborts,
        "short": short, "leaves": leaves, "fifo, stacks": keep(fifo, "stacks", end="term"),
        "lock, stacks": keep(lock, "stacks", end="int"), "push, int": keep(push, end="int"),
        "archive, faulthandler": keep(archive, "faulthandler", end="limit"),
        "cleaning, stacks": only(cleaning, "stacks", end="alive"),
        "filelock, bundle": only(filelock, "bundle", end="alive"), "stopped, bundle": only(
            stopped, "bundle", end="alive"
        ),
        "memory": out_of_memory, "SIGINT": interrupted("launcher-SIGINT"),
    },
    "jax": {
        "healthy": healthy, "caught": caught, "fifo, stacks": keep(fifo, "stacks", end="limit"),
        "killed": killed, "segv": segv, "no label": no_label, "missing": missing, "torn": torn,
        "lock, faulthandler": keep(lock, "faulthandler", end="term"), "short": short,
        "native": native, "summary": summary, "stopped": stopped, "refused": refused,
        "push, stacks": keep(push, "stacks", end="int"), "text": text,
    },
    "dask": {
        # the nanny starts a worker anew, and what was bound to the old one waits for ever
        "healthy": healthy,
        "killed": keep(killed, end="limit", timeout_s=20.0), "no label": no_label, "torn": torn,
        "short": stops_iterating, "fifo, stacks": keep(fifo, "stacks", end="term"),
        "lock, limit": keep(lock, end="limit"), "summary": summary,
        "segv": keep(segv, end="limit", timeout_s=20.0),
        "missing": missing, "SIGINT": interrupted("launcher-SIGINT"), "working": working,
    },
    "ddp": {
        "healthy": healthy, "caught": caught, "healthy, tee": keep(healthy, "ranks", tee=True),
        "working": working, "SIGTERM": interrupted("launcher-SIGTERM"),
        "working, bundle": only(working, "bundle", end="alive"),
        "SIGINT": interrupted("launcher-SIGINT"),
        "fifo": fifo, "fifo, workers, stacks": keep(fifo_workers, "stacks"),
        "fifo, alive": only(fifo, "stacks", end="alive", timeout_s=90.0),
        "no label": no_label, "no label, workers": no_label_workers, "torn": torn, "wide": wide,
        "missing": missing, "short": short, "lock": lock, "push": push, "refused": refused,
        "archive, stacks": keep(archive, "stacks"), "cleaning, stacks": keep(cleaning, "stacks"),
        "leaves": leaves, "summary": summary, "native": native, "aborts": aborts,
        "evaluate": evaluate, "gather": gather, "share": share, "render": render, "killed": killed,
        "segv": segv, "stopped": stopped, "worker killed": worker_killed, "not there": not_there,
        "cut off": cut_off, "save blocked": save_blocked, "memory": out_of_memory,
        "port in use": port_in_use, "never joins": never_joins,
        "lock, bundle": only(lock, "bundle", end="alive", timeout_s=90.0),
        "push, bundle": only(push, "bundle", end="alive", timeout_s=90.0),
        "evaluate, faulthandler": keep(evaluate, "faulthandler", end="term", timeout_s=60.0),
        "fifo, int": keep(fifo, end="int", timeout_s=60.0),
        "filelock, dumps": keep(filelock, "dumps"),
        "lock, dumps": keep(lock, "dumps"), "ended": ended,
    },
    "tensor": {
        "healthy": healthy, "fifo, dumps": keep(fifo, "dumps"), "killed": killed, "short": short,
        "lock, dumps": keep(lock, "dumps"), "evaluate, dumps": keep(evaluate, "dumps"),
        "share, dumps": keep(share, "dumps"), "summary": summary, "stopped": stopped,
    },
    "fsdp": {
        "healthy": healthy, "fifo": fifo, "killed": killed, "no label": no_label, "wide": wide,
        "push, stacks": keep(push, "stacks"), "gather": gather, "leaves": leaves,
    },
    "pipeline": {
        "healthy": healthy, "fifo": fifo, "killed": killed, "lock, stacks": keep(lock, "stacks"),
        "cleaning": cleaning, "native": native, "save blocked": save_blocked, "short": short,
    },
    "spawn": {
        "healthy": healthy, "no label": no_label, "killed": killed, "fifo": fifo,
        "native": native, "short": short,
    },
    "accelerate": {
        "healthy": healthy, "no label": no_label, "killed": killed, "fifo": fifo, "short": short,
        "worker killed": worker_killed, "lock, stacks": keep(lock, "stacks"), "evaluate": evaluate,
    },
    "hf": {
        "healthy": healthy, "no label": no_label, "killed": killed, "fifo": fifo,
        "summary": summary, "lock": lock,
    },
    "lightning": {
        "healthy": healthy, "no label": no_label, "killed": killed, "fifo": fifo,
        "summary": summary, "lock, stacks": keep(lock, "stacks"),
    },
    "ray": {
        "healthy": healthy, "no label": no_label, "killed": killed, "fifo": fifo,
        "lock, stacks": keep(lock, "stacks"), "native": native,
    },
}  # fmt: skip


def _scenario(program: str, name: str, trouble: Trouble) -> Scenario:
    framework, needs, shape = SHAPES[program]

    def draw(random: Random) -> Job:
        return trouble(shape(random), random)

    return Scenario(f"{program}: {name}", framework, needs, draw)


SCENARIOS: tuple[Scenario, ...] = (
    *lab.SCENARIOS,
    *(
        _scenario(program, name, trouble)
        for program, runs in RUNS.items()
        for name, trouble in runs.items()
    ),
)
