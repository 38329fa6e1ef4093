"""A diagnosis for programs: its JSON, with secrets masked."""

from __future__ import annotations

from diagnose.diagnosis import Diagnosis
from diagnose.job.model import Job
from diagnose.redact.redactor import secrets_only
from diagnose.report import Wish
from diagnose.report.safe import escaped, learn_around, masked


def report(job: Job, diagnosis: Diagnosis, wish: Wish) -> str:
    """One object of schema `diagnose/2`; names of people stay."""
    return escaped(masked(diagnosis, learn_around(job, diagnosis, secrets_only())).to_json()) + "\n"
