"""What lines say of ranks that stand still: waits of watchdogs, the status of groups, tracebacks.

A watchdog looks at each process group by itself, so a rank that stands still prints one wait for
each of its groups that has something pending. The line of a wait tells the group in some releases
only; then the status line that follows it does, or the line with which the watchdog ends.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeVar

from diagnose.infer.events.exceptions import last_tracebacks
from diagnose.infer.judge.verdict import Op, is_p2p
from diagnose.timeline.captures import integer
from diagnose.timeline.event import Event, Learned, Timeline

_MS = 1_000_000
_CLOCK = 2_000_000_000  # ns by which waits of one rank may seem apart that began together
_Statuses = Mapping[str | None, Event]  # by group the last status line of one rank and number
_Found = dict[int, tuple[Event, Op]]
_Row = TypeVar("_Row")
_Rows = Mapping[tuple[str, int | None, int | None], list[_Row]]  # by source, rank and number
# By call the kinds of groups that make it, and how often that is told.
_Kinds = Mapping[tuple[object, ...], Counter[str]]
_SELDOM = 3  # times as often another kind is told: where lines are lost, two may not fit


class Frontier(NamedTuple):
    """How far a rank got in a group: the numbers of its last works, -1 for none.

    `started`: by its device, which torch tells only where it records the times of works.
    """

    enqueued: int
    completed: int
    row: int
    started: int = -1


@dataclass(slots=True)
class Witnessed:
    """What lines say of who waits.

    `waits` has those of each rank, the oldest first. `unnamed` are of processes whose rank is not
    known, `folded` tells that equal lines of several ranks were merged into one. `frontiers` is by
    rank and group (None: the line names none).
    """

    waits: dict[int, list[Op]] = field(default_factory=dict)
    unnamed: list[Op] = field(default_factory=list)
    frontiers: dict[tuple[int, str | None], Frontier] = field(default_factory=dict)
    folded: bool = False

    def started(self, waits: Iterable[Op]) -> list[Op]:
        """The waits, with what the devices have not started."""
        return [wait._replace(started=not self._unstarted(wait)) for wait in waits]

    def _unstarted(self, wait: Op) -> bool:
        """Whether the device of a rank that waits has not come to this call yet.

        Sends and receives are counted apart from collectives and their numbers told as well, so a
        number beyond the call that is not through tells nothing.
        """
        status = self.frontiers.get((wait.rank, wait.group))
        if status is None or wait.seq is None:
            return False
        return 0 <= status.started < wait.seq and status.completed < wait.seq


def witnessed(timeline: Timeline) -> Witnessed:
    """All that the lines of a job say."""
    found = Witnessed(folded=max(timeline.column("repeated"), default=1) > 1)
    found.frontiers = _frontiers(timeline)
    mentions = _mentions(timeline)
    trusted = _numbers_are_ranks(mentions)
    for event, wait in mentions:
        if event.rank is None or (event.learned is Learned.GROUP and not trusted):
            found.unnamed.append(wait)
        else:
            _add(found.waits.setdefault(event.rank, []), wait)
    _add_failed(found, timeline)
    _add_tracebacks(found, timeline)
    for waits in found.waits.values():
        waits.sort(key=lambda wait: (wait.began is None, wait.began or 0, wait.row))
    found.unnamed = _without_known(found)
    return found


def _mentions(timeline: Timeline) -> list[tuple[Event, Op]]:
    """Every line of a wait; its group is that of a status line behind it where it names none.

    Watchdogs of several groups print at one time, so where a rank waits in several calls of one
    number its status lines may be in any order. Then what other ranks call in a group tells.
    """
    rows = sorted(timeline.signalling("timeout", "frontier"), key=lambda e: (e.source, e.line))
    found = {row.index: (row, _wait(row)) for row in rows if row.signal == "timeout"}
    unnamed: dict[tuple[str, int | None, int | None], list[int]] = defaultdict(list)
    statuses: dict[tuple[str, int | None, int | None], list[Event]] = defaultdict(list)
    kinds: dict[tuple[object, ...], Counter[str]] = defaultdict(Counter)  # call → kinds of groups
    last: dict[tuple[str, int | None, int | None], int] = {}
    for row in rows:
        key = row.source, row.rank, row.seq
        if row.signal == "timeout" and row.group is None:
            unnamed[key].append(row.index)
            last[key] = row.index
        elif row.signal == "timeout":
            kinds[found[row.index][1].call][_kind_of(row)] += 1
        elif row.group is not None and row.seq is not None:
            statuses[key].append(row)
            if (above := last.pop(key, None)) is not None:  # mostly of the line right above
                kinds[found[above][1].call][_kind_of(row)] += 1
    _match(found, unnamed, statuses, kinds)
    return [found[index] for index in sorted(found)]


def _match(found: _Found, unnamed: _Rows[int], statuses: _Rows[Event], kinds: _Kinds) -> None:
    """Give waits that name no group that of a status line of their rank, the surest first."""
    callers: dict[tuple[object, ...], set[int]] = defaultdict(set)
    stated: dict[tuple[int, str | None], set[tuple[object, ...]]] = defaultdict(set)
    for _, wait in found.values():
        callers[wait.call].add(wait.rank)
        if wait.group is not None:
            stated[wait.rank, wait.group].add(wait.call)
    for left_over in (False, True):
        for key, indices in unnamed.items():
            groups = {row.group: row for row in statuses[key]}
            for index in indices:
                row, wait = found[index]
                if left_over and len(callers[wait.call]) > 1:
                    continue  # others tell its group, unless lines are lost, as here too then
                fits = {g: row for g, row in groups.items() if _is_open(wait, stated[wait.rank, g])}
                if left_over:
                    of = _left_over([found[one][1] for one in indices], fits)
                else:
                    of = _of_its_kind(fits, kinds[wait.call])
                if wait.group is None and of is not None:
                    found[index] = row, _in_group(wait, of)
                    kinds[wait.call][_kind_of(of)] += 1


def _is_open(wait: Op, stated: Iterable[tuple[object, ...]]) -> bool:
    """Whether no line of its rank tells another call of this number in a group."""
    return not any(call[0] == wait.seq and call != wait.call for call in stated)


def _of_its_kind(groups: _Statuses, counts: Counter[str]) -> Event | None:
    """The status line of the one group that is of a kind counted for a call."""
    fits = [row for row in groups.values() if _often(row, counts)]
    return fits[0] if len(fits) == 1 else None


def _often(row: Event, counts: Counter[str]) -> bool:
    """Whether the kind of a group is not counted far more seldom than another one for a call."""
    return _SELDOM * counts[_kind_of(row)] > max(counts.values(), default=0)


def _left_over(own: Sequence[Op], groups: _Statuses) -> Event | None:
    """The status line that is left when all other waits of the rank have theirs.

    Who calls what nobody else does is the one that matters most, and no other rank tells its group.
    """
    calls = {one.call for one in own}
    open_calls = calls - {one.call for one in own if one.group is not None}
    taken = {one.group for one in own}
    rest = [row for group, row in groups.items() if group not in taken]
    matched = len(calls) == len(groups) and len(open_calls) == len(rest) == 1
    return rest[0] if matched else None


def _in_group(wait: Op, row: Event) -> Op:
    """The wait, in the group that this line names."""
    place, desc = integer(row.fields.get("group_rank")), row.fields.get("group_desc")
    return wait._replace(group=row.group, place=place, desc=desc)


def _kind_of(row: Event) -> str:
    """The kind of group that a line names: its description, else its name."""
    return row.fields.get("group_desc") or row.group or ""


def _wait(event: Event) -> Op:
    work = event.work
    elapsed = work.elapsed_ms
    began = event.time - elapsed * _MS if None not in (event.time, elapsed) else None  # type: ignore[operator]
    return Op(
        -1 if event.rank is None else event.rank, work.seq, work.op, work.size_in, work.size_out,
        work.timeout_ms, elapsed, event.index, work.group,
        integer(event.fields.get("group_rank")), began, event.fields.get("group_desc"),
        is_p2p(work.op, work.size_in),
    )  # fmt: skip


def _add(waits: list[Op], wait: Op) -> None:
    """Add a wait, or what this line says more of one that is known."""
    for at, known in enumerate(waits):
        if known.call != wait.call or not _agree(known.group, wait.group):
            continue
        if _agree(known.elapsed_ms, wait.elapsed_ms) or (known.group and wait.group):
            if known.group is None:
                waits[at] = known._replace(group=wait.group, place=wait.place, desc=wait.desc)
            return
    waits.append(wait)


def _agree(one: object, other: object) -> bool:
    return one is None or other is None or one == other


def _numbers_are_ranks(mentions: Iterable[tuple[Event, Op]]) -> bool:
    """Whether numbers inside process groups are ranks of the job: no two processes have the same.

    Of several groups each has a number 0, and their ranks mostly call the same. One process may
    print its wait twice, with another time each, but not into the logs of two nodes.
    """
    times: dict[tuple[int | None, object], set[int | None]] = defaultdict(set)
    printed: dict[int | None, dict[str, set[int | None]]] = defaultdict(lambda: defaultdict(set))
    for event, wait in mentions:
        if event.learned is Learned.GROUP:
            times[event.rank, wait.call].add(wait.elapsed_ms)
            printed[event.rank][event.source].add(wait.elapsed_ms)
    if any(a.isdisjoint(b) for own in printed.values() for a, b in pairwise(own.values())):
        return False
    twice = [len(own - {None}) for own in times.values() if len(own - {None}) > 1]
    return len(twice) < 2 and max(twice, default=0) < 3


def _without_known(found: Witnessed) -> list[Op]:
    """Waits of nobody, each once, without those that a rank printed as well."""
    known = {(w.call, w.elapsed_ms) for waits in found.waits.values() for w in waits}
    kept = {(wait.call, wait.elapsed_ms): wait for wait in reversed(found.unnamed)}
    return [wait for key, wait in reversed(kept.items()) if key not in known]


def _frontiers(timeline: Timeline) -> dict[tuple[int, str | None], Frontier]:
    """The furthest that each rank is said to have got in each group."""
    found: dict[tuple[int, str | None], Frontier] = {}
    for event in timeline.signalling("frontier"):
        enqueued = integer(event.fields.get("enqueued"))
        completed = integer(event.fields.get("completed"))
        if event.rank is None or enqueued is None or completed is None:
            continue
        key = event.rank, event.group
        if key not in found or (enqueued, completed) > found[key][:2]:
            started = integer(event.fields.get("started"))
            begun = -1 if started is None else started
            found[key] = Frontier(enqueued, completed, event.index, begun)
    return found


def _add_failed(found: Witnessed, timeline: Timeline) -> None:
    """Whom a call that others wait in ended with an error has made it like them."""
    alike = {(w.seq, w.op): w for waits in found.waits.values() for w in waits}
    for event in timeline.capturing("op", "seq", "timeout_ms"):
        of = alike.get((event.seq, event.op))
        if event.rank is None or event.seq is None or of is None or event.rank in found.waits:
            continue
        if event.role == "effect" and event.signal is None:
            place = of._replace(rank=event.rank, elapsed_ms=None, row=event.index, began=None)
            found.waits[event.rank] = [place]


def _add_tracebacks(found: Witnessed, timeline: Timeline) -> None:
    """Where no wait tells its operation, the ranks' own tracebacks do.

    Who stands in a collective has come, though it printed another error than the others.
    """
    all_waits = [wait for waits in found.waits.values() for wait in waits]
    if not all_waits or any(
        w.seq is not None or w.op is not None for w in (*all_waits, *found.unnamed)
    ):
        return
    for rank, last in last_tracebacks(timeline).items():
        if last.op is None:
            continue
        size = 1 if last.op == "BARRIER" else None
        known = found.waits.get(rank)
        timeout = known[0].timeout_ms if known else None
        p2p = is_p2p(last.op, size)
        found.waits[rank] = [Op(rank, None, last.op, size, None, timeout, None, last.row, p2p=p2p)]


def heads_of(waits: Sequence[Op]) -> list[Op]:
    """Of the waits of a rank those that may be the one it really stands in: that began first.

    One that its device has not started is behind another.
    """
    waits = [wait for wait in waits if wait.started] or [*waits]
    first = waits[0].began
    if first is None:
        return waits
    return [wait for wait in waits if wait.began is None or wait.began - first <= _CLOCK]
