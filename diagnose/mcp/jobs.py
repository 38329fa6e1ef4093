"""The jobs that an agent asks about, each read once and kept while its files stay as they are.

Every path that it names is resolved and must lie below one folder.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from threading import Lock

from diagnose.diagnosis import Diagnosis
from diagnose.errors import InputError
from diagnose.infer.pipeline import diagnose
from diagnose.ingest import find_sources
from diagnose.ingest.names import is_url
from diagnose.ingest.raw import reason
from diagnose.job.load import load_text, read, saved
from diagnose.job.model import Job
from diagnose.job.parallel import processes
from diagnose.memory import recalled
from diagnose.redact.redactor import Redactor
from diagnose.report.safe import Scrub, learn_around

MAX_LINKS = 200_000  # entries of a folder that are looked through for links
_MAX_NAMES = 8  # that an error names


class Root:
    """A folder, resolved."""

    def __init__(self, folder: Path) -> None:
        try:
            self.folder = folder.resolve(strict=True)
        except OSError as error:
            raise InputError(f"{folder}: {reason(error)}") from error
        if not self.folder.is_dir():
            raise InputError(f"{folder}: the root must be a folder")

    def find(self, given: str) -> Path:
        """The file or folder that `given` names, relative to the root or absolute.

        Symbolic links are followed first. Raises InputError, which says what there is instead.
        """
        if not given.strip() or "\0" in given:
            raise InputError("the path is empty; '.' is the root folder itself")
        if is_url(given):
            raise InputError("only files and folders below the root are read, no URLs")
        try:
            path = (self.folder / given).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise InputError(f"{given}: cannot be resolved") from error
        if not path.is_relative_to(self.folder):
            raise InputError(
                f"{given}: is outside this server's root folder; copy it there, or "
                "restart the server with another --root"
            )
        if not os.path.exists(path):  # noqa: PTH110  Path's raises on long names
            raise InputError(f"{given}: no such file or folder below the root{self._nearby(path)}")
        return path

    def name(self, path: Path) -> str:
        """A path as it is named to the agent."""
        return path.relative_to(self.folder).as_posix()

    def leaving(self, folder: Path) -> Path | None:
        """A symbolic link in or below `folder` that leads outside of the root; None without any.

        Raises InputError where there is too much to look through.
        """
        met = 0
        for base, folders, files in os.walk(folder):
            for name in (*folders, *files):
                met += 1
                path = Path(base, name)
                if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(
                    self.folder
                ):
                    return path
            if met > MAX_LINKS:
                raise InputError(f"{self.name(folder)}: more than {MAX_LINKS:,} entries")
        return None

    def _nearby(self, path: Path) -> str:
        """What there is in the nearest folder that exists: like names first."""
        folder = path.parent
        while not folder.is_dir():
            folder = folder.parent
        try:
            names = sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))
        except OSError:
            return ""
        missing = path.relative_to(folder).parts[0]
        near = get_close_matches(missing, names, n=3, cutoff=0.6)
        shown = [f'"{name}"' for name in (near or names)[:_MAX_NAMES]]  # words of whoever named it
        more = "" if near or len(names) <= _MAX_NAMES else f" and {len(names) - _MAX_NAMES} more"
        where = "the root" if folder == self.folder else self.name(folder)
        return f"; {where} has {', '.join(shown)}{more}" if shown else f"; {where} is empty"


KEPT = 8  # jobs
MAX_TEXT = 2_000_000  # characters of a paste
_PASTE = "paste-"
_MAX_STAMPED = 20_000  # entries of a folder; a larger one is read anew each time

_Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """A job, its diagnosis, and what masks its text; hold `lock` while `scrub` is used.

    `name` is what the agent calls it by: its path, or `paste-…`.
    """

    name: str
    job: Job
    diagnosis: Diagnosis
    scrub: Scrub
    lock: Lock = field(default_factory=Lock)


class Jobs:
    """The jobs below a root, and pastes. Used by several threads at once."""

    def __init__(self, root: Root, *, redact: bool, patterns: Sequence[Path] = ()) -> None:
        self.root = root
        self.patterns = patterns
        self._redact = redact
        self._kept: OrderedDict[str, tuple[_Stamp | None, Opened]] = OrderedDict()
        self._lock = Lock()

    def get(self, name: str) -> Opened:
        """The job of this name: a path, or what `of_text` called a paste. Raises InputError."""
        if name.startswith(_PASTE):
            kept = self._found(name, None)
            if kept is None:
                raise InputError(
                    f"{name}: not known here (any more); call triage with the text again"
                )
            return kept
        return self.of_path(name)

    def of_path(self, given: str) -> Opened:
        """The job in a file or folder. Raises InputError."""
        path = self.root.find(given)
        name, stamp = self.root.name(path), _stamp(path)
        kept = self._found(name, stamp) if stamp is not None else None
        return kept or self._keep(name, stamp, self._load(path))

    def of_text(self, text: str) -> Opened:
        """The job of a pasted text. Raises InputError."""
        if len(text) > MAX_TEXT:
            raise InputError(
                f"the text has more than {MAX_TEXT:,} characters; save it to a file below the "
                "root folder and give its path"
            )
        digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
        name = _PASTE + digest
        return self._found(name, None) or self._keep(
            name, None, load_text(text, patterns=self.patterns)
        )

    def _found(self, name: str, stamp: _Stamp | None) -> Opened | None:
        with self._lock:
            kept = self._kept.get(name)
            if kept is None or kept[0] != stamp:
                return None
            self._kept.move_to_end(name)
            return kept[1]

    def _keep(self, name: str, stamp: _Stamp | None, job: Job) -> Opened:
        diagnosis = recalled(diagnose(job))
        redactor = learn_around(job, diagnosis, Redactor()) if self._redact else None
        opened = Opened(name, job, diagnosis, Scrub(redactor))
        with self._lock:
            self._kept[name] = stamp, opened
            self._kept.move_to_end(name)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return opened

    def _load(self, path: Path) -> Job:
        sources = find_sources([path])  # follows no link out of the folder
        job = read(sources, patterns=self.patterns, workers=processes(sources))
        if not path.is_dir():
            return job
        leaving = self.root.leaving(path)
        if leaving is None:
            job.checkpoints = saved([path])
        else:
            job.notes.append(
                f"{self.root.name(leaving)}: is outside the root folder, so checkpoints were "
                "not looked for"
            )
        return job


def _stamp(path: Path) -> _Stamp | None:
    """What changes when a file of the job does; None where there are too many to look at."""
    found: list[tuple[str, int, int]] = []
    paths = [path] if path.is_file() else []
    for base, folders, files in os.walk(path):
        folders.sort()
        paths += [Path(base, name) for name in sorted(files)]
        if len(paths) > _MAX_STAMPED:
            return None
    for one in paths:
        try:
            status = one.stat()
        except OSError:
            continue
        found.append((str(one), status.st_size, status.st_mtime_ns))
    return tuple(found)
