"""Results in one SQLite file (WAL) that one process writes: each change is there as a whole or not
at all, whatever ends the process in between.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from diagnose.errors import InputError

_NO_ROOM = sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR
_CLOSED = sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM
_IN_USE = sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED


class Database:
    """One file; methods may be called from any thread.

    `schema` creates what is not there yet; `columns` are those of its tables that are relied on,
    and of which the table is checked for damage. Raises InputError where the file is another's or
    damaged.
    """

    def __init__(self, path: Path, schema: str, columns: Mapping[str, Sequence[str]]) -> None:
        self._path = path
        self._lock = threading.Lock()
        with self.usable():
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._check(columns)
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before the first table
            self._journal("WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")  # whole also after a power cut
            self._db.execute("PRAGMA secure_delete = ON")  # what was deleted is gone
            self._db.execute("PRAGMA foreign_keys = ON")
            self._db.executescript(schema)

    def _check(self, columns: Mapping[str, Sequence[str]]) -> None:
        """Raise sqlite3.Error where the file is damaged or another's, before it is changed."""
        if not self._db.execute("SELECT name FROM sqlite_master").fetchall():
            return
        for table, names in columns.items():
            self._db.execute(f"SELECT {', '.join(names)} FROM {table} LIMIT 0")
            for (problem,) in self._db.execute(f"PRAGMA quick_check({table})"):
                if problem != "ok":
                    raise sqlite3.DatabaseError(problem)

    def _journal(self, mode: str) -> None:
        """Some network file systems have no memory that is shared, which WAL needs."""
        with suppress(sqlite3.OperationalError):
            self._db.execute(f"PRAGMA journal_mode = {mode}")

    @contextmanager
    def usable(self) -> Iterator[None]:
        """Make an error of the file an InputError that says what to do."""
        try:
            yield
        except sqlite3.Error as error:
            raise InputError(unusable(self._path, error)) from error

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """What is done inside is done as a whole or not at all."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def row(self, query: str, values: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        """The first row of a query."""
        return next(iter(self.rows(query, values)), None)

    def shrink(self) -> None:
        """Give back the room of what was deleted."""
        self.rows("PRAGMA incremental_vacuum")

    def close(self) -> None:
        """Close the file, with the write-ahead log merged into it: who may only read it can."""
        with self._lock:
            self._journal("DELETE")
            self._db.close()


def unusable(path: Path, error: sqlite3.Error) -> str:
    """What is wrong with a file of results, and what to do, on one line."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _NO_ROOM:
        return f"{path}: the results cannot be written ({error}): is the disk full?"
    if code in _CLOSED:
        return f"{path}: cannot be opened ({error}): may it and its folder be read and written?"
    if code in _IN_USE:
        return f"{path}: used by another program ({error}): try again when that has ended"
    return f"{path}: damaged, or not of diagnose ({error}); move it away to start without results"


def locked(path: Path) -> int | None:
    """A lock file, ours as long as what is returned is open; None where another has it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    lock = os.open(path, flags, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock
