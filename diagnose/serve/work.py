"""What a worker does with one job: read it, diagnose it, and write what is kept of it.

Text is kept with nothing hostile to a screen, and secrets and people masked. Every line stays at
its number, so that what a diagnosis says of line 48 is found there.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import zstandard

import diagnose
from diagnose.catalog.load import load_catalog
from diagnose.diagnosis import Diagnosis
from diagnose.errors import DiagnoseError
from diagnose.ingest import find_sources
from diagnose.ingest.raw import FileStore, Reader, Store, data_from, reason
from diagnose.ingest.read import Content, TextChunks
from diagnose.ingest.source import TEXT_KINDS, Source
from diagnose.job.load import load_text, read
from diagnose.job.model import Job
from diagnose.redact.redactor import Redactor, secrets_only
from diagnose.report import html, markdown, words
from diagnose.report.safe import (
    MAX_RAW,
    clean,
    cut,
    escaped,
    learn_around,
    masked,
    masked_line,
    safe,
)
from diagnose.runtime.workers import memory_bound
from diagnose.serve.model import MASKED, PASTE, Done, Failed, Progress, Summary, Task
from diagnose.serve.saves import uploaded
from diagnose.serve.spool import fetch

PERIOD = 0.25  # seconds between two reports about one file

KEPT = 8 << 20  # bytes of all logs together that are kept
KEPT_EACH = 2 << 20  # of one log

_KEEP = re.compile(r"([\r\t])")  # of a progress bar, and of columns

_LEVEL = 3  # of zstd
_WORDS = 4000  # characters that a search looks in
_QUOTES = 20  # lines of evidence among them

Tell = Callable[[Progress], None]
Report = Callable[[Store, int, int], None]


class Reading:
    """How far the reading of one job is, told a few times a second.

    Stores are listened to, so a block that is read costs one look at the clock and a line nothing.
    """

    def __init__(self, tell: Callable[[Progress], None]) -> None:
        self._tell = tell
        self._logs = 0, 0
        self._store: Store | None = None
        self._far = 0
        self._next = time.monotonic() + PERIOD
        self._finding = self._reading = True
        tell(Progress("Reading"))

    def opened(self, path: Path) -> Store:
        """A file of the job, to be looked at: an archive is read to its end for that."""
        return _Tracked(FileStore(path), self._found)

    def sources(self, found: Sequence[Source]) -> list[Source]:
        """What was found in the files, to be read."""
        self._finding = False
        return [
            replace(
                source, chunks=self._listened(source.chunks), content=self._listened(source.content)
            )
            for source in found
        ]

    def logs(self, done: int, total: int) -> None:
        """So many of the logs have been read."""
        self._logs = done, total
        self._next = time.monotonic() + PERIOD
        self._tell(Progress("Reading", done, total))

    def end(self) -> None:
        """What is read from now on is no progress."""
        self._reading = False

    def _listened(self, of: Any) -> Any:
        """The chunks or the content of a source, which tell how far they are read."""
        if isinstance(of, TextChunks | Content):
            return replace(of, store=_Tracked(of.store, self._advanced))
        return of

    def _found(self, store: Store, read: int, size: int) -> None:
        if self._finding:
            self._advanced(store, read, size)

    def _advanced(self, store: Store, read: int, size: int) -> None:
        if store is not self._store:
            self._store, self._far = store, 0
        self._far = max(self._far, min(read, size))  # its end is looked at more than once
        now = time.monotonic()
        if self._reading and now >= self._next:
            self._next = now + PERIOD
            self._tell(Progress("Reading", *self._logs, self._far, size))


@dataclass(frozen=True, slots=True, eq=False)
class _Tracked:
    """A store that tells how far it is read."""

    store: Store
    report: Report

    @contextmanager
    def open(self) -> Iterator[Reader]:
        """See Store."""
        with self.store.open() as reader:
            yield _TrackedReader(self, reader, reader.size)


@dataclass(frozen=True, slots=True)
class _TrackedReader:
    of: _Tracked
    reader: Reader
    size: int

    def read_at(self, offset: int, length: int) -> bytes:
        """See Reader."""
        data = self.reader.read_at(offset, length)
        self.of.report(self.of, offset + len(data), self.size)
        return data

    def data_from(self, offset: int) -> int:
        """See `diagnose.ingest.raw.data_from`."""
        return data_from(self.reader, offset)


def attempt(task: Task, tell: Tell) -> Done | Failed:
    """One job within its bound of memory. Never raises: what goes wrong is told in a line."""
    before = tempfile.tempdir
    # What is unpacked for a while lies with the upload, and goes with it.
    tempfile.tempdir = task.folder
    try:
        with memory_bound(task.memory), pd.option_context("mode.string_storage", "python"):
            if task.kind == "check":
                load_catalog([Path(path) for path in task.patterns])
                return Failed("")
            return perform(task, tell)
    except DiagnoseError as error:
        problem = str(error)
    except MemoryError:
        problem = f"needs more than the {task.memory >> 20} MiB of memory that a job may use"
    except OSError as error:
        problem = reason(error)
    except Exception as error:
        problem = f"internal error, please report it: {type(error).__name__}: {error}"
    finally:
        tempfile.tempdir = before
    inside = problem.replace(f"{task.folder}{os.sep}", "").replace(task.folder, "")
    return Failed(masked_line(inside, 600))


def perform(task: Task, tell: Tell) -> Done:
    """Diagnose a job and make the outputs that are wanted.

    A paste is masked before anything else is done with it, so that all that is ever made of it can
    be made of what is kept.
    """
    redactor = Redactor() if task.redact else None
    folder = Path(task.folder)
    kept = ""
    if task.kind in ("text", "masked"):
        data = (folder / (PASTE if task.kind == "text" else MASKED)).read_bytes()
        kept = kept_text(data.decode(errors="replace"), redactor)
        job = load_text(kept, patterns=task.patterns)
    else:
        if task.kind == "urls":
            fetch(task.urls, task.allowed, folder, task.upload, tell)
        job = _read(folder, task, tell)
    tell(Progress("Diagnosing"))
    diagnosis = diagnose.diagnose(job)
    if task.kind in ("files", "urls"):
        kept = kept_logs(job.sources, redactor)
        if redactor:
            learn_around(job, diagnosis, redactor)
    elif redactor:
        redactor = secrets_only()  # of masked text only what two of its lines make together
    tell(Progress("Writing the report"))
    shown = masked(diagnosis, redactor) if redactor else replace(diagnosis, places=[])
    return Done(_summary(job, shown, task.title), _outputs(task, job, diagnosis, shown, kept))


def _read(folder: Path, task: Task, tell: Tell) -> Job:
    reading = Reading(tell)
    # Each by itself: what was chosen by name is read whatever its suffix.
    sources = reading.sources(find_sources(sorted(folder.iterdir()), opened=reading.opened))
    job = read(sources, patterns=task.patterns, on_progress=reading.logs)
    reading.end()
    tell(Progress("Looking for checkpoints"))
    job.checkpoints, notes = uploaded(folder, sources, task.upload)
    job.notes += [note for note in notes if note not in job.notes]
    return job


def _outputs(
    task: Task, job: Job, diagnosis: Diagnosis, shown: Diagnosis, kept: str
) -> dict[str, bytes]:
    """The outputs that are wanted; `shown` is the diagnosis masked."""
    makers: dict[str, Callable[[], str]] = {
        "json": lambda: escaped(shown.to_json()) + "\n",
        "input": lambda: kept,
        "page": lambda: html.render(job, diagnosis, title=task.title or None, redact=task.redact),
        "markdown": lambda: markdown.render(shown, redact=task.redact),
    }
    pack = zstandard.ZstdCompressor(level=_LEVEL)
    return {name: pack.compress(makers[name]().encode(errors="replace")) for name in task.wanted}


def _summary(job: Job, shown: Diagnosis, title: str) -> Summary:
    shown = safe(shown, None)
    root, facts, who = shown.root_cause, shown.job, words.culprits(shown)
    found = [
        title, shown.verdict, root.cause, root.signature or "", root.title, root.summary, who,
        shown.phase or "", *shown.culprits.hosts, *facts.frameworks,
        *(f"{name} {version}" for name, version in facts.versions.items()),
        *(item.text for item in shown.evidence[:_QUOTES]), *facts.hosts[:50],
    ]  # fmt: skip
    return Summary(
        verdict=shown.verdict,
        cause=root.cause,
        confidence=root.confidence,
        headline=root.title,
        summary=words.sentence(root.summary) if root.summary else "",
        who=who,
        files=len([source for source in job.sources if source.kind != "skipped"]),
        words=cut(" ".join(found).lower(), _WORDS),
    )


def kept_text(text: str, redactor: Redactor | None) -> str:
    """`text` of any number of lines as it is kept; without `redactor` secrets stay."""
    plain = "\n".join(_clean(line) for line in text.split("\n"))
    return redactor.text(plain) if redactor else plain


def _clean(line: str) -> str:
    line = line.removesuffix("\r")
    if line.isprintable():
        return line[:MAX_RAW]
    parts = _KEEP.split(line)
    for at in range(0, len(parts), 2):
        part = parts[at]
        end = " " * (len(part) - len(part.rstrip(" ")) > 0 and at + 1 < len(parts))
        parts[at] = clean(part, limit=MAX_RAW, lines=True).replace("\n", " ") + end
    return "".join(parts)


def kept_logs(sources: Iterable[Source], redactor: Redactor | None) -> str:
    """The logs of a job one after the other, each below its name, as much as is kept of them."""
    blocks, left = [], KEPT
    for source in sources:
        if source.kind not in TEXT_KINDS:
            continue
        data, whole = _head(source, min(left, KEPT_EACH))
        left -= len(data)
        text = data.decode(errors="replace").removesuffix("\n")
        more = "" if whole else "\n[the rest of this log is not kept]"
        blocks.append(f"==> {source.name} <==\n{text}{more}\n")
        if left <= 0:
            blocks.append("[further logs are not kept]\n")
            break
    return kept_text("\n".join(blocks), redactor)


def _head(source: Source, limit: int) -> tuple[bytes, bool]:
    """The first lines of a log, `limit` bytes at most, and whether these are all."""
    have = b""
    for chunk in source.chunks():
        have += chunk.data
        if len(have) > limit:
            return have[:limit].rpartition(b"\n")[0], False
    return have, True
