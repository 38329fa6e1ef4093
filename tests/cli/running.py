"""Runs commands for the tests of the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from diagnose.cli import main as cli
from diagnose.diagnosis import Diagnosis, RootCause
from diagnose.ingest.source import Source

ROOT = Path(__file__).parents[2]


COMMAND = [sys.executable, "-m", "diagnose"]


TRACEBACK = b"""\
[rank0]: step 10
[rank1]: Traceback (most recent call last):
[rank1]:   File "/job/train.py", line 7, in <module>
[rank1]: torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""


def answer(verdict: str = "hung", notes: tuple[str, ...] = ()) -> Diagnosis:
    cause = RootCause("net.socket", "Wrong interface", "NCCL chose docker0", "high")
    return Diagnosis(verdict, cause, notes=list(notes))  # type: ignore[arg-type]


class Engine:
    """Stands in for the real one: remembers what it was asked and answers what it was told."""

    def __init__(self) -> None:
        self.diagnosis = answer()
        self.error: BaseException | None = None
        self.sources: list[str] = []
        self.patterns: list[str] = []

    def read(self, sources: list[Source], *, patterns: list[Path], **_: object) -> "Engine":
        if self.error:
            raise self.error
        self.sources = [source.name for source in sources]
        self.patterns = [str(path) for path in patterns]
        return self

    def lines_around(self, *_: object) -> dict[tuple[str, int], dict[int, str]]:
        return {}


def triage(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path
) -> tuple[int, str, dict[str, Any]]:
    """Status, stderr and the JSON of a run of the real engine."""
    status = cli.run(["triage", "--format", "json", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, err, json.loads(out) if out else {}


def shell(streams: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command with its streams as a shell sets them up."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {streams}', "sh", *COMMAND, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def check_readme(mark: str, shown: str) -> None:
    """The block behind a mark of the README shows this text."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    start = text.index(f"<!-- {mark} -->\n```text\n") + len(f"<!-- {mark} -->\n```text\n")
    end = text.index("```\n<!-- end -->", start)
    if os.environ.get("UPDATE_EXPECTED"):
        readme.write_text(text[:start] + shown + text[end:], encoding="utf-8")
    else:
        assert text[start:end].splitlines() == shown.splitlines()
