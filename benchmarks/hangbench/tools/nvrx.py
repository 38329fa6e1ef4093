"""Adapter of NVIDIA's Resiliency Extension (NVRx) without its language model.

The restart agent reads the log and names the failure that it takes for the first, with its rank;
the trace analyzer reads the dumps and names the ranks missing from each pending collective.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from benchmarks.hangbench.commands import CommandError, Commands
from benchmarks.hangbench.tools import Found, dumps, json_dumps, link_dumps, one_log

ANALYZER = "nvidia_resiliency_ext.attribution.trace_analyzer.fr_attribution"
AGENT = "nvidia_resiliency_ext.attribution.restart_agent.cli"
HANG = "observed_distributed_operation_timeout"  # a symptom: no class of ours
CLASSES = {"cuda_oom": "crash.gpu_oom", "observed_exception": "crash.exception"}

GIVES = frozenset({"verdict", "class", "ranks"})


def version(environment: Path) -> str | None:
    for folder in environment.glob("nvrx/nvidia_resiliency_ext-*.dist-info"):
        return folder.name.removesuffix(".dist-info").rpartition("-")[2]
    return None


def answer(case: Path, commands: Commands) -> Found:
    variables = {"PYTHONPATH": str(commands.environment / "nvrx")}
    if found := dumps(case) + json_dumps(case):
        with tempfile.TemporaryDirectory() as folder:
            link_dumps(found, folder, "_dump_")  # the names that it looks for
            command = [commands.python(), "-m", ANALYZER, "--emit-stdout", "--fr-path", folder]
            output = commands.run(command, variables)
        rows = re.findall(r"\|\s*([\d,]+)\s*$", output.text, re.MULTILINE)
        if ranks := {int(rank) for row in rows for rank in row.split(",") if rank}:
            return Found("hung", ranks=tuple(sorted(ranks)))
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        one_log(case, Path(log.name))
        output = commands.run([commands.python(), "-m", AGENT, "--disable-l1", log.name], variables)
    if output.status:
        raise CommandError(output.errors.strip().rpartition("\n")[2])
    if (first := json.loads(output.text)["primary_failure"]) is None:
        return Found("unknown")
    cause, named = first["failure_class"], re.findall(r"\d+", str(first["rank"]))
    verdict = "hung" if cause == HANG else "failed"
    return Found(verdict, CLASSES.get(cause, cause), ranks=tuple(map(int, named)))
