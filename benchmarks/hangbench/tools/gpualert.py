"""Adapter of gpualert: its `parse_errors`, which names the first of its patterns that matches.

`gpualert run` gives it the last 50 lines and the exit status of the job that it started; here it
gets all text, which can only help it, and no exit status, because logs have none.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.hangbench.commands import CommandError, Commands
from benchmarks.hangbench.tools import Found, installed, one_log

SCRIPT = """
import sys
from gpualert.parse_errors import get_error_confidence, parse_errors
summary = parse_errors(open(sys.argv[1], errors="replace").read(), "")
print(get_error_confidence(summary).lower(), summary.partition("\\n")[0], sep="\\n")
"""
# Its words for causes that are ours. Others ("NCCL communication error") span several classes.
CLASSES = {
    "GPU out-of-memory (CUDA OOM)": "crash.gpu_oom",
    "CUDA runtime error": "crash.cuda_error",
    "System out-of-memory (RAM)": "crash.host_oom",
    "Process killed by OS (OOM)": "crash.host_oom",
    "Segmentation fault": "crash.native",
    "Python exception (traceback)": "crash.exception",
    "Python RuntimeError": "crash.exception",
    "Missing Python module": "env.version",
}

GIVES = frozenset({"verdict", "class", "confidence"})


def version(environment: Path) -> str | None:
    return installed(environment, "gpualert")


def answer(case: Path, commands: Commands) -> Found:
    with tempfile.NamedTemporaryFile() as log:
        one_log(case, Path(log.name))
        output = commands.run([commands.python(), "-c", SCRIPT, log.name])
    if output.status:
        raise CommandError(output.errors.strip().rpartition("\n")[2])
    confidence, label = output.text.splitlines()[:2]
    if confidence == "none":
        return Found(verdict="unknown")
    return Found("failed", CLASSES.get(label, label), confidence)
