"""The file of a memory: one row a confirmed job, and what it is found by. SQLite, many writers.

No line of a log is in it: a fingerprint, features as numbers, names of jobs and hosts, and what a
person wrote, with secrets masked.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints
from urllib.parse import quote

from diagnose.diagnosis import made_of
from diagnose.errors import InputError
from diagnose.runtime.database import Database, unusable
from diagnose.runtime.files import unwritable

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_INCIDENTS = 20_000  # the oldest make room
MAX_NAMES = 64  # culprits of one incident
MAX_TEXT = 500  # characters of a text


_SCHEMA = """
CREATE TABLE IF NOT EXISTS incidents (
  id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL, fingerprint TEXT NOT NULL,
  verdict TEXT NOT NULL, class TEXT NOT NULL, confidence TEXT NOT NULL, cause TEXT NOT NULL,
  correct INTEGER NOT NULL, ranks TEXT NOT NULL, hosts TEXT NOT NULL, fix TEXT NOT NULL,
  made TEXT NOT NULL, who TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS incidents_fingerprint ON incidents (fingerprint);
CREATE TABLE IF NOT EXISTS features (
  feature INTEGER NOT NULL, incident INTEGER NOT NULL REFERENCES incidents ON DELETE CASCADE,
  PRIMARY KEY (feature, incident)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS features_incident ON features (incident);
"""

_CHUNK = 400  # values of one query
_STEPS, _MOST_STEPS = 1_000_000, 100  # of SQLite's machine: some seconds, then a file is given up
_MOST_BYTES = 1 << 20  # of a value


@dataclass(frozen=True, slots=True)
class Incident:
    """One confirmed job; the fields are COLUMNS. `made` is when that was (ISO 8601, UTC).

    `cause` is what it was, "" where that is unknown; `verdict`, `given` and `confidence` are what
    the diagnosis said, before the memory had changed it; `correct`: it was right.
    """

    key: str
    name: str
    fingerprint: str
    verdict: str
    given: str  # the class of the verdict
    confidence: str
    cause: str
    correct: bool
    ranks: list[int] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    fix: str = ""
    made: str = ""
    who: str = ""


_FIELDS = [one.name for one in fields(Incident)]
COLUMNS = ["class" if name == "given" else name for name in _FIELDS]


def keep(path: Path, incident: Incident, features: Sequence[int]) -> int:
    """Write an incident, instead of what was kept of this job; how many there are then.

    Raises InputError where the file cannot be written.
    """
    try:
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    database = Database(path, _SCHEMA, {"incidents": COLUMNS, "features": ("feature", "incident")})
    try:
        with database.usable(), database.change() as db:
            db.execute("DELETE FROM incidents WHERE key = ?", [incident.key])
            query = f"INSERT INTO incidents ({', '.join(COLUMNS)}) VALUES"
            values = [_value(getattr(incident, name)) for name in _FIELDS]
            row = db.execute(f"{query} ({', '.join('?' * len(COLUMNS))})", values).lastrowid
            db.executemany(
                "INSERT OR IGNORE INTO features VALUES (?, ?)", [(one, row) for one in features]
            )
            db.execute(
                "DELETE FROM incidents WHERE id <= (SELECT max(id) FROM incidents) - ?"
                " AND (SELECT count(*) FROM incidents) > ?",
                [MAX_INCIDENTS, MAX_INCIDENTS],
            )
        return int(database.rows("SELECT count(*) FROM incidents")[0][0])
    finally:
        with database.usable():
            database.close()


def _value(value: Any) -> Any:
    """A field of an incident as its column holds it."""
    if isinstance(value, list):
        return json.dumps(value[:MAX_NAMES])
    return value[:MAX_TEXT] if isinstance(value, str) else int(value)


class Memory:
    """A memory that is read."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def size(self) -> int:
        """How many incidents there are."""
        found: int = self._db.execute("SELECT count(*) FROM incidents").fetchone()[0]
        return found

    def incidents(self, ids: Iterable[int]) -> dict[int, Incident]:
        """The incidents of these numbers."""
        columns = ", ".join(COLUMNS)
        rows = self._each(f"SELECT id, {columns} FROM incidents WHERE id IN", ids)
        return {row[0]: _incident(row[1:]) for row in rows}

    def of_key(self, key: str) -> Incident | None:
        """The incident of a job."""
        row = self._db.execute("SELECT id FROM incidents WHERE key = ?", [key]).fetchone()
        return self.incidents(row)[row[0]] if row else None

    def of_fingerprint(self, fingerprint: str, most: int) -> list[int]:
        """The latest incidents with a fingerprint."""
        query = "SELECT id FROM incidents WHERE fingerprint = ? ORDER BY made DESC LIMIT ?"
        return [row[0] for row in self._db.execute(query, [fingerprint, most])]

    def having(self, features: Sequence[int]) -> list[tuple[int, int]]:
        """(incident, feature) of all incidents with any of these features."""
        return self._each("SELECT incident, feature FROM features WHERE feature IN", features)

    def features(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """(incident, feature) of these incidents."""
        return self._each("SELECT incident, feature FROM features WHERE incident IN", ids)

    def counts(self, features: Iterable[int]) -> dict[int, int]:
        """How many incidents have each feature."""
        query = "SELECT feature, count(*) FROM features WHERE feature IN"
        return dict(self._each(query, features, " GROUP BY feature"))

    def record(self, but: str) -> list[tuple[str, str, int, int]]:
        """(class, confidence, confirmed, of which correct) without the job of this key."""
        query = (
            "SELECT class, confidence, count(*), sum(correct = 1) FROM incidents WHERE key != ?"
            " GROUP BY class, confidence"
        )
        return self._db.execute(query, [but]).fetchall()

    def _each(self, query: str, values: Iterable[int], tail: str = "") -> list[tuple[Any, ...]]:
        given, rows = [*values], list[tuple[Any, ...]]()
        for at in range(0, len(given), _CHUNK):
            part = given[at : at + _CHUNK]
            rows += self._db.execute(f"{query} ({', '.join('?' * len(part))}){tail}", part)
        return rows


def _incident(row: Sequence[Any]) -> Incident:
    named = dict(zip(_FIELDS, row, strict=True))
    named |= {name: json.loads(named[name]) for name in ("ranks", "hosts")}
    named["correct"] = named["correct"] == 1
    return Incident(**{name: made_of(kind, named[name]) for name, kind in _types().items()})


@cache
def _types() -> dict[str, Any]:
    return get_type_hints(Incident)


@contextmanager
def opened(path: Path) -> Iterator[Memory]:
    """A memory for reading. Raises InputError where it is damaged or another's.

    A file may come from anybody: a view in it may have no end, a value any size and type.
    """
    steps = iter(range(_MOST_STEPS))
    try:
        uri = f"file:{quote(str(path.resolve()))}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as db:
            db.set_progress_handler(lambda: next(steps, None) is None, _STEPS)
            db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
            yield Memory(db)
    except (sqlite3.Error, ValueError, TypeError, RecursionError) as error:
        if isinstance(error, sqlite3.Error):
            raise InputError(unusable(path, error)) from error
        why = str(error)[:100]
        raise InputError(f"{path}: damaged, or not a memory of diagnose ({why})") from error
