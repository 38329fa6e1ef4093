"""A diagnosis for programs: its JSON, with secrets masked."""

from __future__ import annotations

from diagnose.diagnosis import Diagnosis
from diagnose.job.model import Job
from diagnose.redact.redactor import secrets_only
from diagnose.report import Wish
from diagnose.report.html.context import learn
from diagnose.report.safe import escaped, masked


def report(job: Job, diagnosis: Diagnosis, wish: Wish) -> str:
    """One object of schema `diagnose/2`; names of people stay."""
    return escaped(masked(diagnosis, learn(job, diagnosis, secrets_only())).to_json()) + "\n"
