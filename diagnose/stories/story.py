"""What one process did: who it is, its state, how it came to be, what it stated on the way.

Who wrote a line is its rank where that is known, else whatever the line or its source gives.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal, NamedTuple

from diagnose.timeline.ends import exit_code
from diagnose.timeline.event import Event
from diagnose.timeline.learned import CIRCUMSTANTIAL, Learned

# From the one that names a process in the whole job to the one that may hold many.
AuthorKind = Literal["rank", "process", "task", "local_rank", "host", "source"]


class Author(NamedTuple):
    """Who wrote lines.

    `kind` is what it is known by, `name` what tells it from others of the kind: the rank; host and
    pid; source and task of a launcher; host and local rank; the host, pod or container that a
    prefix names; or only the source, in which several processes may write.
    """

    kind: AuthorKind
    name: tuple[str | int | None, ...]

    @property
    def rank(self) -> int | None:
        """The global rank; None where it is not known."""
        number = self.name[0]
        return number if self.kind == "rank" and isinstance(number, int) else None


def author_of(event: Event) -> Author:
    """The author of an event."""
    if event.rank is not None:
        return Author("rank", (event.rank,))
    if event.pid is not None:
        return Author("process", (event.host, event.pid))
    if event.task is not None:
        return Author("task", (event.source, event.task))
    if event.local_rank is not None:
        return Author("local_rank", (event.host or event.source, event.local_rank))
    if event.host is not None:
        return Author("host", (event.host,))
    return Author("source", (event.source,))


class State(Enum):
    """What a process is doing after its last line."""

    STARTING = auto()
    WORKING = auto()
    WAITING = auto()
    FAILED = auto()
    GONE_ON = auto()
    ENDED = auto()


# What shows that an error passed: the author's own work or words; see `stories.passing`.
Passed = Literal[
    "another_run", "another_program", "caught", "mentioned", "logged_as_warning", "handled",
    "habit", "completed", "answered", "served_on", "everybody_went_on", "counted_on", "worked_on",
    "work_went_on", "wait_ended", "phase_ended",
]  # fmt: skip

_STEPPED_ON = 2  # different steps of training after work began, by which that work is over


class Change(NamedTuple):
    """A change of state: to what, by which event, by which predicate."""

    state: State
    row: int
    predicate: str


@dataclass(slots=True)
class Story:
    """One process of a run, by its own lines; it claims nothing of why.

    `last`: its last sign of life, which waits and errors are not; `last_step`: of a training;
    `doing`: the last line that shows a phase, `steps_since` the steps of training after it;
    `waits_in`: the call in which it first waited in vain; `place`: the first frame of a stack that
    shows a phase. `lost_peer`, `notified`: where it first lost a connection, and first heard of
    another rank's failure. `stated`: the causes in the order in which it stated them; `ended`: how,
    as far as a line says; `finished`: the last line that its work is done. `two_steps`: two states
    of one bar that cannot be of one process, where several write as this author. `learned`: the
    ways by which lines became its own. `changes`: of state, in order.
    """

    author: Author
    state: State = State.STARTING
    last: Event | None = None
    last_step: Event | None = None
    doing: Event | None = None
    steps_since: set[int] = field(default_factory=set)
    waits_in: Event | None = None
    place: Event | None = None
    lost_peer: Event | None = None
    notified: Event | None = None
    stated: list[Event] = field(default_factory=list)
    ended: Event | None = None
    finished: Event | None = None
    two_steps: tuple[Event, Event] | None = None
    learned: set[Learned] = field(default_factory=set)
    changes: list[Change] = field(default_factory=list)

    @property
    def step(self) -> int | None:
        """The number of its last step of training."""
        return self.last_step.step if self.last_step is not None else None

    @property
    def phase(self) -> str | None:
        """What it was at, by its own lines or else by its stack."""
        shown = self.doing or self.place
        return shown.phase if shown is not None else None

    @property
    def unfinished(self) -> bool:
        """Whether what it was doing neither ended nor gave way to training."""
        if self.doing is None or self.doing.ends_phase:
            return False
        return len(self.steps_since) < _STEPPED_ON

    @property
    def exit_code(self) -> int | None:
        """The code with which it ended; negative is a signal."""
        return exit_code(self.ended.fields) if self.ended is not None else None

    @property
    def failed(self) -> bool:
        """Whether it ever failed or waited in vain, whatever came of it."""
        return any(one.state in (State.FAILED, State.WAITING) for one in self.changes)

    @property
    def certain(self) -> bool:
        """Whether something in the log ties all of its lines to it."""
        return not self.learned & CIRCUMSTANTIAL

    def become(self, state: State, row: int, predicate: str) -> None:
        """Change to a state, if it is another one."""
        if state is not self.state:
            self.state = state
            self.changes.append(Change(state, row, predicate))
