"""The jobs that an agent asks about, each read once and kept while its files stay as they are."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from diagnose.diagnosis import Diagnosis
from diagnose.errors import InputError
from diagnose.infer.pipeline import diagnose
from diagnose.ingest import find_sources
from diagnose.job.load import load_text, read, saved
from diagnose.job.model import Job
from diagnose.job.parallel import processes
from diagnose.mcp.root import Root
from diagnose.redact.redactor import Redactor
from diagnose.report.html.context import learn
from diagnose.report.html.scrub import Scrub

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
        diagnosis = diagnose(job)
        redactor = learn(job, diagnosis, Redactor()) if self._redact else None
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
