"""The post-mortem: one self-contained HTML page about one job.

    page = html.render(job, diagnosis)

Unlike the other reports it also looks at the timeline, for its pictures. What a module finds is
plain data; `page` puts it into the templates and, for the pictures, as JSON beside the script.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from diagnose.diagnosis import Diagnosis
    from diagnose.job.model import Job
    from diagnose.report import Wish

__all__ = ["render"]


def report(job: Job, diagnosis: Diagnosis, wish: Wish) -> str:
    """The page, as the other reports are asked for."""
    return render(job, diagnosis, redact=wish.redact)


def render(job: Job, diagnosis: Diagnosis, *, title: str | None = None, redact: bool = True) -> str:
    """The whole page.

    `title` names the job in the page's head (default: what the diagnosis found). With `redact`
    secrets are masked, the same one alike everywhere.
    """
    from diagnose.report.html.page import page  # noqa: PLC0415  (jinja2 is slow to import)

    return page(job, diagnosis, title=title, redact=redact)
