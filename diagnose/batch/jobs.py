"""Which jobs there are: from folders, archives, single logs and URLs to one JobRef a job.

One job is an archive, or a folder that directly holds logs, with all below it. A folder is one job
too if its folders are parts of a job by their names (ranks, nodes, attempts). A folder whose logs
carry different job ids (Slurm's `slurm-<id>.out`, PBS's `name.o<id>`) holds one job an id. Where
that guesses wrong, `job_glob` says what is a job.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from diagnose.errors import InputError
from diagnose.ingest.file_names import ARCHIVE_NAME, MAX_DEPTH, NO_LOGS, PACKED
from diagnose.ingest.filesystems import File, Place, is_url, place_of, walk
from diagnose.ingest.find import MAX_FILES
from diagnose.ingest.given import expanded, why_unreadable
from diagnose.ingest.raw import reason
from diagnose.parse.path import read_path

Kind = Literal["archive", "folder", "log", "logs", "missing"]

# The id of a job in a log's name: Slurm's %j and %A_%a, PBS's and SGE's .o/.e, LSF's and others'.
_LOG_ID = re.compile(
    r"(?:^slurm-|^job[-_.]?|^|[-_.])(?P<id>\d{4,})(?:_\d+)?\.(?:out|err|log)\Z|\.[oe](?P<pbs>\d{3,})\Z"
)
_LOG_NAME = re.compile(
    r"(?:\.(?:log|out|err|txt|jsonl|stdout|stderr)(?:\.\d{1,3})?|\.[oe]\d+|\blog)\Z", re.IGNORECASE
)
# Folders that every launcher and collector makes inside a job's folder.
_PART = re.compile(
    r"(?:logs?|journal|dmesg|syslog|std(?:out|err)|dumps?|traces?|stacks?|attempt_\d+|\d{1,4}"
    r"|nccl\w*|torchelastic\w*|fr_?dumps?|flight_?recorder)\Z",
    re.IGNORECASE,
)
# A job id at the start of a name or behind a word for it, but no date.
_DEFAULT_LABEL = re.compile(
    r"(?:^|[/._\-])(?:slurm-|job[-_]?)?(?!(?:19|20)\d{6}(?!\d))(?P<job_id>\d{4,12})(?!\d)"
)


@dataclass(frozen=True, slots=True)
class JobRef:
    """One job that can be diagnosed, and by what to see that it has changed.

    `source` is its path or URL and its key; `id` a short name, mostly its path below what was
    given. `files` are the logs of kind `logs` (several of one id), else empty. `size` is in bytes,
    `mtime` in seconds since 1970, both of all its files; `tag` stands for their content. `missing`
    could not be looked at; `note` says why.
    """

    id: str
    kind: Kind
    source: str
    size: int = 0
    mtime: float = 0.0
    tag: str = ""
    files: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    note: str = ""


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


def find_again(source: str) -> Iterator[JobRef]:
    """The jobs that `source` of a JobRef can stand for: the file or folder, or logs of one id.

    Raises InputError where it is not there any more.
    """
    place, path = place_of(source)
    finder = _Finder(place, path.rpartition("/")[0])
    try:
        file = place.look(path)
        if file is None:
            yield finder.whole(path)
            return
        yield _single(place, file, finder.name(path))
        id_ = _log_id(file.name)
        if id_ is not None:
            beside, _ = place.listing(finder.root or "/")
            logs = [one for one in beside if _is_log(one.name) and _log_id(one.name) == id_]
            yield from finder.by_id(logs)
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from error


def _given(place: Place, path: str, job_glob: str | None) -> Iterator[JobRef]:
    try:
        file = place.look(path)
    except OSError as error:
        raise InputError(f"{path}: {why_unreadable(path, error)}") from error
    if file is not None:
        yield _single(place, file, _base(path))
        return
    finder = _Finder(place, path)
    if job_glob is None:
        yield from finder.folder(path, 0)
        return
    for match in place.matches(f"{path if is_url(path) else _escaped(path)}/{job_glob}"):
        try:
            found = place.look(match)
        except OSError as error:
            yield JobRef(finder.name(match), "missing", match, note=reason(error))
            continue
        yield finder.whole(match) if found is None else _single(place, found, finder.name(match))


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds jobs below one folder that was given."""

    place: Place
    root: str

    def name(self, path: str) -> str:
        return path[len(self.root) + 1 :] if path.startswith(f"{self.root}/") else _base(path)

    def folder(self, path: str, depth: int) -> Iterator[JobRef]:
        """The jobs of a folder: itself, or those in it."""
        try:
            files, folders = self.place.listing(path)
        except OSError as error:
            yield JobRef(self.name(path), "missing", path, note=reason(error))
            return
        archives = [file for file in files if ARCHIVE_NAME.search(file.path)]
        logs = [file for file in files if _is_log(_base(file.path))]
        ids = [_log_id(_base(file.path)) for file in logs]
        if any(_is_part(_base(inside)) for inside in folders):
            yield self.whole(path)
            return
        if len(set(ids)) > 1 and None not in ids:
            yield from self.by_id(logs)
        elif logs and len(archives) <= len(logs):
            yield self.whole(path)
            return
        else:
            for file in logs:
                yield _single(self.place, file, self.name(file.path))
        for file in archives:
            yield _single(self.place, file, self.name(file.path))
        if depth < MAX_DEPTH:
            for inside in folders:
                yield from self.folder(inside, depth + 1)

    def whole(self, path: str) -> JobRef:
        """A folder as one job."""
        files = list(islice(walk(self.place, path, MAX_DEPTH), MAX_FILES))
        return JobRef(self.name(path), "folder", path, *_sum(files, path))

    def by_id(self, logs: Iterable[File]) -> Iterator[JobRef]:
        """Logs in one folder as one job an id."""
        groups: dict[str, list[File]] = {}
        for file in logs:
            groups.setdefault(_log_id(_base(file.path)) or "", []).append(file)
        for group in groups.values():
            first = group[0]
            if len(group) == 1:
                yield _single(self.place, first, self.name(first.path))
                continue
            folder = first.path.rpartition("/")[0]
            files = tuple(file.path for file in group)
            size, mtime, tag = _sum(group, folder)
            name = self.name(first.path)
            yield JobRef(_stem(name), "logs", first.path, size, mtime, tag, files)


def _single(place: Place, file: File, name: str) -> JobRef:
    """A job in one file."""
    archive = ARCHIVE_NAME.search(file.path) is not None
    try:
        tag, note = place.tag(file), ""
    except OSError as error:
        tag, note = "", reason(error)
    kind: Kind = "archive" if archive else "log"
    return JobRef(_stem(name), kind, file.path, file.size, file.mtime, tag, note=note)


def _sum(files: Sequence[File], root: str) -> tuple[int, float, str]:
    """Size, time and tag of several files together."""
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(files, key=lambda file: file.path):
        name = file.path.removeprefix(root)
        facts = f"{name}\0{file.size}\0{file.mtime}\0{file.tag}\n"
        digest.update(facts.encode(errors="surrogatepass"))
    size = sum(file.size for file in files)
    return size, max((file.mtime for file in files), default=0.0), digest.hexdigest()


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


def _is_log(name: str) -> bool:
    """Whether a loose file is taken for a log of a job, by its name."""
    bare = name.lower()
    for packed in PACKED:
        bare = bare.removesuffix(packed)
    if {bare, os.path.splitext(bare)[1]} & NO_LOGS:  # noqa: PTH122
        return False
    return _LOG_NAME.search(bare) is not None or not (
        "." in bare or ARCHIVE_NAME.search(name) or bare.upper().startswith(("README", "LICENSE"))
    )


def _log_id(name: str) -> str | None:
    for packed in PACKED:
        name = name.removesuffix(packed)
    match = _LOG_ID.search(name)
    return (match["id"] or match["pbs"]) if match else None


def _is_part(name: str) -> bool:
    """Whether a folder is part of a job's folder by its name, as those of ranks and nodes are."""
    if _PART.match(name):
        return True
    hints = read_path(f"{name}/x")
    numbers = (hints.rank, hints.local_rank, hints.node, hints.attempt, hints.task)
    return hints.host is not None or any(number is not None for number in numbers)


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


def _stem(name: str) -> str:
    """A name without what says only how it is packed."""
    for packed in PACKED:
        name = name.removesuffix(packed) if not ARCHIVE_NAME.search(name) else name
    return ARCHIVE_NAME.sub("", name) or name


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
