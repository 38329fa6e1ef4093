"""Adapter of torch's Flight Recorder analyzer (`torchfrtrace`): dumps only.

It prints a block for each collective that did not match, with `missing ranks: {…}` or
`Culprit rank N`. Whom any block names is taken as blamed; it gives no verdict
and no cause.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from benchmarks.hangbench.commands import CommandError, Commands
from benchmarks.hangbench.tools import Found, dumps, installed, link_dumps

MODULE = "torch.distributed.flight_recorder.fr_trace"
PREFIX = "nccl_trace_rank_"
NAMED = re.compile(r"missing ranks: \{([\d, ]+)\}|Culprit rank (\d+)")

GIVES = frozenset({"ranks"})


def version(environment: Path) -> str | None:
    return installed(environment, "torch")


def answer(case: Path, commands: Commands) -> Found:
    found = dumps(case)
    if not found:
        return Found()  # it has nothing to read; JSON it does not know
    with tempfile.TemporaryDirectory() as folder:
        link_dumps(found, folder, PREFIX)
        command = [commands.python(), "-m", MODULE, folder, "-p", PREFIX]
        output = commands.run([*command, "--allow-incomplete-ranks"])
    if output.status:
        raise CommandError(output.errors.strip().rpartition("\n")[2])
    blamed = ",".join(a or b for a, b in NAMED.findall(output.text + output.errors))
    ranks = tuple(sorted({int(rank) for rank in re.findall(r"\d+", blamed)}))
    return Found(ranks=ranks)
