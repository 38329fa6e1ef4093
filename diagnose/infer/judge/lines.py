"""The ranks that stopped a job, by its lines: what they name themselves, else who waits for whom.

Facts in order of weight: ranks that a line names; calls of one group that differ; the ranks that
wait nowhere while all others do; ranks at which the waits of all named groups end. Numbers of
different groups are never compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from diagnose.infer.judge import graph, wait_graph
from diagnose.infer.judge.arrivals import (
    Named,
    named_missing,
    not_come,
    of_absent,
    of_names,
)
from diagnose.infer.judge.by_lines import RANKS_LIMIT, ByLines, standing_of
from diagnose.infer.judge.disagreement import (
    disagreement,
    lacks_one,
    stated_mismatches,
    waiting_in,
)
from diagnose.infer.judge.groups import WORLD
from diagnose.infer.judge.ops import Op, gathered_size, in_words
from diagnose.infer.judge.verdict import Kind, Verdict
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Timeline

_MANY = 7  # times as many ranks wait as are missing: no excerpt leaves out so few
_ORDER: dict[Kind, int] = {
    "mismatched": 0, "conditional": 0, "missing": 1, "shifted": 2, "all_joined": 3, "unclear": 4,
}  # fmt: skip


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
    lost = standing.aborted - waits.keys()
    several |= bool(lost) and 2 * len(lost.union(unsure.ranks)) >= len(lost) + len(waits)
    sure = unsure.sure and alone and not (silent or standing.aborted) and standing.stated
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
    keys = {rank for part in ends.cycles for rank in graph.keystones(part, waits.edges)}
    odd = sorted(graph.awaited(waits.edges).intersection(ends.waiting) | keys | {*ends.device})
    if len(odd) != 1 or (ends.cycles and not keys) or silent or not standing.groups_named:
        return None
    own = standing.heads[odd[0]][0]
    why = f"{ranks_phrase(odd)} waits in {in_words(own.call)}, and others wait for it elsewhere"
    return replace(waiting, kind="mismatched", ranks=tuple(odd), why=why)


def _needed(standing: ByLines, edges: graph.Edges, missing: frozenset[int]) -> frozenset[int]:
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
    """Whether their silence says something: they are of the job, and its log is no excerpt."""
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
    if standing.silent or standing.silent is None or len(heads) < max(3, standing.size):
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
    if standing.silent or len(enqueued) < max(4, standing.size) or len(counts) != 2:
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
    if alike and len(waits) > 1 and standing.silent == frozenset():
        why = "every rank seen is waiting for the same collective"
    elif standing.found.folded:
        why = "Ray merged equal lines of several ranks, so a missing rank means nothing"
    return replace(waiting, why=why)
