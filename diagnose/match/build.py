"""What a catalog is searched with: Hyperscan's databases, and which digits matter to its patterns.

Compiled when the package is built; for another processor, and for the entries of a user, once on
this machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import hyperscan as hs

from diagnose.catalog import kept, stored
from diagnose.catalog.load import default_dir, read_shipped
from diagnose.catalog.schema import Catalog
from diagnose.errors import CatalogError
from diagnose.match.digits import doubts
from diagnose.match.rows import DATABASES, LITERAL, WATCHED, Row, name_of, rows_of
from diagnose.search import Automaton, compile_database

Databases = dict[str, Automaton | None]


def compiled(catalog: Catalog) -> Databases:
    """All databases of a catalog, which are kept. Raises CatalogError for patterns too large."""
    try:
        found = compile_all(catalog)
    except hs.error as error:
        raise CatalogError(f"the patterns do not compile together: {error}") from error
    kept.keep(name_of(catalog.revision), _sections(catalog, found))
    return found


def build(folder: Path) -> None:
    """Put the shipped catalog and what it is searched with into a folder."""
    catalog = read_shipped(default_dir())
    kept.write(folder, stored.name_of(catalog.revision), stored.sections(catalog))
    kept.write(folder, name_of(catalog.revision), _sections(catalog, compile_all(catalog)))


def compile_all(catalog: Catalog, names: Iterable[str] = (*DATABASES, WATCHED)) -> Databases:
    """Databases of a catalog, compiled anew."""
    found: Databases = {}
    for name in names:
        rows = rows_of(catalog, name)
        found[name] = compile_rows(rows, literal=name in LITERAL) if rows else None
    return found


def compile_rows(rows: Sequence[Row], *, literal: bool = False) -> Automaton:
    """A database of these rows, at least one."""
    forms, numbers, flags = zip(*rows, strict=True)
    return compile_database(forms, numbers, flags, literal=literal)


def _sections(catalog: Catalog, databases: Databases) -> dict[str, bytes]:
    return {"digits": json.dumps([*doubts(catalog)]).encode()} | {
        name: b"" if database is None else hs.dumpb(database.database)
        for name, database in databases.items()
    }
