"""What a site has confirmed of earlier jobs: similar incidents, and how often verdicts were right.

Here is where the file is, and all that runs where none exists; `store` is the file; `features` says
what of a diagnosis is compared; `recall` finds similar incidents; `site` corrects the confidence.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis

NAME = "memory.sqlite"
VARIABLE = "DIAGNOSE_MEMORY"


def place(given: Path | None) -> Path:
    """The file given, or of that folder; else that of DIAGNOSE_MEMORY; else in the user's data.

    By hand and not by platformdirs: this is asked for every verdict.
    """
    chosen = given or (Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None)
    if chosen is None:
        data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")  # noqa: PTH111
        return Path(data, "diagnose", NAME)
    return chosen / NAME if os.path.isdir(chosen) else chosen  # noqa: PTH112  never raises


def recalled(diagnosis: Diagnosis, given: Path | None = None) -> Diagnosis:
    """The diagnosis with what the memory knows of it; as it is where there is none."""
    path = place(given)
    if not os.path.isfile(path):  # noqa: PTH113  never raises, also in a home that is closed to us
        return diagnosis
    from diagnose.memory.recall import remembered  # noqa: PLC0415  most have none

    return remembered(diagnosis, path)
