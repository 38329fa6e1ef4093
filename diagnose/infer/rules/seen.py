"""What shows that a predicate of `rules.unstated` holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diagnose.diagnosis import Answer
from diagnose.timeline.event import Event


@dataclass(frozen=True, slots=True)
class Seen:
    """What shows that a predicate holds.

    `summary` says it; `events` show it, the first sign first. `ranks` and `hosts` are who is to
    blame, `why` says for what. `cause` is a class that says more than that of the predicate.
    `vague`, `explains`, `longer_timeout`: as in `Hypothesis`.
    """

    summary: str
    events: Sequence[Event]
    ranks: Sequence[int] = ()
    hosts: Sequence[str] = ()
    why: str = ""
    cause: str | None = None
    vague: bool = False
    explains: Sequence[str] = ()
    longer_timeout: Answer | None = None
