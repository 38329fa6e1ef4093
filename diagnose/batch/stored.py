"""Jobs of a scan, looked up by their ids: read again, and the last run of one that ended well."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from diagnose.batch.jobs import JobRef, find_stored
from diagnose.batch.names import restored
from diagnose.batch.results import rows_of
from diagnose.batch.work import sources_of
from diagnose.diagnosis import WELL
from diagnose.errors import InputError
from diagnose.job.load import read

if TYPE_CHECKING:
    from diagnose.job.model import Job


_NUMBER = re.compile(r"\d+|(?<![A-Za-z0-9])[0-9a-f]{6,}(?![A-Za-z0-9])")
_ENDED = "healthy"
_WHOSE = ("user", "owner", "account", "team", "name", "job_name", "experiment")


@dataclass(frozen=True, slots=True)
class Stored:
    """A job as the results have it; times are ISO 8601, by the job's own clock."""

    job: str
    source: str
    labels: dict[str, str]
    verdict: str | None
    started: str | None
    ended: str | None
    tag: str
    frameworks: str
    ranks: int | None
    mtime: float | None

    @property
    def kind(self) -> tuple[str, ...]:
        """The same for all runs of one job: its name but for numbers, and whose it is."""
        return (_NUMBER.sub("0", self.job), *(self.labels.get(name, "") for name in _WHOSE))

    @property
    def time(self) -> tuple[str, float]:
        """When it ended, as far as that is known."""
        return self.ended or self.started or "", self.mtime or 0.0


def stored_jobs(folder: Path) -> list[Stored]:
    """All jobs of the results in a folder. Raises InputError."""
    columns = [one.name for one in fields(Stored)]
    rows = (dict(zip(columns, row, strict=True)) for row in rows_of(folder, columns))
    labelled = (row | {"labels": json.loads(row["labels"] or "{}")} for row in rows)
    return [Stored(**row | {"tag": row["tag"] or ""}) for row in labelled]


def named(jobs: Sequence[Stored], name: str) -> Stored:
    """The job of this id, or of this source. Raises InputError, which says what there is."""
    found = [one for one in jobs if name in (one.job, one.source)]
    if not found:
        near = get_close_matches(name, [one.job for one in jobs], n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(f"{name}: no job of the results is called so{hint}")
    if len(found) > 1:
        raise InputError(
            f"{name}: {len(found)} jobs are called so: give the source, such as {found[0].source}"
        )
    return found[0]


def last_good(jobs: Sequence[Stored], bad: Stored) -> Stored:
    """The last run of the same job before `bad` that ended well. Raises InputError without any.

    Where no log says that it ended, the last one that shows no failure.
    """
    began = bad.started or bad.ended
    runs = [
        one
        for one in jobs
        if one.verdict in WELL
        and one.source != bad.source
        and one.kind == bad.kind
        and (began is None or one.ended is None or one.ended <= began)
    ]
    if not runs:
        raise InputError(
            f"{bad.job}: no earlier run of this job ended well in these results; name one yourself"
        )
    setup = bad.ranks, bad.frameworks
    return max(
        runs,
        key=lambda one: (
            (one.ranks, one.frameworks) == setup, one.verdict == _ENDED, one.time,
        ),
    )  # fmt: skip


def ref_of(source: str, tag: str) -> JobRef:
    """The job of a stored source, where it can be as it was scanned. Raises InputError."""
    source = restored(source)
    refs = [ref for ref in find_stored(source) if ref.source == source]
    if not refs:
        raise InputError(f"{source}: is not there any more")
    return next((ref for ref in refs if ref.tag == tag), refs[0])


def opened(one: Stored, patterns: Sequence[str | Path] = ()) -> Job:
    """The job, read again. Raises InputError."""
    return read(sources_of(ref_of(one.source, one.tag)), patterns=patterns)
