"""Whether what begins below an end in a console is a run of its own, not a rank of the same run.

The launchers and ranks of one run say the same, each for itself and in any order, and some may end
before others begin. So the run above must have been at work, or have ended as a whole. And what
begins below must be as whole as that was, or must be at work for long itself. Where the scripts
that died are different ones it is another program, a later step of the same job.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from diagnose.timeline.deaths import Death, outermost, stopped_by_others
from diagnose.timeline.draft import BEGINS, Draft
from diagnose.timeline.meaning import GLUED
from diagnose.timeline.starts import opens, says_start

# How much of a run must be seen: lines below the end with work on them, or steps.
_FAR, _STEPS = 150, 10
# ns without a line between two runs of which nothing says that the first one ended; and lines.
_PAUSE, _SHORT_PAUSE = 600_000_000_000, 10_000_000_000
_LAST_WORDS = 3
_TOGETHER = 60_000_000_000  # ns within which the processes of one run begin


class Again:
    """The drafts of one source, asked in their order where a run begins."""

    def __init__(self, drafts: Sequence[Draft], died: Mapping[int, Death]) -> None:
        self._drafts = drafts
        self._first = 0  # of this run
        self._said: dict[str, list[int]] = defaultdict(list)
        self._deaths: list[tuple[int, Death]] = []
        self._works: list[int] = []
        self._phases: list[int] = []  # at work, or in a phase that comes after the start
        self._joined: list[int] = []  # lines of communicators, for which all ranks have to be there
        self._refused: set[str] = set()
        self._passed = 0  # deaths that lie above what was asked last
        self._sizes: dict[str, int] = {}  # how often the last run said what it began with
        # A message of an error may state versions, too.
        errors = {draft.line for draft in drafts if draft.meaning.role in GLUED}
        self._names = [None if one.line in errors else says_start(one) for one in drafts]
        for index, (draft, name) in enumerate(zip(drafts, self._names, strict=True)):
            if name is not None:
                self._said[name].append(index)
            if draft.meaning.kind == "progress":
                self._works.append(index)
            if draft.meaning.kind in ("phase", "progress") and draft.meaning.phase != "init":
                self._phases.append(index)
            if draft.mapped_of is not None:
                self._joined.append(index)
            if (death := died.get(id(draft))) is not None:
                self._deaths.append((index, death))

    def begun(self, index: int) -> None:
        """Another run begins here."""
        self._sizes = {name: self._count(name, self._first, index) for name in self._said}
        self._first = index

    def begins(self, index: int) -> bool:
        """Whether another run begins with this one."""
        name, draft = self._names[index], self._drafts[index]
        while self._passed < len(self._deaths) and self._deaths[self._passed][0] < index:
            self._passed += 1
            self._refused.clear()
        if name is None or name in self._refused or not self._passed:
            return False
        at, death = self._deaths[self._passed - 1]
        if at < self._first or not self._count(name, self._first, at):
            return False
        # Who ends a job ends all of its ranks, so that none of them is late.
        if (stopped_by_others(death.said) and opens(draft)) or self._begins(name, index, death):
            return True
        self._refused.add(name)
        return False

    def _begins(self, name: str, index: int, death: Death) -> bool:
        next_one = self._passed < len(self._deaths)
        end = self._deaths[self._passed][0] if next_one else len(self._drafts)
        above, below = self._count(name, self._first, index), self._count(name, index, end)
        if self._other_program(index):
            return False
        if name == BEGINS and death.raised and self._both_worked(index, end):
            return True
        if below == above and opens(self._drafts[index]) and self._ended(name, above, death):
            return True
        return death.whose != "done" and below >= above and self._works_long(index, end, death)

    def _both_worked(self, index: int, end: int) -> bool:
        """Whether the dead process was past its start, and somebody gets as far below.

        Ranks of one run say their first words before any of them is that far.
        """
        until = self._deaths[self._passed - 1][0]
        above = _between(self._phases, self._first, until)
        return above > 0 and _between(self._phases, index, end) > 0

    def _ended(self, name: str, times: int, death: Death) -> bool:
        """Whether the run above ended as a whole, or all of it had begun."""
        until = self._deaths[self._passed - 1][0]
        worked = _between(self._works, self._first, until)
        if death.whose == "done":
            return worked > 0 and ".launcher." in name
        joined = _between(self._joined, self._first, until)
        return worked + joined > 0 or death.whose == "job" or self._sizes.get(name) == times

    def _works_long(self, index: int, end: int, death: Death) -> bool:
        """Whether the run below did more than start: it ended well, or made steps for long."""
        if end < len(self._drafts) and _well(self._deaths[self._passed][1]):
            return True
        own = self._works[bisect_left(self._works, index) : bisect_left(self._works, end)]
        works = [self._drafts[at] for at in own]
        steps = {work.work.step for work in works} - {None}
        return len(steps) >= _STEPS or any(work.line > death.said.line + _FAR for work in works)

    def _other_program(self, index: int) -> bool:
        """Whether other scripts died below than above."""
        above, below = self._scripts(self._first, index), self._scripts(index, len(self._drafts))
        return bool(above and below) and above.isdisjoint(below)

    def _scripts(self, begin: int, end: int) -> set[str]:
        found = (draft for draft in self._drafts[begin:end] if outermost(draft))
        return {draft.fields["file"] for draft in found if "file" in draft.fields}

    def _count(self, name: str, begin: int, end: int) -> int:
        return _between(self._said[name], begin, end)


def begins_after_pause(drafts: Sequence[Draft]) -> set[int]:
    """The lines on which a log of one process says its first words again, after it was silent.

    If its last words before were those of an error a short pause is enough, and where these have no
    time it counts that processes of one run begin together.
    """
    found: set[int] = set()
    if any({draft.rank, draft.device} - {None, 0} for draft in drafts):
        return found
    edges = {draft.line: draft for draft in drafts if draft.meaning.kind == "edge"}
    begins = {draft.line: draft.time for draft in drafts if draft.meaning.tells == BEGINS}
    wrong = {draft.line for draft in drafts if draft.meaning.severity == "error"}
    begun: int | None = None
    for before, draft in pairwise(edges.values()):
        begun = begins.get(before.line) or begun
        if draft.line not in begins or draft.time is None:
            continue
        failed = any(draft.line - back in wrong for back in range(1, _LAST_WORDS + 1))
        if before.time is not None:
            again = draft.time - before.time >= (_SHORT_PAUSE if failed else _PAUSE)
        else:
            again = failed and begun is not None and draft.time - begun >= _TOGETHER
        if again:
            found.add(draft.line)
    return found


def _between(positions: Sequence[int], begin: int, end: int) -> int:
    return bisect_left(positions, end) - bisect_left(positions, begin)


def _well(death: Death) -> bool:
    """Whether it is an end of which the program itself says that it is a good one."""
    return death.whose == "done" and death.said.kind == "phase"
