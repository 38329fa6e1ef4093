"""Jobs whose folder holds checkpoints."""

from __future__ import annotations

from pathlib import Path

import diagnose
from diagnose.diagnosis import Diagnosis
from tests.checkpoint.make import hf

SAVED = 1_700_000_000.0
DIED = """\
[2026-01-01 10:00:00,000] [INFO] ***** Running training *****
{'loss': 1.0, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1, 'step': 210}
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free.
"""  # noqa: E501


def trainer(folder: Path, *steps: int) -> None:
    for number, step in enumerate(steps):
        start = SAVED + 600 * number
        hf.MAKERS["hf-trainer"](folder / f"checkpoint-{step}", step=step, world=4, start=start)


def of(folder: Path, log: str) -> Diagnosis:
    (folder / "train.log").write_text(log)
    return diagnose.diagnose(diagnose.load(folder))
