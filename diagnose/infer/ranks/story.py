"""One story a rank: its last sign of life, what it was at, where it waited and how it ended.

Only what a rank says itself, or is said of it by name, is in its story; a story claims nothing of
why. Rules compare the stories of the ranks that wait with those of the ranks that do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diagnose.infer.events.phases import finished_bar
from diagnose.timeline.captures import integer
from diagnose.timeline.event import Event, Timeline
from diagnose.timeline.learned import CIRCUMSTANTIAL, Learned

# What is not the rank's own deed: what others find of it, and edges of sources.
_NO_SIGN = frozenset({"missing", "joined", "mismatch"})


@dataclass(frozen=True, slots=True)
class Story:
    """What is known of one rank. Rows are indices of events.

    `last` is its last sign of life before it waited or failed; `work` the event that shows the
    phase in which it was then, `unfinished` whether that work had no end by then. `call` is the
    collective in which it waited, `stack` the innermost frame of a stack that tells a phase,
    `exit` the code it ended with. `learned` is the least sure way by which a line became its own.
    """

    rank: int
    last: Event | None = None
    step: int | None = None
    work: Event | None = None
    unfinished: bool = False
    call: Event | None = None
    stack: Event | None = None
    exit: int | None = None
    learned: Learned | None = None

    @property
    def phase(self) -> str | None:
        """What it was at, by its own marker or else its stack."""
        shown = self.work or self.stack
        return shown.phase if shown is not None else None

    @property
    def certain(self) -> bool:
        """Whether something in the log ties its lines to it."""
        return self.learned not in CIRCUMSTANTIAL


def rank_stories(timeline: Timeline) -> Mapping[int, Story]:
    """Rank → its story, for every rank with an event of its own."""
    events: dict[int, list[Event]] = defaultdict(list)
    for event in timeline:
        if event.rank is not None and event.kind != "edge" and event.tells not in _NO_SIGN:
            events[event.rank].append(event)
    return {rank: _story(rank, own) for rank, own in sorted(events.items())}


def _story(rank: int, own: Sequence[Event]) -> Story:
    calls = [event for event in own if event.tells == "timeout"]
    # A rank prints its timeout long after it began to wait: what is between is not its own doing.
    deeds = [event for event in own if event.role in ("phase", "progress", "context")]
    marks = [event for event in deeds if event.phase is not None and not finished_bar(event)]
    steps = [event.step for event in deeds if event.step is not None and _trains(event)]
    work = marks[-1] if marks else None
    exits = [integer(event.fields.get("exitcode")) for event in own if event.kind == "exit"]
    stacks = [event for event in own if event.kind == "frame" and event.phase is not None]
    ways = [event.learned for event in own if event.learned is not None]
    return Story(
        rank,
        last=deeds[-1] if deeds else None,
        step=steps[-1] if steps else None,
        work=work,
        unfinished=work is not None and not work.ends_phase and not _stepped(deeds, work),
        call=calls[0] if calls else None,
        stack=stacks[0] if stacks else None,
        exit=next((code for code in exits if code is not None), None),
        learned=max(ways, key=list(Learned).index, default=None),
    )


def _stepped(deeds: Sequence[Event], work: Event) -> bool:
    """Whether it trained on after this work began."""
    later = {e.step for e in deeds if e.index > work.index and e.step is not None and _trains(e)}
    return len(later) > 1


def _trains(event: Event) -> bool:
    return event.kind == "progress" and event.phase in (None, "training")
