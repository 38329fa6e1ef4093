"""Reading a job from files, folders or text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.artifacts import collect
from diagnose.catalog.load import load_catalog
from diagnose.errors import InputError
from diagnose.ingest import find_sources, text_source
from diagnose.ingest.find import MAX_FILES
from diagnose.ingest.names import local
from diagnose.ingest.recognise import parts_of
from diagnose.ingest.source import TEXT_KINDS, Source, is_document
from diagnose.job.model import Job
from diagnose.match.compile import compile_matcher
from diagnose.match.scanner import scan_source
from diagnose.plugins import notes as notes_on_plugins

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from diagnose.checkpoint.model import Inspection


def load(
    paths: str | Path | Iterable[str | Path],
    *,
    patterns: Sequence[str | Path] = (),
    checkpoints: Sequence[str | Path] = (),
    executor: Executor | None = None,
) -> Job:
    """Read a job from files and folders.

    `patterns` are directories with further catalog entries, `checkpoints` where the job saved to;
    without any, the folders given are searched for checkpoints too. With an `executor` of processes
    (a `ProcessPoolExecutor`, a Dask client's) the sources of a large job, and the parts of large
    ones, are scanned in parallel.
    Raises InputError when nothing of it can be read, CatalogError when a catalog entry is wrong.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise InputError("no path given")
    found = local(map(str, given))
    sources = find_sources(found)
    job = read(sources, patterns=patterns, executor=executor)
    job.checkpoints = saved(found, checkpoints)
    return job


def saved(paths: Iterable[str | Path], checkpoints: Sequence[str | Path] = ()) -> Inspection | None:
    """The checkpoints in `checkpoints`, or without these in the folders among `paths`.

    None where there are none. Raises InputError when one of `checkpoints` cannot be read.
    """
    folders = [str(path) for path in checkpoints or paths if checkpoints or Path(path).is_dir()]
    if folders and not checkpoints:
        from diagnose.checkpoint.tree import holds_states  # noqa: PLC0415  as below

        folders = [folder for folder in folders if holds_states(folder, MAX_FILES)]
    if not folders:
        return None
    from diagnose.checkpoint.find import inspect  # noqa: PLC0415  seldom needed

    inspection = inspect(folders) if checkpoints else inspect(folders, max_files=MAX_FILES)
    return inspection if inspection.checkpoints else None


def load_text(text: str, *, patterns: Sequence[str | Path] = ()) -> Job:
    """Read a job from pasted text."""
    return read([text_source(text)], patterns=patterns)


def read(
    sources: Sequence[Source],
    *,
    patterns: Sequence[str | Path] = (),
    workers: int = 1,
    executor: Executor | None = None,
    meanwhile: Callable[[], object] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Job:
    """Scan sources into a job, in several `workers` (processes) or those of an `executor`.

    What `meanwhile` does needs not wait for them; with one worker `on_progress` gets how many of
    how many of the job's logs were scanned.

    Raises InputError when none of them holds anything to read, or a worker was killed.
    """
    catalog = load_catalog([Path(path) for path in patterns])
    sources = [part for source in sources for part in parts_of(source)]
    readable = [source for source in sources if source.kind in TEXT_KINDS]
    documents = collect(source for source in sources if is_document(source.kind))
    notes = [*catalog.notes, *notes_on_plugins()]
    notes += [f"{source.name}: {source.note}" for source in sources if source.note]
    if not readable and not documents.useful:
        raise InputError("; ".join(documents.notes[:3]) or _nothing_to_read(sources))
    if executor is None and workers < 2:
        scans = []
        for number, source in enumerate(readable):
            if on_progress is not None:
                on_progress(number, len(readable))
            scans.append(scan_source(source, compile_matcher(catalog)))
    else:
        from diagnose.job.parallel import scan_in  # noqa: PLC0415  large jobs only

        scans = scan_in(
            readable, patterns, compile_matcher(catalog),
            workers=workers, executor=executor, meanwhile=meanwhile,
        )  # fmt: skip
    for scan in scans:
        later = [note for note in scan.source.notes if note != scan.source.note]
        notes += [f"{scan.source.name}: {note}" for note in (*later, scan.problem) if note]
    notes += documents.notes
    if not any(scan.holds_text() for scan in scans) and not documents.useful:
        raise InputError("; ".join(notes) or "the input is empty")
    unread = [f"{source.name}: {why}" for source in sources for why in source.unread]
    return Job(
        sources,
        scans,
        catalog,
        list(dict.fromkeys(notes)),
        documents,
        unread=list(dict.fromkeys(unread + documents.unread)),
    )


def _nothing_to_read(sources: Sequence[Source]) -> str:
    if not sources:
        return "no logs found"
    shown = "; ".join(f"{source.name}: {source.note or source.kind}" for source in sources[:3])
    more = f" (and {len(sources) - 3} more)" if len(sources) > 3 else ""
    return f"no log to read: {shown}{more}"
