"""The first job of a process that workers are copies of, so that none of them pays for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from diagnose.runtime.workers import freeze

_SAMPLE = """\
2026-06-02 08:14:00,000 [rank0]: step 9/100 loss 1.0
[rank0]:[E602 08:25:12.100000000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective \
operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) \
ran for 600100 milliseconds before timing out.
[rank1]: ValueError: bad batch
"""


def warm(name: str, diagnose: Callable[[str], object]) -> None:
    """Load the engine and the catalog; `diagnose` gets a folder with a small log of this name."""
    with suppress(OSError), tempfile.TemporaryDirectory() as folder:
        Path(folder, name).write_text(_SAMPLE, encoding="utf-8")
        diagnose(folder)
    freeze()
