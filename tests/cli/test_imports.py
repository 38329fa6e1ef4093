"""What a verdict on a paste does not wait for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from diagnose.job.reread import SMALL
from tests.sizes import few

ROOT = Path(__file__).parents[2]
HEAVY = (
    "numpy", "pandas", "pyarrow", "concurrent.futures.process", "statistics",
    "diagnose.checkpoint.tree", "sqlite3", "diagnose.memory.recall",
)  # fmt: skip
PASTE = """\
[rank0]: ***** Running training *****
[rank0]:[E602 08:25:12.1234567 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1000, NumelOut=1000, \
Timeout(ms)=600000) ran for 600001 milliseconds before timing out.
[rank1]: ValueError: bad batch
"""
# Communicators without a call, as NCCL_DEBUG=INFO without SUBSYS tells them.
COMMUNICATORS = "".join(
    f"node{r}:{r}:9 [0] NCCL INFO comm 0x5{r} rank {r} nranks 2 cudaDev 0 nvmlDev 0 busId 1000 "
    f"commId 0x1234 - Init {what}\n"
    for what in ("START", "COMPLETE")
    for r in (0, 1)
)
# Told on standard error, so that the verdict is on standard output as ever.
WRAPPER = f"""\
import sys
from diagnose.cli import main
status = main.run(["triage", *sys.argv[1:]])
print(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
sys.exit(status)
"""


def triage(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """What the command prints for a text on its standard input."""
    return subprocess.run(
        [sys.executable, "-c", WRAPPER, *arguments],
        input=text,
        capture_output=True,
        cwd=ROOT,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("form", few(["terminal", "json", "markdown", "github", "slack"], 2))
@pytest.mark.slow
def test_a_verdict_on_a_paste_imports_nothing_heavy(form: str) -> None:
    done = triage("-", "--format", form, text=PASTE)
    assert (done.returncode, done.stderr.split()) == (0, [])
    assert "ALLREDUCE" in done.stdout


@pytest.mark.slow
def test_communicators_without_a_call_import_no_pandas() -> None:
    done = triage("-", text=f"{COMMUNICATORS}[rank1]: ValueError: bad batch\n")
    assert done.returncode == 0
    assert "pandas" not in done.stderr.split()
    assert "bad batch" in done.stdout


def test_evidence_in_a_large_log_imports_no_table_library(tmp_path: Path) -> None:
    """What is around it is read at its offset, which the events tell."""
    log = tmp_path / "job.log"
    log.write_text("nothing to see here\n" * (SMALL // 20 + 1) + PASTE)
    done = triage(str(log), "--format", "json")
    assert done.returncode == 0
    assert {"pandas", "pyarrow"}.isdisjoint(done.stderr.split())
    assert "ALLREDUCE" in done.stdout
