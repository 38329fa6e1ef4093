"""Which jobs there are: from folders, archives, single logs and URLs to one JobRef a job.

One job is an archive, or a folder that directly holds logs, with all below it; a bundle of
`collect`; or a folder whose folders are parts of one job by what their logs state (see `layout`).
Logs and folders that state different jobs are jobs of their own, wherever they lie. A folder whose
logs carry different job ids in their names (Slurm's `slurm-<id>.out`, PBS's `name.o<id>`) holds one
job an id. Where that guesses wrong, `job_glob` says what is a job. The results of a scan are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from diagnose.batch.finder import Finder, JobRef, base_name, single
from diagnose.errors import InputError
from diagnose.ingest.given import expanded, why_unreadable
from diagnose.ingest.place import Place, holds_results, is_url, place_of
from diagnose.ingest.raw import reason

__all__ = ["JobRef", "find_jobs", "find_stored"]

# A job id at the start of a name or behind a word for it, but no date.
_DEFAULT_LABEL = re.compile(
    r"(?:^|[/._\-])(?:slurm-|job[-_]?)?(?!(?:19|20)\d{6}(?!\d))(?P<job_id>\d{4,12})(?!\d)"
)


def find_jobs(
    archives: Sequence[str],
    *,
    job_glob: str | None = None,
    labels: Sequence[str] = (),
    since: float | None = None,
) -> Iterator[JobRef]:
    """The jobs in `archives`, each once, in the order of their paths.

    `job_glob` is relative to each folder given; every match, file or folder, is one job. `labels`
    are regular expressions searched in a job's path, whose named groups become labels; a group
    `job` gives the id. Jobs whose newest file is older than `since` (seconds since 1970) are left
    out. Raises InputError for a wrong expression, a URL without a reader and a path that is not
    there.
    """
    patterns = [_compiled(text) for text in labels]
    seen: set[str] = set()
    for given in expanded(archives):
        place, path = place_of(given)
        for ref in _given(place, path, job_glob):
            if ref.source in seen or (since is not None and 0 < ref.mtime < since):
                continue
            seen.add(ref.source)
            yield _labelled(ref, patterns)


def find_stored(source: str) -> Iterator[JobRef]:
    """The jobs that `source` of a JobRef can stand for: the file or folder, or logs of one id.

    Raises InputError where it is not there any more.
    """
    place, path = place_of(source)
    finder = Finder(place, path.rpartition("/")[0])
    try:
        file = place.look(path)
        yield finder.whole(path) if file is None else single(place, file, finder.name(path))
        yield from (ref for ref in finder.folder(finder.root or "/", 0) if ref.source == path)
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from error


def _given(place: Place, path: str, job_glob: str | None) -> Iterator[JobRef]:
    try:
        file = place.look(path)
    except OSError as error:
        raise InputError(f"{path}: {why_unreadable(path, error)}") from error
    if file is not None:
        yield single(place, file, base_name(path))
        return
    finder = Finder(place, path)
    if job_glob is None:
        yield from finder.folder(path, 0)
        return
    for match in place.matches(f"{path if is_url(path) else _escaped(path)}/{job_glob}"):
        try:
            found = place.look(match)
        except OSError as error:
            yield JobRef(finder.name(match), "missing", match, note=reason(error))
            continue
        if found is not None:
            yield single(place, found, finder.name(match))
        elif not _is_results(place, match):
            yield finder.whole(match)


def _is_results(place: Place, folder: str) -> bool:
    with suppress(OSError):
        return holds_results(*place.listing(folder))
    return False


def _labelled(ref: JobRef, patterns: Sequence[re.Pattern[str]]) -> JobRef:
    found: dict[str, str] = {}
    if default := _DEFAULT_LABEL.search(ref.id):
        found["job_id"] = default["job_id"]
    for pattern in patterns:
        if match := pattern.search(ref.source):
            found |= {name: value for name, value in match.groupdict().items() if value}
    id_ = found.pop("job", ref.id)
    return JobRef(
        id_, ref.kind, ref.source, ref.size, ref.mtime, ref.tag, ref.files, found, ref.note
    )


def _escaped(path: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", path)


def _compiled(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise InputError(f"label pattern {text!r}: {error}") from error
    if not pattern.groupindex:
        raise InputError(f"label pattern {text!r}: no named group, such as (?P<user>\\w+)")
    return pattern
