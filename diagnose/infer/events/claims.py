"""When a fault was that another detector states, and whether the job went on beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from diagnose.infer.events.failures import done
from diagnose.parse.detectors import about
from diagnose.parse.stamps import time_in
from diagnose.stories.story import Stories
from diagnose.timeline.event import Event, Timeline


def beside_work(stories: Stories, claim: Event) -> Literal["outlasted", "undated"] | None:
    """Whether the logs show work that the fault did not stop, or that may have been later.

    A job that ended well did not fail of it. Of one at work only what is known to come after all of
    its work counts, by the time that the detector states or by the place in its log; or that the
    job hangs, unless it is known to have worked on.
    """
    works = stories.timeline.once(_works)
    hang, line = bool(about(claim.signature).get("hang")), works.lines.get(claim.source)
    if works.ended is None:
        works.ended = done(stories)
    if works.ended:
        return None if hang and line is not None and line < claim.line else "outlasted"
    if not works.lines:
        return None
    if line is not None and line > claim.line:
        return "outlasted"
    time = stated_time(claim)
    if time is not None and works.time is not None:
        return "outlasted" if time < works.time else None
    return None if hang or line is not None else "undated"


def stated_time(claim: Event) -> int | None:
    """When the fault was (ns), as a detector states it, else the time of its line."""
    time = time_in(claim.fields.get("time", ""))
    return claim.time if time is None else time


@dataclass(slots=True)
class _Works:
    """Where each source shows work last, and when anybody did (ns); whether the job ended well."""

    lines: dict[str, int]
    time: int | None
    ended: bool | None = None


def _works(timeline: Timeline) -> _Works:
    begun = (one for one in timeline.kind("phase") if one.phase not in (None, "init", "shutdown"))
    work = timeline.kind("progress") or [*begun]
    lines: dict[str, int] = {}
    for one in work:
        lines[one.source] = max(one.line, lines.get(one.source, 0))
    return _Works(lines, max((one.time for one in work if one.time is not None), default=None))
