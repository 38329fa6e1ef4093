"""Jobs of a few lines, and the events that they tell."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from diagnose.ingest import text_source
from diagnose.job.load import read
from diagnose.timeline.event import Event, Meaning, Timeline, Work

WATCHDOG = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, "
    "NumelIn=1000, NumelOut=1000, Timeout(ms)=600000) ran for 600{seq:03d} milliseconds before "
    "timing out."
)
ERROR = "ValueError: bad batch"
RESTART = (
    "W0602 08:30:00.331000 911 torch/distributed/elastic/agent/server/api.py:900] [default] Worker "
    "group FAILED. 3/3 attempts left; will restart worker group\n"
)


def event(**known: Any) -> Event:
    """An event of which this is known, by the names of columns."""
    known.setdefault("captures", tuple(known.get("fields", ())))
    said = {
        name: kind(**{one.name: known.pop(one.name) for one in fields(kind) if one.name in known})
        for name, kind in (("meaning", Meaning), ("work", Work))
    }
    return Event(**known, **said)


def timeline(**files: str) -> Timeline:
    """The timeline of a job of named files."""
    return read([text_source(text, name) for name, text in files.items()]).events


def matches(found: Timeline) -> list[Event]:
    """Its events that an entry of the catalog tells."""
    return [event for event in found if event.signature is not None]


def of(found: Timeline, text: str) -> Event:
    """The first of these on a line with this text."""
    return next(event for event in matches(found) if text in event.text)
