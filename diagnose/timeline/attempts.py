"""The attempt that each event is of: its folder says so, else the runs that begin above it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from diagnose.timeline.ends import may_end
from diagnose.timeline.event import Begin, Event, Meaning
from diagnose.timeline.readings import BEGINS
from diagnose.timeline.runs import RESTART, Machine


def number_attempts(found: Sequence[Event], external_ends: Collection[str]) -> Sequence[Begin]:
    """Give drafts the attempts that they are of; where attempts begin.

    The drafts are in the order of their sources and lines, and have their place in the time order
    of the job. `external_ends` are the classes of those who end a job from outside.
    """
    begins = _begins(found, external_ends)
    if begins:
        number = _of_job if begins[0].of_job else _of_files
        begins = number(begins, found)
    for draft in found:
        if draft.attempt is None and not begins:
            draft.attempt = 0
    return begins


def _begins(found: Sequence[Event], external_ends: Collection[str]) -> list[Begin]:
    """Where runs begin; who reports restarts reports all, so that no other sign counts then."""
    meanings = {id(draft.meaning): draft.meaning for draft in found}.values()
    reported = any(one.signal == RESTART for one in meanings)

    def worth_reading(meaning: Meaning) -> bool:
        if reported:
            return meaning.signal == RESTART
        return meaning.signal == BEGINS or may_end(meaning, external_ends)

    begins: list[Begin] = []
    for _, group in groupby(found, attrgetter("source")):
        drafts = [*group]
        own = {id(draft.meaning): draft.meaning for draft in drafts}.values()
        # Folders that number attempts hold one run a file, of a job that restarts as a whole.
        numbered = any(draft.attempt is not None for draft in drafts)
        if any(map(worth_reading, own)) and (reported or not numbered):
            begins += Machine(drafts, external_ends).begins()
    return [one for one in begins if one.of_job] if reported else begins


def _of_job(begins: Sequence[Begin], found: Sequence[Event]) -> list[Begin]:
    """Number by restarts, each of which is the whole job's: by how many lie above in time.

    Nothing orders a source without any time against the others: it counts its own restarts, and
    where it reports none its events may be of any attempt (None).
    """
    lines = _lines(begins)
    timed = {draft.source for draft in found if draft.time is not None}
    starts = sorted(begin.shown_at for begin in begins)
    for draft in found:
        if draft.attempt is not None:
            continue
        if draft.source in timed:
            draft.attempt = bisect_left(starts, draft.index)
        elif draft.source in lines:
            draft.attempt = bisect_right(lines[draft.source], draft.line)
    return [
        begin._replace(attempt=number)
        for number, begin in enumerate(sorted(begins, key=attrgetter("shown_at")), 1)
    ]


def _of_files(begins: Sequence[Begin], found: Sequence[Event]) -> list[Begin]:
    """Number by runs that were appended to files.

    Files that were appended to together end together, so the last runs are the same attempt. What
    another file says belongs to the last one, unless it was said before that began.
    """
    lines = _lines(begins)
    last = max(map(len, lines.values()))

    def attempt_at(source: str, line: int) -> int:
        return last - len(lines[source]) + bisect_right(lines[source], line)

    for draft in found:
        if draft.source in lines:
            draft.attempt = attempt_at(draft.source, draft.line)
    first = min((d.time for d in found if d.attempt == last and d.time is not None), default=0)
    for draft in found:
        if draft.attempt is None:
            draft.attempt = last - (draft.time is not None and draft.time < first)
    return [begin._replace(attempt=attempt_at(begin.source, begin.line)) for begin in begins]


def _lines(begins: Sequence[Begin]) -> Mapping[str, list[int]]:
    """Source → the first lines of the runs below its first one."""
    lines: dict[str, list[int]] = defaultdict(list)
    for begin in begins:
        lines[begin.source].append(begin.line)
    return lines
