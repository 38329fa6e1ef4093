"""Adapter of Huawei's Ascend FaultDiag (`ascend-fd parse`, then `diag`).

Its search for the root device reads HCCL's own process logs, which no case here has: it is given
the jobs' output as training logs, in which its catalog of faults is searched.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from benchmarks.hangbench.commands import CommandError, Commands
from benchmarks.hangbench.tools import Found, installed, logs

NOTHING = "NORMAL_OR_UNSUPPORTED"  # its code where it finds no fault, or cannot tell

GIVES = frozenset({"verdict", "ranks"})


def version(environment: Path) -> str | None:
    return installed(environment, "ascend-faultdiag")


def answer(case: Path, commands: Commands) -> Found:
    tool = str(commands.environment / "bin" / "ascend-fd")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        for folder in ("train", "parsed/worker-0", "result"):
            (work / folder).mkdir(parents=True)
        for number, path in enumerate(logs(case)):  # the names by which it knows training logs
            rank = re.findall(r"rank\D?(\d+)", path.name) or [str(number)]
            (work / "train" / f"rank-{rank[0]}.txt").write_bytes(path.read_bytes())
        home, parsed = {"HOME": name}, work / "parsed"
        to = ["-o", str(parsed / "worker-0")]
        commands.run([tool, "parse", "--train_log", work / "train", *to], home)
        output = commands.run([tool, "diag", "-i", parsed, "-o", work / "result"], home)
        report = work / "result" / "fault_diag_result" / "diag_report.json"
        if not report.exists():
            raise CommandError(output.text.strip().rpartition("\n")[2])
        found = json.loads(report.read_text(encoding="utf-8"))
    faults = [fault["code"] for fault in found["Knowledge_Graph"]["fault"]]
    devices = " ".join(found["Root_Cluster"]["root_cause_device"])
    ranks = tuple(int(rank) for rank in re.findall(r"device-(\d+)", devices))
    if faults in ([], [NOTHING]) and not ranks:
        return Found(verdict="unknown")
    return Found("failed", cause=faults[0] if faults else None, ranks=ranks)
