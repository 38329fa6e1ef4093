"""Values of a training that are bad to its end: since which step, of which rank first.

What each source shows by itself is found in `match.values`; here its authors are compared. In a
job whose ranks add up their gradients a loss that is NaN on one of them is so on all of them one
step later: whose step is the earliest is the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Literal

from diagnose.diagnosis import Verdict
from diagnose.timeline.event import Event, Timeline
from diagnose.timeline.readings import GOOD, ILL

# From the surest sign to the least one; what lines say of a job that has none of the earlier ones.
Sign = Literal["not_finite", "overflow", "norm", "raised", "norm_raised"]
SIGNS: tuple[Sign, ...] = ("not_finite", "overflow", "norm", "raised", "norm_raised")
_RISEN: tuple[Sign, ...] = ("raised", "norm_raised")
# Bad lines after which they are no single skipped step.
_LASTING: Mapping[Sign, int] = {
    "not_finite": 2, "overflow": 2, "norm": 4, "raised": 4, "norm_raised": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class BadValues:
    """Values that are bad from a line to the end of the log.

    `first` is the first such line, `before` the last one of its source with a good value, if any
    is known; `rows` are the lines of all authors. `several` is how many bad lines there are, at
    least, and `lasting` whether that is more than a training may skip. `ranks` are those whose
    values went bad before those of all others.
    """

    sign: Sign
    first: Event
    before: Event | None
    rows: Sequence[int]
    several: int
    lasting: bool
    ranks: Sequence[int] = field(default=())

    def verdict(self, *, ended: bool) -> tuple[Verdict, str]:
        """Of a job in which nothing failed; high values may be what one that ended well wanted."""
        if not ended:
            return "running", "bad_values"
        if self.sign in _RISEN:
            return "healthy", "ended_with_high_values"
        return "failed", "ended_with_bad_values"


def bad_values(timeline: Timeline) -> BadValues | None:
    """The values of the surest sign; None where all that are known ended well."""
    ill = _of_the_last_run(timeline.signalling(ILL), timeline)
    sign = next((one for one in SIGNS if any(event.fields["ill"] == one for event in ill)), None)
    if sign is None:
        return None
    own = [event for event in ill if event.fields["ill"] == sign]
    known = [event for event in own if event.step is not None] or own
    first = min(known, key=lambda event: (event.step or 0, event.index))
    several = max(int(event.fields["several"]) for event in own)
    good = [event for event in timeline.signalling(GOOD) if event.source == first.source]
    before = max((one for one in good if one.index < first.index), key=_line, default=None)
    rows = [*([before.index] if before else []), *(event.index for event in own)]
    never_good = sign == "not_finite" and before is None and "seen" in first.fields
    lasting = max(several, len(own)) >= _LASTING[sign] or never_good
    return BadValues(sign, first, before, rows, several, lasting, _earliest(own, timeline))


_line = attrgetter("line")


def _of_the_last_run(ill: Sequence[Event], timeline: Timeline) -> list[Event]:
    """Those of sources that had not ended when another one began to train."""
    ended: dict[str, int] = {}
    began: dict[str, int] = {}
    if ill:
        for source, time in zip(timeline.column("source"), timeline.column("time"), strict=True):
            if time is not None:
                ended[source] = max(time, ended.get(source, time))
        for event in timeline.kind("progress"):
            if event.time is not None and event.phase != "evaluation":
                began[event.source] = min(event.time, began.get(event.source, event.time))
    last = max(began.values(), default=0)
    return [event for event in ill if ended.get(event.source, last) >= last]


def _earliest(own: Sequence[Event], timeline: Timeline) -> list[int]:
    """The one rank whose values went bad at an earlier step than those of all others."""
    known = ((one.rank, one.fields.get("own_step")) for one in own)
    steps = {rank: int(step) for rank, step in known if rank is not None and step is not None}
    if not steps or len(steps) < len(own):
        return []
    least = min(steps.values())
    first = [rank for rank, step in steps.items() if step == least]
    others = [
        event
        for event in timeline.kind("progress")
        if event.rank is not None and event.rank not in steps and (event.step or 0) >= least
    ]
    alone = len(first) == 1 and (len(steps) > 1 or others)
    return first if alone else []
