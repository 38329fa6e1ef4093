"""The diagnoses of a server, in one `Database`.

A row is written when a job is accepted, and its outputs in the transaction that makes it done.
Whatever ends the server in between leaves a job that is taken up again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from sqlite3 import Connection
from typing import Literal

from diagnose.runtime.database import Database
from diagnose.serve.model import Kind, Summary

State = Literal["queued", "running", "done", "failed"]
WAITING: tuple[State, ...] = ("queued", "running")
MAX_ATTEMPTS = 2  # of one job; what ended the server twice does not get a third chance
LOST = "the server ended while it was diagnosed, more than once: abandoned"

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # of Crockford's base 32: none that look alike
_SCHEMA = """
CREATE TABLE IF NOT EXISTS diagnoses (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  created REAL NOT NULL,
  finished REAL,
  state TEXT NOT NULL,
  kind TEXT NOT NULL,
  title TEXT NOT NULL,
  source TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  wanted TEXT NOT NULL,
  urls TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  error TEXT NOT NULL DEFAULT '',
  verdict TEXT NOT NULL DEFAULT '',
  cause TEXT NOT NULL DEFAULT '',
  confidence TEXT NOT NULL DEFAULT '',
  headline TEXT NOT NULL DEFAULT '',
  summary TEXT NOT NULL DEFAULT '',
  who TEXT NOT NULL DEFAULT '',
  files INTEGER NOT NULL DEFAULT 0,
  words TEXT NOT NULL DEFAULT '',
  kept INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS waiting ON diagnoses(state) WHERE state IN ('queued', 'running');
CREATE TABLE IF NOT EXISTS outputs (
  number INTEGER NOT NULL REFERENCES diagnoses(number) ON DELETE CASCADE,
  name TEXT NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (number, name)
);
"""


@dataclass(frozen=True, slots=True)
class Record:
    """A diagnosis as a list shows it. `created` and `finished` are seconds since 1970.

    `source` says what was given, in words; `bytes` how much, `kept` what its outputs take here.
    `wanted` and `urls` are lists, one item a line.
    """

    number: int
    id: str
    created: float
    finished: float | None
    state: State
    kind: Kind
    title: str
    source: str
    bytes: int
    wanted: str
    urls: str
    attempts: int
    error: str
    verdict: str
    cause: str
    confidence: str
    headline: str
    summary: str
    who: str
    files: int


_COLUMNS = ", ".join(field.name for field in fields(Record))


def new_id() -> str:
    """A name for a permalink that nobody guesses (80 bits)."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(16))


def _add(db: Connection, row: tuple[int] | None, outputs: Mapping[str, bytes]) -> bool:
    """Put outputs into the row of this number, if there is one."""
    if row is None:
        return False
    size = sum(map(len, outputs.values()))
    db.execute("UPDATE diagnoses SET kept = kept + ? WHERE number = ?", (size, *row))
    db.executemany(
        "INSERT OR REPLACE INTO outputs (number, name, data) VALUES (?, ?, ?)",
        [(*row, name, data) for name, data in outputs.items()],
    )
    return True


class Store:
    """The results of one data folder. Methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        # not of `outputs`, which may be large: of these each is checked when it is read
        self._db = Database(path, _SCHEMA, {"diagnoses": _COLUMNS.split(", ")})
        with self._db.usable():
            path.chmod(0o600)
            self.requeue()  # what a server does first: where it cannot be written, say so now

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def add(
        self, id_: str, kind: Kind, title: str, source: str, size: int, wanted: str, urls: str
    ) -> Record:
        """Accept a job."""
        values = (id_, time.time(), kind, title, source, size, wanted, urls)
        with self._db.change() as db:
            db.execute(
                "INSERT INTO diagnoses (id, created, state, kind, title, source, bytes, wanted,"
                " urls) VALUES (?, ?, 'queued', ?, ?, ?, ?, ?, ?)",
                values,
            )
        found = self.get(id_)
        assert found is not None
        return found

    def begin(self, id_: str) -> bool:
        """A job is being diagnosed; False if it is not there any more."""
        with self._db.change() as db:
            changed = db.execute(
                "UPDATE diagnoses SET state = 'running', attempts = attempts + 1"
                " WHERE id = ? AND state = 'queued'",
                (id_,),
            )
            return changed.rowcount == 1

    def finish(self, id_: str, summary: Summary, outputs: Mapping[str, bytes]) -> bool:
        """Keep a result, as a whole; False if the job was deleted meanwhile."""
        values = {"finished": time.time(), **asdict(summary)}
        assigned = ", ".join(f"{name} = ?" for name in values)
        query = f"UPDATE diagnoses SET state = 'done', {assigned} WHERE id = ?"
        with self._db.change() as db:
            found = db.execute(
                f"{query} AND state = 'running' RETURNING number", (*values.values(), id_)
            )
            return _add(db, found.fetchone(), outputs)

    def add_outputs(self, id_: str, outputs: Mapping[str, bytes]) -> None:
        """Keep outputs that were made of a finished job later."""
        with self._db.change() as db:
            query = "SELECT number FROM diagnoses WHERE id = ? AND state = 'done'"
            _add(db, db.execute(query, (id_,)).fetchone(), outputs)

    def fail(self, id_: str, error: str) -> None:
        """A job has no diagnosis, and why."""
        with self._db.change() as db:
            db.execute(
                "UPDATE diagnoses SET state = 'failed', finished = ?, error = ? WHERE id = ?"
                " AND state IN ('queued', 'running')",
                (time.time(), error, id_),
            )

    def requeue(self) -> list[Record]:
        """Jobs that were accepted and have no result yet, in their order: queued again.

        What ended the server MAX_ATTEMPTS times is given up.
        """
        with self._db.change() as db:
            db.execute(
                "UPDATE diagnoses SET state = 'failed', finished = ?, error = ?"
                " WHERE state = 'running' AND attempts >= ?",
                (time.time(), LOST, MAX_ATTEMPTS),
            )
            db.execute("UPDATE diagnoses SET state = 'queued' WHERE state = 'running'")
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM diagnoses WHERE state = 'queued' ORDER BY number"
            ).fetchall()
        return [Record(*row) for row in rows]

    def release(self, id_: str) -> None:
        """A job was stopped through no fault of its own: as if it had never begun."""
        with self._db.change() as db:
            db.execute(
                "UPDATE diagnoses SET state = 'queued', attempts = attempts - 1"
                " WHERE id = ? AND state = 'running'",
                (id_,),
            )

    def delete(self, id_: str) -> bool:
        """Delete a diagnosis with all that is kept of it; False if it is not there."""
        with self._db.change() as db:
            gone = db.execute("DELETE FROM diagnoses WHERE id = ?", (id_,)).rowcount == 1
        self._db.shrink()
        return gone

    def get(self, id_: str) -> Record | None:
        """A diagnosis by its name."""
        row = self._db.row(f"SELECT {_COLUMNS} FROM diagnoses WHERE id = ?", (id_,))
        return Record(*row) if row else None

    def output(self, id_: str, name: str) -> bytes | None:
        """One output, compressed with zstd."""
        row = self._db.row(
            "SELECT data FROM outputs JOIN diagnoses USING (number) WHERE id = ? AND name = ?",
            (id_, name),
        )
        return row[0] if row else None

    def search(self, query: str = "", limit: int = 50, before: int | None = None) -> list[Record]:
        """The newest diagnoses that have every word of the query somewhere, older than `before`."""
        clauses, values = ["1"], []
        for word in query.lower().split()[:10]:
            text = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            clauses.append(
                "(words LIKE ? ESCAPE '\\' OR lower(title) LIKE ? ESCAPE '\\'"
                " OR lower(source) LIKE ? ESCAPE '\\' OR id = ?)"
            )
            values += [f"%{text}%"] * 3 + [word]
        if before is not None:
            clauses.append("number < ?")
            values.append(str(before))
        rows = self._db.rows(
            f"SELECT {_COLUMNS} FROM diagnoses WHERE {' AND '.join(clauses)}"
            " ORDER BY number DESC LIMIT ?",
            (*values, limit),
        )
        return [Record(*row) for row in rows]

    def usage(self) -> tuple[int, int]:
        """How many diagnoses are kept, and how many bytes their outputs take."""
        ((count, size),) = self._db.rows("SELECT count(*), total(kept) FROM diagnoses")
        return int(count), int(size)

    def expired(self, oldest: float, most: int) -> list[str]:
        """Finished diagnoses from before `oldest`, and the oldest beyond `most` bytes (0: none)."""
        rows = self._db.rows(
            "SELECT id, created, sum(kept) OVER (ORDER BY number DESC) FROM diagnoses"
            " WHERE state IN ('done', 'failed')"
        )
        return [id_ for id_, created, size in rows if created < oldest or (most and size > most)]
