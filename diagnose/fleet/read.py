"""A results folder as one typed frame of jobs.

Besides the columns of `jobs.parquet` (JSON texts and lists unpacked) a row has:

| column | meaning |
|---|---|
| troubled | the job hung, failed, or nobody knows; healthy and unreadable ones are neither |
| unreadable | the scan could not read the job; `error` says why |
| ending | of jobs without a known cause: the first line of evidence, or what was said instead |
| time, day, week | UTC, when it went wrong or ended; its day and the Monday of its week, as text |
| incident | the same number for retries: same hosts, fingerprint, day |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from diagnose.errors import InputError

FILE = "jobs.parquet"
COLUMNS = (
    "job", "source", "labels", "verdict", "class", "confidence", "culprit_hosts", "onset",
    "gpu_hours_lost", "fingerprint", "title", "hosts", "ranks", "versions",
    "started", "ended", "mtime", "error", "notes",
)  # fmt: skip
UNKNOWN = "unknown"  # class of a job whose cause is not known, also where it clearly failed
TROUBLED = ("hung", "failed", "unknown")
MAX_RANKS_A_HOST = 16  # with more of them the list of hosts is not whole
_LATE = pd.Timedelta(days=2)  # a log cannot end this long after its archive was written
_NOT_A_NODE = frozenset({"", "localhost", "127.0.0.1", "::1", "unknown", "none"})


def read(results: Path) -> pd.DataFrame:
    """The jobs of a results folder, or of the file in it.

    Raises InputError with what to do when it is absent, damaged or not a table of jobs.
    """
    path = results / FILE if results.is_dir() and results.suffix != ".parquet" else results
    if not path.exists():
        raise InputError(
            f"{path} does not exist: give the folder that `diagnose scan ARCHIVES -o FOLDER` wrote"
        )
    try:
        rows = pd.read_parquet(path)
    except ImportError as error:
        raise InputError(f"reading {path} needs pyarrow: pip install pyarrow") from error
    except Exception as error:  # pyarrow has no common base for its errors
        why = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} cannot be read ({why}): finish it with `diagnose scan … --resume`, "
            "or scan into a new folder"
        ) from error
    absent = [name for name in COLUMNS if name not in rows]
    if absent:
        raise InputError(
            f"{path} lacks the columns {', '.join(absent)}: it was not written by this version of "
            "`diagnose scan`; scan again into a new folder"
        )
    if rows.empty:
        raise InputError(f"{path} holds no jobs: `diagnose scan` found nothing to diagnose")
    unexplained = rows["source"][rows["class"] == UNKNOWN]
    return typed(rows, _endings(path.parent, set(unexplained)))


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
    jobs["unreadable"] = ~jobs["verdict"].isin((*TROUBLED, "healthy"))
    jobs["troubled"] = jobs["verdict"].isin(TROUBLED)
    jobs["time"] = _times(jobs)
    jobs["day"] = jobs["time"].dt.strftime("%Y-%m-%d").fillna("")
    monday = jobs["time"] - pd.to_timedelta(jobs["time"].dt.day_of_week, unit="D")
    jobs["week"] = monday.dt.strftime("%Y-%m-%d").fillna("")
    jobs["incident"] = _incidents(jobs)
    return jobs


def _endings(results: Path, sources: set[str]) -> dict[str, str]:
    """By source what the stored diagnoses quote first. Old results may lack them."""
    from zstandard import ZstdError  # noqa: PLC0415

    from diagnose.batch.results import diagnoses  # noqa: PLC0415  (pyarrow is heavy)

    found = {}
    try:
        for stored in diagnoses(results, sources) if sources else ():
            diagnosis = stored["diagnosis"]
            quoted = [item["text"] for item in diagnosis["evidence"]]
            found[stored["source"]] = quoted[0] if quoted else diagnosis["root_cause"]["summary"]
    except (OSError, ValueError, KeyError, TypeError, ZstdError):
        return found
    return found


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


def _mapping(value: Any) -> dict[str, str]:
    try:
        data = json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return {}
    if not isinstance(data, dict):
        return {}
    return {key: str(item) for key, item in data.items() if isinstance(item, str | int | float)}


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
        told = told.astype("datetime64[ns, UTC]").mask(told > written + _LATE)
        time = time.fillna(told)
    return time.fillna(written)


def _moment(value: Any) -> datetime | None:
    """A time of a file: seconds since 1970 (0: unknown), ISO 8601 text, or a time already."""
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value, UTC) if value > 0 else None
        moment = pd.Timestamp(value)
        return None if pd.isna(moment) else moment.tz_localize(moment.tz or UTC).to_pydatetime()
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
