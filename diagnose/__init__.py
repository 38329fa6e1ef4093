"""Why did a distributed training job hang or die, who is to blame, and what now.

import diagnose

job = diagnose.load("logs/")
job.timeline            # DataFrame, one row an event
job.ranks               # DataFrame, one row a rank
diagnose.diagnose(job)  # Diagnosis
diagnose.compare("good/", "bad/")  # Comparison: what two runs differ in
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, whose import would delay the start of the command
__version__ = "0.1.0"

if TYPE_CHECKING:
    from typing import Any

    from diagnose.comparison import Comparison, compare
    from diagnose.diagnosis import Diagnosis
    from diagnose.errors import CatalogError, DiagnoseError, InputError
    from diagnose.infer.pipeline import diagnose
    from diagnose.job.load import load, load_text
    from diagnose.job.model import Job
    from diagnose.report import render
    from diagnose.report.issue import issue_text

__all__ = [
    "CatalogError",
    "Comparison",
    "DiagnoseError",
    "Diagnosis",
    "InputError",
    "Job",
    "__version__",
    "compare",
    "diagnose",
    "issue_text",
    "load",
    "load_text",
    "render",
]

_HOME = {
    "CatalogError": "diagnose.errors",
    "Comparison": "diagnose.comparison",
    "DiagnoseError": "diagnose.errors",
    "Diagnosis": "diagnose.diagnosis",
    "InputError": "diagnose.errors",
    "Job": "diagnose.job.model",
    "compare": "diagnose.comparison",
    "diagnose": "diagnose.infer.pipeline",
    "issue_text": "diagnose.report.issue",
    "load": "diagnose.job.load",
    "load_text": "diagnose.job.load",
    "render": "diagnose.report",
}


def __getattr__(name: str) -> Any:
    # pandas takes a third of a second to import; `diagnose --help` does not need it.
    if name not in _HOME:
        raise AttributeError(f"module 'diagnose' has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    return getattr(importlib.import_module(_HOME[name]), name)
