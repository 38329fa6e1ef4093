"""What other detectors state, as events of the job."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING

from diagnose.catalog.schema import Catalog
from diagnose.infer.events.claims import stated_time
from diagnose.infer.rules.detectors import bounded, noted, short_host
from diagnose.parse.detectors import Claim, about, around, hosts_in, tool_of
from diagnose.stories.passing import CONCLUDED
from diagnose.timeline.event import Event, Timeline
from diagnose.timeline.meaning import meaning_of
from diagnose.timeline.readings import stamp_in

if TYPE_CHECKING:
    from diagnose.job.model import Job

_ABOVE, _BELOW = 60, 15  # lines that may complete a claim
_DAY = 24 * 3600 * 10**9  # more than clocks and zones differ
_SHOWN = 3  # hosts in a note


def claim_rows(claims: Iterable[Claim], catalog: Catalog) -> list[Event]:
    """One event per claim of a document; without those of rows that the catalog lacks."""
    return [
        Event(
            claim.source, claim.line, 0, claim.text,
            meaning_of(catalog.by_id[claim.signature], claim.fields),
            fields=claim.fields, stamp=stamp_in(claim.fields.get("time")), document=True,
        )
        for claim in claims
        if claim.signature in catalog.by_id
    ]  # fmt: skip


def complete(job: Job) -> None:
    """Give claims in logs what the lines around them name."""
    events = [one for one in job.events.signalling(CONCLUDED) if around(one.signature)]
    if not events:
        return
    texts = job.lines_near((event.place for event in events), _ABOVE, _BELOW)
    known: dict[tuple[str, re.Pattern[str]], list[_Captured]] = {}

    def captured(source: str, expression: re.Pattern[str]) -> list[_Captured]:
        if (source, expression) not in known:
            known[source, expression] = [*_captures(expression, texts.get(source, {}))]
        return known[source, expression]

    for event in events:
        above, below = around(event.signature) or ([], [])
        found: dict[str, str] = {}
        for expression in above:
            found |= _last(captured(event.source, expression), event.line)
        for expression in below:
            found |= _next(captured(event.source, expression), event.line)
        event.fields = {**found, **event.fields}


def of_the_job(timeline: Timeline) -> tuple[Timeline, list[str]]:
    """The timeline without claims that say nothing of a failure of this job, and notes of these.

    Some tools list the nodes of a whole cluster: where the logs name hosts, only these count, and
    where they name none, only faults since the job began. What is more than a day older or younger
    than all of the logs is of another job. Hints of documents, such as a slow rank, are no failure
    of a job that is seen at work.
    """
    claims = timeline.signalling(CONCLUDED)
    lines = {claim.source for claim in claims} - {one.source for one in timeline.kind("progress")}
    logs = [one for one in timeline if one.source not in lines and not one.document]
    others = compress(timeline, (one != CONCLUDED for one in timeline.column("signal")))
    own = {short_host(one.host) for one in others if one.host and one.host not in timeline.pods}
    began, ended = _span(logs)
    left: dict[int, str] = {}
    elsewhere: dict[str | None, list[str]] = defaultdict(list)
    before: dict[tuple[str | None, tuple[str | None, ...]], list[int]] = defaultdict(list)
    for claim in claims:
        for id_ in about(claim.signature).get("takes_back", ()):
            left |= dict.fromkeys(before.pop((id_, _of_whom(claim)), ()), "")
        before[claim.signature, _of_whom(claim)].append(claim.index)
        if claim.cause is None:
            left[claim.index] = ""
            continue
        time, host = stated_time(claim), claim.fields.get("host", "")
        hosts = hosts_in(host) if about(claim.signature).get("cluster") else []
        mine = [one for one in hosts if short_host(one) in own] if own else hosts
        if mine:
            claim.fields = {**claim.fields, "host": ", ".join(mine)}
        if hosts and (not mine if own else logs and (time is None or time < began)):
            elsewhere[tool_of(claim.signature)].append(host)
            left[claim.index] = ""
        elif time is not None and not began - _DAY <= time <= ended + _DAY:
            left[claim.index] = f"{noted(claim)} (at another time than the job)"
        elif claim.strength == "weak" and claim.document and timeline.kind("progress"):
            left[claim.index] = noted(claim)
    if not left:
        return timeline, []
    notes = [
        f"{tool} reports faults of hosts that these logs do not name: {_first(hosts)}"
        for tool, hosts in elsewhere.items()
    ]
    notes += filter(None, dict.fromkeys(left.values()))
    kept = [event for event in timeline if event.index not in left]
    return timeline.with_events(kept, timeline.begins), bounded(notes)


def _span(logs: Iterable[Event]) -> tuple[float, float]:
    """When the logs begin and end (ns); any time may be in those without times."""
    times = [one.time for one in logs if one.time is not None]
    return (min(times), max(times)) if times else (-inf, inf)


def _of_whom(claim: Event) -> tuple[str | None, ...]:
    """The host and the process, or what else is known of whom a claim is about."""
    return tuple(claim.fields.get(name) for name in ("host", "rank", "pid", "name"))


def _first(hosts: Sequence[str]) -> str:
    names = [*dict.fromkeys(hosts)]
    more = f" (and {len(names) - _SHOWN} more)" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


_Captured = tuple[int, dict[str, str]]  # a line, and what is captured in it


def _captures(expression: re.Pattern[str], lines: Mapping[int, str]) -> Iterator[_Captured]:
    """The lines that an expression finds, in order."""
    for number in sorted(lines):
        if (match := expression.search(lines[number])) is not None:
            yield number, {name: part for name, part in match.groupdict().items() if part}


def _last(captured: Sequence[_Captured], line: int) -> dict[str, str]:
    """What is captured in the nearest line above."""
    at = bisect_left(captured, line, key=itemgetter(0)) - 1
    near = at >= 0 and line - captured[at][0] <= _ABOVE
    return captured[at][1] if near else {}


def _next(captured: Sequence[_Captured], line: int) -> dict[str, str]:
    """What is captured in the nearest line below."""
    at = bisect_right(captured, line, key=itemgetter(0))
    near = at < len(captured) and captured[at][0] - line <= _BELOW
    return captured[at][1] if near else {}
