"""What a comparison says: plain data, from which every output is made."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from diagnose.diagnosis import Confidence, SourceLine, Verdict

SCHEMA = "diagnose-compare/1"

# In the order in which they are shown where nothing else decides.
Kind = Literal[
    "version", "environment", "argument", "ranks", "node",  # what the run was given
    "collective", "changed", "new", "pace", "more",  # what it did
    "faster", "gone", "nodes",  # what says least
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which the runs differ.

    `name` is what differs: a package, a variable, an argument, a part of a step, a communicator;
    "" of a line. `good` and `bad` are its values, or the lines, None where a run has none. `who`
    are the ranks or logs that it is limited to, "" where it is all of them. `early`: it was there
    before the trouble began. `count` is how many lines of the run say so, `ratio` how many times as
    long or as often it is in the bad run.
    """

    kind: Kind
    name: str = ""
    good: str | None = None
    bad: str | None = None
    who: str = ""
    early: bool = True
    count: int = 0
    ratio: float | None = None
    good_at: SourceLine | None = None
    bad_at: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One of the two runs, and what became of it. `cause` is the cause class."""

    name: str
    verdict: Verdict
    cause: str
    title: str
    confidence: Confidence
    ranks: int | None
    hosts: int
    last_step: int | None
    lines: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both runs, and in what they differ, the most telling first.

    `worth_reading` of the differences are what a person reads in a minute.
    """

    good: Run
    bad: Run
    differences: list[Difference]
    worth_reading: int
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Schema `diagnose-compare/1`: every key is always there; missing values are null."""
        data = asdict(self)
        for run in (data["good"], data["bad"]):
            run["class"] = run.pop("cause")
        return {"schema": SCHEMA, **data}
