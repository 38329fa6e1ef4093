"""The sentences and numbers that all forms of the fleet report share."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, replace
from functools import cache

from diagnose.fleet.causes import CAUSE, HOST, WEEK, Group
from diagnose.fleet.nodes import MIN_INCIDENTS, MIN_RATIO, Nodes, Suspect, fold
from diagnose.fleet.recurring import Began
from diagnose.fleet.summary import Fleet, Overview
from diagnose.redact.redactor import mask
from diagnose.report.safe import clean, each, escaped, masked_strings
from diagnose.report.words import names, sentence

_BARS = "▁▂▃▄▅▆▇█"
# How jobs ended, and how it is said.
OUTCOMES = {
    "hung": "hung",
    "failed": "failed",
    "unknown": "unknown",
    "healthy": "healthy",
    "running": "running at the end of the log",
    "unreadable": "unreadable",
}
_HEADINGS = {CAUSE: "Causes", HOST: "Jobs by host", WEEK: "Jobs by week"}


def safe(fleet: Fleet, change: Callable[[str], str]) -> Fleet:
    """A copy whose every string went through `change`.

    Paths of reports stay usable; one that would be changed is left out, and so are those of jobs
    that look alike then: a page could be told as that of another.
    """
    change = cache(change)  # titles, hosts and versions come again and again
    looks = Counter(map(change, fleet.named() if fleet.reports else ()))
    reports = {
        change(job): path
        for job, path in fleet.reports.items()
        if looks[change(job)] == 1 and change(path) == path
    }
    return replace(each(fleet, lambda text, _: change(text)), reports=reports)


def heading(by: str) -> str:
    """What the groups of `by` are."""
    return _HEADINGS.get(by, f"Jobs by {by}")


def number(value: float) -> str:
    """`1,234` or `12.3`."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def cost(hours: float | None, unknown: int = 0) -> str:
    """GPU-hours; `≥` where some jobs do not tell theirs, empty where none does."""
    if hours is None:
        return ""
    return ("≥ " if unknown else "") + number(hours)


def percent(share: float) -> str:
    """`12.3 %`."""
    return f"{100 * share:.1f} %"


def jobs(count: int) -> str:
    """`1 job` or `1,234 jobs`."""
    return f"{count:,} job{'' if count == 1 else 's'}"


def day(time: str | None) -> str:
    """The day of an ISO 8601 time."""
    return time[:10] if time else ""


def days(first: str | None, last: str | None) -> str:
    """`2025-06-02 to 2025-08-24`, or one day."""
    if not first or not last:
        return ""
    return day(first) if day(first) == day(last) else f"{day(first)} to {day(last)}"


def title(overview: Overview) -> str:
    """`2,000 jobs on 200 hosts, 2025-06-02 to 2025-08-24 (20 dated by their files)`."""
    hosts = f" on {overview.hosts:,} host{'' if overview.hosts == 1 else 's'}"
    text = jobs(overview.jobs) + (hosts if overview.hosts else "")
    when = days(overview.first_seen, overview.last_seen)
    files = f" ({overview.dated_by_file:,} dated by their files)" if overview.dated_by_file else ""
    return f"{text}, {when}{files}" if when else text


def outcome(overview: Overview, kinds: Iterable[str] = OUTCOMES) -> str:
    """`430 hung, 1,204 failed, 66 unknown, 300 healthy, 2 running at the end of the log`."""
    counts = ((getattr(overview, kind), OUTCOMES[kind]) for kind in kinds)
    return ", ".join(f"{count:,} {name}" for count, name in counts if count)


def lost(overview: Overview) -> str:
    """`12,345 GPU-hours lost; cost of 100 jobs unknown`."""
    untold = overview.cost_unknown
    if overview.gpu_hours_lost is None:
        return "Cost unknown for all jobs"
    rest = f"; cost of {jobs(untold)} unknown" if untold else ""
    return f"{number(overview.gpu_hours_lost)} GPU-hours lost{rest}"


def main_cause(fleet: Fleet) -> str:
    """`hw.gpu: 1,234 GPU-hours, 300 jobs (18.4 %)`: the first known cause."""
    known = [group for group in fleet.causes if group.name != "unknown"]
    if not known:
        return ""
    first = known[0]
    hours = f"{cost(first.gpu_hours_lost, first.cost_unknown)} GPU-hours, "
    text = hours if first.gpu_hours_lost is not None else ""
    return f"{first.name}: {text}{jobs(troubled(first))} ({percent(first.share)})"


def troubled(group: Group) -> int:
    """Jobs that hung, failed, or nobody knows."""
    return group.hung + group.failed + group.unknown


def sparkline(counts: Sequence[int], wide: int) -> str:
    """The last `wide` counts as bars; a blank where there is nothing."""
    shown = counts[-wide:]
    most = max(shown, default=0)
    return "".join(_BARS[(count * len(_BARS) - 1) // most] if count else " " for count in shown)


def suspect(found: Suspect) -> str:
    """`blamed in 25 of 35 jobs; 1.4 expected at the rate of the other nodes (×18, p < 1e-9)`.

    Below one job neither their number nor how many times as many it is says anything.
    """
    less = found.expected < 1
    expected = "fewer than 1" if less else f"{found.expected:.1f}"
    times = "" if less else f"×{found.ratio:.0f}, "
    return (
        f"blamed in {found.blamed:,} of {jobs(found.jobs)}; {expected} expected at the rate of the "
        f"other nodes ({times}{chance(found.p)})"
    )


def suspect_more(found: Suspect) -> str:
    """`hw.gpu 20, net.fabric 5; 2025-06-03 to 2025-08-22; 1,234 GPU-hours`."""
    parts = [
        names([f"{cause} {count}" for cause, count in found.causes.items()]),
        days(found.first_seen, found.last_seen),
        f"{number(found.gpu_hours_lost)} GPU-hours" if found.gpu_hours_lost is not None else "",
        f"victim in {jobs(found.victim)}" if found.victim else "",
    ]
    return "; ".join(filter(None, parts))


def chance(p: float) -> str:
    """`p < 1e-9` or `p = 0.003`."""
    if p >= 0.001:
        return f"p = {p:.3f}"
    exponent = max(-99, int(f"{p:e}".partition("e")[2]) + 1) if p > 0 else -99
    return f"p < 1e{exponent}"


def compared(nodes: Nodes) -> str:
    """What the search for suspect nodes rests on."""
    if not nodes.nodes:
        return "No job names its hosts, so nodes cannot be compared."
    text = (
        f"{len(nodes.nodes):,} nodes compared across {jobs(nodes.jobs_compared)} of similar size "
        "(retries count once), only for causes tied to a node; a suspect has at least "
        f"{MIN_INCIDENTS} incidents, ×{MIN_RATIO:.0f} the expected number and p ≤ 0.01 after "
        "Bonferroni correction"
    )
    if len(nodes.suspects) > 1:
        text += "; jobs explained by a stronger suspect are excluded"
    if nodes.blamed_without_hosts:
        text += f"; of {jobs(nodes.blamed_without_hosts)} only the blamed node is known"
    if without := nodes.jobs_without_hosts - nodes.blamed_without_hosts:
        text += f"; {jobs(without)} without known hosts excluded"
    return sentence(text)


def began(found: Sequence[Began]) -> str:
    """`first seen with torch 2.7.1; 400 earlier healthy jobs had a different version`."""
    if not found:
        return ""
    what = names([f"{one.package} {one.version}{' or later' * one.or_later}" for one in found], 4)
    before = min(one.before for one in found)
    return f"first seen with {what}; {before:,} earlier healthy jobs had a different version"


# --- for programs ---------------------------------------------------------------------------------

# What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@")
_COLUMNS = [field.name for field in fields(Group) if field.name != "weekly"]


def as_json(fleet: Fleet) -> str:
    """The whole report with secrets masked, ending without a newline."""
    data = masked_strings(fleet.to_dict())
    return escaped(json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False))


def as_csv(fleet: Fleet) -> str:
    """A row for each group of `--by`; lines end in a newline, missing values are empty."""
    sink = io.StringIO()
    table = csv.DictWriter(sink, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for group in safe(fleet, lambda text: mask(clean(text))).groups:
        cells = asdict(group)
        for name in ("name", "title"):
            if cells[name].startswith(_FORMULA):
                cells[name] = f"'{cells[name]}"
        table.writerow(cells)
    return sink.getvalue()


def slurm_exclude(fleet: Fleet) -> str:
    """`gpu[047,112]` and a newline for `sbatch --exclude`; empty when no node is suspect."""
    hosts = fold(suspect.host for suspect in fleet.nodes.suspects)
    return f"{hosts}\n" if hosts else ""
