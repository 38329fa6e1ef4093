"""The sentences and numbers that all forms of the fleet report share."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields, replace
from functools import cache
from typing import Any

from diagnose.fleet.blame import MIN_INCIDENTS
from diagnose.fleet.causes import Group
from diagnose.fleet.grouping import CAUSE, WEEK
from diagnose.fleet.nodes import MIN_RATIO, Nodes, Suspect
from diagnose.fleet.recurring import Began
from diagnose.fleet.reliability import Mtbf, Reliability
from diagnose.fleet.since import Since
from diagnose.fleet.summary import Fleet, Listed, Overview
from diagnose.fleet.trend import Forecast, Trend, Trends
from diagnose.fleet.units import Unit
from diagnose.redact.redactor import mask
from diagnose.report.safe import clean, each, escaped, masked_strings
from diagnose.report.words import names, sentence
from diagnose.text.hosts import fold
from diagnose.text.ranks import counted

UNKNOWN = "unknown"
MIN_FAILURES = 10  # with fewer, a rate says nothing about jobs of another size
_MANY_H = 240  # hours, from which on days are easier to grasp
_BARS = "▁▂▃▄▅▆▇█"
# How jobs ended, and how it is said.
OUTCOMES = {
    "hung": "hung",
    "failed": "failed",
    "unknown": "unknown",
    "healthy": "healthy",
    "running": "running at the end of the log",
    "other": "failed for other causes",
    "unreadable": "unreadable",
}
_HEADINGS = {CAUSE: "Causes"}


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
    """`1,234`, `12.3` or `0`."""
    return f"{value:,.0f}" if value >= 100 or not value else f"{value:,.1f}"


def cost(hours: float | None, unknown: int = 0) -> str:
    """GPU-hours; `≥` where some jobs do not tell theirs, `unknown` where that says nothing."""
    if hours is None or (unknown and hours < 0.05):
        return UNKNOWN
    return ("≥ " if unknown else "") + number(hours)


def money(hours: float | None, price: float, unknown: int = 0) -> str:
    """What GPU-hours cost at a price each."""
    found = cost(hours, unknown)
    return found if hours is None or found == UNKNOWN else (
        f"{'≥ ' if unknown else ''}{hours * price:,.0f}"
    )  # fmt: skip


def percent(share: float) -> str:
    """`12.3 %`."""
    return f"{100 * share:.1f} %"


def jobs(count: int) -> str:
    """`1 job` or `1,234 jobs`."""
    return counted(count, "job")


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
    hosts = f" on {counted(overview.hosts, 'host')}" if overview.hosts else ""
    text = jobs(overview.jobs) + hosts
    when = days(overview.first_seen, overview.last_seen)
    files = f" ({overview.dated_by_file:,} dated by their files)" if overview.dated_by_file else ""
    return f"{text}, {when}{files}" if when else text


def outcome(overview: Overview, kinds: Iterable[str] = OUTCOMES) -> str:
    """`430 hung, 1,204 failed, 66 unknown, 300 healthy, 2 running at the end of the log`."""
    counts = ((getattr(overview, kind), OUTCOMES[kind]) for kind in kinds)
    return ", ".join(f"{count:,} {name}" for count, name in counts if count)


def lost(overview: Overview, price: float | None = None) -> str:
    """`12,345 GPU-hours lost (30,862 at 2.50 each); cost of 100 jobs unknown`."""
    untold = overview.cost_unknown
    if overview.gpu_hours_lost is None:
        return "Cost unknown for all jobs"
    paid = ""
    if price is not None:
        paid = f" ({money(overview.gpu_hours_lost, price)} at {price:,.2f} each)"
    rest = f"; cost of {jobs(untold)} unknown" if untold else ""
    return f"{number(overview.gpu_hours_lost)} GPU-hours lost{paid}{rest}"


def first_cause(fleet: Fleet) -> Group | None:
    """The known cause that costs most, or where most costs are unknown, the most frequent one."""
    known = [group for group in fleet.causes if group.name != UNKNOWN]
    by_jobs = 2 * fleet.overview.cost_unknown > sum(group.troubled for group in fleet.causes)
    if known and by_jobs:
        return max(known, key=lambda group: group.troubled)
    return next(iter(known), None)


def main_cause(fleet: Fleet) -> str:
    """`hw.gpu: 1,234 GPU-hours, 300 jobs (18.4 %)`."""
    first = first_cause(fleet)
    if first is None:
        return ""
    hours = cost(first.gpu_hours_lost, first.cost_unknown)
    text = f"{hours} GPU-hours, " if hours != UNKNOWN else ""
    return f"{first.name}: {text}{jobs(first.troubled)} ({percent(first.share)})"


def rates(group: Group) -> str:
    """`9.2-36.3 %`, what chance leaves open of it."""
    return f"{100 * group.rate_low:.1f}-{100 * group.rate_high:.1f} %"


def crossed(groups: Sequence[Group], most: int) -> list[str]:
    """The causes that most affected jobs of these groups have."""
    counts: Counter[str] = Counter()
    for group in groups:
        counts.update(group.causes)
    return [cause for cause, _ in counts.most_common(most)]


def mtbf(found: Mtbf) -> str:
    """`77.3 h`, `51.0 days`, or what it is at least."""
    scale, unit = _unit(found)
    shown = found.low if found.hours is None else found.hours
    return f"{'> ' * (found.hours is None)}{number(shown / scale)} {unit}"


def mtbf_range(found: Mtbf) -> str:
    """`70.1 to 85.0 h`; empty without failures."""
    scale, unit = _unit(found)
    if found.high is None:
        return ""
    return f"{number(found.low / scale)} to {number(found.high / scale)} {unit}"


def _unit(found: Mtbf) -> tuple[float, str]:
    return (24.0, "days") if (found.hours or found.low) >= _MANY_H else (1.0, "h")


def part(value: float | None) -> str:
    """A share in percent, or that it is unknown."""
    return UNKNOWN if value is None else percent(value)


def goodput(found: Reliability) -> str:
    """What the GPU-hours of the jobs went to."""
    if found.goodput is None:
        return "No job shows its ranks, its times and its onset, so nothing can be measured."
    text = (
        f"{percent(found.goodput)} of {number(found.gpu_hours)} GPU-hours were work; "
        f"{number(found.gpu_hours_lost)} between failure and end, {number(found.gpu_hours_rework)} "
        f"since the last checkpoint (one every {found.checkpoint_h * 60:,.0f} min is assumed)"
    )
    text += f"; {jobs(found.unmeasured)} unmeasured" if found.unmeasured else ""
    others = f"; what {jobs(found.others)} lost by other causes counts as work"
    return text + others * bool(found.others)


def mtbf_gpu(found: Reliability) -> str:
    """The mean time between failures of one GPU."""
    every, node = found.mtbf_gpu, found.mtbf_gpu_node
    spans = [f" ({mtbf_range(one)})" if one.high is not None else "" for one in (every, node)]
    return f"of one GPU {mtbf(every)}{spans[0]}; by causes tied to a node {mtbf(node)}{spans[1]}"


def ettr(found: Reliability) -> str:
    """`99.8 % over 1,200 runs`."""
    return f"{part(found.ettr)} of the hours from start to end of {counted(found.runs, 'run')}"


def projections(found: Reliability) -> str:
    """What the rate of failures means for large jobs."""
    known = [one for one in found.projections if one.mtbf.failures >= MIN_FAILURES]
    parts = [f"{one.gpus:,} GPUs {mtbf(one.mtbf)}, ETTR {part(one.ettr)}" for one in known]
    return f"by causes tied to a node: {'; '.join(parts)}" if parts else ""


def trend(found: Trend) -> str:
    """`28 incidents, 35 before: ×0.81 a job (0.39 to 1.68), no change shown`."""
    many = f"{counted(found.now, 'incident')}, {found.before:,} before"
    ratio = f"{times(found.ratio)} a job ({between(found)})"
    if found.ratio is None:
        ratio = f"at least ×{found.low:,.2f} a job" if found.low >= 0.005 else "too few to compare"
    return f"{many}: {ratio}, {found.direction}"


def since_name(found: Since) -> str:
    """`torch 2.6.0`, `week of 2026-01-05`, with where it may begin as well."""
    kind = "week of" if found.label == WEEK else found.label
    until = f", until {found.until}" if found.until else ""
    return f"{kind} {found.first}{until}"


def since(found: Since) -> str:
    """`30 of 100 jobs, 4 of 120 without it: ×9.00 (3.23 to 25.1)`, and what explains it, too."""
    many = (
        f"{found.now:,} of {jobs(found.jobs_now)}, {found.before:,} of {found.jobs_before:,} else"
    )
    ratio = (
        f"{times(found.ratio)} ({between(found)})" if found.ratio else f"at least ×{found.low:,.2f}"
    )
    apart = found.earliest != found.latest
    parts = [
        f"{many}: {ratio}",
        f"begins between {found.earliest} and {found.latest}" if apart else "",
        f"as likely {names(found.also, 3)}" if found.also else "",
    ]
    return "; ".join(filter(None, parts))


def times(ratio: float | None) -> str:
    """`×1.20`; empty where there was nothing before."""
    return "" if ratio is None else f"×{ratio:,.2f}"


def between(found: Trend | Since) -> str:
    """`0.39 to 1.68`, the interval of a ratio."""
    return f"{found.low:,.2f} to {'no bound' if found.high is None else f'{found.high:,.2f}'}"


def heats(groups: Sequence[Group]) -> dict[int, int]:
    """How dark a cell of the table by cause is, from 0 to 4, for each count there is."""
    counts = {0, *(count for group in groups for count in group.causes.values())}
    return {count: -(-4 * count // (max(counts) or 1)) for count in counts}


def lister(by: str, name: str) -> str:
    """The options with which `fleet` lists the jobs of a group."""
    asked = ("--class", name) if by == CAUSE else ("--label", f"{by}={name}")
    return f"diagnose fleet RESULTS --jobs {shlex.join(asked)}"


def windows(found: Trends) -> str:
    """What a trend compares."""
    wide = "week" if found.weeks == 1 else f"{found.weeks} weeks"
    return sentence(
        f"The {wide} from {found.now} ({jobs(found.jobs_now)}) against the {wide} from "
        f"{found.before} ({jobs(found.jobs_before)}); retries count once, intervals are of 95 % "
        "for all causes together"
    )


def forecast(found: Forecast) -> str:
    """What the next weeks bring if nothing changes."""
    wide = "week" if found.weeks == 1 else f"{found.weeks} weeks"
    lost = "" if found.gpu_hours_lost is None else f", {number(found.gpu_hours_lost)} GPU-hours"
    return (
        f"If nothing changes, the next {wide}: {found.incidents:,.0f} "
        f"incident{'' if found.incidents == 1 else 's'} ({found.low:,.0f} to "
        f"{found.high:,.0f}){lost}"
    )


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


def no_suspects(found: Nodes) -> str:
    """That no node stands out, beside the units that do."""
    other = "other " if found.units else ""
    return f"No {other}node is blamed more often than its share of the work explains."


def unit_name(found: Unit) -> str:
    """`rack R12`, or the name alone where it begins with the level; with the rail that has it."""
    plain = found.name.lower().startswith(found.level.lower())
    name = found.name if plain else f"{found.level} {found.name}"
    return name if found.rail is None else f"{name} rail {found.rail}"


def unit(found: Unit) -> str:
    """`blamed 120 times on 64 nodes; 14.2 expected at the rate of the rest (×8, p < 1e-60)`."""
    return (
        f"blamed {found.blamed:,} times on {found.nodes:,} nodes; {found.expected:.1f} expected at "
        f"the rate of the rest (×{found.ratio:.1f}, {chance(found.p)})"
    )


def suspect_more(found: Suspect) -> str:
    """`hw.gpu 20, net.fabric 5; 2025-06-03 to 2025-08-22; 1,234 GPU-hours`."""
    parts = [
        names([f"{cause} {count}" for cause, count in found.causes.items()]),
        f"nearly all on GPU {found.rail} or its adapter" if found.rail is not None else "",
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
    if nodes.units:
        text += "; jobs on a suspect unit are excluded"
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
_COLUMNS = [
    field.name for field in fields(Group) if field.name not in ("weekly", "causes", "examples")
]


def as_json(fleet: Fleet) -> str:
    """The whole report with secrets masked, ending without a newline."""
    data = masked_strings(fleet.to_dict())
    return escaped(json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False))


def as_csv(fleet: Fleet) -> str:
    """A row for each group of `--by`; lines end in a newline, missing values are empty."""
    groups = safe(fleet, lambda text: mask(clean(text))).groups
    return _csv(_COLUMNS, map(asdict, groups))


def jobs_csv(found: Sequence[Listed]) -> str:
    """A row for each job; lists are parted by blanks, labels are JSON."""
    rows = []
    for one in shown_jobs(found):
        cells = asdict(one) | {"class": one.cause, "culprit_hosts": " ".join(one.culprit_hosts)}
        rows.append(cells | {"labels": json.dumps(one.labels, ensure_ascii=False)})
    names = ["class" if field.name == "cause" else field.name for field in fields(Listed)]
    return _csv(names, rows)


def jobs_json(found: Sequence[Listed]) -> str:
    """An array of jobs with secrets masked, ending without a newline."""
    rows = [
        {"class" if key == "cause" else key: value for key, value in asdict(one).items()}
        for one in found
    ]
    return escaped(json.dumps(masked_strings(rows), ensure_ascii=False, indent=2, allow_nan=False))


def shown_jobs(found: Sequence[Listed]) -> list[Listed]:
    """Jobs whose every text is safe to show."""
    change = cache(lambda text: mask(clean(text)))
    return [each(one, lambda text, _: change(text)) for one in found]


def _csv(names: Sequence[str], rows: Iterable[dict[str, Any]]) -> str:
    sink = io.StringIO()
    table = csv.DictWriter(sink, names, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for row in rows:
        table.writerow(
            {
                name: f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell
                for name, cell in row.items()
            }
        )
    return sink.getvalue()


def slurm_exclude(fleet: Fleet) -> str:
    """`gpu[047,112]` and a newline for `sbatch --exclude`; empty when no node is suspect."""
    hosts = fold(suspect.host for suspect in fleet.nodes.suspects)
    return f"{hosts}\n" if hosts else ""
