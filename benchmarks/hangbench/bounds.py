"""Bounds that figures must keep, so that a change of a tool which makes it worse is seen at once.

A file of bounds is JSON: track → figure (`score.RATES`) → `{"at_least": 0.8}` or
`{"at_most": 0.1}`, for the open and the sealed cases alike. They are what the tool has reached,
with room for chance; whoever makes it better moves them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.hangbench.case import TRACKS
from benchmarks.hangbench.report import Report
from benchmarks.hangbench.score import RATES

Bounds = Mapping[str, Mapping[str, Mapping[str, float]]]


def read_bounds(path: Path) -> Bounds:
    """The bounds of a file. Raises ValueError where it names what there is not."""
    found = json.loads(path.read_text(encoding="utf-8"))
    for track, figures in found.items():
        if track not in TRACKS:
            raise ValueError(f"{path}: no track {track}; there are {', '.join(TRACKS)}")
        for figure, bound in figures.items():
            if figure not in RATES:
                raise ValueError(f"{path}: no figure {figure}; there are {', '.join(RATES)}")
            if not bound.keys() <= {"at_least", "at_most"}:
                raise ValueError(f"{path}: {figure} has at_least or at_most, not {[*bound]}")
    return found  # type: ignore[no-any-return]


def broken(report: Report, bounds: Bounds) -> Iterator[str]:
    """A sentence for each bound that a tool does not keep; unanswered cases break one too."""
    for half in report.halves:
        where = f"{half.tool}, {half.track}, {half.half} cases"
        if half.all.errors:
            yield f"{where}: {half.all.errors} without an answer"
        for figure, bound in bounds.get(half.track, {}).items():
            rate = half.all.rates.get(figure)
            share = rate.share if rate else None
            if share is None:
                continue
            if share < bound.get("at_least", 0.0):
                yield f"{where}: {figure} is {share:.3f}, below {bound['at_least']}"
            if share > bound.get("at_most", 1.0):
                yield f"{where}: {figure} is {share:.3f}, above {bound['at_most']}"
