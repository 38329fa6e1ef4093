"""The command `collect`: what a job that still hangs can tell, from all of its nodes.

Heavy imports stand inside the command, as in all of `cli`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli.options import file_path, option
from diagnose.cli.output import clean, say, write
from diagnose.errors import InputError
from diagnose.runtime.command import INTERRUPTED

if TYPE_CHECKING:
    from diagnose.collect.bundle import NodeOptions
    from diagnose.collect.reach.gather import Limits
    from diagnose.collect.reach.run import Collected
    from diagnose.collect.reach.ways import Plan

_REACH_S = 20.0  # for a connection, a step or a launcher to begin and to end
_SHOWN = 20  # problems on standard error; all are in the bundle
_SIZE = re.compile(r"(\d{1,12})([KMGT]?)(?:i?B)?", re.IGNORECASE)
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def size(text: str) -> int:
    """Bytes: `512M`, `2G`, `1048576`."""
    found = _SIZE.fullmatch(str(text))
    if not found or not int(found[1]):
        raise typer.BadParameter(f"{text!a} is no size such as 512M")
    return int(found[1]) << _UNITS[found[2].upper()]


def _given(text: str) -> str:
    if not text:  # an unset variable of a script
        raise typer.BadParameter("it is empty")
    return text


_option = partial(option, parser=_given)  # with a value that must not be empty
_BUNDLE = ".tar.zst, .tar.gz, .tar, or a folder (default: a .tar.zst with the time, here)."
_SENT = "How `diagnose` is started there (default: it is sent; --via: the same Python as here)."
Output = Annotated[str | None, _option("-o --output", f"Bundle: {_BUNDLE}", "PATH")]
Slurm = Annotated[str | None, _option("--slurm", "All nodes of this job, with srun.", "JOB")]
Kubernetes = Annotated[
    str | None, _option("--kubernetes", "All pods with these labels, with kubectl.", "LABELS")
]
Namespace = Annotated[str | None, _option("-n --namespace", "Namespace of the pods.", "NAME")]
Container = Annotated[
    str | None, _option("--container", "Which one (default: as kubectl).", "NAME")
]
Context = Annotated[str | None, _option("--context", "Context of kubectl's configuration.", "NAME")]
Hosts = Annotated[
    str | None, _option("--hosts", "All hosts of a file, of - or of a list, with ssh.", "HOSTS")
]
Via = Annotated[
    str | None, _option("--via", "Any launcher, such as 'mpirun -npernode 1'.", "COMMAND")
]
Triage = Annotated[bool, option("--triage", "Diagnose the bundle at once.")]
Pids = Annotated[
    list[int] | None, option("--pid", "The job's process, with all it started.", "PID", min=1)
]
Job = Annotated[str | None, _option("--job", "The job's id, where a node has several.", "ID")]
Seconds = Annotated[
    float, option("--seconds", "Between the two samples of usage.", "S", min=0.1, max=600)
]
Timeout = Annotated[
    float, option("--timeout", "Seconds that one node may take.", "S", min=1, max=86400)
]
MaxSize = Annotated[
    int,
    option(
        "--max-size",
        "What one node may answer with (default: 512M).",
        "SIZE",
        parser=size,
        show_default=False,
    ),
]
Parallel = Annotated[
    int, option("--parallel", "Nodes that are reached at a time.", "N", min=1, max=1024)
]
RemoteCommand = Annotated[str | None, _option("--remote-command", _SENT, "COMMAND")]
Force = Annotated[bool, option("--force", "Replace a bundle that exists.")]
Program = Annotated[
    Path | None,
    option(
        "--write-program",
        "Write what is sent to nodes to a file, for any Python from 3.10 on, and end.",
        "FILE",
        parser=file_path,
    ),
]
# What a node is asked for; see `diagnose.collect.reach.remote`.
NodeOnly = Annotated[bool, typer.Option("--node-only", hidden=True)]
Lines = Annotated[bool, typer.Option("--lines", hidden=True)]
ProbeSize = Annotated[int | None, typer.Option("--probe-size", hidden=True)]


def collect(
    output: Output = None,
    slurm: Slurm = None,
    kubernetes: Kubernetes = None,
    namespace: Namespace = None,
    container: Container = None,
    context: Context = None,
    hosts: Hosts = None,
    via: Via = None,
    triage: Triage = False,
    pids: Pids = None,
    job: Job = None,
    seconds: Seconds = 5.0,
    timeout: Timeout = 60.0,
    max_size: MaxSize = 512 << 20,
    parallel: Parallel = 64,
    remote_command: RemoteCommand = None,
    force: Force = False,
    program: Program = None,
    node_only: NodeOnly = False,
    lines: Lines = False,
    probe_size: ProbeSize = None,
) -> None:
    """Collect what shows why a running job hangs.

    Stacks of all ranks, dumps, and the state of their nodes.
    """
    from diagnose.collect.bundle import NodeOptions
    from diagnose.collect.reach import ways
    from diagnose.collect.reach.gather import Limits

    limit = probe_size or min(max_size, NodeOptions().probe_bytes)
    options = NodeOptions(tuple(pids or ()), job, apart_s=seconds, probe_bytes=limit)
    if node_only:
        from diagnose.collect.reach.remote import answer

        raise typer.Exit(answer(options, timeout, lines=lines))
    if program:
        from diagnose.collect.reach.program import program as sent
        from diagnose.runtime.files import write as write_file

        write_file(program, sent())
        return
    asked = ways.Asked(slurm, kubernetes, namespace, container, context, hosts, via)
    if output == "-":
        raise InputError("a bundle cannot be written to standard output")
    # Two in one second are not one.
    target = Path(output or time.strftime(f"diagnose-%Y%m%d-%H%M%S-{os.getpid()}.tar.zst"))
    plan = ways.plan(asked, options, timeout, remote_command)
    reach = 0.0 if plan is None else _REACH_S
    _run(target, plan, options, Limits(timeout + reach, max_size, parallel), force, triage)


def _run(
    target: Path, plan: Plan | None, options: NodeOptions, limits: Limits, force: bool, triage: bool
) -> None:
    from diagnose.collect.reach import run
    from diagnose.collect.reach.run import Progress, ranks

    progress = Progress(sys.stderr, len(plan.calls) if plan else 1, clean)
    found = run.collect(plan, options, limits, target, replace=force, done=progress)
    progress.end()
    _tell(found)
    if found.interrupted:
        say(f"collect: interrupted; what had come is in {clean(str(target))}")
        raise typer.Exit(INTERRUPTED)
    if not any(map(ranks, found.nodes)):
        raise InputError(f"nothing was collected ({target} says why)")
    if triage:
        from diagnose.cli.job import triage as show

        show([str(target)])
    else:
        write(f"{target}\n")


def _tell(found: Collected) -> None:
    """The problems, and what was collected, on standard error."""
    from diagnose.collect.reach.run import ranks
    from diagnose.collect.reach.run import size as shown
    from diagnose.text.ranks import counted

    lines = [*found.problems]
    for node in found.nodes:
        problems = node.get("problems")
        if isinstance(problems, list):
            lines += [f"{node.get('host')}: {one}" for one in problems]
    for line in lines[:_SHOWN]:
        say(f"collect: {clean(line)}")
    if len(lines) > _SHOWN:
        say(f"collect: {counted(len(lines) - _SHOWN, 'more problem')}: see manifest.json")
    if found.nodes:
        what = counted(sum(map(ranks, found.nodes)), "rank")
        what += f" on {counted(len(found.nodes), 'node')}, {shown(found.size)}"
        say(f"collect: {what}, in {found.seconds:.1f} s")
