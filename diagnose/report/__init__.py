"""Reports: a diagnosis as text for a terminal, an issue or a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console

    from diagnose.diagnosis import Diagnosis
    from diagnose.job.model import Job


def _plain() -> Console:
    """A console of 80 columns without colour, which writes nowhere."""
    from io import StringIO  # noqa: PLC0415

    from rich.console import Console  # noqa: PLC0415  slow to import

    return Console(
        file=StringIO(), width=80, color_system=None, highlight=False, emoji=False, markup=False
    )


class Wish(NamedTuple):
    """What a report is wanted like: `redact` names of people, too; `console` knows the terminal.

    `why`: show how the verdict came about, where the form has room for it.
    """

    redact: bool = True
    why: bool = False
    console: Callable[[], Console] = _plain


Render = Callable[["Job", "Diagnosis", Wish], str]

# A report on one job by its name: the module and its function that makes it, and its encoding (None
# is that of standard output). The modules are imported for who asks; a start would pay for all.
RENDERERS: Mapping[str, tuple[str, str, str | None]] = {
    "terminal": ("diagnose.report.terminal", "report", None),
    "json": ("diagnose.report.safe", "as_json", "utf-8"),
    "markdown": ("diagnose.report.markdown", "report", None),
    "github": ("diagnose.report.markdown", "issue", "utf-8"),
    "slack": ("diagnose.report.slack", "report", "utf-8"),
    "html": ("diagnose.report.html", "report", "utf-8"),
}


def rendered(name: str, job: Job, diagnosis: Diagnosis, wish: Wish) -> tuple[str, str | None]:
    """The report of this name, and the encoding it is to have."""
    module, function, encoding = RENDERERS[name]
    render: Render = getattr(import_module(module), function)
    return render(job, diagnosis, wish), encoding


def render(job: Job, diagnosis: Diagnosis, form: str = "markdown", *, redact: bool = True) -> str:
    """A diagnosis as text to pass on: `markdown`, `github`, `slack`, `html`, `json`, `terminal`.

    Secrets of a known form are masked in all of them, and but for `json` and `terminal` people's
    names and addresses, too; without `redact` only where the form always masks. Raises ValueError
    for another form.
    """
    if form not in RENDERERS:
        raise ValueError(f"no form {form!r}; there are {', '.join(RENDERERS)}")
    return rendered(form, job, diagnosis, Wish(redact=redact))[0]
