"""How far the reading of a job is: logs, and bytes of the one at hand, told a few times a second.

Stores are listened to, so a block that is read costs one look at the clock and a line nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diagnose.ingest.raw import FileStore, Reader, Store, data_from
from diagnose.ingest.read import Content, TextChunks
from diagnose.ingest.source import Source
from diagnose.serve.task import Progress

PERIOD = 0.25  # seconds between two reports about one file

Report = Callable[[Store, int, int], None]


class Reading:
    """Signal of the reading of one job, from the first look at its files on."""

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
