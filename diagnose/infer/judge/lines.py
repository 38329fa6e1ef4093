"""The ranks that stopped a job, by its lines: what they name themselves, else who waits for whom.

Facts in order of weight: ranks that a line names; calls of one group that differ; the ranks that
wait nowhere while all others do; ranks at which the waits of all named groups end. Numbers of
different groups are never compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from diagnose.infer.judge import graph
from diagnose.infer.judge.arrivals import Named, named_missing, not_come, of_names
from diagnose.infer.judge.disagreement import disagreement, lacks_one, stated_mismatches
from diagnose.infer.judge.groups import gathered_size
from diagnose.infer.judge.stall import Stall, Wait, in_words
from diagnose.infer.judge.standing import RANKS_LIMIT, Standing, is_world, standing_of
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Timeline

_MANY = 7  # times as many ranks wait as are missing: no excerpt leaves out so few
_ORDER = {
    "mismatch": 0, "conditional": 0, "missing": 1, "shifted": 2, "all_joined": 3, "unclear": 4,
}  # fmt: skip


def stalls(timeline: Timeline, world_size: int | None) -> list[Stall]:
    """How a job stands still by its lines, the stall that says most first; [] where it does not.

    The order of the lines changes nothing. `world_size` is None where the log does not say it.
    """
    named = named_missing(timeline)
    found = stated_mismatches(timeline.telling("mismatch"))
    standing = standing_of(timeline, world_size)
    if standing is not None:
        found.append(_judged(standing, named))
    elif not named:
        found += not_come(timeline, world_size)
    if named and not any(stall.shape == "missing" for stall in found):
        found.append(of_names(named))
    return sorted(found, key=lambda s: (_ORDER[s.shape], not s.proven, -len(s.waits)))


def _judged(standing: Standing, named: Named | None) -> Stall:
    """The one stall of the job: every way to judge it in turn, the weightiest first."""
    stall = _waiting(standing)
    differ = _differ(standing)
    if differ is not None:
        return differ
    if named is not None:
        by_name = of_names(named)
        by_name.waits, by_name.rows = stall.waits, [*named.rows, *stall.rows]
        by_name.op, by_name.seq, by_name.group = stall.op, stall.seq, stall.group
        return by_name
    for judge in (_ended_silent, _idle, _by_waits, _by_silence, lacks_one, _apart, _ahead):
        if (found := judge(standing, stall)) is not None:
            return found
    return _complete(standing, stall)


def _waiting(standing: Standing) -> Stall:
    """All that wait, and the call that most of them wait in."""
    heads = {rank: waits[0] for rank, waits in standing.heads.items()}
    unnamed = {-1 - n: wait for n, wait in enumerate(standing.found.unnamed)}
    waits = heads or unnamed
    calls = Counter((wait.group, wait.call) for wait in waits.values())
    best = max(calls, key=lambda one: (calls[one], -(one[1][0] or 0), str(one)))
    stall = Stall(best[0], "unclear", waits, rows=sorted(w.row for w in waits.values()))
    stall.seq, stall.op = best[1][0], best[1][1]
    return stall


def _differ(standing: Standing) -> Stall | None:
    """Ranks of one group in different calls: of named groups, or of the only one there is.

    Without a name only where nobody is silent: one rank of the job that waits nowhere outweighs
    what numbers under no name suggest.
    """
    found = [
        stall
        for group, waits in sorted(standing.by_group.items())
        if (stall := disagreement(group, waits)) is not None
    ]
    if found:
        return _common(found)
    waits = {rank: own[0] for rank, own in standing.heads.items() if not own[0].p2p}
    unnamed = any(wait.group is None for wait in waits.values())
    silent = standing.silent or frozenset()
    outweighed = len(silent) == 1 and _belong(standing, silent)
    if not unnamed or not standing.one_group or outweighed:
        return None
    found_unnamed = disagreement(None, waits)
    if found_unnamed is not None:
        # No line says that it is one group; but one rank alone holds up all others of any.
        alone = len(found_unnamed.odd) == 1 and len({wait.call for wait in waits.values()}) == 2
        found_unnamed.proven &= alone and not silent and standing.stated
        if len({waits[rank].call for rank in found_unnamed.odd}) < len(found_unnamed.odd):
            found_unnamed.odd = []  # those that wait alike may be another group as well
    return found_unnamed


def _belong(standing: Standing, silent: frozenset[int]) -> bool:
    """Whether silent ranks are surely of the job: by a line of theirs, its size, or the others."""
    known = (standing.stated and standing.printed) or standing.heard.issuperset(silent)
    return known or len(standing.heads) >= _MANY * len(silent)


def _common(found: Sequence[Stall]) -> Stall:
    """Of groups that disagree the one in which it is surest, with the ranks odd in most of them."""
    odd = Counter(rank for stall in found for rank in stall.odd)
    best = min(found, key=lambda stall: (_ORDER[stall.shape], not stall.odd, -len(stall.waits)))
    most = max((odd[rank] for rank in best.odd), default=0)
    best.odd = [rank for rank in best.odd if odd[rank] == most]
    return best


def _ended_silent(standing: Standing, stall: Stall) -> Stall | None:
    """Ranks that wait nowhere since they had ended by themselves, and those alone."""
    ended = standing.ended & (standing.silent or frozenset())
    if standing.silent is None and len(standing.left) == 1:
        ended = standing.left
    return _named_silent(standing, stall, ended) if ended else None


def _idle(standing: Standing, stall: Stall) -> Stall | None:
    """Ranks that say themselves that they never launched the call in which others wait."""
    if stall.seq is None:
        return None
    of = next(w for w in stall.waits.values() if w.seq == stall.seq and w.group == stall.group)
    idle = standing.idle_before(of)
    if not idle:
        return None
    who = ranks_phrase(idle)
    stall.rows += [idle[rank].row for rank in sorted(idle)]
    why = f"{who} never launched collective {stall.seq}, which other ranks are waiting on"
    return _missing(stall, idle, why, proven=True)


def _by_waits(standing: Standing, stall: Stall) -> Stall | None:
    """The ranks at which all waits in named groups end.

    They are silent, or wait only in calls that all have joined: those wait for nobody.
    """
    silent = standing.silent
    if silent is None or not standing.by_group:
        return None
    edges = {rank: _waited_for(standing, waits) for rank, waits in standing.found.waits.items()}
    awaited = graph.awaited(edges)
    ends = [part for part in graph.ends(standing.heads, edges) if awaited.intersection(part)]
    last = {part[0] for part in ends if len(part) == 1}
    if missing := last & silent:
        return _named_silent(standing, stall, frozenset(_needed(standing, edges, missing)))
    circles = [part for part in ends if len(part) > 1]
    keys = {rank for part in circles for rank in graph.keystones(part, edges)}
    odd = sorted(last | keys)
    if len(odd) != 1 or (circles and not keys) or silent or not standing.groups_named:
        return None
    own = standing.heads[odd[0]][0]
    stall.shape, stall.odd = "mismatch", odd
    stall.why = (
        f"{ranks_phrase(odd)} waits in {in_words(own.call)}, and others wait for it elsewhere"
    )
    return stall


def _waited_for(standing: Standing, waits: Iterable[Wait]) -> set[int]:
    """The members of the groups in which a rank waits that are not in the same call."""
    found: set[int] = set()
    for wait in waits:
        members = standing.members.get(wait.group or "")
        if members is None or wait.p2p:
            continue
        absent = members.ranks - standing.joined(wait) - {wait.rank}
        if not absent and not members.known:
            absent = set(standing.few_silent)  # whoever else is in it
        found |= absent
    return found


def _needed(standing: Standing, edges: dict[int, set[int]], missing: set[int]) -> set[int]:
    """Of silent ranks those without which somebody would wait for nobody, if these explain all."""
    alone = {
        next(iter(ends))
        for ends in edges.values()
        if len(ends) == 1 and not ends & standing.heads.keys()
    }
    needed = alone & missing
    left = [ends for ends in edges.values() if ends and not ends & (needed | standing.heads.keys())]
    return needed if needed and not left else missing


def _by_silence(standing: Standing, stall: Stall) -> Stall | None:
    """The ranks that wait nowhere, if they are few beside those that do."""
    silent, waiting = standing.few_silent, len(standing.heads)
    if not silent:
        return None
    size = gathered_size(stall.waits.values())
    if standing.one_group and size is not None and size == waiting:
        return None  # all of a group whose other ranks are of other groups
    if standing.one_group and stall.group is not None and not is_world(stall.group):
        return None if size is None else _named_silent(standing, stall, silent)
    return _named_silent(standing, stall, silent)


def _named_silent(standing: Standing, stall: Stall, silent: frozenset[int]) -> Stall:
    """Silent ranks as the missing ones."""
    why = (
        f"{ranks_phrase(silent)} of {standing.size} printed no timeout"
        if standing.stated or standing.heard.issuperset(silent)
        else f"the waiting ranks have a gap at {ranks_phrase(silent)}"
    )
    few = len(silent) == 1 or standing.is_node(silent)
    return _missing(stall, silent, why, proven=few and _proven(standing, silent))


def _proven(standing: Standing, silent: frozenset[int]) -> bool:
    """Whether their silence says something: they are of the job, and its log is no excerpt."""
    waiting = len(standing.heads)
    heard = standing.stated or standing.heard.issuperset(silent)
    many = not standing.stated and waiting >= _MANY * len(silent)
    if standing.size == 2:
        return standing.heard.issuperset(silent)  # else only one of the two may print at all
    return many or (heard and waiting >= 2)


def _missing(stall: Stall, ranks: Iterable[int], why: str, *, proven: bool) -> Stall:
    stall.shape, stall.missing, stall.why, stall.proven = "missing", sorted(ranks), why, proven
    return stall


def _apart(standing: Standing, stall: Stall) -> Stall | None:
    """One rank in another call than all others of the job, in groups without a name."""
    heads = {rank: waits for rank, waits in standing.heads.items() if not waits[0].p2p}
    if standing.silent or standing.silent is None or len(heads) < max(3, standing.size):
        return None
    calls: dict[object, set[int]] = defaultdict(set)
    for rank in heads:
        for wait in standing.found.waits[rank]:
            calls[wait.call].add(rank)
    largest = max(calls.values(), key=len)
    odd = heads.keys() - largest
    if len(odd) != 1:
        return None
    stall.shape, stall.odd = "mismatch", sorted(odd)
    stall.why = f"{ranks_phrase(odd)} waits in another call than all other ranks"
    return stall


def _ahead(standing: Standing, stall: Stall) -> Stall | None:
    """The one rank that enqueued another number of calls than all others, who all wait alike."""
    enqueued = {
        rank: status.enqueued
        for (rank, group), status in standing.found.frontiers.items()
        if group == stall.group and rank in standing.heads
    }
    counts = Counter(enqueued.values())
    if standing.silent or len(enqueued) < max(4, standing.size) or len(counts) != 2:
        return None
    (_, many), (lone, few) = counts.most_common()
    if few != 1 or many < 3:
        return None
    stall.shape, stall.odd = "mismatch", [rank for rank, count in enqueued.items() if count == lone]
    stall.why = (
        f"{ranks_phrase(stall.odd)} had enqueued {lone} calls of the group, all others "
        f"{counts.most_common()[0][0]}"
    )
    return stall


def _complete(standing: Standing, stall: Stall) -> Stall:
    """Nobody is missing as far as is known: all have joined, or nothing can be said."""
    waits = [wait for wait in stall.waits.values() if not wait.p2p]
    alike = len({wait.call for wait in waits}) == 1 and len(waits) == len(stall.waits)
    size = gathered_size(waits) or (standing.size if standing.stated else None)
    if alike and size is not None and len(waits) >= size and standing.size <= RANKS_LIMIT:
        stall.shape, stall.proven = "all_joined", True
        stall.why = f"all {size} ranks of the group wait for the same collective"
    elif alike and len(waits) > 1 and standing.silent == frozenset():
        stall.why = "every rank seen is waiting for the same collective"
    elif standing.found.folded:
        stall.why = "Ray merged equal lines of several ranks, so a missing rank means nothing"
    return stall
