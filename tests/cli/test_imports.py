"""What a verdict on a paste does not wait for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("numpy", "pandas", "pyarrow")
PASTE = """\
[rank0]: ***** Running training *****
[rank0]:[E602 08:25:12.1234567 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000, \
Timeout(ms)=600000) ran for 600001 milliseconds before timing out.
[rank1]: ValueError: bad batch
"""
# Told on standard error, so that the verdict is on standard output as ever.
WRAPPER = f"""\
import sys
from diagnose.cli import main
status = main.run(["triage", "-", *sys.argv[1:]])
print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
sys.exit(status)
"""


@pytest.mark.parametrize("form", ["terminal", "json", "markdown"])
def test_a_verdict_on_a_paste_imports_no_table_library(form: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRAPPER, *([] if form == "terminal" else ["--format", form])],
        input=PASTE,
        capture_output=True,
        cwd=ROOT,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr.split()) == (0, [])
    assert "ALLREDUCE" in done.stdout
