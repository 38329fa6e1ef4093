"""Imported once by the process that workers are copies of: the engine loaded, the catalog ready."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

from diagnose.serve import work
from diagnose.serve.model import PASTE, TYPES, Task

_SAMPLE = """\
2026-06-02 08:14:00,000 [rank0]: step 9/100 loss 1.0
[rank0]:[E602 08:25:12.100000000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) \
ran for 600100 milliseconds before timing out.
[rank1]: ValueError: bad batch
"""


def _warm() -> None:
    """Do all that a first job would pay for: imports, catalog, matcher, templates."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / PASTE).write_text(_SAMPLE, encoding="utf-8")
        work.attempt(Task(folder, "text", tuple(TYPES)), lambda _: None)
    gc.collect()
    gc.freeze()  # what is shared with the workers is not written to by looking for garbage
    gc.set_threshold(100_000, 20, 20)


_warm()
