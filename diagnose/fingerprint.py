"""What two jobs that failed alike have in common: a fingerprint, lines without their variables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from diagnose.diagnosis import WELL, Diagnosis
from diagnose.parse.prefix import peel
from diagnose.text.alike import alike

_LIMIT = 300  # characters of the line that count
_WAITING = ("hung",)


def fingerprint(diagnosis: Diagnosis) -> str:
    """16 hexadecimal digits, the same for the same failure in two jobs.

    They are made of what the verdict says (class, signature, operation or phase) and of its first
    line of evidence, without what differs from run to run: numbers, addresses, paths, hosts, times.
    Jobs without a failure have the one of "healthy".
    """
    if diagnosis.verdict in WELL:
        return _hash(["healthy"])
    root = diagnosis.root_cause
    stopped = diagnosis.collective
    waits = diagnosis.verdict in _WAITING and stopped is not None and stopped.op
    where = stopped.op if waits and stopped else diagnosis.phase
    line = diagnosis.evidence[0].text if diagnosis.evidence else ""
    hosts = {*diagnosis.job.hosts, *diagnosis.culprits.hosts}
    return _hash([root.cause, root.signature or "", where or "", normalised(line, hosts)])


def normalised(line: str, hosts: Iterable[str] = ()) -> str:
    """A line of a log without its prefixes and without what differs from run to run."""
    return alike(peel(line[:4096]).message or line, hosts)[:_LIMIT]


def _hash(parts: list[str]) -> str:
    text = "\0".join(parts).encode(errors="replace")
    return hashlib.blake2b(text, digest_size=8).hexdigest()
