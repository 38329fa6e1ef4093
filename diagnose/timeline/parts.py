"""Parts of one file: logs of several ranks that `cat` wrote into it, which ran at the same time.

The first words stand there again below the last line of each part, as where a run was appended (see
`timeline.runs`), but the clock goes back; or, where no line has a time, several parts end at the
same step without any end, as what is started again after a failure would not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby, pairwise
from operator import attrgetter

from diagnose.parse.path import read_path
from diagnose.parse.stamps import Stamp
from diagnose.timeline.ends import ends_of
from diagnose.timeline.event import Event
from diagnose.timeline.readings import BEGINS

_SLACK = 1_000_000_000  # ns by which lines of one process may be out of order
_ALIKE = 2  # parts that end at one step


def name_parts(found: Sequence[Event], external_ends: Collection[str]) -> None:
    """Make each part a source of its own; the drafts are in the order of sources and lines."""
    if not any(draft.meaning.signal == BEGINS for draft in found):
        return
    for source, group in groupby(found, attrgetter("source")):
        parts = [*_parts_of([*group])]
        if len(parts) > 1 and not _is_of_one(source) and _ran_at_once(parts, external_ends):
            for number, part in enumerate(parts, 1):
                for draft in part:
                    draft.source = f"{source} (part {number})"


def _is_of_one(source: str) -> bool:
    """Whether a file has the name of one process: what is appended to it is a later run of it."""
    hints = read_path(source)
    return any(number is not None for number in (hints.rank, hints.local_rank, hints.task))


def _parts_of(drafts: Sequence[Event]) -> Iterator[list[Event]]:
    """The drafts between one saying of the first words and the next."""
    part: list[Event] = []
    begins = {draft.line for draft in drafts if draft.meaning.signal == BEGINS}
    for line, own in groupby(drafts, attrgetter("line")):
        if part and line in begins:
            yield part
            part = []
        part += own
    if part:
        yield part


def _ran_at_once(parts: Sequence[Sequence[Event]], external_ends: Collection[str]) -> bool:
    times = [[d.stamp for d in part if d.stamp and not d.stamp.boot] for part in parts]
    apart = [
        later[0].ns - last.ns
        for before, later in pairwise(times)
        if later and (last := _last_alike(before, later[0])) is not None
    ]
    if apart:
        return max(apart) < -_SLACK
    if any(times):
        return False
    ends = Counter(step for part in parts if (step := _stopped_at(part, external_ends)) is not None)
    return max(ends.values(), default=0) >= _ALIKE


def _last_alike(stamps: Sequence[Stamp], other: Stamp) -> Stamp | None:
    """The last of these that leaves out as much as the other: only those compare as printed."""
    form = other.has_date, other.has_year
    return next((one for one in reversed(stamps) if (one.has_date, one.has_year) == form), None)


def _stopped_at(part: Sequence[Event], external_ends: Collection[str]) -> int | None:
    """The last step of a part that just stops; None where it tells of an end."""
    steps = [d.work.step for d in part if d.meaning.kind == "progress" and d.work.step is not None]
    return steps[-1] if steps and not ends_of(part, external_ends) else None
