"""What a worker does with one job: open it, diagnose it, and give plain values back.

Nothing here loads Arrow or pandas, which would be half of the memory of a worker.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diagnose.batch.jobs import JobRef
from diagnose.batch.layout import note_of_archive
from diagnose.batch.names import shown
from diagnose.catalog.load import load_catalog
from diagnose.checkpoint.model import newest
from diagnose.cost import gpu_hours, moment, ranks_of, span, standstill
from diagnose.diagnosis import WELL, Diagnosis
from diagnose.errors import InputError
from diagnose.fingerprint import fingerprint
from diagnose.infer.events.facts import gather
from diagnose.infer.pipeline import diagnose
from diagnose.ingest import find_sources
from diagnose.ingest.archive import Names
from diagnose.ingest.archive_formats import Entry
from diagnose.ingest.find import MAX_FILES, store_sources
from diagnose.ingest.names import MAX_DEPTH, is_url
from diagnose.ingest.place import Place, place_of, walk
from diagnose.ingest.raw import reason
from diagnose.ingest.recognise import nothing
from diagnose.ingest.sniff import Container
from diagnose.ingest.source import TEXT_KINDS, Source
from diagnose.job.load import read, saved
from diagnose.job.model import Job
from diagnose.parse.path import read_path
from diagnose.redact.redactor import secrets_only
from diagnose.report.safe import escaped, learn_around, masked_strings
from diagnose.runtime.workers import memory_bound

ERROR_LIMIT = 600  # characters of an error
NOTE_LIMIT = 300
MAX_NOTES = 10


def row_of(ref: JobRef, job: Job, diagnosis: Diagnosis) -> dict[str, Any]:
    """The row of a job that was diagnosed; see `results.COLUMNS` for the columns."""
    root, culprits, facts = diagnosis.root_cause, diagnosis.culprits, diagnosis.job
    started, ended = span(job.events)
    still = standstill(diagnosis, ended)
    ranks = ranks_of(facts, diagnosis.culprits.ranks)
    labels = {**_stated(job), **ref.labels}  # who named the folders knows best
    hung = still.seconds if still else 0.0 if diagnosis.verdict in WELL else None
    return _bare(replace(ref, labels=labels), job.catalog.revision) | {
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


# Facts that have columns of their own, or as many values as jobs have settings.
_NO_LABELS = ("version.", "setting.", "framework", "world_size")


def _stated(job: Job) -> dict[str, str]:
    """What the logs state of a job beside its versions: launcher, trainer, GPU and the like."""
    facts = gather(job.events, job.catalog.by_id)
    return {
        name: values[0]
        for name, values in sorted(facts.values.items())
        if values and not name.startswith(_NO_LABELS)
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
            inside = archive and not source.name.startswith(archive)
            name = f"{archive}!{source.name}" if inside else source.name
            found.append(f"{name}: {'; '.join(notes)}")
    if not found:
        return None
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return "; ".join(found[:3])[:ERROR_LIMIT] + more


def _matters(source: Source, note: str) -> bool:
    if source.kind in ("skipped", "unreadable"):
        return note not in source.left_out
    return source.kind in TEXT_KINDS or source.container is Container.TWICE


@dataclass(frozen=True, slots=True)
class Options:
    """How jobs are diagnosed; goes to the workers with each of them.

    `patterns` are folders of further catalog entries. `memory`: bytes of data that a worker may
    hold (Linux), 0 for no bound; set where the worker is a process of ours.
    """

    patterns: tuple[str, ...] = ()
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """A job's row, and its diagnosis as JSON text in one line ("" if there is none).

    `final`: the same job would give the same again; not so where a remote place failed.
    `several`: an archive that may hold several jobs.
    """

    row: dict[str, Any]
    document: str = ""
    final: bool = True
    several: bool = False


def diagnose_one(ref: JobRef, options: Options) -> Result:
    """Diagnose one job. Never raises: what goes wrong is a row with `error`."""
    catalog, final = "", True
    try:
        catalog = load_catalog([Path(path) for path in options.patterns]).revision
        if ref.kind == "missing":
            return Result(error_row(ref, catalog, ref.note), final=False)
        with memory_bound(options.memory):
            job = read(sources_of(ref), patterns=options.patterns)
            with suppress(InputError):
                if ref.kind == "folder":  # archives are not searched
                    job.checkpoints = saved([], [ref.source])
            diagnosis = diagnose(job)
            several = _several(ref, job)
            row = row_of(replace(ref, note=ref.note or several), job, diagnosis)
            return Result(row, _json(job, diagnosis), several=bool(several))
    except InputError as problem:
        error = str(problem)
    except MemoryError:
        error = "exceeded the memory limit of a worker"
    except OSError as problem:
        error, final = reason(problem), False
    except Exception as problem:
        error = f"internal error, please report it: {type(problem).__name__}: {problem}"
    return Result(error_row(ref, catalog, error), final=final)


def _several(ref: JobRef, job: Job) -> str:
    """What speaks for several jobs in an archive, which was read as one; "" where nothing does."""
    if ref.kind != "archive":
        return ""
    columns = job.events.column("source"), job.events.column("rank")
    wrote = set(zip(*columns, strict=True))
    return note_of_archive((name, rank) for name, rank in wrote if rank is not None)


def sources_of(ref: JobRef) -> list[Source]:
    """The sources of a job. Raises OSError where a remote place does not give them."""
    if not is_url(ref.source):
        return find_sources([Path(path) for path in ref.files or (ref.source,)])
    place, path = place_of(ref.source)
    if ref.kind == "folder":
        return _remote_folder(place, path)
    sources: list[Source] = []
    for one in ref.files or (path,):
        file = place.look(one)
        if file is None:
            sources += _remote_folder(place, one, one.rstrip("/").rpartition("/")[0])
            continue
        name = one.rpartition("/")[2]
        sources += store_sources(
            place.store(file), name, file.size, file.mtime, read_path(name), alone=not ref.files
        )
    return sources


def _remote_folder(place: Place, folder: str, base: str | None = None) -> list[Source]:
    """The sources of a remote folder, by the rules for the members of an archive.

    Names are relative to `base`, by default the folder: one among others keeps its own, which may
    tell the node or rank.
    """
    base = folder if base is None else base
    names = Names(MAX_FILES)
    sources: list[Source] = []
    missed: list[tuple[str, str]] = []
    for file in walk(place, folder, MAX_DEPTH, missed):
        name = names.admit(Entry(file.path.removeprefix(base).lstrip("/"), file.size, file.mtime))
        if name is not None:
            store = place.store(file)
            sources += store_sources(store, name, file.size, file.mtime, read_path(name))
    sources += names.refused
    if names.beyond:
        missed.append((folder, f"only the first {MAX_FILES} files were looked at"))
    above = folder.rpartition("/")[0]
    sources += [
        nothing(path.removeprefix(above).lstrip("/"), "skipped", why, unread=True)
        for path, why in missed
    ]
    return sorted(sources, key=lambda source: source.name)


def _json(job: Job, diagnosis: Diagnosis) -> str:
    known = learn_around(job, diagnosis, secrets_only())
    data = masked_strings(diagnosis.to_dict(), known)
    return escaped(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
