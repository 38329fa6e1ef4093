"""Whom lines themselves name: ranks that did not come to a call, and lists of those that did.

Desync reports, monitored barriers, stall lists and elastic barriers name who is missing; others
list who came, and those that are not in the list are waited for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from diagnose.infer.judge.ops import Op
from diagnose.infer.judge.verdict import Verdict
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.captures import captured_ranks, highest_rank
from diagnose.timeline.event import Event, Timeline

# Lines between a list of tasks and the line that says what became of them.
_LISTED = 12
# So many came for each one that is missing: a list with larger gaps is of a group with gaps.
_CAME = 3
_RANKS_LIMIT = 100_000
_NAMED_LIMIT = 1_000_000  # ranks that different lines name, one after the other, in one job


def not_come(timeline: Timeline, world_size: int | None) -> list[Verdict]:
    """The verdict that lists of those that came tell of, none where they tell of no gap."""
    lists = timeline.signalling("joined")
    return _unanswered(lists) or _unready(lists, world_size)


def listed_gone(timeline: Timeline) -> list[Event]:
    """The items of a list of ranks that went away, as a line around it says."""
    lost: dict[str, list[int]] = defaultdict(list)
    for event in timeline.signalling("peer_gone"):
        if event.role == "effect":
            lost[event.source].append(event.line)
    for lines in lost.values():
        lines.sort()
    items = (event for event in timeline.signalling("missing") if event.role == "context")
    return [item for item in items if _near(item.line, lost.get(item.source, ()))]


def _near(line: int, others: Sequence[int]) -> bool:
    """Whether one of these lines, which are in order, is as near as a list is long."""
    first = bisect_left(others, line - _LISTED)
    return first < len(others) and others[first] <= line + _LISTED


def _unanswered(lists: Iterable[Event]) -> list[Verdict]:
    """Ranks that came to a barrier and got no answer from the rank that keeps the count."""
    came = [event for event in lists if "from_rank" in event.fields]
    asked = {rank for event in came for rank in captured_ranks(event.fields["from_rank"])}
    here = {r: e for e in came for r in captured_ranks(e.fields.get("ranks")) if r not in asked}
    if len(asked) != 1 or not here:
        return []
    why = f"{ranks_phrase(asked)} answered nobody who came to the barrier"
    return [_verdict(here, asked, came, "BARRIER", why, proven=False)]


def _unready(lists: Iterable[Event], world_size: int | None) -> list[Verdict]:
    """Ranks between those that came: a list is whole, and its gaps are no gaps of an excerpt.

    Every list of the job must have the same gaps; ranks that miss different calls are no matter of
    one that did not come.
    """
    whole = [e for e in lists if "from_rank" not in e.fields and "ranks" in e.fields]
    gaps = {_gaps(event, world_size) for event in whole}
    if len(gaps) != 1 or not (absent := gaps.pop()):
        return []
    here = {rank: event for event in whole for rank in captured_ranks(event.fields["ranks"])}
    why = f"{ranks_phrase(absent)}: on no list of the ranks that arrived"
    return [_verdict(here, absent, whole, whole[0].op, why, proven=True)]


def _gaps(event: Event, world_size: int | None) -> tuple[int, ...]:
    came = set(captured_ranks(event.fields["ranks"]))
    limit = world_size or (highest_rank(event.fields["ranks"]) or 0) + 1
    lacking = limit - sum(rank < limit for rank in came)
    if limit > _RANKS_LIMIT or lacking * _CAME > len(came):
        return ()
    return tuple(rank for rank in range(limit) if rank not in came)


def _verdict(
    here: dict[int, Event],
    absent: Collection[int],
    shown: list[Event],
    op: str | None,
    why: str,
    *,
    proven: bool,
) -> Verdict:
    size = 1 if op == "BARRIER" else None
    waits = {
        rank: Op(rank, None, op, size, None, event.timeout_ms, event.elapsed_ms, event.index)
        for rank, event in here.items()
    }
    rows = tuple(event.index for event in shown)
    found = Verdict("missing", op=op, joined=tuple(sorted(waits)), waits=waits, rows=rows)
    return of_absent(found, absent, why, proven=proven)


def of_absent(verdict: Verdict, ranks: Iterable[int], why: str, *, proven: bool) -> Verdict:
    """The verdict that these ranks did not join, who are culprits if that is proven."""
    absent = tuple(sorted(ranks))
    return replace(
        verdict,
        kind="missing",
        ranks=absent * proven,
        suspects=absent * (not proven),
        missing=absent,
        why=why,
        sure=proven,
    )


@dataclass(slots=True)
class Named:
    """Ranks that some line names as missing, and the lines; `lacking`: in which operations."""

    ranks: set[int] = field(default_factory=set)
    rows: list[int] = field(default_factory=list)
    lacking: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    @property
    def crossed(self) -> bool:
        """Ranks lack different operations from each other: each waits in what another lacks."""
        kinds = [ops for ops in self.lacking.values() if ops]
        return any(ops != kinds[0] for ops in kinds)


def named_missing(timeline: Timeline) -> Named | None:
    """The ranks that lines name as not having come; None where no line does."""
    named, left = Named(), _NAMED_LIMIT
    naming: dict[tuple[str | None, ...], bool] = {}  # what lines print, and whether it names ranks
    gone = {event.index for event in listed_gone(timeline)}
    for event in timeline.signalling("missing"):
        if event.index in gone:
            continue
        op = event.op
        printed = (*(event.fields.get(key) for key in ("missing", "ranks", "rank")), op)
        if printed not in naming and left > 0:
            ranks = [rank for text in printed[:-1] for rank in captured_ranks(text)]
            naming[printed], left = bool(ranks), left - len(ranks)
            named.ranks.update(ranks)
            for rank in ranks:
                named.lacking[rank].update([op.upper()] if op else [])
        if naming.get(printed):
            named.rows.append(event.index)
    return named if named.ranks else None


def of_names(named: Named, waiting: Verdict | None = None) -> Verdict:
    """The verdict that names alone tell of; `waiting`: what is known of those that wait."""
    of = waiting or Verdict("missing")
    of, ranks = replace(of, rows=(*named.rows, *of.rows)), sorted(named.ranks)
    if named.crossed:
        why = f"{ranks_phrase(ranks)} lack different operations from each other"
        return replace(of, kind="conditional", why=why, sure=True)
    why = f"the log names {ranks_phrase(ranks)} as not having joined"
    return of_absent(of, ranks, why, proven=True)
