"""Whose lines may be lost: in logs that end inside a line, amid what watchdogs or launchers print,
long before the steps of the other ranks do, or long before anybody waits.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from diagnose.catalog.entries import COUNTER
from diagnose.stories.silence import LEAST_S, PAUSES
from diagnose.stories.work import FURTHER, LONG, SECOND, Rhythm, rhythms
from diagnose.timeline.event import Timeline

RANKS_LIMIT = 100_000
_MS = 1_000_000
_SEVERAL = 2  # ranks of which most agree how far the job came
_STEPS = "training"  # the phase of work in whose steps ranks meet
_LAST_WORDS = ("teardown", "dies")  # what a process prints that its watchdog ends


def cut_ranks(timeline: Timeline, size: int) -> frozenset[int]:
    """The ranks of which lines may be lost behind the end of a log that was cut.

    Those that have lines in it, and if these are several or it is a launcher's, those that have
    none in another log.
    """
    unreported = timeline.once(_unreported)
    ends_early = timeline.once(_ends_early) | timeline.once(_ends_before_waits)
    partial = timeline.truncated | timeline.once(_partial) | ends_early | unreported
    partial |= {event.source for event in timeline.signalling("lost_lines")}
    if not partial or size > RANKS_LIMIT:
        return frozenset()
    ranks: dict[str, set[int]] = defaultdict(set)
    for source, rank in authors_of_sources(timeline):
        ranks[source].add(rank)
    cut = [own for source, own in ranks.items() if source in partial]
    entire = (own for source, own in ranks.items() if source not in partial)
    of_several = bool(unreported) or any(len(own) > 1 for own in cut)
    unseen = set(range(size)).difference(*entire) if of_several else set()
    return frozenset().union(unseen, *cut)


def _unreported(timeline: Timeline) -> set[str]:
    """The logs of launchers that saw a process fail which their report does not list.

    What the report says of other processes is lost as well, of which it may be the only witness.
    """
    failed: dict[str, set[str]] = defaultdict(set)
    listed: dict[str, set[str]] = defaultdict(set)
    for event in timeline.kind("exit"):
        if "pid" in event.fields:
            seen = failed if "local_rank" in event.fields else listed
            seen[event.source].add(event.fields["pid"])
    return {source for source, pids in failed.items() if pids - listed[source]}


def _partial(timeline: Timeline) -> set[str]:
    """The logs of several ranks that show a part of how a watchdog ended these.

    It prints the wait of its rank, then that it ends this. Where a rank's end comes first, a head
    is lost; where some that wait end and others do not, and no launcher reports any end, a tail.
    """
    found: set[str] = set()
    waiting: dict[str, set[int]] = defaultdict(set)
    ended: dict[str, set[int]] = defaultdict(set)
    rows = timeline.signalling("timeout", *_LAST_WORDS)
    for row in sorted(rows, key=lambda one: (one.source, one.line, one.signal != "timeout")):
        if row.rank is None:
            continue
        waits = waiting[row.source]
        if row.signal == "timeout":
            if row.rank in ended[row.source] - waits:
                found.add(row.source)
            waits.add(row.rank)
        else:
            ended[row.source].add(row.rank)
    launched = {event.source for event in timeline.kind("exit")}
    for source, waits in waiting.items():
        if waits & ended[source] and waits - ended[source] and source not in launched:
            found.add(source)
    return found


def _ends_early(timeline: Timeline) -> set[str]:
    """The logs of one rank whose steps of a training end where those of all others went on.

    Ranks meet in each step: where the others wrote several more, this one took part in them. Lines
    that do not say that they are of a training may count what each rank does by itself: prompts,
    documents.
    """
    last: dict[str | None, dict[int, Rhythm]] = defaultdict(dict)
    for one in timeline.once(rhythms):
        rank, step = one.lines[0].rank, one.last_step
        if rank is None or step is None:
            continue
        if one.last.phase == _STEPS and one.last.signature != COUNTER.id:
            of = last[one.counter]
            if rank not in of or step > (of[rank].last_step or 0):  # of rotated logs the last one
                of[rank] = one
    writers = Counter(source for source, _ in authors_of_sources(timeline))
    found: set[str] = set()
    for of in last.values():
        steps = {rank: one.last_step or 0 for rank, one in of.items()}
        usual = sorted(steps.values())[len(steps) // 2]
        stride = max(one.stride or 1 for one in of.values())
        if len(steps) > _SEVERAL and max(steps.values()) - usual <= stride:
            end = usual - max(LONG, FURTHER * stride)
            early = {of[rank].last.source for rank, at in steps.items() if at <= end}
            found |= {source for source in early if writers[source] == 1}
    return found


def _ends_before_waits(timeline: Timeline) -> set[str]:
    """The logs of one rank whose regular steps of a training end long before anybody waits.

    Who stops makes the others wait in the next step.
    """
    waits = (
        event.time - event.elapsed_ms * _MS
        for event in timeline.signalling("timeout")
        if event.time is not None and event.elapsed_ms is not None
    )
    began = min(waits, default=None)
    if began is None:
        return set()
    writers = Counter(source for source, _ in authors_of_sources(timeline))
    last: dict[str, int] = {}
    for source, time in zip(timeline.column("source"), timeline.column("time"), strict=True):
        if time is not None:
            last[source] = max(time, last.get(source, time))
    found: set[str] = set()
    for one in timeline.once(rhythms):
        source, usual = one.last.source, one.interval_s
        if one.last.phase != _STEPS or usual is None or writers[source] != 1 or source not in last:
            continue
        long = max(LONG * usual, PAUSES * one.pause_s, LEAST_S)
        if began - last[source] > SECOND * long:
            found.add(source)
    return found


def authors_of_sources(timeline: Timeline) -> Iterator[tuple[str, int]]:
    """Each log and rank of which a line of that log is."""
    pairs = zip(timeline.column("source"), timeline.column("rank"), strict=True)
    for source, rank in dict.fromkeys(pairs):
        if rank is not None:
            yield source, rank
