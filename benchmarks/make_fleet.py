"""A fleet whose rates are known: `python benchmarks/make_fleet.py OUT [--jobs N] [--like acme]`.

Writes the results of a scan that never was (`OUT/diagnose.sqlite`), `OUT/truth.json` with what was
planted and what came of it, and `OUT/topology.csv` with the place of each node. No job is
diagnosed: every job draws its size, team, versions and length; a failure comes at a constant rate
per GPU-hour (MTBF of one GPU), and more often at what was planted:

    node nic leaf rail rack nvlink version since team season none

`--plant KIND` makes one such unit fail `--times` as often; `--like acme` takes sizes, lengths and
the number of jobs after the public trace of two clusters (880,740 jobs, most of them of one GPU).
`MISSING` of the jobs lack their times or the number of ranks, as logs do.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from diagnose.batch.results import COLUMNS, open_results
from diagnose.ingest.names import RESULTS

UNITS = ("node", "nic", "nvlink", "rack", "leaf", "rail")
KINDS = ("none", *UNITS, "version", "since", "team", "season")
GPUS, NVLINK, RACK, LEAF = 8, 8, 16, 64  # GPUs a node; nodes an NVLink domain, a rack, a leaf
PODS = 4  # leaves that share a rail's switch, one each of GPUS rails
BEGIN = np.datetime64("2025-06-02", "us")
WEEKS = 52
MISSING = 0.05
MISTAKEN = 0.15  # of the failures of a planted unit are blamed on any node of the job
CHECKPOINT_S = 3600.0
NODE_CAUSES = ("hw.gpu", "hw.node", "net.fabric", "slow.storage")
OWN_CAUSES = ("crash.exception", "crash.gpu_oom", "data.loader", "desync.mismatch")
TORCH = [f"2.{minor}.0" for minor in range(3, 9)]
GPU_TYPES = ("H100", "A100")
TEAMS, USERS = 20, 300
BATCH = 50_000


@dataclass(frozen=True)
class Shape:
    """Sizes of jobs in nodes (0: one GPU) with their weights, and the lengths of jobs in hours."""

    widths: tuple[int, ...]
    weights: tuple[float, ...]
    median_h: float
    spread: float


SHAPES = {
    "training": Shape((1, 2, 4, 8, 16, 32, 64), (40, 20, 15, 12, 8, 4, 1), 6.0, 1.2),
    "acme": Shape((0, 1, 2, 4, 8, 16, 64), (70, 18, 5, 3, 2, 1.5, 0.5), 0.25, 2.0),
}


@dataclass
class Planted:
    """What is true of the fleet. `mtbf_gpu_hours`: of one GPU, without what was planted on top."""

    kind: str
    unit: str
    times: float
    mtbf_gpu_hours: float
    jobs: int
    failures: int = 0
    gpu_hours: float = 0.0
    at_risk_gpu_hours: float = 0.0
    lost_gpu_hours: float = 0.0
    rework_gpu_hours: float = 0.0
    rates: dict[str, float] = field(default_factory=dict)  # by team

    @property
    def goodput(self) -> float:
        """Productive GPU-hours of those that jobs held."""
        return 1 - (self.lost_gpu_hours + self.rework_gpu_hours) / self.gpu_hours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--like", choices=[*SHAPES], default="training")
    parser.add_argument("--plant", choices=KINDS, default="none")
    parser.add_argument("--times", type=float, default=10.0)
    parser.add_argument("--mtbf", type=float, default=20_000.0, help="hours of one GPU")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    jobs = options.jobs or (880_740 if options.like == "acme" else 100_000)
    rng = np.random.default_rng(options.seed)
    found = plant(rng, options.plant, options.times, options.mtbf, jobs, options.nodes)
    write(rng, options.out, found, SHAPES[options.like], options.nodes)
    print(json.dumps(asdict(found) | {"goodput": found.goodput}, indent=2))


def plant(
    rng: np.random.Generator, kind: str, times: float, mtbf: float, jobs: int, nodes: int
) -> Planted:
    units = {
        "node": lambda: name(int(rng.integers(nodes))),
        "nic": lambda: f"{name(int(rng.integers(nodes)))}-rail{rng.integers(GPUS)}",
        "nvlink": lambda: f"nvl{rng.integers(-(-nodes // NVLINK)):03d}",
        "leaf": lambda: f"leaf{rng.integers(-(-nodes // LEAF)):02d}",
        "rail": lambda: f"pod{rng.integers(-(-nodes // (LEAF * PODS)))}-rail{rng.integers(GPUS)}",
        "rack": lambda: f"rack{rng.integers(-(-nodes // RACK)):02d}",
        "version": lambda: TORCH[int(rng.integers(1, len(TORCH) - 1))],
        "since": lambda: TORCH[int(rng.integers(1, len(TORCH) - 1))],  # and all that follow
        "team": lambda: f"team{rng.integers(TEAMS):02d}",
        "season": lambda: str(int(rng.integers(8, WEEKS - 8))),
    }
    unit = units[kind]() if kind in units else ""
    return Planted(kind, unit, times if unit else 1.0, mtbf, jobs)


def name(node: int) -> str:
    return f"gpu{node:04d}"


def topology(nodes: int) -> str:
    """The place of each node, as CSV."""
    lines = [
        f"{name(node)},nvl{node // NVLINK:03d},rack{node // RACK:02d},leaf{node // LEAF:02d},"
        f"pod{node // (LEAF * PODS)}"
        for node in range(nodes)
    ]
    return "\n".join(["host,nvlink,rack,leaf,pod", *lines]) + "\n"


def write(rng: np.random.Generator, out: Path, found: Planted, shape: Shape, nodes: int) -> None:
    """All rows, a batch at a time and each batch in one change."""
    with open_results(out, resume=False) as results:
        results.describe(complete=True, archives=["planted"])
    out.mkdir(parents=True, exist_ok=True)
    (out / "topology.csv").write_text(topology(nodes))
    teams = np.zeros((2, TEAMS))
    places = ", ".join("?" * len(COLUMNS))
    make = f"CREATE TABLE IF NOT EXISTS jobs ({', '.join(COLUMNS)}, PRIMARY KEY (source))"
    database = sqlite3.connect(out / RESULTS)
    with database:
        database.execute(make)
    for first in range(0, found.jobs, BATCH):
        count = min(BATCH, found.jobs - first)
        with database:
            database.executemany(
                f"INSERT INTO jobs VALUES ({places})",
                rows(rng, found, shape, nodes, first, count, teams),
            )
    database.close()
    found.rates = {
        f"team{at:02d}": float(teams[1, at] / max(1, teams[0, at])) for at in range(TEAMS)
    }
    truth = asdict(found) | {"goodput": found.goodput}
    (out / "truth.json").write_text(json.dumps(truth, indent=2) + "\n")


def rows(
    rng: np.random.Generator, found: Planted, shape: Shape, nodes: int, first: int, count: int,
    teams: np.ndarray,
) -> Iterator[tuple[Any, ...]]:  # fmt: skip
    """Jobs in the order of their starts; adds what came of them to `found` and `teams`."""
    weights = np.array(shape.weights) / sum(shape.weights)
    width = np.array(shape.widths)[rng.choice(len(shape.widths), count, p=weights)]
    wide = np.minimum(np.maximum(width, 1), nodes)
    gpus = np.where(width == 0, 1, wide * GPUS)
    start_node = (rng.random(count) * (nodes - wide + 1)).astype(
        int
    )  # schedulers place side by side
    length = np.exp(rng.normal(np.log(shape.median_h), shape.spread, count)).clip(0.02, 336)
    at = (first + np.sort(rng.random(count)) * count) / found.jobs  # share of the year
    week = (at * WEEKS).astype(int)
    user = rng.integers(USERS, size=count)
    team = user % TEAMS
    # A version is in use from its release on, and the older ones less and less.
    newest = 1 + (at * (len(TORCH) - 1)).astype(int)
    torch = np.maximum(0, newest - rng.geometric(0.55, count) + 1)
    more = extra(found, start_node, wide, week, team, torch)
    own = gpus / found.mtbf_gpu_hours  # failures an hour
    rate = own * (1 + more)
    until = rng.exponential(1 / rate)
    fails = until < length
    ran = np.where(fails, until, length)
    held = np.where(fails, rng.lognormal(np.log(0.25), 0.6, count), 0.0)
    rework = np.where(fails, ran % (CHECKPOINT_S / 3600), 0.0)
    known = rng.random(count) >= MISSING
    found.failures += int(fails.sum())
    found.gpu_hours += float(((ran + held) * gpus).sum())
    found.at_risk_gpu_hours += float((ran * gpus).sum())
    found.lost_gpu_hours += float((held * gpus).sum())
    found.rework_gpu_hours += float((rework * gpus).sum())
    np.add.at(teams, (np.zeros(count, int), team), 1)
    np.add.at(teams, (np.ones(count, int), team), fails)
    began = BEGIN + (at * WEEKS * 7 * 86_400e6).astype("timedelta64[us]")
    onset = began + (ran * 3600e6).astype("timedelta64[us]")
    ended = onset + (held * 3600e6).astype("timedelta64[us]")
    texts = [np.datetime_as_string(one).tolist() for one in (began, onset, ended)]
    of_node = rng.random(count) < 0.6
    kind = np.minimum(rng.exponential(60, count), 400).astype(int)  # of one cause
    stamps = ended.astype(np.int64) / 1e6 + 600
    due = rng.random(count) < more / (1 + more)  # the failure is that of the planted unit
    blamed, gpu = culprits(rng, found, start_node, wide, due)
    for n, (start, fell, end) in enumerate(zip(*texts, strict=True)):
        job = f"job-{first + n:07d}"
        hosts = [name(node) for node in range(start_node[n], start_node[n] + wide[n])]
        own_fault = bool(found.kind in UNITS and due[n])
        cause = (NODE_CAUSES if of_node[n] or own_fault else OWN_CAUSES)[kind[n] % 4]
        if own_fault:
            cause = "hw.gpu" if found.kind in ("node", "nic") else "net.fabric"
        failed, whole = bool(fails[n]), bool(known[n])
        named = failed and cause in NODE_CAUSES
        rank = min(int((blamed[n] - start_node[n]) * GPUS + gpu[n]), int(gpus[n]) - 1)
        yield (
            job, f"/archive/user{user[n]:03d}/{job}.tar.gz",
            json.dumps({"team": f"team{team[n]:02d}", "user": f"user{user[n]:03d}"}),
            ("hung" if kind[n] % 2 else "failed") if failed else "healthy",
            cause if failed else "none", f"{cause}.planted" if failed else None, "high",
            json.dumps([rank] if named else []), json.dumps([name(blamed[n])] if named else []),
            None, "training",
            fell if failed and whole else None, held[n] * 3600 if whole else None,
            held[n] * gpus[n] if whole else (None if failed else 0.0),
            None, None, None, f"{cause}:{kind[n]}" if failed else None,
            cause if failed else "No failure found",
            json.dumps(hosts if width[n] else hosts[:1]), int(gpus[n]) if whole else None,
            json.dumps({"torch": TORCH[torch[n]], "gpu": GPU_TYPES[start_node[n] % 2]}),
            '["megatron"]' if n % 3 else '["lightning"]',
            start if whole else None, end if whole else None,
            200_000, float(stamps[n]), f"{first + n:x}", "c1", None, "[]",
        )  # fmt: skip


def extra(
    found: Planted, start: np.ndarray, wide: np.ndarray, week: np.ndarray, team: np.ndarray,
    torch: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """How much more a job fails for what was planted, as a part of its own rate."""
    more = found.times - 1
    digits = "".join(filter(str.isdigit, found.unit))
    number = int(digits) if digits else 0
    if found.kind == "none":
        return np.zeros(len(start))
    if found.kind == "version":
        return more * (torch == TORCH.index(found.unit))
    if found.kind == "since":
        return more * (torch >= TORCH.index(found.unit))
    if found.kind == "team":
        return more * (team == number)
    if found.kind == "season":
        return more * ((week >= number) & (week < number + 4))
    low, high = bounds(found)
    inside = np.clip(np.minimum(start + wide, high) - np.maximum(start, low), 0, None)
    return more * inside / wide / (GPUS if "-rail" in found.unit else 1)


def bounds(found: Planted) -> tuple[int, int]:
    """The nodes of the planted unit: from the first to before the second."""
    number = int("".join(filter(str.isdigit, found.unit.partition("-")[0])))
    size = {"node": 1, "nic": 1, "nvlink": NVLINK, "rack": RACK, "leaf": LEAF,
            "rail": LEAF * PODS}[found.kind]  # fmt: skip
    return number * size, (number + 1) * size


def culprits(
    rng: np.random.Generator, found: Planted, start: np.ndarray, wide: np.ndarray, due: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The node and its GPU that each failure is blamed on: one of the planted unit where it is due.

    Else, and where the evidence is mistaken, any of the job's.
    """
    drawn: np.ndarray = start + (rng.random(len(start)) * wide).astype(int)
    gpu = rng.integers(GPUS, size=len(start))
    if found.kind not in UNITS:
        return drawn, gpu
    low, high = bounds(found)
    first, end = np.maximum(start, low), np.minimum(start + wide, high)
    inside = (first + rng.random(len(start)) * np.clip(end - first, 1, None)).astype(int)
    right = due & (rng.random(len(start)) >= MISTAKEN)
    if "-rail" in found.unit:
        gpu = np.where(right, int(found.unit.rpartition("rail")[2]), gpu)
    return np.where(right, inside, drawn), gpu


if __name__ == "__main__":
    main()
