"""The command `collect`: what a job that still hangs can tell, from all of its nodes.

Heavy imports stand inside the command, as in all of `cli`.
"""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli.options import file_path
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


def _option(*names: str, metavar: str, help: str) -> typer.models.OptionInfo:  # noqa: A002
    """An option with a value that must not be empty."""
    return typer.Option(*names, metavar=metavar, help=help, parser=_given)  # type: ignore[no-any-return]


_BUNDLE = ".tar.zst, .tar.gz, .tar, or a folder (default: a .tar.zst with the time, here)."
_SENT = "How `diagnose` is started there (default: it is sent; --via: the same Python as here)."
Output = Annotated[str | None, _option("-o", "--output", metavar="PATH", help=f"Bundle: {_BUNDLE}")]
Slurm = Annotated[
    str | None, _option("--slurm", metavar="JOB", help="All nodes of this job, with srun.")
]
Kubernetes = Annotated[
    str | None,
    _option("--kubernetes", metavar="LABELS", help="All pods with these labels, with kubectl."),
]
Namespace = Annotated[
    str | None, _option("-n", "--namespace", metavar="NAME", help="Namespace of the pods.")
]
Container = Annotated[
    str | None, _option("--container", metavar="NAME", help="Which one (default: as kubectl).")
]
Context = Annotated[
    str | None, _option("--context", metavar="NAME", help="Context of kubectl's configuration.")
]
Hosts = Annotated[
    str | None,
    _option("--hosts", metavar="HOSTS", help="All hosts of a file, of - or of a list, with ssh."),
]
Via = Annotated[
    str | None,
    _option("--via", metavar="COMMAND", help="Any launcher, such as 'mpirun -npernode 1'."),
]
Triage = Annotated[bool, typer.Option("--triage", help="Diagnose the bundle at once.")]
Pids = Annotated[
    list[int] | None,
    typer.Option("--pid", metavar="PID", min=1, help="The job's process, with all it started."),
]
Job = Annotated[
    str | None, _option("--job", metavar="ID", help="The job's id, where a node has several.")
]
Seconds = Annotated[
    float,
    typer.Option(
        "--seconds", metavar="S", min=0.1, max=600, help="Between the two samples of usage."
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="S", min=1, max=86400, help="Seconds that one node may take."
    ),
]
MaxSize = Annotated[
    int,
    typer.Option(
        "--max-size",
        metavar="SIZE",
        parser=size,
        show_default=False,
        help="What one node may answer with (default: 512M).",
    ),
]
Parallel = Annotated[
    int,
    typer.Option(
        "--parallel", metavar="N", min=1, max=1024, help="Nodes that are reached at a time."
    ),
]
RemoteCommand = Annotated[str | None, _option("--remote-command", metavar="COMMAND", help=_SENT)]
Force = Annotated[bool, typer.Option("--force", help="Replace a bundle that exists.")]
Program = Annotated[
    Path | None,
    typer.Option(
        "--write-program",
        metavar="FILE",
        parser=file_path,
        help="Write what is sent to nodes to a file, for any Python from 3.10 on, and end.",
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
    target = Path(_checked(output) if output else _name())
    plan = ways.plan(asked, options, timeout, remote_command)
    reach = 0.0 if plan is None else _REACH_S
    _run(target, plan, options, Limits(timeout + reach, max_size, parallel), force, triage)


def _name() -> str:
    """Of a bundle that nobody named: two in one second are not one."""
    return time.strftime(f"diagnose-%Y%m%d-%H%M%S-{os.getpid()}.tar.zst")


def _checked(output: str) -> str:
    if output == "-":
        raise InputError("a bundle cannot be written to standard output")
    return output


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
