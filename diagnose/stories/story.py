"""What one process did: its state, how it came to be, and what it stated on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal, NamedTuple

from diagnose.timeline.ends import exit_code
from diagnose.timeline.event import CIRCUMSTANTIAL, Author, Event, Learned


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
