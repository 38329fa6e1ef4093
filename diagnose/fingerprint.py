"""What two jobs that failed alike have in common: a fingerprint, lines without their variables."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from diagnose.diagnosis import WELL, Diagnosis
from diagnose.parse.prefix import peel

_LIMIT = 300  # characters of the line that count
_WAITING = ("hung",)
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DAYS = "Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_DOMAINS = "internal|local|cluster|svc|lan"
# In this order: what is inside another form comes later.
_FORMS = [
    (re.compile(r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"(?i)\b[a-z][a-z0-9+.\-]{1,15}://[^\s'\",)\]]+"), "<url>"),
    (re.compile(r"(?<![\w.])(?:~|\.{1,2})?(?:/[\w.@%+=:,~\-]+)+/?"), "<path>"),
    (re.compile(r"\b[A-Za-z]:\\[^\s'\"]+"), "<path>"),
    (re.compile(r"(?i)\b0x[0-9a-f]+\b"), "<hex>"),
    (re.compile(r"(?i)\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{6,}\b"), "<hex>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?:<\d+>)?"), "<ip>"),
    (re.compile(rf"(?<![\w.\-])[\w\-]+(?:\.[\w\-]+){{0,8}}\.(?:{_DOMAINS})\b"), "<host>"),
    (re.compile(rf"\b(?:{_DAYS}|{_MONTHS})\b"), "<d>"),
    (re.compile(r"[+-]?\d+(?:[.,:]\d+)*(?:e[+-]?\d+)?"), "<n>"),
    (re.compile(r"\[<n>(?:, ?<n>)*(?:, ?\.\.\.)?\]|<n>(?:[,;|] ?<n>)+"), "<n>"),
    (re.compile(r"\s+"), " "),
]


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
    text = peel(line[:4096]).message or line
    for host in sorted(filter(None, hosts), key=len, reverse=True):
        text = re.sub(rf"(?<![\w.\-]){re.escape(host)}(?![\w\-])", "<host>", text)
    for form, instead in _FORMS:
        text = form.sub(instead, text)
    return text.strip()[:_LIMIT]


def _hash(parts: list[str]) -> str:
    text = "\0".join(parts).encode(errors="replace")
    return hashlib.blake2b(text, digest_size=8).hexdigest()
