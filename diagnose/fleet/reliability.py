"""How long jobs ran between failures, and which part of the GPU-hours did work.

The terms are those of "Revisiting Reliability in Large-Scale Machine Learning Research Clusters"
(HPCA 2025, arXiv 2410.21680), the definitions what the logs of jobs allow:

- MTBF of a size: hours that its jobs ran before anything went wrong, per failure. What was ended
  from outside (a limit, a person, preemption) is no failure but ends the time at risk.
- MTBF of N GPUs: failures tied to a node come at a rate per GPU-hour, so 1 / (N × rate).
- Goodput: GPU-hours of work per GPU-hours that jobs held. No work are the time from the onset of a
  failure to the end of the job, and what ran since the last checkpoint: half of the interval
  between two, at most what the job ran, as no log says when the last one was complete.
- ETTR of a run (all jobs with one value of the label `run`, else a job): hours of work per hour
  from its first start to its last end, with the waits between its jobs.

Only jobs with known times, ranks and, where they failed, a known onset are measured; the others are
counted in `unmeasured`. Intervals are of 95 % (Byar).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from diagnose.fleet import intervals
from diagnose.fleet.grouping import sizes
from diagnose.fleet.jobs import OTHER, Jobs

RUN = "run"  # the label whose value all jobs of a run share
CHECKPOINT_H = 1.0
SCALES = (256, 1024, 4096, 16_384)  # GPUs of jobs to come
_HOUR = np.timedelta64(1, "h")


@dataclass(frozen=True, slots=True)
class Mtbf:
    """Mean time between failures in hours, None where there was none; its interval of 95 %."""

    failures: int
    hours: float | None
    low: float
    high: float | None


@dataclass(frozen=True, slots=True)
class Size:
    """The jobs of a size in GPUs. `ettr` is over their runs, None where none was measured."""

    gpus: str
    jobs: int
    gpu_hours: float
    mtbf: Mtbf
    goodput: float | None
    ettr: float | None


@dataclass(frozen=True, slots=True)
class Projection:
    """A job of so many GPUs: hours between failures tied to a node, and the ETTR these leave."""

    gpus: int
    mtbf: Mtbf
    ettr: float | None


@dataclass(frozen=True, slots=True)
class Reliability:
    """The whole fleet. `lost`: from onset to end, `rework`: since the last checkpoint.

    `mtbf_gpu` and `mtbf_gpu_node` are for one GPU: by any failure, and by those tied to a node.
    What `others` lost, jobs that went wrong for a cause that is not asked for, counts as work:
    goodput and ETTR are then what the asked causes leave of all hours.
    """

    jobs: int
    unmeasured: int
    others: int
    gpu_hours: float
    gpu_hours_lost: float
    gpu_hours_rework: float
    checkpoint_h: float
    goodput: float | None
    ettr: float | None
    runs: int
    mtbf_gpu: Mtbf
    mtbf_gpu_node: Mtbf
    sizes: list[Size]
    projections: list[Projection]


@dataclass(frozen=True, slots=True)
class _Measured:
    """By job: GPUs, hours held, hours of work, hours at risk, and whether it failed."""

    gpus: np.ndarray
    held: np.ndarray
    work: np.ndarray
    risk: np.ndarray
    failed: np.ndarray


def reliability(
    jobs: Jobs,
    outside: Collection[str],
    node_causes: Collection[str],
    checkpoint_h: float = CHECKPOINT_H,
) -> Reliability:
    """Of the jobs; `outside` are the classes that end a job from outside."""
    readable = ~jobs.unreadable
    rows = np.flatnonzero(readable & (jobs.ranks >= 1) & ~np.isnan(jobs.ran_h))
    ended = jobs.troubled[rows]
    failed = ended & jobs.verdict.where(("hung", "failed").__contains__)[rows]
    failed &= ~jobs.cause.where(outside.__contains__)[rows]
    of_node = failed & jobs.cause.where(node_causes.__contains__)[rows]
    gpus, held = jobs.ranks[rows].astype(float), jobs.held_h[rows].astype(float)
    risk = jobs.ran_h[rows].astype(float)
    lost = np.where(ended, held - risk, 0.0)
    rework = np.where(ended, np.minimum(checkpoint_h / 2, risk), 0.0)
    measured = _Measured(gpus, held, held - lost - rework, risk, failed)
    run, spans = _runs(jobs, rows)
    # Jobs of a run at the same time do the work of one.
    of_runs = np.minimum(np.bincount(run, measured.work, minlength=len(spans)), spans)
    at_risk = float((risk * gpus).sum())
    node = _mtbf(at_risk, int(of_node.sum()))
    lost_h = float((held - measured.work)[failed].mean()) if failed.any() else checkpoint_h / 2
    return Reliability(
        jobs=len(rows),
        unmeasured=int(readable.sum()) - len(rows),
        others=int(jobs.verdict.where(OTHER.__eq__)[rows].sum()),
        gpu_hours=round(float((held * gpus).sum()), 1),
        gpu_hours_lost=round(float((lost * gpus).sum()), 1),
        gpu_hours_rework=round(float((rework * gpus).sum()), 1),
        checkpoint_h=checkpoint_h,
        goodput=_part((measured.work * gpus).sum(), (held * gpus).sum()),
        ettr=_part(of_runs.sum(), spans.sum()),
        runs=len(spans),
        mtbf_gpu=_mtbf(at_risk, int(failed.sum())),
        mtbf_gpu_node=node,
        sizes=_sizes(measured, run, of_runs, spans),
        projections=[_projection(node, scale, lost_h) for scale in SCALES],
    )


def _runs(jobs: Jobs, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The run of each job, and of each run the hours from its first start to its last end."""
    stated = jobs.labels.renamed(lambda labels: labels.get(RUN, ""))
    alone = ~stated.where(bool)[rows]
    named = np.where(alone, len(stated.values) + np.arange(len(rows)), stated.codes[rows])
    run: np.ndarray = np.unique(named, return_inverse=True)[1]
    count = int(run.max(initial=-1)) + 1
    start = (jobs.started[rows] - np.datetime64("1970-01-01", "us")) / _HOUR
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first, run, start)
    np.maximum.at(last, run, start + jobs.held_h[rows])
    return run, last - first


def _sizes(jobs: _Measured, run: np.ndarray, work: np.ndarray, spans: np.ndarray) -> list[Size]:
    keys, names = sizes(jobs.gpus)
    of_run = np.zeros(len(spans), dtype=np.int64)
    of_run[run] = keys  # the jobs of a run are mostly of one size; else the last one's
    found = []
    for key, name in enumerate(names):
        mine, runs = keys == key, of_run == key
        if not mine.any():
            continue
        gpus, held = jobs.gpus[mine], jobs.held[mine]
        found.append(
            Size(
                gpus=name,
                jobs=int(mine.sum()),
                gpu_hours=round(float((held * gpus).sum()), 1),
                mtbf=_mtbf(float(jobs.risk[mine].sum()), int(jobs.failed[mine].sum())),
                goodput=_part((jobs.work[mine] * gpus).sum(), (held * gpus).sum()),
                ettr=_part(work[runs].sum(), spans[runs].sum()),
            )
        )
    return found


def _projection(of_gpu: Mtbf, gpus: int, lost_h: float) -> Projection:
    """What a rate per GPU-hour means for a job of so many; a failure costs it `lost_h`."""
    hours = None if of_gpu.hours is None else of_gpu.hours / gpus
    high = None if of_gpu.high is None else of_gpu.high / gpus
    found = Mtbf(of_gpu.failures, _rounded(hours), round(of_gpu.low / gpus, 3), _rounded(high))
    return Projection(gpus, found, None if hours is None else _part(hours, hours + lost_h))


def _mtbf(hours: float, failures: int) -> Mtbf:
    low, high = intervals.count(failures)
    return Mtbf(
        failures,
        _rounded(hours / failures if failures else None),
        round(hours / high, 3),
        _rounded(hours / low if low else None),
    )


def _part(some: float, of: float) -> float | None:
    return round(float(some) / float(of), 4) if of > 0 else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
