"""One process: who it is, and what the kernel says of it."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from diagnose.collect import proc
from diagnose.collect.find import Found
from diagnose.collect.model import Process
from diagnose.collect.sink import Sink

# What of an environment says where a process stands in its job; nothing else is taken.
_ALLOWED = re.compile(
    r"(?:LOCAL_|GROUP_|ROLE_|NODE_)?RANK|(?:LOCAL_|GROUP_|ROLE_)?WORLD_SIZE"
    r"|(?:SLURM|OMPI|PMI|PMIX|RAY|MASTER|NCCL|RCCL|GLOO|TORCH_NCCL|TORCH_FR|TORCH_GLOO|TORCHELASTIC"
    r"|TORCH_DISTRIBUTED|TORCH_CPP_LOG)_\w+"
    r"|PMI_RANK|(?:CUDA|HIP|ROCR)_VISIBLE_DEVICES|CUDA_LAUNCH_BLOCKING|OMP_NUM_THREADS"
    r"|TOKENIZERS_PARALLELISM|PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF|HOSTNAME|SLURMD_NODENAME"
    r"|PBS_JOBID|LSB_JOBID|PYTHONFAULTHANDLER|NVIDIA_VISIBLE_DEVICES"
)


def identify(sink: Sink, process: Process, found: Found) -> str | None:
    """`process.json`. Raises OSError."""
    sink.json("process.json", about(process, found, sink))
    return None


def about(process: Process, found: Found, sink: Sink) -> dict[str, Any]:
    """Who a process is: its place in the job, its parents and children, its settings."""
    seen = found.seen[process.pid]
    children = [one.pid for one in found.processes if one.parent == process.pid]
    return {
        "diagnose": "process/1", "pid": process.pid, "role": process.role, "rank": process.rank,
        "local_rank": process.local_rank, "world": process.world,
        "local_world": process.local_world, "parent": process.parent,
        "children": children, "name": seen.name, "command": sink.masked(" ".join(seen.words)),
        "environment": {
            name: _masked(name, value, sink)
            for name, value in sorted(seen.environment.items())
            if _ALLOWED.fullmatch(name)
        },
        "output": {name: sink.masked(place) for name, place in _output(process.pid).items()},
        "status": _status(process.pid),
    }  # fmt: skip


def _masked(name: str, value: str, sink: Sink) -> str:
    """A value without secrets: the name of a variable may say that it is one."""
    return sink.masked(f"{name}={value}").removeprefix(f"{name}=")


def _output(pid: int) -> dict[str, str]:
    """Where it prints to: a path, or what the kernel calls a pipe or a socket."""
    found = {}
    for fd, name in ((1, "stdout"), (2, "stderr")):
        with suppress(OSError):
            found[name] = proc.link(proc.PROC / str(pid) / "fd" / str(fd))
    return found


def _status(pid: int) -> dict[str, str]:
    try:
        status = proc.keyed(proc.PROC / str(pid) / "status")
    except OSError:
        return {}
    names = ("State", "Threads", "VmRSS", "VmSwap", "RssShmem", "SigBlk", "SigIgn", "SigCgt",
             "CapEff", "Cpus_allowed_list", "TracerPid", "Seccomp", "NSpid")  # fmt: skip
    return {name: status[name] for name in names if name in status}
