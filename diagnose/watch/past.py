"""What a job did before the watch began: its notices, at the times which its lines print.

A file was written last when its last line came, so the times of its other lines follow from the
differences of what they print. No clock of another machine needs to agree with ours, nor its zone.
Lines without times say which phases there were, and nothing of how long these took.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from diagnose.watch.notice import Notice

MOST = 5000  # notices of a file
_DAY = 86_400_000_000_000
_NS = 1_000_000_000


@dataclass(slots=True)
class Past:
    """The notices of one file, which was written last at `end`, in seconds of the watch's clock."""

    end: float
    notices: deque[Notice] = field(default_factory=lambda: deque(maxlen=MOST))

    def timed(self) -> Iterator[tuple[float, bool, Notice]]:
        """Each notice, when it was, and whether that is known."""
        times = [_printed(notice) for notice in self.notices]
        running, days = [], 0
        before: int | None = None
        for printed in times:
            if printed is not None:
                if before is not None and printed + days - before < -_DAY // 2:
                    days += _DAY  # a time without a date, past midnight
                before = printed + days
            running.append(None if printed is None else printed + days)
        last = max((time for time in running if time is not None), default=None)
        at = self.end
        first = next((time for time in running if time is not None), None)
        if last is not None and first is not None:
            at = self.end - (last - first) / _NS
        for time, notice in zip(running, self.notices, strict=True):
            if time is not None and last is not None:
                at = max(at, self.end - (last - time) / _NS)
            yield at, time is not None, notice


def _printed(notice: Notice) -> int | None:
    stamp = notice.stamp
    return None if stamp is None or stamp.boot else stamp.ns


def merged(files: Iterable[Past]) -> list[tuple[float, bool, Notice]]:
    """What all files say, in the order of time; files of one name order nothing."""
    found = [one for past in files for one in past.timed()]
    found.sort(key=lambda one: one[0])
    return found
