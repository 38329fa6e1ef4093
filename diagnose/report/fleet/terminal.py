"""The fleet report for the terminal: nodes to look at, causes, repeats, and what is not known."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from diagnose.fleet.causes import CAUSE, HOST, WEEK, Group
from diagnose.fleet.nodes import fold
from diagnose.fleet.recurring import Gap
from diagnose.fleet.summary import Fleet
from diagnose.redact.redactor import mask
from diagnose.report.fleet import words
from diagnose.report.safe import clean
from diagnose.report.terminal import Page
from diagnose.report.words import names

MAX_SUSPECTS = 20
MAX_GROUPS = 20
MAX_RECURRING = 8
MAX_GAPS = 6
MAX_WORST = 5

_SPARK = 12
_SPARK_WIDE = 26
_WIDE = 120  # columns from which on there is room for titles
_BARS = str.maketrans("▁▂▃▄▅▆▇█", ".::-=+*#")


def render(fleet: Fleet, console: Console) -> None:
    """Print the report."""
    page = Page(console)
    fleet = words.safe(fleet, lambda text: mask(clean(text)))
    overview = fleet.overview
    page.paragraph(
        Text(words.title(overview), style="bold"), first="FLEET  ", indent=2, style="bold red"
    )
    page.blank()
    page.field("outcome", words.outcome(overview))
    page.field("cost", words.lost(overview))
    page.field("top cause", words.main_cause(fleet))
    suspects = [suspect.host for suspect in fleet.nodes.suspects]
    page.field("suspects", names(suspects) if suspects else "none")
    _groups(page, fleet)
    _suspects(page, fleet)
    _recurring(page, fleet)
    _gaps(page, "Unknown: the next signatures to write", fleet.unknowns, fleet)
    _gaps(page, "Not fully readable", fleet.unreadable, fleet)
    _worst(page, fleet)


def _groups(page: Page, fleet: Fleet) -> None:
    shown = fleet.groups if fleet.by == WEEK else fleet.groups[:MAX_GROUPS]
    if not shown:
        return
    wide = page.full >= _WIDE
    spark = _SPARK_WIDE if wide else _SPARK
    heads = {
        CAUSE: [fleet.by, "affected", "share", "GPU-hours"],
        HOST: [fleet.by, "jobs", "affected", "blamed", "victim", "GPU-hours"],
    }.get(fleet.by, [fleet.by, "jobs", "affected", "share", "GPU-hours"])
    trend = fleet.by != WEEK and len(fleet.weeks) > 1
    rows = [_cells(group, fleet.by) for group in shown]
    tails = [_tail(page, group, spark, trend=trend, titled=wide) for group in shown]
    page.heading(words.heading(fleet.by))
    head = f"last {min(spark, len(fleet.weeks))} weeks" if trend else ""
    page.table(heads, rows, tails, min(_SPARK, max(map(len, tails))), head)
    page.more(len(fleet.groups) - len(shown))


def _cells(group: Group, by: str) -> list[str]:
    troubled = f"{words.troubled(group):,}"
    cost = words.cost(group.gpu_hours_lost, group.cost_unknown)
    if by == CAUSE:
        return [group.name, troubled, words.percent(group.share), cost]
    if by == HOST:
        return [
            group.name,
            f"{group.jobs:,}",
            troubled,
            f"{group.blamed:,}",
            f"{group.victim:,}",
            cost,
        ]
    return [group.name, f"{group.jobs:,}", troubled, words.percent(group.share), cost]


def _tail(page: Page, group: Group, spark: int, *, trend: bool, titled: bool) -> str:
    line = words.sparkline(group.weekly, spark) if trend else ""
    if page.ascii:
        line = line.translate(_BARS)
    return f"{line:<{min(spark, len(group.weekly))}}  {group.title}" if titled else line


def _suspects(page: Page, fleet: Fleet) -> None:
    found = fleet.nodes.suspects
    page.heading("Suspect nodes")
    if not found and fleet.nodes.nodes:
        page.paragraph(
            Text("No node is blamed more often than its share of the work explains."), first="  "
        )
    for suspect in found[:MAX_SUSPECTS]:
        text = Text.assemble((suspect.host, "bold"), f"  {words.suspect(suspect)}")
        page.paragraph(text, first="  ", indent=4)
        page.paragraph(Text(words.suspect_more(suspect), style="dim"), first="    ")
    page.more(len(found) - MAX_SUSPECTS)
    if found:
        page.verbatim(f"sbatch --exclude={fold(one.host for one in found)} …", 4, "cyan")
    page.paragraph(Text(words.compared(fleet.nodes), style="dim"), first="  ")


def _recurring(page: Page, fleet: Fleet) -> None:
    if not fleet.recurring:
        return
    page.heading("Recurring failures")
    for item in fleet.recurring[:MAX_RECURRING]:
        page.paragraph(
            Text.assemble((f"{words.jobs(item.jobs)}  ", "bold"), f"{item.title} ({item.cause})"),
            first="  ", indent=4,
        )  # fmt: skip
        hours = words.cost(item.gpu_hours_lost)
        parts = [
            words.days(item.first_seen, item.last_seen),
            f"{hours} GPU-hours" if hours else "",
            words.began(item.began_with),
            f"fingerprint {item.fingerprint}",
        ]
        page.paragraph(Text("; ".join(filter(None, parts)), style="dim"), first="    ")
        _reports(page, fleet, item.examples[:1])
    page.more(len(fleet.recurring) - MAX_RECURRING)


def _gaps(page: Page, heading: str, gaps: Sequence[Gap], fleet: Fleet) -> None:
    if not gaps:
        return
    page.heading(heading)
    for gap in gaps[:MAX_GAPS]:
        page.paragraph(
            Text.assemble((f"{words.jobs(gap.jobs)}  ", "bold"), gap.text), first="  ", indent=4
        )
        parts = [
            words.days(gap.first_seen, gap.last_seen),
            names(gap.frameworks, 4),
            f"for example {names(gap.examples, 2)}",
        ]
        page.paragraph(Text("; ".join(filter(None, parts)), style="dim"), first="    ")
        _reports(page, fleet, gap.examples[:1])
    page.more(len(gaps) - MAX_GAPS)


def _worst(page: Page, fleet: Fleet) -> None:
    if not fleet.worst:
        return
    page.heading("Most expensive jobs")
    for item in fleet.worst[:MAX_WORST]:
        on = f" on {names(item.culprit_hosts, 3)}" if item.culprit_hosts else ""
        text = Text.assemble(
            (f"{words.number(item.gpu_hours_lost)} GPU-hours  ", "bold"),
            f"{item.job}: {item.title}{on}",
        )
        page.paragraph(text, first="  ", indent=4)
        _reports(page, fleet, [item.job])


def _reports(page: Page, fleet: Fleet, jobs: Sequence[str]) -> None:
    for job in jobs:
        if job in fleet.reports:
            page.paragraph(Text(clean(fleet.reports[job]), style="magenta"), first="    ")
