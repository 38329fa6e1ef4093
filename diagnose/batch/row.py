"""One job as a row of the table: what a fleet is asked about, in plain values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from diagnose.batch.fingerprint import fingerprint
from diagnose.batch.jobs import JobRef
from diagnose.batch.names import shown
from diagnose.checkpoint.resume import newest
from diagnose.cost import gpu_hours, moment, ranks_of, span, standstill
from diagnose.diagnosis import WELL, Diagnosis
from diagnose.ingest.sniff import Container
from diagnose.ingest.source import TEXT_KINDS, Source
from diagnose.report.safe import masked_strings

if TYPE_CHECKING:
    from diagnose.job.model import Job

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
