"""The timeline: one typed frame with a row per event, and the rank table made from it.

Columns (missing is NA), sorted by (time, source, line) where `time` runs forward inside a source:

    time                 datetime64[ns]  as logged, on the job's clock; NaT where the line has none
    source, line, offset category, int64, int64   1-based line, byte offset of its start
    attempt              Int16           0-based
    rank, local_rank, group_rank, host, pid       who; `group_rank` is a rank inside a process group
    kind                 category        collective, exit, exception, frame, restart, phase,
                                         progress, fact, signature, edge (first / last lines)
    signature, role, severity            which catalog entry, its causal role, how bad
    cause, strength, tells               of the entry: cause class, weight, hook for inference
    phase                category        of phase markers and frames
    group, op, seq, size_in, size_out, timeout_ms, elapsed_ms     of collectives
    step                 Int64           of progress
    text                 str             the line, bounded
    fields               object          named captures (dict)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from diagnose.catalog.schema import Signature
from diagnose.match.scanner import Line, SourceScan
from diagnose.parse.clock import resolve
from diagnose.timeline.rows import shift_to_log

_DTYPES: dict[str, str] = {
    "line": "int64",
    "offset": "int64",
    "attempt": "Int16",
    "rank": "Int32",
    "local_rank": "Int16",
    "group_rank": "Int32",
    "task": "Int32",
    "pid": "Int64",
    "seq": "Int64",
    "size_in": "Int64",
    "size_out": "Int64",
    "timeout_ms": "Int64",
    "elapsed_ms": "Int64",
    "step": "Int64",
}
_CATEGORIES = (
    "source", "host", "kind", "signature", "role", "severity", "cause", "strength", "tells",
    "phase", "group", "op",
)  # fmt: skip
COLUMNS = (
    "time", "source", "line", "offset", "attempt", "rank", "local_rank", "group_rank", "task",
    "host", "pid", "kind", "signature", "role", "severity", "cause", "strength", "tells", "phase",
    "group", "op", "seq", "size_in", "size_out", "timeout_ms", "elapsed_ms", "step", "text",
    "fields",
)  # fmt: skip
_TEXT_LIMIT = 1000
# Lines between `rank :` and the last line about it in torch elastic's failure table.
_TABLE_REACH = 3
# Rows that lines about many tasks may become in one job, and ranks of one captured list.
_TASKS_LIMIT = 20_000
_RANKS_LIMIT = 100_001
_RANK_LIMIT = 1_000_000  # no job has more ranks
_MS_LIMIT = 10**12  # thirty years
_INTERNAL = (
    "ns", "has_date", "has_year", "utc_offset_s", "boot", "mtime", "node", "dev", "repeated",
    "mapped_rank", "mapped_of", "ends_phase", "of_table",
)  # fmt: skip
_STAMP_COLUMNS = ("ns", "has_date", "has_year", "utc_offset_s", "boot", "mtime")

_KIND_OF_TELLS = {
    "timeout": "collective", "frontier": "collective", "notified": "collective",
    "missing": "collective", "joined": "collective", "mismatch": "collective",
    "exit": "exit", "exception": "exception", "frame": "frame", "restart": "restart",
}  # fmt: skip
_KIND_OF_ROLE = {"phase": "phase", "progress": "progress"}
_SEVERITY = {"cause": "error", "effect": "error", "aftermath": "warning", "context": "info"}
_LEVEL_SEVERITY = {"ERROR": "error", "FATAL": "error"}  # of first and last lines, by their logger
# A captured rank is the subject of these lines; elsewhere it may be somebody else's.
_SUBJECT = frozenset({"exit", "rank_map", "finished", "exception", "teardown", "frontier"})


def build(
    scans: Sequence[SourceScan],
    signatures: Sequence[Signature],
    more: Sequence[dict[str, Any]] = (),
    clocks: Mapping[str, int] | None = None,
) -> pd.DataFrame:
    """The timeline of a job from what its sources gave.

    `more` are rows of `timeline_table`; `clocks` says by how many ns the clock of a host is ahead.
    """
    rows: list[dict[str, Any]] = [*more]
    tasks_left = _TASKS_LIMIT
    for scan in scans:
        for line in scan.lines:
            found = list(_rows(scan, line, signatures, tasks_left))
            tasks_left -= len(found) - len({row["signature"] for row in found})
            rows += found
        rows += [
            _row(scan, line)
            | {"kind": "edge", "severity": _LEVEL_SEVERITY.get(line.prefix.level or "")}
            for line in scan.edges
        ]
    if not rows:
        return _typed(pd.DataFrame(columns=[*COLUMNS]))
    frame = pd.DataFrame(rows)
    frame = frame.reindex(columns=[*dict.fromkeys([*frame.columns, *COLUMNS, *_INTERNAL])])
    # Nanoseconds do not fit a float column, which None among integers would make of it.
    frame["ns"] = pd.array([row["ns"] for row in rows], dtype="Int64")
    frame["time"] = resolve(frame[["source", "line", *_STAMP_COLUMNS]])
    if more:
        frame["time"] = shift_to_log(frame)
    if clocks:
        frame["time"] = _on_one_clock(frame, clocks)
    frame = _ordered(frame)
    frame["attempt"] = _attempts(frame)
    return _typed(_named(frame))


def _on_one_clock(frame: pd.DataFrame, clocks: Mapping[str, int]) -> pd.Series:
    """Times without the error of the hosts' clocks, for sources that are of one host."""
    hosts = frame.groupby("source")["host"].agg(["nunique", "first"])
    ahead = hosts.loc[hosts["nunique"] == 1, "first"].map(clocks)
    shift = pd.to_timedelta(frame["source"].map(ahead).fillna(0), unit="ns")
    return frame["time"] - shift


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """Who wrote each line. Rows of the table know their rank and say nothing about a log's."""
    own = frame["of_table"].eq(True)
    logs = frame[~own].copy()
    _join_tables(logs)
    _name_authors(logs)
    if not own.any():
        return logs
    # A second dump overwrites the first, so what is there is of the last attempt.
    table = frame[own].assign(attempt=logs["attempt"].max() if len(logs) else 0)
    return pd.concat([logs, table]).sort_index()


def captured_ranks(text: str | None) -> list[int]:
    """The ranks of a captured list such as "0, 3", "0-3,7" or "{1}"; bounded, sorted."""
    ranks: set[int] = set()
    left = _RANKS_LIMIT
    for low, high in _spans(text):
        part = range(low, min(high + 1, low + left))
        ranks.update(part)
        left -= len(part)
    return sorted(ranks)


def highest_rank(text: str | None) -> int | None:
    """The highest rank of such a list, None where it names none."""
    ends = (min(high, low + _RANKS_LIMIT - 1) for low, high in _spans(text) if low <= high)
    return max(ends, default=None)


def _spans(text: str | None) -> Iterator[tuple[int, int]]:
    for low, high in re.findall(r"(\d{1,6})(?:\s*-\s*(\d{1,6}))?", text or ""):
        yield int(low), int(high or low)


def _rows(
    scan: SourceScan, line: Line, signatures: Sequence[Signature], tasks_left: int
) -> Iterator[dict[str, Any]]:
    found = [(signatures[number], captures) for number, captures in line.matches]
    specific = any(not s.generic and s.role in ("cause", "effect", "aftermath") for s, _ in found)
    explained = any(s.tells != "trouble" for s, _ in found)
    for signature, captures in found:
        if (signature.generic and specific) or (signature.tells == "trouble" and explained):
            continue
        event = _row(scan, line) | _event(signature, captures)
        tasks = captured_ranks(captures.get("ranks")) if signature.tells == "exit" else []
        # srun tells of many tasks in one line; a task is a rank if it starts one per GPU.
        yield from ([event | {"task": task} for task in tasks[:tasks_left]] or [event])


def _row(scan: SourceScan, line: Line) -> dict[str, Any]:
    prefix, source, stamp = line.prefix, scan.source, line.prefix.stamp
    return {
        "source": source.name,
        "line": line.line,
        "offset": line.offset,
        "attempt": source.attempt,
        "rank": prefix.rank if prefix.rank is not None else source.rank,
        "local_rank": prefix.local_rank if prefix.local_rank is not None else source.local_rank,
        "group_rank": prefix.group_rank,
        "task": prefix.task if prefix.task is not None else source.task,
        "node": source.node,
        "host": prefix.host or source.host,
        "pid": prefix.pid,
        "dev": prefix.dev,
        "repeated": prefix.repeated,
        "text": line.text[:_TEXT_LIMIT],
        "ns": stamp.ns if stamp else None,
        "has_date": stamp.has_date if stamp else True,
        "has_year": stamp.has_year if stamp else True,
        "utc_offset_s": stamp.utc_offset_s if stamp else None,
        "boot": stamp.boot if stamp else False,
        "mtime": source.mtime,
        "fields": {},
    }


def _event(signature: Signature, captures: dict[str, str]) -> dict[str, Any]:
    tells = signature.tells
    kind = _KIND_OF_TELLS.get(tells or "") or _KIND_OF_ROLE.get(signature.role)
    event: dict[str, Any] = {
        "kind": kind or ("fact" if signature.facts else "signature"),
        "signature": signature.id,
        "role": signature.role,
        "severity": _SEVERITY.get(signature.role, "info"),
        "cause": signature.cause or None,
        "strength": signature.strength,
        "tells": tells,
        "phase": signature.phase,
        "ends_phase": signature.ends_phase,
        "fields": captures,
        "group": captures.get("group"),
        "op": captures.get("op"),
        "seq": _int(captures.get("seq")),
        "size_in": _int(captures.get("numel_in")),
        "size_out": _int(captures.get("numel_out")),
        "timeout_ms": _milliseconds(captures, "timeout"),
        "elapsed_ms": _milliseconds(captures, "elapsed"),
        "step": _int(captures.get("step")),
    }
    if tells in _SUBJECT or signature.role in ("phase", "progress"):
        in_communicator = tells == "rank_map" and "world_size" in captures
        for key in ("local_rank", "pid") if in_communicator else ("rank", "local_rank", "pid"):
            if key in captures:
                event[key] = _int(captures[key]) if key == "pid" else _rank(captures[key])
        if "host" in captures and tells in _SUBJECT:
            event["host"] = captures["host"]
        if in_communicator:
            event["mapped_rank"] = _rank(captures.get("rank"))
            event["mapped_of"] = _rank(captures["world_size"])
    if "group_rank" in captures and tells != "missing":
        event["group_rank"] = _rank(captures["group_rank"])
    return event


def _rank(text: str | None) -> int | None:
    """A rank or a number of ranks; None for more than any job has."""
    value = _int(text)
    return value if value is not None and value <= _RANK_LIMIT else None


def _int(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.strip().replace(",", "").replace("_", "")
    scale = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}.get(digits[-1:].lower())
    try:
        value = int(float(digits[:-1]) * scale) if scale else int(digits, 0)
    except OverflowError:
        return None
    except ValueError:
        try:
            value = int(digits)  # a leading zero
        except ValueError:
            return None
    return value if -(2**62) < value < 2**62 else None


def _milliseconds(captures: dict[str, str], name: str) -> int | None:
    """A captured duration, None for one that would lead out of the calendar."""
    if f"{name}_ms" in captures:
        told = _int(captures[f"{name}_ms"])
        return told if told is not None and told <= _MS_LIMIT else None
    try:
        seconds = float(captures[f"{name}_s"]) if f"{name}_s" in captures else None
    except ValueError:
        seconds = None
    if seconds is None and name == "elapsed" and "elapsed" in captures:
        seconds = clock_seconds(captures["elapsed"])
    return None if seconds is None or seconds * 1000 > _MS_LIMIT else int(seconds * 1000)


def clock_seconds(text: str) -> float | None:
    """Seconds of a progress bar's elapsed time, `[D day, ][H:]MM:SS`."""
    parts = re.findall(r"\d+", text)
    if not parts or len(parts) > 4 or any(len(part) > 9 for part in parts):
        return None
    seconds = 0.0
    for part, unit in zip(reversed(parts), (1, 60, 3600, 86400), strict=False):
        seconds += int(part) * unit
    return seconds


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows in time order; inside a source the order of its lines always holds.

    The clock of a source is made to run forward (a line printed with an older time, or with none,
    happened no earlier than the line before it), then the sources are merged by it.
    """
    frame = frame.sort_values(["source", "line", "offset"], kind="stable")
    running = frame.groupby("source", sort=False)["time"].cummax()
    by_source = running.groupby(frame["source"], sort=False)
    running = by_source.ffill().groupby(frame["source"], sort=False).bfill()
    order = pd.DataFrame({"time": running, "source": frame["source"], "line": frame["line"]})
    order = order.sort_values(["time", "source", "line"], kind="stable", na_position="last")
    return frame.loc[order.index].reset_index(drop=True)


def _attempts(frame: pd.DataFrame) -> pd.Series:
    """Attempt of each row: from the folder, else the number of restarts seen before it.

    Nothing orders a source without any time against the others: it counts its own restarts, and
    where it tells of none its rows may be of any attempt (NA).
    """
    tells = frame["tells"] if "tells" in frame else pd.Series(None, index=frame.index)
    restarted = (tells == "restart").fillna(False).astype("int16")
    counted = restarted.cumsum() - restarted
    timed = frame["source"].isin(frame.loc[frame["time"].notna(), "source"].unique())
    if restarted.any() and not timed.all():
        own = restarted.groupby(frame["source"], sort=False).cumsum() - restarted
        restarting = frame["source"].isin(frame.loc[restarted > 0, "source"].unique())
        counted = counted.where(timed, own.where(restarting))
    named = pd.to_numeric(frame["attempt"], errors="coerce")
    return named.fillna(counted)


def _join_tables(frame: pd.DataFrame) -> None:
    """Give exits the rank printed a line or two above them (torch elastic's failure table)."""
    tells = frame["tells"] if "tells" in frame else pd.Series(None, index=frame.index)
    columns = ["source", "line", "rank", "local_rank", "fields"]
    rows = frame.loc[tells.isin(["exit", "rank_map"]), columns].assign(tells=tells)
    named: Any = None
    owners: dict[Any, list[Any]] = {}
    for row in rows.sort_values(["source", "line"], kind="stable").itertuples():
        if row.tells == "rank_map":
            named = row
            continue
        here = named is not None and named.source == row.source and pd.isna(row.rank)
        if here and 0 < row.line - named.line <= _TABLE_REACH:
            owners[row.Index] = [_rank(named.fields.get("rank")), named.local_rank]
    if owners:
        frame.loc[[*owners], ["rank", "local_rank"]] = np.array([*owners.values()], dtype=float)


def _name_authors(frame: pd.DataFrame) -> None:
    """Fill `rank` from maps learnt in the log, launcher tasks and local ranks.

    In order: the line's own rank, host:pid or pid seen with a rank, local rank seen with a rank
    in the same source, the only rank that a source names, the task id of a launcher that starts
    one task per rank, and the local rank when the whole job is on one node. The rank inside a
    group stands in for the global one only where nothing else names ranks.
    """
    rank = pd.to_numeric(frame["rank"], errors="coerce")
    # NCCL prints the rank inside a communicator: the global one only where that is the world.
    size = pd.to_numeric(frame["mapped_of"], errors="coerce")
    mapped = pd.to_numeric(frame["mapped_rank"], errors="coerce")
    frame["rank"] = rank.fillna(mapped.where(size == size.max()))
    for keys in (["attempt", "host", "pid"], ["attempt", "pid"], ["source", "local_rank"]):
        _fill_by(frame, keys)
    _name_sources(frame)
    if _tasks_are_ranks(frame):
        frame["rank"] = frame["rank"].fillna(pd.to_numeric(frame["task"], errors="coerce"))
    if _single_node(frame):
        frame["rank"] = frame["rank"].fillna(pd.to_numeric(frame["local_rank"], errors="coerce"))
    in_group = pd.to_numeric(frame["group_rank"], errors="coerce")
    if frame["rank"].isna()[in_group.notna()].all():
        frame["rank"] = frame["rank"].fillna(in_group)


def _name_sources(frame: pd.DataFrame) -> None:
    """Give all lines of a source to the one rank it names, where each source names another."""
    named = frame.dropna(subset=["rank"]).groupby("source")["rank"].agg(["nunique", "first"])
    single = named.loc[named["nunique"] == 1, "first"]
    if len(single) > 1 and single.is_unique and len(single) == len(named):
        frame["rank"] = frame["rank"].fillna(frame["source"].map(single))


def _fill_by(frame: pd.DataFrame, keys: list[str]) -> None:
    known = frame.dropna(subset=[*keys, "rank"])
    if known.empty or not frame["rank"].isna().any():
        return
    counts = known.groupby(keys)["rank"].agg(["nunique", "first"])
    certain = counts.loc[counts["nunique"] == 1, "first"]
    if certain.empty:
        return
    index = pd.MultiIndex.from_frame(frame[keys])
    frame["rank"] = frame["rank"].fillna(
        pd.Series(certain.reindex(index).to_numpy(), index=frame.index)
    )


def _tasks_are_ranks(frame: pd.DataFrame) -> bool:
    """One task per rank: no task prints several local ranks or is on another host than its rank."""
    tasks = frame.dropna(subset=["task"])
    per_task = tasks.groupby("task")["local_rank"].nunique()
    host_of_rank = hosts_of_ranks(frame)
    elsewhere = any(
        host_of_rank.get(int(task), host) != host
        for task, host in zip(tasks["task"], tasks["host"], strict=True)
        if pd.notna(host)
    )
    return bool((per_task <= 1).all()) and not elsewhere


def _single_node(frame: pd.DataFrame) -> bool:
    hosts = frame["host"].dropna().nunique()
    nodes = frame["node"].dropna().nunique()
    tasks = 0 if _tasks_are_ranks(frame) else frame["task"].dropna().nunique()
    ranks = pd.to_numeric(frame["rank"], errors="coerce").max()
    local = pd.to_numeric(frame["local_rank"], errors="coerce").max()
    beyond = bool(pd.notna(ranks) and pd.notna(local) and ranks > local)
    return hosts <= 1 and nodes <= 1 and tasks <= 1 and not beyond


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.reindex(columns=[*COLUMNS, "ends_phase", "repeated"])
    frame["time"] = pd.to_datetime(frame["time"]).astype("datetime64[ns]")
    for column, dtype in _DTYPES.items():
        numbers = pd.to_numeric(frame[column], errors="coerce")
        if dtype != "int64":
            limit = {"Int16": 2**15, "Int32": 2**31}.get(dtype, 2**63)
            numbers = numbers.where(numbers.abs() < limit)
        frame[column] = numbers.astype(dtype)
    for column in _CATEGORIES:
        frame[column] = frame[column].astype("category")
    frame["text"] = frame["text"].astype("str")
    frame["ends_phase"] = frame["ends_phase"].map(lambda flag: flag is True).astype(bool)
    frame["repeated"] = pd.to_numeric(frame["repeated"]).fillna(1).astype("int64")
    return frame


def hosts_of_ranks(frame: pd.DataFrame) -> dict[int, str]:
    """The host of every rank whose host is known, as its first row with a host says."""
    known = frame.dropna(subset=["rank", "host"]).drop_duplicates("rank")
    return {int(rank): str(host) for rank, host in zip(known["rank"], known["host"], strict=True)}


def rank_table(timeline: pd.DataFrame) -> pd.DataFrame:
    """One row a rank (index `rank`): host, pid, first and last time, last step and phase, exit.

    Columns: host, pid, first_time, last_time, last_step, last_phase, enqueued, completed
    (last collective per the status lines), exit (exit code or negative signal), log_present.
    """
    known = timeline.dropna(subset=["rank"])
    grouped = known.groupby("rank")
    table = pd.DataFrame(
        {
            "host": grouped["host"].agg(_first),
            "pid": grouped["pid"].agg(_first),
            "first_time": grouped["time"].min(),
            "last_time": grouped["time"].max(),
            "last_step": grouped["step"].agg(_last),
            "last_phase": grouped["phase"].agg(_last),
        }
    )
    for name in ("enqueued", "completed"):
        values = known["fields"].map(lambda fields, key=name: _int(fields.get(key)))
        table[name] = values.groupby(known["rank"]).max().astype("Int64")
    exits = known[known["kind"] == "exit"]
    codes = exits["fields"].map(lambda fields: _int(fields.get("exitcode")))
    table["exit"] = codes.groupby(exits["rank"]).first().astype("Int64")
    table["log_present"] = True
    return table


def _first(values: pd.Series) -> Any:
    present = values.dropna()
    return present.iloc[0] if len(present) else None


def _last(values: pd.Series) -> Any:
    present = values.dropna()
    return present.iloc[-1] if len(present) else None
