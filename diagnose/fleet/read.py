"""Reading the results of a scan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from diagnose.batch.names import shown
from diagnose.batch.results import described, diagnoses, folder_of, tables
from diagnose.errors import InputError
from diagnose.fleet.columns import COLUMNS, part, unexplained
from diagnose.fleet.jobs import Jobs, joined


def read(results: Path) -> Jobs:
    """The jobs of a results folder, or of the file in it.

    Raises InputError with what to do when it is absent, damaged or holds no jobs.
    """
    folder = folder_of(results)
    # So many rows at a time are made small, so that no more than these are there in full.
    found = [part(table) for table in tables(folder, COLUMNS)]
    pa.default_memory_pool().release_unused()
    if not found:
        raise InputError(f"{folder} holds no jobs yet: {_why_none(folder)}")
    sources = unexplained(found)
    endings = {one["source"]: _ending(one) for one in diagnoses(folder, sources)}
    return joined(found, endings)


def typed(table: pa.Table, endings: Mapping[str, str] | None = None) -> Jobs:
    """Rows as the scan writes them, made ready for the questions asked here.

    `endings` gives the text for `ending` by source; without one it is the last note or the title.
    """
    return joined([part(table)], endings or {})


def _why_none(results: Path) -> str:
    """Why a scan has left no job."""
    if described(results).get("complete"):
        return "`diagnose scan` found nothing to diagnose"
    return "the first jobs of `diagnose scan` are not done, or it was stopped; --resume continues"


def _ending(one: Any) -> str:
    """What a stored diagnosis quotes first."""
    try:
        diagnosis = one["diagnosis"]
        quoted = [item["text"] for item in diagnosis["evidence"]]
        text = quoted[0] if quoted else diagnosis["root_cause"]["summary"]
    except (KeyError, TypeError, IndexError):
        return ""
    return shown(text) if isinstance(text, str) else ""
