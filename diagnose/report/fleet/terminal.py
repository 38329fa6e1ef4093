"""The fleet report for the terminal: nodes to look at, causes, repeats, and what is not known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.text import Text

from diagnose.fleet import trend
from diagnose.fleet.causes import Group
from diagnose.fleet.grouping import CAUSE, HOST, WEEK
from diagnose.fleet.recurring import Gap
from diagnose.fleet.reliability import Reliability
from diagnose.fleet.since import Since
from diagnose.fleet.summary import Fleet, Listed
from diagnose.fleet.trend import Trends
from diagnose.redact.redactor import mask
from diagnose.report.fleet import words
from diagnose.report.safe import clean
from diagnose.report.terminal import Page
from diagnose.report.words import names
from diagnose.text.hosts import fold

T = TypeVar("T")

MAX_GROUPS = 20
MAX_CROSSED = 4
MAX_SUSPECTS = 20
MAX_RECURRING = 8
MAX_GAPS = 6
MAX_WORST = 5
MAX_SINCE = 6

_SPARK = 12
_SPARK_WIDE = 26
_WIDE = 120  # columns from which on there is room for titles
_BARS = str.maketrans("▁▂▃▄▅▆▇█", ".::-=+*#")


class _Sheet(Page):
    """A page on which every list has at most `top` rows where that is given."""

    def __init__(self, console: Console, top: int | None) -> None:
        super().__init__(console)
        self.top = top

    def named(self, name: str, text: str) -> None:
        """A name, and what is said of it."""
        self.paragraph(Text.assemble((name, "bold"), f"  {text}"), first="  ", indent=4)

    def more_of(self, *parts: str) -> None:
        """What else is known of it, in small print."""
        text = Text("; ".join(filter(None, parts)), style="dim")
        self.paragraph(text, first="    ")

    def first(self, items: Sequence[T], most: int) -> Sequence[T]:
        """As many of a list as are shown."""
        return items[: most if self.top is None else self.top]

    def rest(self, items: Sequence[Any], most: int) -> None:
        """How many of a list are not shown."""
        left = len(items) - len(self.first(items, most))
        if left:
            self.paragraph(Text(f"… and {left:,} more with --all", style="dim"), first="  ")


def render(fleet: Fleet, console: Console, top: int | None = None) -> None:
    """Print the report; `top` is how many rows each list has, None for what fits a screen."""
    page = _Sheet(console, top)
    fleet = words.safe(fleet, lambda text: mask(clean(text)))
    overview = fleet.overview
    page.paragraph(
        Text(words.title(overview), style="bold"), first="FLEET  ", indent=2, style="bold red"
    )
    page.blank()
    page.field("only", "; ".join(fleet.filters))
    page.field("outcome", words.outcome(overview))
    page.field("cost", words.lost(overview, fleet.price))
    page.field("top cause", words.main_cause(fleet))
    page.field("rising", names(trend.rising(fleet.trends)))
    suspects = [suspect.host for suspect in fleet.nodes.suspects]
    suspects = [words.unit_name(unit) for unit in fleet.nodes.units] + suspects
    page.field("since", words.since_name(fleet.since[0]) if fleet.since else "")
    page.field("suspects", names(suspects) if suspects else "none")
    _groups(page, fleet)
    _crossed(page, fleet)
    _reliability(page, fleet.reliability)
    _trends(page, fleet.trends)
    _since(page, fleet.since)
    _suspects(page, fleet)
    _recurring(page, fleet)
    _gaps(page, "Unknown: the next signatures to write", fleet.unknowns, fleet)
    _gaps(page, "Not fully readable", fleet.unreadable, fleet)
    _worst(page, fleet)


def render_jobs(jobs: Sequence[Listed], console: Console, top: int | None = None) -> None:
    """Print a list of jobs, a line each."""
    page = _Sheet(console, top)
    shown = words.shown_jobs(page.first(jobs, MAX_GROUPS))
    if not shown:
        page.paragraph(Text("No job went wrong."))
        return
    rows = [
        [one.job, words.day(one.time) or words.UNKNOWN, one.verdict, words.cost(one.gpu_hours_lost)]
        for one in shown
    ]
    tails = [
        f"{one.cause}{' on ' if one.culprit_hosts else ''}{names(one.culprit_hosts, 2)}"
        for one in shown
    ]
    page.table(["job", "when", "verdict", "GPU-hours"], rows, tails, max(map(len, tails)), "cause")
    page.rest(jobs, MAX_GROUPS)


def _groups(page: _Sheet, fleet: Fleet) -> None:
    latest = fleet.groups[::-1] if fleet.by == WEEK else fleet.groups
    shown = list(page.first(latest, MAX_GROUPS))
    if not shown:
        return
    if fleet.by == WEEK:
        shown.reverse()
    wide = page.full >= _WIDE
    spark = _SPARK_WIDE if wide else _SPARK
    cells = [_cells(group, fleet) for group in shown]
    room = wide or fleet.by == CAUSE or fleet.price is None
    weekly = fleet.by != WEEK and len(fleet.weeks) > 1 and room
    tails = [_tail(group, spark, page, weekly=weekly, titled=wide) for group in shown]
    page.heading(words.heading(fleet.by))
    head = f"last {min(spark, len(fleet.weeks))} weeks" if weekly else ""
    rows = [[*row.values()] for row in cells]
    page.table([*cells[0]], rows, tails, min(_SPARK, max(map(len, tails))), head)
    page.rest(fleet.groups, MAX_GROUPS)


def _cells(group: Group, fleet: Fleet) -> dict[str, str]:
    """The columns of a group's row by their heads."""
    cells = {fleet.by: group.name, "jobs": f"{group.jobs:,}"}
    cells["affected"] = f"{group.troubled:,}"
    if fleet.by == HOST:
        cells |= {"blamed": f"{group.blamed:,}", "victim": f"{group.victim:,}"}
    elif fleet.by == CAUSE:
        del cells["jobs"]
        cells |= {"of jobs": words.percent(group.rate), "share": words.percent(group.share)}
    else:
        cells |= {"rate": words.percent(group.rate), "95 % interval": words.rates(group)}
    cells["GPU-hours"] = words.cost(group.gpu_hours_lost, group.cost_unknown)
    if fleet.price is not None:
        cells["cost"] = words.money(group.gpu_hours_lost, fleet.price, group.cost_unknown)
    return cells


def _tail(group: Group, spark: int, page: Page, *, weekly: bool, titled: bool) -> str:
    line = words.sparkline(group.weekly, spark) if weekly else ""
    line = line.translate(_BARS) if page.ascii else line
    return f"{line}  {group.title}" if titled and group.title else line


def _crossed(page: _Sheet, fleet: Fleet) -> None:
    """The affected jobs of each group by cause."""
    shown = [group for group in page.first(fleet.groups, MAX_GROUPS) if group.causes]
    causes = words.crossed(shown, MAX_CROSSED)
    if fleet.by == CAUSE or len(causes) < 2:
        return
    room = page.full - max(len(group.name) for group in shown) - len("  others  ") - 2
    while sum(len(cause) + 2 for cause in causes) > max(room, 24):
        causes.pop()
    rows = []
    for group in shown:
        counts = [group.causes.get(cause, 0) for cause in causes]
        cells = [*counts, group.troubled - sum(counts)]
        rows.append([group.name, *(f"{count:,}" if count else "" for count in cells)])
    page.heading(f"Affected jobs by {fleet.by} and cause")
    page.table([fleet.by, *causes, "others"], rows, [""] * len(rows), 0)


def _reliability(page: _Sheet, found: Reliability) -> None:
    page.heading("Reliability")
    page.field("goodput", words.goodput(found))
    if not found.jobs:
        return
    page.field("ETTR", words.ettr(found))
    page.field("MTBF", words.mtbf_gpu(found))
    page.field("at scale", words.projections(found))
    rows = [
        [one.gpus, f"{one.jobs:,}", f"{one.mtbf.failures:,}", words.mtbf(one.mtbf),
         words.mtbf_range(one.mtbf), words.part(one.goodput), words.part(one.ettr)]
        for one in found.sizes
    ]  # fmt: skip
    heads = ["GPUs", "jobs", "failures", "MTBF", "95 % interval", "goodput", "ETTR"]
    page.table(heads, rows, [""] * len(rows), 0)


def _trends(page: _Sheet, found: Trends | None) -> None:
    if found is None:
        return
    page.heading("Trend")
    changed = [one for one in found.causes[1:] if one.direction != trend.STEADY]
    every = page.top is not None
    for one in [found.causes[0], *(found.causes[1:] if every else changed)]:
        page.named(one.name, words.trend(one))
    page.paragraph(Text(words.forecast(found.forecast)), first="  ", indent=4)
    page.paragraph(Text(words.windows(found), style="dim"), first="  ")


def _since(page: _Sheet, found: Sequence[Since]) -> None:
    if found:
        page.heading("More frequent since")
    for one in page.first(found, MAX_SINCE):
        page.named(words.since_name(one), f"{one.name}: {words.since(one)}")
    page.rest(found, MAX_SINCE)


def _suspects(page: _Sheet, fleet: Fleet) -> None:
    found = fleet.nodes.suspects
    page.heading("Suspect nodes")
    for unit in fleet.nodes.units:
        page.named(words.unit_name(unit), words.unit(unit))
    if not found and fleet.nodes.nodes:
        page.paragraph(Text(words.no_suspects(fleet.nodes)), first="  ")
    for suspect in page.first(found, MAX_SUSPECTS):
        page.named(suspect.host, words.suspect(suspect))
        page.more_of(words.suspect_more(suspect))
    page.rest(found, MAX_SUSPECTS)
    if found:
        page.verbatim(f"sbatch --exclude={fold(one.host for one in found)} …", 4, "cyan")
    page.paragraph(Text(words.compared(fleet.nodes), style="dim"), first="  ")


def _recurring(page: _Sheet, fleet: Fleet) -> None:
    if fleet.recurring:
        page.heading("Recurring failures")
    for item in page.first(fleet.recurring, MAX_RECURRING):
        page.named(words.jobs(item.jobs), f"{item.title} ({item.cause})")
        hours = words.cost(item.gpu_hours_lost)
        page.more_of(
            words.days(item.first_seen, item.last_seen),
            f"{hours} GPU-hours" if item.gpu_hours_lost is not None else "",
            words.began(item.began_with),
            f"fingerprint {item.fingerprint}",
        )
        _reports(page, fleet, item.examples[:1])
    page.rest(fleet.recurring, MAX_RECURRING)


def _gaps(page: _Sheet, heading: str, gaps: Sequence[Gap], fleet: Fleet) -> None:
    if gaps:
        page.heading(heading)
    for gap in page.first(gaps, MAX_GAPS):
        page.named(words.jobs(gap.jobs), gap.text)
        page.more_of(
            words.days(gap.first_seen, gap.last_seen),
            names(gap.frameworks, 4),
            f"for example {names(gap.examples, 2)}",
        )
        _reports(page, fleet, gap.examples[:1])
    page.rest(gaps, MAX_GAPS)


def _worst(page: _Sheet, fleet: Fleet) -> None:
    if fleet.worst:
        page.heading("Most expensive jobs")
    for item in page.first(fleet.worst, MAX_WORST):
        on = f" on {names(item.culprit_hosts, 3)}" if item.culprit_hosts else ""
        lost = f"{words.number(item.gpu_hours_lost)} GPU-hours"
        page.named(lost, f"{item.job}: {item.title}{on}")
        _reports(page, fleet, [item.job])


def _reports(page: Page, fleet: Fleet, jobs: Sequence[str]) -> None:
    for job in jobs:
        if job in fleet.reports:
            page.paragraph(Text(clean(fleet.reports[job]), style="magenta"), first="    ")
