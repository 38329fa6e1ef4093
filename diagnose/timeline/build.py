"""From what the sources of a job gave to its timeline: times, order, attempts, authors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from operator import attrgetter

from diagnose.catalog.schema import Catalog
from diagnose.match.scanner import SourceScan
from diagnose.timeline.attribution import name_authors
from diagnose.timeline.clock import offset_between, resolve
from diagnose.timeline.event import Event, Timeline
from diagnose.timeline.parts import name_parts
from diagnose.timeline.readings import PENDING, events_of_scans
from diagnose.timeline.runs import number_attempts

# Times of dumps are believed without proof where they lie about the printed ones.
_NEAR = 2 * 3600 * 1_000_000_000
_LINE, _OFFSET = attrgetter("line"), attrgetter("offset")
_NEVER = 1 << 80  # of sources without any time, behind all others


def build(
    scans: Iterable[SourceScan],
    catalog: Catalog,
    documents: Iterable[Event] = (),
    clocks: Mapping[str, int] | None = None,
    files: Iterable[str] = (),
    truncated: Iterable[str] = (),
) -> Timeline:
    """The timeline of a job from what its sources gave.

    `documents` are events that no line tells; `clocks` says by how many ns the clock of a host is
    ahead; `files` are the names of all logs, also of empty ones, `truncated` those of the logs that
    end inside a line.
    """
    found = _by_source([*documents, *events_of_scans(scans, catalog.signatures)])
    name_parts(found, catalog.external_ends)
    for draft, time in zip(found, resolve(found), strict=True):
        draft.time, draft.stamp = time, None  # there are as many as lines
    _shift_documents(found)
    if clocks:
        _on_one_clock(found, clocks)
    ordered = _ordered(found)
    # In the order of their sources they lie beside each other in memory.
    begins = number_attempts(found, catalog.external_ends)
    documents = [draft for draft in found if draft.document]
    logs = [draft for draft in found if not draft.document] if documents else found
    # A second dump overwrites the first, so what is there is of the last attempt.
    last = max((d.attempt for d in logs if d.attempt is not None), default=0) if documents else 0
    for draft in documents:
        draft.attempt = last
    name_authors(logs)
    pods = {draft.host for draft in found if draft.pod and draft.host is not None}
    return Timeline(ordered, begins, {*files} - {draft.source for draft in found}, pods, truncated)


def _shift_documents(found: Sequence[Event]) -> None:
    """Move times of dumps into the zone in which the logs print theirs.

    A watchdog line that "ran for D ms" tells when its operation was enqueued, and the dump tells
    the same in UTC: that proves the zone. Without proof, times far from the printed ones are left
    out: nothing can be put in order by them.
    """
    documents = [draft for draft in found if draft.document and draft.time is not None]
    if not documents:
        return
    printed = [d.time for d in found if not d.document and d.time is not None]
    if not printed:
        return
    shift = offset_between(_pairs(found))
    low, high = min(printed) - _NEAR, max(printed) + _NEAR
    for draft in documents:
        if draft.time is None:
            continue
        if shift is not None:
            draft.time += shift
        elif not low <= draft.time <= high:
            draft.time = None


def _pairs(found: Sequence[Event]) -> list[tuple[int, int]]:
    """When an operation was enqueued, by the dump and by the watchdog of the same rank."""
    enqueued_at: dict[tuple[int | None, int | None], int] = {}
    for draft in found:
        if draft.document and draft.meaning.signal == PENDING and draft.time is not None:
            enqueued_at.setdefault((draft.rank, draft.work.seq), draft.time)
    pairs = []
    for draft in found:
        if draft.document or draft.meaning.signal != "timeout" or draft.work.elapsed_ms is None:
            continue
        call = draft.rank, draft.work.seq
        enqueued = enqueued_at.get(call) if None not in call else None
        if draft.time is not None and enqueued is not None:
            pairs.append((enqueued, draft.time - draft.work.elapsed_ms * 1_000_000))
    return pairs


def _on_one_clock(found: Sequence[Event], clocks: Mapping[str, int]) -> None:
    """Take the error of the hosts' clocks out of the times of sources that are of one host."""
    hosts: dict[str, set[str]] = {}
    for draft in found:
        if draft.host is not None:
            hosts.setdefault(draft.source, set()).add(draft.host)
    for draft in found:
        here = hosts.get(draft.source, ())
        if draft.time is not None and len(here) == 1:
            draft.time -= clocks.get(next(iter(here)), 0)


def _by_source(found: Iterable[Event]) -> list[Event]:
    """The drafts sorted by source, line and offset; those of a source nearly are."""
    sources: dict[str, list[Event]] = defaultdict(list)
    for draft in found:
        sources[draft.source].append(draft)
    for own in sources.values():
        own.sort(key=_OFFSET)
        own.sort(key=_LINE)
    return [draft for source in sorted(sources) for draft in sources[source]]


def _ordered(found: list[Event]) -> list[Event]:
    """The drafts, which are sorted by source and line, in time order.

    Inside a source the order of its lines always holds: its clock is made to run forward (a line
    printed with an older time, or with none, happened no earlier than the line before it), then
    the sources are merged by it.
    """
    running: list[int] = []
    for _, drafts_of_one in groupby(found, attrgetter("source")):
        times = [draft.time for draft in drafts_of_one]
        first = next((time for time in times if time is not None), _NEVER)
        running += accumulate([first if time is None else time for time in times], max)
    # They are in the order of their sources and lines already, and stay so where times are equal.
    ordered = [found[at] for at in sorted(range(len(found)), key=running.__getitem__)]
    for index, draft in enumerate(ordered):
        draft.index = index
    return ordered
