"""Which jobs there are: from folders, archives, single logs and URLs to one JobRef a job.

One job is an archive, or a folder that directly holds logs, with all below it; a bundle of
`collect`; or a folder whose folders are parts of one job by what their logs state (see `layout`).
Logs and folders that state different jobs are jobs of their own, wherever they lie. A folder whose
logs carry different job ids in their names (Slurm's `slurm-<id>.out`, PBS's `name.o<id>`) holds one
job an id. Where that guesses wrong, `job_glob` says what is a job. The results of a scan are none.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from diagnose.batch.layout import (
    Bond,
    Identity,
    Layout,
    Unit,
    identity_of,
    is_part,
    is_structure,
    layout,
    note_of,
    together,
    unpacked,
)
from diagnose.errors import InputError
from diagnose.ingest.find import MAX_FILES
from diagnose.ingest.names import (
    ARCHIVE_NAME,
    MAX_DEPTH,
    NO_LOGS,
    PACKED,
    expanded,
    is_url,
    why_unreadable,
)
from diagnose.ingest.place import File, Place, holds_results, place_of, walk
from diagnose.ingest.raw import reason

Kind = Literal["archive", "folder", "log", "logs", "missing"]

# The id of a job in a log's name: Slurm's %j and %A_%a, PBS's and SGE's .o/.e, LSF's and others';
# no date.
_LOG_ID = re.compile(
    r"(?:^slurm-|^job[-_.]?|^|[-_.])(?!(?:19|20)\d{6}(?!\d))(?P<id>\d{4,})(?:_\d+)?\.(?:out|err|log)\Z|\.[oe](?P<pbs>\d{3,})\Z"
)
_LOG_NAME = re.compile(
    r"(?:\.(?:log|out|err|txt|jsonl|stdout|stderr)(?:\.\d{1,3})?|\.[oe]\d+|\blog)\Z", re.IGNORECASE
)
_LOOKED_AT = 8  # logs of a folder
_ENOUGH = 2  # of a folder named like a part, where they tell their job and ranks
# What `collect` writes: at the top of a bundle, and of each node.
MANIFEST, NODES, NODE = "manifest.json", "nodes", "node.json"
_BUNDLE = re.compile(rb'\A\s*\{\s*"schema": ?"diagnose-bundle/')
_NODE = re.compile(rb'\A\s*\{\s*"diagnose": ?"node/')
_OPENING = 512  # bytes


@dataclass(frozen=True, slots=True)
class JobRef:
    """One job that can be diagnosed, and by what to see that it has changed.

    `source` is its path or URL and its key; `id` a short name, mostly its path below what was
    given. `files` are the files and folders of kind `logs` (several that are one job among others),
    else empty. `size` is in bytes, `mtime` in seconds since 1970, both of all its files; `tag`
    stands for their content. `missing` could not be looked at; `note` says why, and of others why
    they were taken for one job where that was close.
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


@dataclass(frozen=True, slots=True)
class Finder:
    """Finds jobs below one folder that was given."""

    place: Place
    root: str

    def name(self, path: str) -> str:
        """A path as a job is called by it."""
        return path[len(self.root) + 1 :] if path.startswith(f"{self.root}/") else base_name(path)

    def folder(self, path: str, depth: int, note: str = "") -> Iterator[JobRef]:
        """The jobs of a folder: itself, or those in it; `note` is about each of them."""
        for ref in self._inside(path, depth):
            yield replace(ref, note=ref.note or note)

    def _inside(self, path: str, depth: int) -> Iterator[JobRef]:
        try:
            files, folders = self._listing(path)
        except OSError as error:
            yield JobRef(self.name(path), "missing", path, note=reason(error))
            return
        archives = [file for file in files if ARCHIVE_NAME.search(file.path)]
        logs = [file for file in files if is_log(file.name)]
        ids = {log_id(file.name) for file in logs}
        named = len(ids) > 1 and None not in ids
        loose = bool(logs) and len(archives) <= len(logs) and not named
        if self._is_bundle(files, folders):
            yield self.whole(path)
            return
        of_logs = self._of_logs(logs) if loose else Layout((), Bond.OPEN)
        of_folders = layout(
            [(path, base_name(path)) for path in folders if not _is_structure(path)], self._stated
        )
        one = Bond.MANY not in (of_logs.bond, of_folders.bond)
        if one and (loose or self._is_one(folders, of_folders)):
            yield self.whole(path, note_of(of_folders))
            return
        if named:
            yield from self.by_id(logs)
        elif loose:
            for unit in of_logs.units if of_logs.bond is Bond.MANY else [_all(of_logs)]:
                yield from self._group([f for f in logs if f.path in unit.paths], unit.note)
        else:
            for file in logs:
                yield single(self.place, file, self.name(file.path))
        for file in archives:
            yield single(self.place, file, self.name(file.path))
        if depth < MAX_DEPTH:
            for unit in of_folders.units:
                yield from self._unit(unit, depth + 1)
            for inside in filter(_is_structure, folders):
                yield from self.folder(inside, depth + 1)

    def _listing(self, path: str) -> tuple[list[File], list[str]]:
        """The files and folders in a folder; none where they are the results of a scan."""
        files, folders = self.place.listing(path)
        return ([], []) if holds_results(files, folders) else (files, folders)

    def _is_one(self, folders: Sequence[str], found: Layout) -> bool:
        """Whether a folder without logs of its own is one job."""
        structure = any(map(_is_structure, folders))
        if len(folders) == 1:
            return is_part(base_name(folders[0]))
        several = any(len(unit.paths) > 1 for unit in found.units)
        return found.bond is Bond.ONE or structure or several

    def _of_logs(self, logs: Sequence[File]) -> Layout:
        by_path = {file.path: file for file in logs}
        names = [(file.path, file.name) for file in logs]
        return layout(names, lambda path: identity_of(self.place, by_path[path]), files=True)

    def _stated(self, folder: str) -> Identity:
        """What the first logs below a folder tell.

        Parts are told by what their jobs state; of other folders all ranks must be known.
        """
        logs = (file for file in walk(self.place, folder, MAX_DEPTH) if is_log(file.name))
        part = is_part(base_name(folder))
        found = Identity()
        for number, file in enumerate(islice(logs, _LOOKED_AT), 1):
            found = together((found, identity_of(self.place, file)))
            if part and number >= _ENOUGH and (found.ids or (found.world and found.ranks)):
                break
        return found

    def _unit(self, unit: Unit, depth: int) -> Iterator[JobRef]:
        """The jobs of a folder, or the one of several."""
        if len(unit.paths) == 1:
            yield from self.folder(unit.paths[0], depth, unit.note)
            return
        files = [file for path in unit.paths for file in walk(self.place, path, MAX_DEPTH)]
        first = unit.paths[0]
        sums = _sum(files[:MAX_FILES], first.rpartition("/")[0])
        yield JobRef(self.name(first), "logs", first, *sums, unit.paths, note=unit.note)

    def _is_bundle(self, files: Sequence[File], folders: Sequence[str]) -> bool:
        """Whether a folder is a bundle of `collect`, by its manifest or what it says of a node."""
        if any(file.name == MANIFEST and self._opens_with(file, _BUNDLE) for file in files):
            return True
        with suppress(OSError):
            for nodes in (folder for folder in folders if base_name(folder) == NODES):
                for node in self.place.listing(nodes)[1][:1]:
                    inside = (file for file in self.place.listing(node)[0] if file.name == NODE)
                    return any(self._opens_with(file, _NODE) for file in inside)
        return False

    def _opens_with(self, file: File, expression: re.Pattern[bytes]) -> bool:
        with suppress(OSError), self.place.ranges(file).open() as reader:
            return expression.search(reader.read_at(0, _OPENING)) is not None
        return False

    def whole(self, path: str, note: str = "") -> JobRef:
        """A folder as one job."""
        files = list(islice(walk(self.place, path, MAX_DEPTH), MAX_FILES))
        return JobRef(self.name(path), "folder", path, *_sum(files, path), note=note)

    def by_id(self, logs: Iterable[File]) -> Iterator[JobRef]:
        """Logs in one folder as one job an id."""
        groups: dict[str, list[File]] = {}
        for file in logs:
            groups.setdefault(log_id(base_name(file.path)) or "", []).append(file)
        for group in groups.values():
            yield from self._group(group)

    def _group(self, group: Sequence[File], note: str = "") -> Iterator[JobRef]:
        """Logs beside each other as one job."""
        first = group[0]
        if len(group) == 1:
            ref = single(self.place, first, self.name(first.path))
            yield replace(ref, note=ref.note or note)
            return
        files = tuple(file.path for file in group)
        sums = _sum(group, first.path.rpartition("/")[0])
        yield JobRef(_stem(self.name(first.path)), "logs", first.path, *sums, files, note=note)


def single(place: Place, file: File, name: str) -> JobRef:
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


def is_log(name: str) -> bool:
    """Whether a loose file is taken for a log of a job, by its name."""
    bare = unpacked(name.lower())
    if {bare, os.path.splitext(bare)[1]} & NO_LOGS:  # noqa: PTH122
        return False
    return _LOG_NAME.search(bare) is not None or not (
        "." in bare or ARCHIVE_NAME.search(name) or bare.upper().startswith(("README", "LICENSE"))
    )


def log_id(name: str) -> str | None:
    """The job id in a log's name."""
    match = _LOG_ID.search(unpacked(name))
    return (match["id"] or match["pbs"]) if match else None


def _is_structure(path: str) -> bool:
    return is_structure(base_name(path))


def _all(found: Layout) -> Unit:
    """All units of a layout as one."""
    return Unit(tuple(path for unit in found.units for path in unit.paths), Identity())


def base_name(path: str) -> str:
    """The last part of a path."""
    return path.rstrip("/").rpartition("/")[2] or path


def _stem(name: str) -> str:
    """A name without what says only how it is packed."""
    for packed in PACKED:
        name = name.removesuffix(packed) if not ARCHIVE_NAME.search(name) else name
    return ARCHIVE_NAME.sub("", name) or name


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
    root = path if is_url(path) else re.sub(r"([*?[])", r"[\1]", path)
    for match in place.matches(f"{root}/{job_glob}"):
        try:
            found = place.look(match)
        except OSError as error:
            yield JobRef(finder.name(match), "missing", match, note=reason(error))
            continue
        if found is not None:
            yield single(place, found, finder.name(match))
            continue
        with suppress(OSError):
            if holds_results(*place.listing(match)):
                continue
        yield finder.whole(match)


def _labelled(ref: JobRef, patterns: Sequence[re.Pattern[str]]) -> JobRef:
    found: dict[str, str] = {}
    if default := _DEFAULT_LABEL.search(ref.id):
        found["job_id"] = default["job_id"]
    for pattern in patterns:
        if match := pattern.search(ref.source):
            found |= {name: value for name, value in match.groupdict().items() if value}
    return replace(ref, id=found.pop("job", ref.id), labels=found)


def _compiled(text: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise InputError(f"label pattern {text!r}: {error}") from error
    if not pattern.groupindex:
        raise InputError(f"label pattern {text!r}: no named group, such as (?P<user>\\w+)")
    return pattern
