"""A results folder as one typed frame of jobs.

Besides the columns of `jobs.parquet` (JSON texts and lists unpacked) a row has:

| column | meaning |
|---|---|
| job | made longer from `source` where jobs have equal names |
| troubled | the job hung, failed, or nobody knows; healthy and unreadable ones are neither |
| unreadable | the scan could not read the job; `error` says why |
| ending | of jobs without a known cause: the first line of evidence, or what was said instead |
| time, day, week | UTC, when it went wrong or ended; its day and the Monday of its week, as text |
| incident | the same number for retries: same hosts, fingerprint, day |
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from diagnose.batch.stored import shown
from diagnose.diagnosis import WELL
from diagnose.errors import InputError

FILE = "jobs.parquet"
COLUMNS = (
    "job", "source", "labels", "verdict", "class", "confidence", "culprit_hosts", "onset",
    "gpu_hours_lost", "fingerprint", "title", "hosts", "ranks", "versions",
    "started", "ended", "mtime", "tag", "error", "notes",
)  # fmt: skip
UNKNOWN = "unknown"  # class of a job whose cause is not known, also where it clearly failed
TROUBLED = ("hung", "failed", "unknown")
MAX_RANKS_A_HOST = 16  # with more of them the list of hosts is not whole
_FIRST, _LAST = pd.Timestamp("1970-01-01", tz=UTC), pd.Timestamp("2200-01-01", tz=UTC)
_LATE = pd.Timedelta(days=2)  # a log cannot end this long after its archive was written
_NOT_A_NODE = frozenset({"", "localhost", "127.0.0.1", "::1", "unknown", "none"})


def table_of(results: Path) -> Path:
    """The table of a results folder; it may be given itself."""
    inside = results / FILE
    return results if results.suffix == ".parquet" and not inside.exists() else inside


def read(results: Path, said: Callable[[str], None] = warnings.warn) -> pd.DataFrame:
    """The jobs of a results folder, or of the file in it.

    `said` hears of parts that are damaged and left out. Raises InputError with what to do when
    the table is absent, damaged as a whole, empty or not one of jobs.
    """
    path = table_of(results)
    if not path.exists():
        raise InputError(
            f"{path} does not exist: give the folder that `diagnose scan ARCHIVES -o FOLDER` wrote"
        )
    rows = _parts(path, said) if path.is_dir() else _file(path)
    absent = [name for name in COLUMNS if name not in rows]
    if absent:
        raise InputError(
            f"{path} lacks the columns {', '.join(absent)}: it was not written by this version of "
            "`diagnose scan`; scan again into a new folder"
        )
    if rows.empty:
        raise InputError(f"{path} holds no jobs: `diagnose scan` found nothing to diagnose")
    unexplained = rows["source"][rows["class"] == UNKNOWN]
    return typed(rows, _endings(path.parent, set(unexplained), said))


def _parts(path: Path, said: Callable[[str], None]) -> pd.DataFrame:
    """The rows of all whole parts."""
    import pyarrow as pa  # noqa: PLC0415  heavy

    from diagnose.batch import parts  # noqa: PLC0415

    tables, wrong = [], []
    try:
        for number in parts.numbers(path):
            try:
                tables.append(parts.read_table(path.parent, number))
            except parts.DamagedError as error:
                wrong.append(f"{path / parts.name(number, 'parquet')} is damaged ({error})")
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from error
    advice = "`diagnose scan … --resume` reads its jobs again"
    if wrong and not tables:
        raise InputError(f"{wrong[0]}: {advice}")
    for text in wrong:
        said(f"{text} and left out: {advice}")
    if not tables:
        raise InputError(f"{path.parent} holds no jobs yet: {_why_none(path.parent)}")
    rows: pd.DataFrame = pa.concat_tables(tables).to_pandas()
    return rows


def _why_none(results: Path) -> str:
    """Why a scan has left no part, by its manifest."""
    from diagnose.batch import parts  # noqa: PLC0415

    if parts.complete(results):
        return "`diagnose scan` found nothing to diagnose"
    return "the first jobs of `diagnose scan` are not done, or it was stopped; --resume continues"


def _file(path: Path) -> pd.DataFrame:
    """The rows of a table in one file, as `pandas` writes it."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    if not path.is_file():
        raise InputError(f"{path} is not a regular file")
    try:
        table = pq.read_table(path)
        table.validate(full=True)
        rows: pd.DataFrame = table.to_pandas()
    except Exception as error:  # pyarrow has no common base for its errors
        why = " ".join(str(error).split())[:200]
        raise InputError(f"{path} cannot be read ({why}): scan again into a new folder") from error
    return rows


def typed(rows: pd.DataFrame, endings: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Rows as the scan writes them, made ready for the questions asked here; see the module.

    `endings` gives the text for `ending` by source; without one it is the last note or the title.
    """
    jobs = rows.reset_index(drop=True).copy()
    for name in (
        "job",
        "source",
        "verdict",
        "class",
        "confidence",
        "fingerprint",
        "title",
        "error",
    ):
        jobs[name] = [_text(value) for value in jobs[name]]
    jobs["job"] = _distinct(list(jobs["job"]), list(jobs["source"]))
    for name in ("labels", "versions"):
        jobs[name] = [_mapping(value) for value in jobs[name]]
    jobs["notes"] = [_words(value) for value in jobs["notes"]]
    for name in ("gpu_hours_lost", "ranks"):
        jobs[name] = pd.to_numeric(jobs[name], errors="coerce").astype("float64")
    _hosts(jobs)
    jobs["ending"] = [
        (endings or {}).get(source) or (notes[-1] if notes else title) or "no text"
        for source, notes, title in zip(jobs["source"], jobs["notes"], jobs["title"], strict=True)
    ]
    jobs["unreadable"] = ~jobs["verdict"].isin((*TROUBLED, *WELL))
    jobs["troubled"] = jobs["verdict"].isin(TROUBLED)
    jobs["time"] = _times(jobs)
    jobs["day"] = jobs["time"].dt.strftime("%Y-%m-%d").fillna("")
    monday = jobs["time"] - pd.to_timedelta(jobs["time"].dt.day_of_week, unit="D")
    jobs["week"] = monday.dt.strftime("%Y-%m-%d").fillna("")
    jobs["incident"] = _incidents(jobs)
    return jobs


def _endings(results: Path, sources: set[str], said: Callable[[str], None]) -> dict[str, str]:
    """By source what the stored diagnoses quote first. Old results may lack them."""
    from diagnose.batch.results import diagnoses  # noqa: PLC0415  (pyarrow is heavy)

    found = {}
    try:
        for one in diagnoses(results, sources, said) if sources else ():
            ending = _ending(one)
            if ending:
                found[one["source"]] = ending
    except OSError as error:
        said(f"{error.filename or results}: {error.strerror or error}: no texts of unknown jobs")
    return found


def _ending(one: Any) -> str:
    try:
        diagnosis = one["diagnosis"]
        quoted = [item["text"] for item in diagnosis["evidence"]]
        text = quoted[0] if quoted else diagnosis["root_cause"]["summary"]
    except (KeyError, TypeError, IndexError):
        return ""
    return shown(text) if isinstance(text, str) else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _words(value: Any) -> list[str]:
    """A list of texts, from a list, an array or one text."""
    if isinstance(value, str):
        return [value] if value else []
    try:
        return [item for item in value if isinstance(item, str)]
    except TypeError:
        return []


def _distinct(names: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Names that no two jobs share: equal ones give way to the end of the job's source."""
    found = list(names)
    paths = [source.split("/") for source in sources]
    for length in range(2, max(map(len, paths), default=0) + 1):
        counts = Counter(found)
        again = [at for at, name in enumerate(found) if counts[name] > 1]
        if not again:
            break
        for at in again:
            found[at] = "/".join(paths[at][-length:])
    return found


def _mapping(value: Any) -> dict[str, str]:
    try:
        data = json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {
        shown(key): shown(str(item))
        for key, item in data.items()
        if isinstance(item, str | int | float)
    }


def _hosts(jobs: pd.DataFrame) -> None:
    """Lists of hosts under one name each: no repeats, no loopback, no domain where some lack it."""
    raw = {name: [_words(value) for value in jobs[name]] for name in ("hosts", "culprit_hosts")}
    bare = {host for lists in raw.values() for hosts in lists for host in hosts if "." not in host}

    def names(hosts: Iterable[str]) -> list[str]:
        short = {host.split(".")[0] if host.split(".")[0] in bare else host for host in hosts}
        return sorted(host for host in short if host.lower() not in _NOT_A_NODE)

    jobs["culprit_hosts"] = [names(hosts) for hosts in raw["culprit_hosts"]]
    jobs["hosts"] = [
        whole if whole and not ranks > MAX_RANKS_A_HOST * len(whole) else []
        for whole, ranks in zip(map(names, raw["hosts"]), jobs["ranks"], strict=True)
    ]


def _times(jobs: pd.DataFrame) -> pd.Series[Any]:
    """When each job went wrong: onset, else end, begin, or the time of its archive.

    A clock that is ahead of the archive is wrong; logs without a year get the wrong one easily.
    """
    written = pd.Series([_moment(value) for value in jobs["mtime"]], dtype="datetime64[ns, UTC]")
    time = pd.Series(pd.NaT, index=jobs.index, dtype="datetime64[ns, UTC]")
    for name in ("onset", "ended", "started"):
        told = pd.to_datetime(jobs[name], utc=True, errors="coerce", format="ISO8601")
        told = told.where(told.between(_FIRST, _LAST)).astype("datetime64[ns, UTC]")
        told = told.mask(told > written + _LATE)
        time = time.fillna(told)
    return time.fillna(written)


def _moment(value: Any) -> datetime | None:
    """A time of a file: seconds since 1970 (0: unknown), ISO 8601 text, or a time already."""
    try:
        if isinstance(value, int | float):
            moment = pd.Timestamp(datetime.fromtimestamp(value, UTC))
        else:
            moment = pd.Timestamp(value)
            moment = moment.tz_localize(moment.tz or UTC)
        return moment.to_pydatetime() if _FIRST < moment < _LAST else None
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _incidents(jobs: pd.DataFrame) -> list[int]:
    numbers: dict[tuple[object, ...], int] = {}
    found = []
    for index, (hosts, culprits, mark, day, troubled) in enumerate(
        zip(
            jobs["hosts"], jobs["culprit_hosts"], jobs["fingerprint"], jobs["day"],
            jobs["troubled"], strict=True,
        )
    ):  # fmt: skip
        known = hosts or culprits
        key = (tuple(known), mark, day) if troubled and mark and known else (index,)
        found.append(numbers.setdefault(key, len(numbers)))
    return found
