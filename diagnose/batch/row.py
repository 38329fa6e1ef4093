"""One job as a row of the table: what a fleet is asked about, in plain values."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from diagnose.batch.jobs import JobRef
from diagnose.batch.names import shown
from diagnose.checkpoint.model import newest
from diagnose.cost import gpu_hours, moment, ranks_of, span, standstill
from diagnose.diagnosis import WELL, Diagnosis
from diagnose.ingest.sniff import Container
from diagnose.ingest.source import TEXT_KINDS, Source
from diagnose.parse.prefix import peel
from diagnose.report.safe import masked_strings

if TYPE_CHECKING:
    from diagnose.job.model import Job

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


ERROR_LIMIT = 600  # characters of an error
NOTE_LIMIT = 300
MAX_NOTES = 10


def row_of(ref: JobRef, job: Job, diagnosis: Diagnosis) -> dict[str, Any]:
    """The row of a job that was diagnosed; see `results.COLUMNS` for the columns."""
    root, culprits, facts = diagnosis.root_cause, diagnosis.culprits, diagnosis.job
    started, ended = span(job.events)
    still = standstill(diagnosis, ended)
    ranks = ranks_of(facts, diagnosis.culprits.ranks)
    hung = 0.0 if diagnosis.verdict in WELL else None
    if still is not None:
        hung = still.seconds
    return _bare(ref, job.catalog.revision) | {
        "verdict": diagnosis.verdict,
        "class": root.cause,
        "signature": root.signature,
        "confidence": root.confidence,
        "culprit_ranks": list(culprits.ranks),
        "culprit_hosts": list(culprits.hosts),
        "culprit_kind": culprits.kind,
        "phase": diagnosis.phase,
        "onset": moment(diagnosis.onset.time),
        "duration_hung_s": hung,
        "gpu_hours_lost": gpu_hours(hung, ranks),
        **_saved(job),
        "fingerprint": fingerprint(diagnosis),
        "title": root.title,
        "hosts": list(facts.hosts),
        "ranks": ranks,
        "versions": json.dumps(shown(facts.versions), sort_keys=True),
        "frameworks": list(facts.frameworks),
        "started": started,
        "ended": ended,
        "error": problems(ref, job.sources),
        "notes": [note[:NOTE_LIMIT] for note in (*filter(None, [ref.note]), *diagnosis.notes)][
            :MAX_NOTES
        ],
    }


def _saved(job: Job) -> dict[str, Any]:
    back = job.checkpoints and job.checkpoints.resume
    last = newest(job.checkpoints.checkpoints) if job.checkpoints else None
    return {
        "checkpoint": back and back.path,
        "checkpoint_step": back and back.step,
        "checkpoint_state": last and last.state,
    }


def error_row(ref: JobRef, catalog: str, error: str) -> dict[str, Any]:
    """The row of a job that could not be diagnosed; it names the job's archive."""
    name = ref.source.rpartition("/")[2]
    if name not in error:
        error = f"{name}: {error}"
    return _bare(ref, catalog) | {"error": error[:ERROR_LIMIT]}


def _bare(ref: JobRef, catalog: str) -> dict[str, Any]:
    return {
        "job": ref.id,
        "source": ref.source,
        "labels": json.dumps(masked_strings(shown(ref.labels)), sort_keys=True),
        "size": ref.size,
        "mtime": ref.mtime,
        "tag": ref.tag,
        "catalog": catalog,
    }


def problems(ref: JobRef, sources: Sequence[Source]) -> str | None:
    """What could not be read of a job, naming archive and member; None if all was."""
    archive = ref.source.rpartition("/")[2] if ref.kind == "archive" else ""
    found: list[str] = []
    for source in sources:
        parts = dict.fromkeys(part for part in [*source.note.split("; "), *source.notes] if part)
        notes = [part for part in parts if _matters(source, part)]
        if notes:
            name = source.name
            if archive and not name.startswith(archive):
                name = f"{archive}!{name}"
            found.append(f"{name}: {'; '.join(dict.fromkeys(notes))}")
    if not found:
        return None
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return "; ".join(found[:3])[:ERROR_LIMIT] + more


def _matters(source: Source, note: str) -> bool:
    if source.kind in ("skipped", "unreadable"):
        return note not in source.left_out
    return source.kind in TEXT_KINDS or source.container is Container.TWICE
