"""What a worker does with one job: open it, diagnose it, and give plain values back.

Nothing here loads Arrow or pandas, which would be half of the memory of a worker.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diagnose.batch.jobs import JobRef
from diagnose.batch.layout import note_of_archive
from diagnose.batch.row import error_row, row_of
from diagnose.catalog.load import load_catalog
from diagnose.checkpoint.model import Inspection
from diagnose.diagnosis import Diagnosis
from diagnose.errors import InputError
from diagnose.infer.pipeline import diagnose
from diagnose.ingest import Source, find_sources
from diagnose.ingest.archive import Names
from diagnose.ingest.archive_formats import Entry
from diagnose.ingest.find import MAX_FILES, store_sources
from diagnose.ingest.names import MAX_DEPTH, is_url
from diagnose.ingest.place import Place, place_of, walk
from diagnose.ingest.raw import reason
from diagnose.ingest.recognise import nothing
from diagnose.job.load import read, saved
from diagnose.job.model import Job
from diagnose.parse.path import read_path
from diagnose.redact.redactor import secrets_only
from diagnose.report.html.context import learn
from diagnose.report.safe import escaped, masked_strings
from diagnose.runtime.memory import memory_bound


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
    catalog = ""
    try:
        catalog = load_catalog([Path(path) for path in options.patterns]).revision
        if ref.kind == "missing":
            return Result(error_row(ref, catalog, ref.note), final=False)
        with memory_bound(options.memory):
            job = read(sources_of(ref), patterns=options.patterns)
            job.checkpoints = _checkpoints(ref)
            diagnosis = diagnose(job)
            several = _several(ref, job)
            row = row_of(replace(ref, note=ref.note or several), job, diagnosis)
            return Result(row, _json(job, diagnosis), several=bool(several))
    except InputError as problem:
        error = str(problem)
    except MemoryError:
        error = "exceeded the memory limit of a worker"
    except OSError as problem:
        return Result(error_row(ref, catalog, reason(problem)), final=False)
    except Exception as problem:
        error = f"internal error, please report it: {type(problem).__name__}: {problem}"
    return Result(error_row(ref, catalog, error))


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
    sources += [nothing(one.name, "skipped", one.why, unread=one.unread) for one in names.refused]
    if names.beyond:
        missed.append((folder, f"only the first {MAX_FILES} files were looked at"))
    above = folder.rpartition("/")[0]
    sources += [
        nothing(path.removeprefix(above).lstrip("/"), "skipped", why, unread=True)
        for path, why in missed
    ]
    return sorted(sources, key=lambda source: source.name)


def _checkpoints(ref: JobRef) -> Inspection | None:
    """The checkpoints in a job's folder; archives are not searched."""
    if ref.kind != "folder":
        return None
    try:
        return saved([], [ref.source])
    except InputError:
        return None


def _json(job: Job, diagnosis: Diagnosis) -> str:
    known = learn(job, diagnosis, secrets_only())
    data = masked_strings(diagnosis.to_dict(), known)
    return escaped(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
