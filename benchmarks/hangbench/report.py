"""Figures of a benchmark folder for people and for programs: JSON, text and a Markdown table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.hangbench import VERSION
from benchmarks.hangbench.case import TRACKS, Answer, Case, Track, read_answers, read_cases
from benchmarks.hangbench.score import LEVELS, RATES, Figures, Rate, distinct, figures, gives
from benchmarks.hangbench.tools import TOOLS, adapter

SCHEMA = "hangbench/1"
HALVES = {"open": False, "sealed": True}
BEGIN, END = "<!-- begin of the table -->", "<!-- end of the table -->"

# What each figure counts, as it is shown.
TITLES = {
    "right": "nothing said is wrong",
    "verdict": "verdict right",
    "missed": "trouble called healthy or running",
    "alarm": "harmless called hung or failed",
    "silent": "hung, with its onset",
    "control": "controls right",
    "cause": "class right",
    "cause_named": "class right where named",
    "exact": "culprit exact",
    "withheld": "undetermined: no innocent named",
    "innocent": "innocents named",
    "innocent_high": "innocents at high confidence",
    "onset": "onset within tolerance",
    "answered": "answered",
}
# The columns of the published table, by track.
_BLAME = ("exact", "withheld", "innocent", "innocent_high")
COLUMNS: Mapping[Track, Sequence[str]] = {
    "sim": ("verdict", "cause", *_BLAME, "onset", "answered"),
    "silent": ("silent", "control", "verdict", "cause", *_BLAME, "answered"),
    "calm": ("verdict", "missed", "alarm", "cause", *_BLAME, "answered"),
    "real": ("verdict", "cause", *_BLAME, "onset", "answered"),
    "numeric": ("verdict", "missed", "alarm", "cause", *_BLAME, "answered"),
    "slow": ("verdict", "alarm", "cause", *_BLAME, "answered"),
}


# By what label the published table shows which figures once more.
SLICES: Mapping[Track, tuple[str, Sequence[str]]] = {
    "sim": ("form", ("exact", "innocent")),
    "silent": ("ending", ("silent", "control")),
    "calm": ("lines", ("missed", "alarm")),
    "real": ("form", ("exact", "innocent")),
    "numeric": ("control", ("cause", "alarm")),
    "slow": ("style", ("exact", "alarm")),
}


@dataclass(frozen=True, slots=True)
class Half:
    """The figures of one tool in the open or the sealed cases of a track, and its slices.

    slices: label → value of the label → figures of the cases that have it.
    """

    track: Track
    half: str
    tool: str
    version: str
    all: Figures
    slices: Mapping[str, Mapping[str, Figures]]


@dataclass(frozen=True, slots=True)
class Report:
    """All figures of some folders.

    cases: number of distinct cases by track and half; dropped: near-duplicates left out by track.
    """

    cases: Mapping[tuple[Track, str], int]
    dropped: Mapping[Track, int]
    halves: tuple[Half, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        tracks: dict[str, Any] = {}
        for (track, half), count in self.cases.items():
            entry = tracks.setdefault(track, {"near_duplicates_dropped": self.dropped[track]})
            entry[half] = {"cases": count, "tools": {}}
        for one in self.halves:
            tracks[one.track][one.half]["tools"][one.tool] = {
                "version": one.version,
                **one.all.to_dict(),
                "by": {
                    label: {value: found.to_dict() for value, found in values.items()}
                    for label, values in one.slices.items()
                },
            }
        return {"schema": SCHEMA, "hangbench": VERSION, "tracks": tracks}


def report(
    folders: Sequence[Path], tools: Sequence[str], labels: Sequence[str] = (), half: str = ""
) -> Report:
    """Score tools over the cases of folders, each case once.

    labels: besides the form, labels to slice by. half: `open` or `sealed` alone; empty: both.
    """
    made = {case.id: case for folder in folders for case in read_cases(folder)}
    answers = {
        tool: {one.case: one for folder in folders for one in read_answers(folder, tool)}
        for tool in tools
    }
    cases: dict[tuple[Track, str], int] = {}
    dropped: dict[Track, int] = {}
    halves: list[Half] = []
    for track in TRACKS:
        of_track = [case for case in made.values() if case.track == track]
        if not of_track:
            continue
        kept, dropped[track] = distinct(of_track)
        for name, sealed in HALVES.items():
            chosen = [case for case in kept if case.sealed == sealed]
            if not chosen or half not in ("", name):
                continue
            cases[track, name] = len(chosen)
            for tool, given in answers.items():
                if any(case.id in given for case in chosen):
                    halves.append(_half(track, name, tool, chosen, given, ("form", *labels)))
    return Report(cases, dropped, tuple(halves))


def _half(
    track: Track, name: str, tool: str, cases: Sequence[Case], given: Mapping[str, Answer],
    labels: Sequence[str],
) -> Half:  # fmt: skip
    can = adapter(tool).GIVES if tool in TOOLS else gives(given.values())
    slices: dict[str, dict[str, Figures]] = {}
    for label in labels:
        parts: dict[str, list[Case]] = {}
        for case in cases:
            value = case.form if label == "form" else case.labels.get(label, "-")
            parts.setdefault(value, []).append(case)
        slices[label] = {
            value: figures(parts[value], given, tool, can)
            for value in sorted(parts, key=_by_number)
        }
    versions = {given[case.id].version for case in cases if case.id in given}
    version = ", ".join(sorted(versions))
    return Half(track, name, tool, version, figures(cases, given, tool, can), slices)


def _by_number(value: str) -> list[tuple[bool, int, str]]:
    """Sort key under which 16 comes before 128."""
    parts = re.split(r"(\d+)", value)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]


def as_text(found: Report) -> str:
    """The report for a terminal."""
    return "\n".join(_text(found)) + "\n"


def _text(found: Report) -> Iterator[str]:
    yield f"HangBench {VERSION}"
    for (track, half), count in found.cases.items():
        yield ""
        yield (
            f"{track}, {half} cases: {count} distinct "
            f"({found.dropped[track]} near-duplicates dropped from the track)"
        )
        for one in found.halves:
            if (one.track, one.half) != (track, half):
                continue
            yield f"\n  {one.tool} {one.version}"
            for name, rate in one.all.rates.items():
                yield f"    {TITLES[name]:36}{_cell(rate)}"
            yield from _rest(one.all)
            for label, values in one.slices.items():
                names = [name for name in COLUMNS[track] if name in one.all.rates]
                yield f"    {'by ' + label:24}" + "".join(f"{name:>14}" for name in names)
                for value, figure in values.items():
                    cells = "".join(f"{_short(figure.rates.get(name)):>14}" for name in names)
                    yield f"      {value:22}{cells}"


def _rest(found: Figures) -> Iterator[str]:
    if found.level:
        yield f"    {'level reached':36}" + ", ".join(
            f"{name} {found.level[name]}" for name in LEVELS
        )
    if found.onset_error_s is not None:
        yield f"    {'onset off by (median)':36}{found.onset_error_s:.1f} s"
    if found.ece is not None:
        yield f"    {'calibration error (ECE)':36}{found.ece:.3f}"
    for point in found.curve:
        yield (
            f"    {'answers at ' + point.confidence + ' and above':36}"
            f"{_share(point.coverage)} of cases, right in {_cell(point.correct)}"
        )
    if found.cpu_s:
        yield f"    {'CPU s (median, most)':36}{found.cpu_s[0]:.2f}, {found.cpu_s[1]:.2f}"
    if found.peak_mib:
        yield f"    {'MiB (median, most)':36}{found.peak_mib[0]:.0f}, {found.peak_mib[1]:.0f}"
    if found.errors:
        yield f"    {'gave no answer':36}{found.errors}"


def _cell(rate: Rate | None) -> str:
    """Such as `54/60, 90 % (80-95)`."""
    if rate is None or rate.interval is None:
        return "–"
    low, high = rate.interval
    return f"{rate.right}/{rate.of}, {_share(rate)} ({100 * low:.0f}–{100 * high:.0f})"


def _short(rate: Rate | None) -> str:
    return f"{rate.right}/{rate.of} {_share(rate)}" if rate and rate.of else "–"


def _share(rate: Rate) -> str:
    return "–" if rate.share is None else f"{100 * rate.share:.0f} %"


def as_table(found: Report, day: date) -> str:
    """The published table: a block for each track, a row for each tool and half."""
    return "\n".join(_table(found, day)) + "\n"


def _table(found: Report, day: date) -> Iterator[str]:
    yield f"HangBench {VERSION}, {day.isoformat()}. Share of cases with the Wilson interval (95 %)."
    for track in dict.fromkeys(track for track, _ in found.cases):
        counts = ", ".join(
            f"{count} {half}" for (name, half), count in found.cases.items() if name == track
        )
        left_out = f"{found.dropped[track]} near-duplicates left out"
        yield f"\n### Track {track}: {counts} cases ({left_out})\n"
        rows = sorted(
            (one for one in found.halves if one.track == track),
            key=lambda one: [other.tool for other in found.halves].index(one.tool),
        )
        names = [name for name in COLUMNS[track] if any(name in one.all.rates for one in rows)]
        head = ["tool", "cases", *(TITLES[name] for name in names)]
        yield from _rows(
            [*head, *_LAST], ([*_first(one), *_middle(one, names), *_end(one.all)] for one in rows)
        )
        yield from _slices(track, rows)


_LAST = ("level: " + " / ".join(LEVELS), "onset off, s", "ECE", "CPU s", "MiB")


def _first(one: Half) -> list[str]:
    return [f"{one.tool} {one.version}", one.half]


def _middle(one: Half, names: Iterable[str]) -> list[str]:
    return [_cell(one.all.rates.get(name)) for name in names]


def _end(found: Figures) -> list[str]:
    return [
        " / ".join(str(found.level[name]) for name in LEVELS) if found.level else "–",
        "–" if found.onset_error_s is None else f"{found.onset_error_s:.1f}",
        "–" if found.ece is None else f"{found.ece:.3f}",
        f"{found.cpu_s[0]:.2f} (most {found.cpu_s[1]:.2f})" if found.cpu_s else "–",
        f"{found.peak_mib[0]:.0f} (most {found.peak_mib[1]:.0f})" if found.peak_mib else "–",
    ]


def _slices(track: Track, rows: Sequence[Half]) -> Iterator[str]:
    """A second table of a track: figures of each value of the label that matters most there."""
    label, names = SLICES[track]
    able = [one for one in rows if any(name in one.all.rates for name in names)]
    values = sorted({value for one in able for value in one.slices[label]}, key=_by_number)
    if len(values) < 2:
        return
    yield f"\nBy {label}: {' · '.join(TITLES[name] for name in names)}\n"
    head = [label, *(f"{one.tool}, {one.half}" for one in able)]
    yield from _rows(
        head, ([value, *(_pair(one, track, value) for one in able)] for value in values)
    )


def _pair(one: Half, track: Track, value: str) -> str:
    label, names = SLICES[track]
    figure = one.slices[label].get(value)
    return " · ".join(_short(figure.rates.get(name) if figure else None) for name in names)


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def refresh(page: Path, table: str) -> None:
    """Put the table between the two marks of a page. Raises `ValueError` where it has none."""
    text = page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no lines {BEGIN} and {END} to put the table between")
    page.write_text(f"{before}{begin}\n\n{table}\n{end}{after}", encoding="utf-8")


assert set(RATES) == set(TITLES)
