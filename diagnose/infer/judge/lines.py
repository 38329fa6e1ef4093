"""The ranks that stopped a job, by its lines: what they name themselves, else who waits for whom.

Facts in order of weight: ranks that a line names; calls of one group that differ; the ranks that
wait nowhere while all others do; ranks at which the waits of all named groups end. Numbers of
different groups are never compared.

Desync reports, monitored barriers, stall lists and elastic barriers name who is missing; others
list who came, and those that are not in the list are waited for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from diagnose.infer.judge import wait_graph
from diagnose.infer.judge.by_lines import (
    ByLines,
    disagreement,
    lacks_one,
    standing_of,
    stated_mismatches,
    waiting_in,
)
from diagnose.infer.judge.deadlock import crossing, deadlocked
from diagnose.infer.judge.lost import RANKS_LIMIT
from diagnose.infer.judge.standing import WORLD
from diagnose.infer.judge.verdict import Kind, Op, Verdict, gathered_size, in_words
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.captures import captured_ranks, highest_rank
from diagnose.timeline.event import Event, Timeline

_MANY = 7  # times as many ranks wait as are missing: no excerpt leaves out so few
_ORDER: dict[Kind, int] = {
    "mismatched": 0, "conditional": 0, "deadlock": 0, "missing": 1, "shifted": 2,
    "all_joined": 3, "unclear": 4,
}  # fmt: skip
# Lines between a list of tasks and the line that says what became of them.
_LISTED = 12
# So many came for each one that is missing: a list with larger gaps is of a group with gaps.
_CAME = 3
_NAMED_LIMIT = 1_000_000  # ranks that different lines name, one after the other, in one job


def stalls(timeline: Timeline, world_size: int | None) -> list[Verdict]:
    """How a job stands still by its lines, what says most first; [] where it does not.

    The order of the lines changes nothing. `world_size` is None where the log does not say it.
    """
    named = named_missing(timeline)
    found = stated_mismatches(timeline.signalling("mismatch"))
    standing = standing_of(timeline, world_size)
    if standing is not None:
        found.append(_judged(standing, named))
    elif not named:
        found += not_come(timeline, world_size)
    if named and not any(one.kind == "missing" for one in found):
        found.append(of_names(named))
    return sorted(found, key=lambda one: (_ORDER[one.kind], not one.sure, -len(one.waits)))


def _judged(standing: ByLines, named: Named | None) -> Verdict:
    """The one verdict on the job: every way to judge it in turn, the weightiest first."""
    waiting = _waiting(standing)
    differ = _differ(standing)
    if differ is not None:
        return differ
    if named is not None:
        return of_names(named, waiting)
    for judge in (_ended_silent, _idle, _by_waits, _by_silence, lacks_one, _apart, _ahead):
        if (found := judge(standing, waiting)) is not None:
            return found
    return _complete(standing, waiting)


def _waiting(standing: ByLines) -> Verdict:
    """All that wait, and the call that most of them wait in."""
    heads = {rank: waits[0] for rank, waits in standing.heads.items()}
    unnamed = {-1 - n: wait for n, wait in enumerate(standing.found.unnamed)}
    waits = heads or unnamed
    calls = Counter((wait.group, wait.call) for wait in waits.values())
    group, call = max(calls, key=lambda one: (calls[one], -(one[1][0] or 0), str(one)))
    return waiting_in(waits, group, *call[:2])


def _differ(standing: ByLines) -> Verdict | None:
    """Ranks of one group in different calls: of named groups, or of the only one there is.

    Without a name only where nobody is silent: one rank of the job that waits nowhere outweighs
    what numbers under no name suggest.
    """
    found = [
        one
        for group, waits in sorted(standing.by_group.items())
        if (one := disagreement(group, waits)) is not None
    ]
    if found:
        return _common(found)
    waits = {rank: own[0] for rank, own in standing.heads.items() if not own[0].p2p}
    unnamed = any(wait.group is None for wait in waits.values())
    silent = standing.silent or frozenset()
    outweighed = len(silent) == 1 and _belong(standing, silent)
    if not unnamed or not standing.one_group or outweighed:
        return None
    unsure = disagreement(None, waits)
    if unsure is None:
        return None
    # No line says that it is one group; but one rank alone holds up all others of any.
    alone = len(unsure.ranks) == 1 and len({wait.call for wait in waits.values()}) == 2
    # Those that wait alike may be another group as well.
    several = len({waits[rank].call for rank in unsure.ranks}) < len(unsure.ranks)
    # Whose wait the log lost may be with the few.
    lost = (standing.aborted | {*standing.cut}) - waits.keys()
    several |= bool(lost) and 2 * len(lost.union(unsure.ranks)) >= len(lost) + len(waits)
    unproven = silent or standing.aborted or standing.cut
    sure = unsure.sure and alone and not unproven and standing.stated
    return replace(unsure, sure=sure, ranks=() if several else unsure.ranks)


def _belong(standing: ByLines, silent: frozenset[int]) -> bool:
    """Whether silent ranks are surely of the job: by a line of theirs, its size, or the others."""
    known = (standing.stated and standing.printed) or standing.with_lines.issuperset(silent)
    return known or len(standing.heads) >= _MANY * len(silent)


def _common(found: Sequence[Verdict]) -> Verdict:
    """Of groups that disagree the one in which it is surest, with the ranks odd in most of them."""
    odd = Counter(rank for one in found for rank in one.ranks)
    best = min(found, key=lambda one: (_ORDER[one.kind], not one.ranks, -len(one.waits)))
    most = max((odd[rank] for rank in best.ranks), default=0)
    return replace(best, ranks=tuple(rank for rank in best.ranks if odd[rank] == most))


def _ended_silent(standing: ByLines, waiting: Verdict) -> Verdict | None:
    """Ranks that wait nowhere since they had ended by themselves, and those alone."""
    ended = standing.ended & (standing.silent or frozenset())
    if standing.silent is None and len(standing.left) == 1:
        ended = standing.left
    return _named_silent(standing, waiting, ended) if ended else None


def _idle(standing: ByLines, waiting: Verdict) -> Verdict | None:
    """Ranks that say themselves that they never launched the call in which others wait."""
    if waiting.seq is None:
        return None
    named = waiting.seq, waiting.group
    of = next(w for w in waiting.waits.values() if (w.seq, w.group) == named)
    idle = standing.idle_before(of)
    if not idle:
        return None
    who = ranks_phrase(idle)
    rows = (*waiting.rows, *(idle[rank].row for rank in sorted(idle)))
    why = f"{who} never launched collective {waiting.seq}, which other ranks are waiting on"
    return of_absent(replace(waiting, rows=rows), idle, why, proven=True)


def _by_waits(standing: ByLines, waiting: Verdict) -> Verdict | None:
    """The ranks at which all waits in named groups end.

    They are silent, or wait only in calls that all have joined: those wait for nobody.
    """
    silent = standing.silent
    if silent is None or not standing.by_group:
        return None
    waits = wait_graph.build(standing)
    ends = wait_graph.ends_of(standing, waits)
    if ends.idle:
        needed = _needed(standing, waits.edges, frozenset(ends.idle))
        return _named_silent(standing, _about(standing, waiting, needed), needed)
    keys = {rank for part in ends.cycles for rank in wait_graph.keystones(part, waits.edges)}
    odd = sorted(wait_graph.awaited(waits.edges).intersection(ends.waiting) | keys | {*ends.device})
    proven = standing.all_wait and standing.groups_named and (keys or not ends.cycles)
    if len(odd) == 1 and proven:
        own = standing.heads[odd[0]][0]
        why = f"{ranks_phrase(odd)} waits in {in_words(own.call)}, and others wait for it elsewhere"
        return replace(waiting, kind="mismatched", ranks=tuple(odd), why=why)
    crossed = (crossing(standing.heads, part) for part in ends.cycles)
    found = next((one for one in crossed if one is not None), None)
    return None if found is None else deadlocked(standing, waiting, found)


def _needed(standing: ByLines, edges: wait_graph.Edges, missing: frozenset[int]) -> frozenset[int]:
    """Of silent ranks those without which somebody would wait for nobody, if these explain all."""
    waiting = standing.heads.keys()
    alone = {next(iter(awaited)) for awaited in edges.values() if len(awaited) == 1}
    needed = missing & alone
    known = needed | waiting
    left = any(awaited and awaited.isdisjoint(known) for awaited in edges.values())
    return needed if needed and not left else missing


def _about(standing: ByLines, waiting: Verdict, missing: frozenset[int]) -> Verdict:
    """What is known of those that wait, about the call that lacks nobody but the missing ones.

    In the call that most wait in, others may be absent as well who wait for the missing ones in a
    group of their own. Of several the one that most wait in; of none that can be told, the same.
    """
    calls: dict[tuple[str | None, int | None, str | None], list[Op]] = defaultdict(list)
    for first, *_ in standing.heads.values():
        calls[first.group, first.seq, first.op].append(first)
    lacking = [
        call
        for call, waits in calls.items()
        if (absent := wait_graph.targets(standing, waits[0])[0]) and missing.issuperset(absent)
    ]
    if not lacking:
        return waiting
    group, seq, op = max(lacking, key=lambda call: (len(calls[call]), str(call)))
    about = waiting_in(waiting.waits, group, seq, op)
    return replace(waiting, group=about.group, op=op, seq=seq, joined=about.joined)


def _by_silence(standing: ByLines, waiting: Verdict) -> Verdict | None:
    """The ranks that wait nowhere, if they are few beside those that do."""
    silent = standing.few_silent
    if not silent:
        return None
    size = gathered_size(wait.kind for wait in waiting.waits.values())
    if standing.one_group and size is not None and size == len(standing.heads):
        return None  # all of a group whose other ranks are of other groups
    if standing.one_group and waiting.group is not None and waiting.group not in WORLD:
        return None if size is None else _named_silent(standing, waiting, silent)
    return _named_silent(standing, waiting, silent)


def _named_silent(standing: ByLines, waiting: Verdict, silent: frozenset[int]) -> Verdict:
    """Silent ranks as the missing ones."""
    why = (
        f"{ranks_phrase(silent)} of {standing.size} printed no timeout"
        if standing.stated or standing.with_lines.issuperset(silent)
        else f"the waiting ranks have a gap at {ranks_phrase(silent)}"
    )
    few = len(silent) == 1 or standing.is_node(silent)
    return of_absent(waiting, silent, why, proven=few and _proven(standing, silent))


def _proven(standing: ByLines, silent: frozenset[int]) -> bool:
    """Whether their silence says something: they are of the job, and its log is no excerpt.

    Where a log of others is cut, that of those who are silent has to be there, and is not. Where
    many more are silent, whom nobody needs, the log has lost waits, and maybe these.
    """
    if standing.cut and not standing.with_lines.issuperset(silent):
        return False
    if not (standing.few_beside(silent) or standing.ended.issuperset(silent)):
        return False
    waiting = len(standing.heads.keys() | standing.aborted)
    known = standing.stated or standing.with_lines.issuperset(silent)
    many = not standing.stated and waiting >= _MANY * len(silent)
    if standing.size == 2:
        return standing.with_lines.issuperset(silent)  # else only one of the two may print at all
    return many or (known and waiting >= 2)


def _apart(standing: ByLines, waiting: Verdict) -> Verdict | None:
    """One rank in another call than all others of the job, in groups without a name.

    Where others wait in that call as well, it lacks somebody else.
    """
    heads = {rank: waits for rank, waits in standing.heads.items() if not waits[0].p2p}
    if not standing.all_wait or len(heads) < max(3, standing.size):
        return None
    calls: dict[object, set[int]] = defaultdict(set)
    for rank in heads:
        for wait in standing.pending[rank]:
            calls[wait.call].add(rank)
    largest = max(calls.values(), key=len)
    odd = heads.keys() - largest
    if len(odd) != 1 or any(odd < ranks for ranks in calls.values()):
        return None
    why = f"{ranks_phrase(odd)} waits in another call than all other ranks"
    return replace(waiting, kind="mismatched", ranks=tuple(odd), why=why)


def _ahead(standing: ByLines, waiting: Verdict) -> Verdict | None:
    """The one rank that enqueued another number of calls than all others, who all wait alike."""
    enqueued = {
        rank: status.enqueued
        for (rank, group), status in standing.found.frontiers.items()
        if group == waiting.group and rank in standing.heads
    }
    counts = Counter(enqueued.values())
    if not standing.all_wait or len(enqueued) < max(4, standing.size) or len(counts) != 2:
        return None
    (_, many), (lone, few) = counts.most_common()
    if few != 1 or many < 3:
        return None
    odd = tuple(rank for rank, count in enqueued.items() if count == lone)
    most = counts.most_common()[0][0]
    why = f"{ranks_phrase(odd)} had enqueued {lone} calls of the group, all others {most}"
    return replace(waiting, kind="mismatched", ranks=odd, why=why)


def _complete(standing: ByLines, waiting: Verdict) -> Verdict:
    """Nobody is missing as far as is known: all have joined, or nothing can be said."""
    waits = [wait for wait in waiting.waits.values() if not wait.p2p]
    alike = len({wait.call for wait in waits}) == 1 and len(waits) == len(waiting.waits)
    size = gathered_size(wait.kind for wait in waits) or (
        standing.size if standing.stated else None
    )
    why = ""
    if alike and size is not None and len(waits) >= size and standing.size <= RANKS_LIMIT:
        why = f"all {size} ranks of the group wait for the same collective"
        return replace(waiting, kind="all_joined", sure=True, why=why)
    if alike and len(waits) > 1 and standing.all_wait:
        why = "every rank seen is waiting for the same collective"
    elif standing.found.folded:
        why = "Ray merged equal lines of several ranks, so a missing rank means nothing"
    return replace(waiting, why=why)


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
    if limit > RANKS_LIMIT or lacking * _CAME > len(came):
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
