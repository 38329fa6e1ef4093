"""Deadlocks between process groups: ranks that entered collectives of them in different orders.

Rank 0 waits in a call of group X for rank 1, which waits in a call of group Y for rank 0: a circle
of the wait graph whose ranks wait in more than one group. No rank is missing and no call differs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from diagnose.infer.judge.by_lines import ByLines, waiting_in
from diagnose.infer.judge.verdict import Op, Verdict, in_words
from diagnose.text.ranks import plural, ranks_phrase

_SHOWN = 3  # groups


@dataclass(frozen=True, slots=True)
class Crossing:
    """The ranks of a circle by the group in whose call each waits, with one of these calls."""

    groups: Mapping[str, tuple[Op, tuple[int, ...]]]

    @property
    def ranks(self) -> tuple[int, ...]:
        """All of them."""
        return tuple(sorted(rank for _, ranks in self.groups.values() for rank in ranks))

    def in_words(self, called: Callable[[Op], str]) -> str:
        """Who waits in which group for whom; `called` writes a call with its group."""
        sides = [*self.groups.values()][:_SHOWN]
        who = [ranks_phrase(ranks) for _, ranks in sides]
        waits = [plural(len(ranks), "waits", "wait") for _, ranks in sides]
        calls = [called(op) for op, _ in sides]
        if len(self.groups) == len(sides) == 2:
            text = (
                f"{who[0]} {waits[0]} in {calls[0]} for {who[1]}, which {waits[1]} in {calls[1]} "
                f"for {who[0]}"
            )
        else:
            text = ", ".join(map("{} {} in {}".format, who, waits, calls))
            more = len(self.groups) - len(sides)
            text += f" and others in {more} more groups" * bool(more) + ", each for another one"
        text = f"{text}: they entered these groups in different orders"
        return f"{text}, or one of them left a call out"


def crossing(heads: Mapping[int, Sequence[Op]], circle: Iterable[int]) -> Crossing | None:
    """The groups in which the ranks of a circle wait; None where that is only one.

    Sends and receives are posted ahead in any order, and where a group has no name two may be one.
    """
    groups: dict[str, list[Op]] = defaultdict(list)
    for rank in circle:
        own = heads.get(rank, ())
        if not own or any(op.p2p or op.group is None for op in own):
            return None
        groups[own[0].group or ""].append(own[0])
    if len(groups) < 2:
        return None
    by_size = sorted(groups.values(), key=lambda ops: (len(ops), ops[0].rank))
    return Crossing(
        {ops[0].group or "": (ops[0], tuple(sorted(op.rank for op in ops))) for ops in by_size}
    )


def deadlocked(standing: ByLines, waiting: Verdict, found: Crossing) -> Verdict:
    """The verdict on ranks that wait for each other by their lines: neither order is wrong."""

    def called(wait: Op) -> str:
        return f"{in_words(wait.call)} of group {wait.desc or wait.group}"

    first, _ = next(iter(found.groups.values()))
    about = waiting_in(waiting.waits, first.group, first.seq, first.op)
    rows = tuple(sorted(standing.heads[rank][0].row for rank in found.ranks))
    why = found.in_words(called)
    return replace(about, kind="deadlock", suspects=found.ranks, rows=rows, why=why)
