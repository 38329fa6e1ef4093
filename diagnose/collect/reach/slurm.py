"""Nodes of a job of Slurm: a step of its own on each, beside the job's.

A step for each node rather than one for all: a step does not start where one of its nodes is
down, and that is when it is wanted. `squeue` and `scontrol` say which nodes there are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from diagnose.collect.reach.model import Call, Plan
from diagnose.collect.reach.program import Start
from diagnose.collect.reach.tools import ToolError, absent, ask, environment

_JOB = re.compile(r"\d{1,18}(?:[_+]\d{1,10})?")
_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
# Inside a job these would be taken for options of the new step.
CLEAN = ("SLURM_", "SLURMD_", "SRUN_", "SBATCH_", "PMI_", "PMIX_")
KEEP = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT"})


@dataclass(frozen=True, slots=True)
class _Part:
    """A running job of one number: an element of an array, or a part of a heterogeneous job."""

    name: str
    number: str
    nodes: str


def plan(job: str, start: Start) -> Plan:
    """A call for each node of a running job, by its number: `81922`, `81922_4`, `81922+1`."""
    found = Plan("slurm", clean=CLEAN, keep=KEEP)
    found.problems = [line for tool in ("srun", "squeue", "scontrol") for line in absent(tool)][:1]
    if found.problems:
        return found
    if not _JOB.fullmatch(job):
        found.problems = [f"{job[:100]!a} is no job of Slurm"]
        return found
    try:
        for part in _parts(job):
            found.calls += [_call(part.number, node, start) for node in _names(part.nodes)]
    except ToolError as error:
        found.problems.append(f"job {job}: {error}")
    return found


def _parts(job: str) -> list[_Part]:
    """What of a job is running. Raises ToolError."""
    answer = ask(
        ["squeue", "--noheader", f"--jobs={job}", "--format=%i|%A|%T|%N"], environment(CLEAN, KEEP)
    )
    rows = [line.strip().split("|") for line in answer.decode("utf-8", "replace").splitlines()]
    rows = [row for row in rows if len(row) == 4]
    running = [_Part(name, number, nodes) for name, number, state, nodes in rows
               if state == "RUNNING" and nodes]  # fmt: skip
    if not running:
        states = sorted({row[2].lower() for row in rows})
        raise ToolError(f"it is not running ({', '.join(states) or 'it has ended'})")
    if len(running) > 1 and all("_" in part.name for part in running):
        some = ", ".join(part.name for part in running[:3])
        raise ToolError(f"it is an array of {len(running)} jobs: name one of them, as {some}")
    return running


def _names(nodes: str) -> list[str]:
    """The names in a node list of Slurm. Raises ToolError."""
    answer = ask(["scontrol", "show", "hostnames", nodes], environment(CLEAN, KEEP))
    names = answer.decode("utf-8", "replace").split()
    if not names or not all(map(_NODE.fullmatch, names)):
        raise ToolError(f"scontrol gave no names for its nodes {nodes[:100]!a}")
    return names


def _call(number: str, node: str, start: Start) -> Call:
    command = (
        "srun", f"--jobid={number}", "--overlap", f"--nodelist={node}", "--nodes=1", "--ntasks=1",
        "--cpus-per-task=1", "--cpu-bind=none", "--mpi=none", "--job-name=diagnose",
        # The folder in which we are may be on a file system that does not answer over there.
        "--chdir=/", "--quiet",
        *start.also(f"--job={number}").words,
    )  # fmt: skip
    return Call(node, command, start.stdin)
