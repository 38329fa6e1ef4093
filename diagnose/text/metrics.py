"""Metrics in the text format of Prometheus (0.0.4), as `/metrics` and text files have it.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Metric(NamedTuple):
    """A metric: its samples are the values by their labels, name → value."""

    name: str
    kind: Literal["counter", "gauge"]
    about: str
    samples: Iterable[tuple[Mapping[str, str], float]]


def exposition(metrics: Iterable[Metric]) -> str:
    """All of them as text, each with its help; ends with a newline."""
    lines = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.about}", f"# TYPE {metric.name} {metric.kind}"]
        for labels, value in metric.samples:
            given = ",".join(
                f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels.items()
            )
            lines.append(f"{metric.name}{f'{{{given}}}' if given else ''} {value:.10g}")
    return "\n".join(lines) + "\n"
