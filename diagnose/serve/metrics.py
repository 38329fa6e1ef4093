"""Counters for /metrics, in the text format of Prometheus (exposition format 0.0.4)."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Mapping

TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HELP = {
    "requests_total": ("counter", "Requests answered, by status class."),
    "jobs_total": ("counter", "Jobs ended, by state."),
    "job_seconds_sum": ("counter", "Seconds that jobs took in a worker, together."),
    "refused_total": ("counter", "Requests refused, by reason."),
    "upload_bytes_total": ("counter", "Bytes received of uploads."),
    "queue_waiting": ("gauge", "Jobs that wait."),
    "queue_running": ("gauge", "Jobs that run."),
    "workers_replaced_total": ("counter", "Workers that died or were ended over a bound."),
    "results": ("gauge", "Diagnoses kept."),
    "results_bytes": ("gauge", "Bytes that their outputs take."),
}


class Metrics:
    """Counts; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: defaultdict[tuple[str, str], float] = defaultdict(float)

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        shown = ",".join(f'{key}="{value}"' for key, value in labels.items())
        with self._lock:
            self._values[name, shown] += by

    def problem(self, error: BaseException) -> None:
        """Something went wrong that no request is answered with: a line on standard error."""
        print(f"diagnose serve: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def text(self, gauges: Mapping[str, float]) -> str:
        """All of them, with `gauges` that are only known now."""
        with self._lock:
            values = {**self._values, **{(name, ""): value for name, value in gauges.items()}}
        lines = []
        for name, (kind, about) in _HELP.items():
            mine = sorted((labels, value) for (key, labels), value in values.items() if key == name)
            lines += [
                f"# HELP diagnose_serve_{name} {about}",
                f"# TYPE diagnose_serve_{name} {kind}",
            ]
            for labels, value in mine or [("", 0.0)]:
                shown = f"{{{labels}}}" if labels else ""
                lines.append(f"diagnose_serve_{name}{shown} {value:.10g}")
        return "\n".join(lines) + "\n"
