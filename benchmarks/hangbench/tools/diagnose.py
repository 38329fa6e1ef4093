"""Adapter of `diagnose`, that of this interpreter: `diagnose triage --format json FOLDER`."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path

from benchmarks.hangbench.commands import CommandError, Commands
from benchmarks.hangbench.tools import Found, digest_of

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


def version(environment: Path) -> str | None:
    spec = importlib.util.find_spec("diagnose")
    if spec is None or spec.origin is None:
        return None
    start = Path(spec.origin)
    number = re.findall(r'__version__ = "(.+)"', start.read_text(encoding="utf-8"))
    return f"{number[0]}+{digest_of([start.parent, start.parents[1] / 'patterns'])}"


def answer(case: Path, commands: Commands) -> Found:
    output = commands.run([sys.executable, "-m", "diagnose", "triage", "--format", "json", case])
    if output.status:
        raise CommandError(output.errors.strip().rpartition("\n")[2])
    return parse(output.text)


def batch() -> list[str]:
    return [sys.executable, "-c", BATCH]


def parse(line: str) -> Found:
    found = json.loads(line)
    if error := found.get("error"):
        raise CommandError(error)
    cause, blamed, onset = found["root_cause"], found["culprits"], found["onset"]["time"]
    named = tuple(blamed["ranks"]), tuple(blamed["hosts"])
    return Found(found["verdict"], cause["class"], cause["confidence"], *named, onset)
