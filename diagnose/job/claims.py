"""What other detectors state, as events of the job."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from operator import itemgetter
from typing import TYPE_CHECKING

from diagnose.catalog.schema import Catalog
from diagnose.parse.detectors import Claim, about, around, tool_of
from diagnose.parse.stamps import Stamp, time_in
from diagnose.timeline.event import Event, Timeline
from diagnose.timeline.meaning import meaning_of

if TYPE_CHECKING:
    from diagnose.job.model import Job

CONCLUDED = "concluded"
_ABOVE, _BELOW = 60, 15  # lines that may complete a claim
_SHOWN = 3  # hosts in a note


def claim_rows(claims: Iterable[Claim], catalog: Catalog) -> list[Event]:
    """One event per claim of a document; without those of rows that the catalog lacks."""
    return [
        Event(
            claim.source, claim.line, 0, claim.text,
            meaning_of(catalog.by_id[claim.signature], claim.fields),
            fields=claim.fields, stamp=_stamp(claim.fields.get("time")), document=True,
        )
        for claim in claims
        if claim.signature in catalog.by_id
    ]  # fmt: skip


def _stamp(text: str | None) -> Stamp | None:
    time = time_in(text) if text else None
    return None if time is None else Stamp(time)


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

    Some tools list the nodes of a whole cluster: where the logs name hosts, only these count. Hints
    of documents, such as a slow rank, are no failure of a job that is seen at work.
    """
    others = compress(timeline, (one != CONCLUDED for one in timeline.column("signal")))
    own = {_short(one.host) for one in others if one.host and one.host not in timeline.pods}
    left: dict[int, str] = {}
    elsewhere: dict[str | None, list[str]] = defaultdict(list)
    claims = timeline.signalling(CONCLUDED)
    before: dict[tuple[str | None, tuple[str | None, ...]], list[int]] = defaultdict(list)
    for claim in claims:
        for id_ in about(claim.signature).get("takes_back", ()):
            left |= dict.fromkeys(before.pop((id_, _of_whom(claim)), ()), "")
        before[claim.signature, _of_whom(claim)].append(claim.index)
        if claim.cause is None:
            left[claim.index] = ""
            continue
        tool, host = tool_of(claim.signature), claim.fields.get("host", "")
        if host and own and about(claim.signature).get("cluster") and _short(host) not in own:
            elsewhere[tool].append(host)
            left[claim.index] = ""
        elif claim.strength == "weak" and _of_document(claim) and timeline.kind("progress"):
            left[claim.index] = f"{tool} of {_whom(claim)}: {_what(claim)}"
    if not left:
        return timeline, []
    notes = [
        f"{tool} reports faults of hosts that these logs do not name: {_first(hosts)}"
        for tool, hosts in elsewhere.items()
    ]
    notes += filter(None, dict.fromkeys(left.values()))
    return timeline.only(lambda event: event.index not in left), notes


def _of_document(event: Event) -> bool:
    return isinstance(event, Event) and event.document


def _of_whom(claim: Event) -> tuple[str | None, ...]:
    """The host and the process, or what else is known of whom a claim is about."""
    return tuple(claim.fields.get(name) for name in ("host", "rank", "pid", "name"))


def _whom(claim: Event) -> str:
    rank, host = claim.fields.get("rank"), claim.fields.get("host")
    return f"rank {rank}" if rank else host or "a host"


def _what(claim: Event) -> str:
    return claim.fields.get("message") or claim.fields.get("reason") or claim.text


def _first(hosts: Sequence[str]) -> str:
    names = [*dict.fromkeys(hosts)]
    more = f" (and {len(names) - _SHOWN} more)" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _short(host: str) -> str:
    return host.lower().partition(".")[0]


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
