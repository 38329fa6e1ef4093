"""Frames of the shape of what `diagnose scan` writes, and simulated fleets."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from diagnose.batch.results import COLUMNS, _value, open_results, table_of
from diagnose.batch.work import Result
from diagnose.fleet.columns import part
from diagnose.fleet.jobs import NEVER, Jobs, joined

BEGIN = datetime(2025, 6, 2, tzinfo=UTC)  # a Monday

EMPTY: dict[str, Any] = {
    "job": "", "source": "", "labels": "{}", "verdict": "healthy", "class": "none",
    "signature": None, "confidence": "high", "culprit_ranks": [], "culprit_hosts": [],
    "culprit_kind": None, "phase": None, "onset": None, "duration_hung_s": None,
    "gpu_hours_lost": None, "fingerprint": None, "title": "No failure found", "hosts": [],
    "ranks": None, "versions": "{}", "frameworks": [], "started": None, "ended": None,
    "size": 200_000, "mtime": BEGIN.timestamp() + 400 * 86_400, "tag": "", "catalog": "c1",
    "error": None, "notes": [], "checkpoint": None, "checkpoint_step": None,
    "checkpoint_state": None,
}  # fmt: skip


def row(job: str, day: float = 0, **values: Any) -> dict[str, Any]:
    """A healthy job that ended `day` days after a Monday, with `values` set; dicts become JSON."""
    ended = (BEGIN + timedelta(days=day)).isoformat()
    found = EMPTY | {"job": job, "source": f"{job}.tar.gz", "ended": ended} | values
    for name in ("labels", "versions"):
        if isinstance(found[name], dict):
            found[name] = json.dumps(found[name])
    return found


def failed(job: str, day: float = 0, **values: Any) -> dict[str, Any]:
    """A job that failed; its class says what else is true unless told."""
    cause = values.get("class", "crash.exception")
    defaults = {"verdict": "failed", "class": cause, "fingerprint": cause, "title": cause}
    return row(job, day, **defaults | values)


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=list(EMPTY))


def typed(rows: pd.DataFrame, endings: dict[str, str] | None = None) -> Jobs:
    columns = {
        name: [_value(kind, plain(kind, value)) for value in rows[name]]
        for name, kind in COLUMNS.items()
    }
    return joined([part(table_of(columns))], endings or {})


def plain(kind: str, value: Any) -> Any:
    """A value as `batch.row` gives it; times may be text here."""
    if value is None or (isinstance(value, float) and np.isnan(value)) or value is pd.NaT:
        return None
    if kind == "time":
        time = pd.Timestamp(value).to_pydatetime(warn=False)
        return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    return int(value) if kind == "integer" else value


def keep(folder: Path, *rows: dict[str, Any], document: str = "") -> None:
    """Write rows as the results of a scan."""
    with open_results(folder, resume=True) as results:
        for one in rows:
            values = {name: plain(kind, one[name]) for name, kind in COLUMNS.items()}
            results.add(Result(values, document))


def shown(jobs: Jobs) -> pd.DataFrame:
    """The columns as plain values, a row a job."""

    def date(day: int) -> str:
        return "" if day == NEVER else str(np.datetime64(day, "D"))

    names = (
        "labels", "versions", "verdict", "cause", "signature", "confidence", "fingerprint",
        "title", "error", "ending",
    )  # fmt: skip
    rows = np.arange(len(jobs))
    plain: dict[str, Any] = {name: getattr(jobs, name).of(rows) for name in names}
    for name in ("job", "source", "tag"):
        plain[name] = getattr(jobs, name).to_pylist()
    for name in ("hosts", "culprit_hosts", "frameworks"):
        plain[name] = [getattr(jobs, name).of(row) for row in rows]
    for name in ("time", "incident", "troubled", "unreadable", "gpu_hours_lost"):
        plain[name] = getattr(jobs, name)
    for name in ("day", "week"):
        plain[name] = list(map(date, getattr(jobs, name).tolist()))
    return pd.DataFrame(plain)


NODES = [f"gpu{number:03d}" for number in range(1, 201)]
BAD = NODES[46], NODES[111], NODES[162]
BUSY = NODES[8], NODES[57], NODES[80], NODES[119], NODES[143], NODES[189]
_SOFTWARE = ("crash.exception", "crash.gpu_oom", "desync.mismatch", "crash.native", "data.loader")
_HARDWARE = ("hw.gpu", "hw.node", "net.fabric", "slow.straggler")


def fleet(
    seed: int,
    *,
    count: int = 2000,
    bad: tuple[str, ...] = BAD,
    right: float = 0.78,
    unknown_hosts: float = 0.2,
    background: float = 0.1,
    paired: bool = False,
) -> pd.DataFrame:
    """A fleet with bad nodes, which break 70 % of their jobs, and busy ones with many failures.

    A bad node's failure is put on it with probability `right`, else on another node of the job or
    on nobody. `background` of all jobs fail by hardware on any of their nodes. `paired`: the node
    after a bad one is in each of its jobs.
    """
    rng = random.Random(seed)
    weights = [10 if node in BUSY else 2 if node in bad else 1 for node in NODES]
    rows = []
    for number in range(count):
        nodes: list[str] = []
        width = rng.choice((1, 2, 2, 4, 8))
        while len(nodes) < width:
            node = rng.choices(NODES, weights)[0]
            if node not in nodes:
                nodes.append(node)
        ill = [node for node in nodes if node in bad]
        if paired and ill:
            neighbour = NODES[NODES.index(ill[0]) + 1]
            nodes = [*nodes[:1], ill[0], neighbour] if ill[0] != nodes[0] else [ill[0], neighbour]
            nodes = list(dict.fromkeys(nodes))
        values: dict[str, Any] = {}
        draw = rng.random()
        if ill and rng.random() < 0.7:
            cause, others = "hw.gpu", [node for node in nodes if node != ill[0]]
            if rng.random() < right:
                blamed = [ill[0]]
            else:
                blamed = [rng.choice(others)] if others and rng.random() < 0.5 else []
                cause = "hw.gpu" if blamed else rng.choice(_SOFTWARE)
            values = {"class": cause, "culprit_hosts": blamed}
        elif draw < background:
            values = {"class": rng.choice(_HARDWARE), "culprit_hosts": [rng.choice(nodes)]}
        elif draw < 0.75:
            values = {"class": rng.choice(_SOFTWARE), "culprit_hosts": [rng.choice(nodes)]}
        known = [] if rng.random() < unknown_hosts else nodes
        make = failed if values else row
        rows.append(make(str(number), 84 * number / count, hosts=known, **values))
    return frame(*rows)
