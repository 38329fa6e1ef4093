"""Facts of the job, and where its ranks differ: versions, settings, interfaces."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import JobFacts
from diagnose.report import words
from diagnose.report.html.findings import who
from diagnose.report.html.scrub import Scrub
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Event, Timeline
from diagnose.timeline.facts import stated_facts

MAX_VALUES = 8  # of one fact
MAX_FACTS = 200
# These say who a rank is rather than how it is set up.
_OWN = frozenset({"rank", "local_rank", "pid", "world_size"})
_GROUPS = {"version": "Version", "setting": "Setting"}


@dataclass(frozen=True, slots=True)
class Value:
    """A value of a fact, and who said it."""

    text: str
    who: str


@dataclass(frozen=True, slots=True)
class JobFact:
    """A fact with its values, the most frequent first; `differs` if ranks or hosts disagree."""

    name: str
    values: list[Value]
    differs: bool


def overview(job: JobFacts) -> list[tuple[str, str]]:
    """What the diagnosis knows of the job, as labelled lines."""
    seen = set(job.ranks_seen)
    absent: list[int] = []
    if seen and job.world_size:
        absent = sorted(set(range(min(job.world_size, 1 << 20))) - seen)
    rows = [
        ("Ranks", f"{job.world_size:,}" if job.world_size else ""),
        ("Seen in the logs", ranks_phrase(job.ranks_seen) if seen else ""),
        ("No output from", ranks_phrase(absent) if absent else ""),
        ("Hosts", f"{len(job.hosts):,}: {words.names(job.hosts, 16)}" if job.hosts else ""),
        ("Attempts", str(job.attempts) if job.attempts > 1 else ""),
        ("Software", words.names(job.frameworks, 16)),
        ("Versions", ", ".join(f"{name} {version}" for name, version in job.versions.items())),
    ]
    return [(label, text) for label, text in rows if text]


def job_facts(timeline: Timeline, catalog: Catalog, scrub: Scrub) -> list[JobFact]:
    """Every fact that a line states, sorted by name, those that differ first."""
    stated: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for name, value, events in stated_facts(timeline, catalog.by_id):
        if name not in _OWN:
            stated[name, value] += events
    values: dict[str, list[tuple[str, list[Event]]]] = defaultdict(list)
    for (name, value), found in stated.items():
        values[name].append((value, found))
    facts = [_fact(name, items, scrub) for name, items in sorted(values.items())[:MAX_FACTS]]
    return sorted(facts, key=lambda fact: not fact.differs)


def _fact(name: str, items: list[tuple[str, list[Event]]], scrub: Scrub) -> JobFact:
    items = sorted(items, key=lambda item: -len(item[1]))
    group, _, rest = name.partition(".")
    shown = f"{_GROUPS[group]} of {rest}" if group == "version" else rest or name
    return JobFact(
        scrub.text(shown.replace("_", " ") if not rest else shown),
        [
            Value(scrub.text(value, 200), scrub.text(who(events)))
            for value, events in items[:MAX_VALUES]
        ],
        _differs([events for _, events in items]),
    )


def _differs(groups: list[list[Event]]) -> bool:
    """Whether each rank (or host, where no rank is named) says one value, but not all the same.

    A process that reports several values, say of nested settings, disagrees with nobody.
    """
    if len(groups) < 2:
        return False
    by_rank: list[set[Any]] = [{e.rank for e in events} - {None} for events in groups]
    by_host: list[set[Any]] = [{e.host for e in events} - {None} for events in groups]
    for authors in (by_rank, by_host):
        if all(authors):
            return sum(map(len, authors)) == len(set().union(*authors))
    return False
