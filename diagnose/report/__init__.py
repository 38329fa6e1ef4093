"""Reports: a diagnosis as text for a terminal, an issue or a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from diagnose.diagnosis import Diagnosis
    from diagnose.job.model import Job


@dataclass(frozen=True, slots=True)
class Wish:
    """What a report is wanted like: `redact` names of people, too; `console` knows the terminal."""

    redact: bool
    console: Callable[[], Console]


Render = Callable[["Job", "Diagnosis", Wish], str]

# A report on one job by its name: the module whose `report` makes it, and its encoding (None is
# that of standard output). The modules are imported for who asks; a start would pay for all.
RENDERERS: Mapping[str, tuple[str, str | None]] = {
    "terminal": ("diagnose.report.terminal", None),
    "json": ("diagnose.report.program", "utf-8"),
    "markdown": ("diagnose.report.markdown", None),
}


def rendered(name: str, job: Job, diagnosis: Diagnosis, wish: Wish) -> tuple[str, str | None]:
    """The report of this name, and the encoding it is to have."""
    module, encoding = RENDERERS[name]
    render: Render = import_module(module).report
    return render(job, diagnosis, wish), encoding
