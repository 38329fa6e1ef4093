"""A fleet as a text file for Prometheus' node exporter: few series, whatever the fleet.

https://github.com/prometheus/node_exporter#textfile-collector
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from diagnose.report.safe import masked_line
from diagnose.text.metrics import Metric, exposition

if TYPE_CHECKING:
    from diagnose.fleet.causes import Group
    from diagnose.fleet.summary import Fleet

MAX_CAUSES, MAX_NODES = 50, 50  # series of a metric; other causes are one
OTHERS = "other"
_PREFIX = "diagnose_fleet"
_LABEL = 200  # characters

Samples = list[tuple[Mapping[str, str], float]]


def render(found: Fleet) -> str:
    """The whole file."""
    return exposition(
        Metric(f"{_PREFIX}_{name}", "gauge", about, samples)
        for name, about, samples in _metrics(found)
    )


def _metrics(found: Fleet) -> Iterator[tuple[str, str, Samples]]:
    overview, whole = found.overview, found.reliability
    verdicts = ("hung", "failed", "healthy", "running", "unknown", "other")
    yield (
        "jobs", "Jobs, by verdict.",
        [({"verdict": name}, getattr(overview, name)) for name in verdicts],
    )  # fmt: skip
    yield "unreadable_jobs", "Jobs that could not be read.", [({}, overview.unreadable)]
    bad = _by_cause(found, lambda group: group.troubled + group.other)
    yield "troubled_jobs", "Jobs that did not end well, by cause.", bad
    lost = _by_cause(found, lambda group: _of_hours(group.gpu_hours_lost) or 0.0)
    yield "lost_gpu_seconds", "GPU time lost, by cause, as far as known.", lost
    for name, about, value in (
        ("gpu_mtbf_seconds", "Time between failures of one GPU.", _of_hours(whole.mtbf_gpu.hours)),
        ("goodput_ratio", "GPU time of work per GPU time that jobs held.", whole.goodput),
        (
            "newest_job_timestamp_seconds",
            "When the newest job was seen.",
            _seconds(overview.last_seen),
        ),
        (
            "oldest_job_timestamp_seconds",
            "When the oldest job was seen.",
            _seconds(overview.first_seen),
        ),
    ):
        yield name, about, [] if value is None else [({}, value)]
    suspects = found.nodes.suspects
    yield "suspect_nodes", "Nodes blamed more often than chance explains.", [({}, len(suspects))]
    yield (
        "suspect_node_jobs", f"Jobs that blame a suspect node (of the first {MAX_NODES}).",
        [({"node": masked_line(one.host, _LABEL)}, one.blamed) for one in suspects[:MAX_NODES]],
    )  # fmt: skip
    yield "recurring_failures", "Failures that recur.", [({}, len(found.recurring))]


def _of_hours(hours: float | None) -> float | None:
    return None if hours is None else hours * 3600


def _by_cause(found: Fleet, value: Callable[[Group], float]) -> Samples:
    first, rest = found.causes[:MAX_CAUSES], found.causes[MAX_CAUSES:]
    samples: Samples = [({"cause": masked_line(one.name, _LABEL)}, value(one)) for one in first]
    return [*samples, ({"cause": OTHERS}, sum(map(value, rest)))] if rest else samples


def _seconds(time: str | None) -> float | None:
    return datetime.fromisoformat(time).timestamp() if time else None
