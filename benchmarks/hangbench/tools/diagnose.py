"""Adapter of `diagnose`, that of this interpreter: `diagnose triage --format json FOLDER`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.hangbench.commands import CommandError, Commands
from benchmarks.hangbench.tools import Found, source_version

# The same JSON by the Python API, a line for each folder that standard input names.
BATCH = """
import json, sys, diagnose
for folder in sys.stdin:
    try:
        found = diagnose.diagnose(diagnose.load([folder.rstrip("\\n")])).to_dict()
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(found), flush=True)
"""

GIVES = frozenset({"verdict", "class", "confidence", "ranks", "onset"})


def version(environment: Path) -> str | None:
    return source_version("diagnose")


def answer(case: Path, commands: Commands) -> Found:
    command = [sys.executable, "-m", "diagnose", "triage", "--format", "json"]
    if (output := commands.run([*command, case])).status:
        raise CommandError(output.errors.strip().rpartition("\n")[2])
    return parse(output.text)


def batch() -> list[str]:
    return [sys.executable, "-c", BATCH]


def parse(line: str) -> Found:
    found = json.loads(line)
    if error := found.get("error"):
        raise CommandError(error)
    cause, whom, onset = found["root_cause"], found["culprits"], found["onset"]["time"]
    ranks, hosts = tuple(whom["ranks"]), tuple(whom["hosts"])
    return Found(found["verdict"], cause["class"], cause["confidence"], ranks, hosts, onset)
