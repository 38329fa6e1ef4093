"""What one process did: its state, how it came to be, and what it stated on the way."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Literal, NamedTuple

from diagnose.stories.author import Author
from diagnose.timeline.event import Event


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
    "work_went_on", "wait_ended",
]  # fmt: skip


class Change(NamedTuple):
    """A change of state: to what, by which event, by which predicate."""

    state: State
    row: int
    predicate: str


@dataclass(slots=True)
class Story:
    """One process of a run.

    `stated`: the causes in the order in which it stated them; `ended`: how, as far as a line says;
    `doing`: the phase that began last and did not end; `changes`: of state, in order.
    """

    author: Author
    state: State = State.STARTING
    last_step: Event | None = None
    stated: list[Event] = field(default_factory=list)
    ended: Event | None = None
    doing: Event | None = None
    changes: list[Change] = field(default_factory=list)

    def become(self, state: State, row: int, predicate: str) -> None:
        """Change to a state, if it is another one."""
        if state is not self.state:
            self.state = state
            self.changes.append(Change(state, row, predicate))
