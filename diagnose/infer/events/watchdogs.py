"""Where every rank stood in its collectives, worked out from log lines alone.

Watchdog lines say what a rank waited for and since when, status lines how far it got, desync
reports, monitored barriers and stall lists who did not come. Ranks are compared only inside one
process group; the result does not depend on the order of the lines.
"""

from __future__ import annotations

from collections import defaultdict

from diagnose.infer.events.came import listed_gone, not_come
from diagnose.infer.events.disagreement import Others, folded_by_ray, judge, waits_nowhere
from diagnose.infer.events.stalled import P2P_OPS, Calls, Named, Stall, Wait
from diagnose.infer.events.told_mismatches import told_mismatches
from diagnose.infer.events.tracebacks import last_tracebacks
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.captures import captured_ranks
from diagnose.timeline.event import Timeline

# Ranks that different lines name as missing, one after the other, in one job.
_NAMED_LIMIT = 1_000_000


def stalled_groups(timeline: Timeline, world_size: int | None) -> list[Stall]:
    """Groups that stopped, by watchdog lines; by stacks that end in collectives without those."""
    found = stalls(timeline, world_size)
    if any(w.seq is not None or w.op is not None for stall in found for w in stall.waits.values()):
        return found
    stood = {r: s for r, s in last_tracebacks(timeline).items() if s.op is not None}
    # Who stands in a collective has come, though it printed another error than the others.
    named = [
        stall
        for stall in found
        if (stall.missing and stall.proven and not set(stall.missing) & set(stood)) or stall.odd
    ]
    waited = [event for event in timeline.telling("timeout") if event.rank is not None]
    if named or not stood or not waited:
        return found
    timeouts: dict[int | None, int] = {}
    for event in waited:
        if event.timeout_ms is not None:
            timeouts.setdefault(event.rank, event.timeout_ms)
    synthetic = {
        r: Wait(r, None, s.op, 1 if s.op == "BARRIER" else None, None, timeouts.get(r), None, s.row)
        for r, s in stood.items()
    }
    return stalls(timeline, world_size, synthetic)


def stalls(
    timeline: Timeline, world_size: int | None, stood: dict[int, Wait] | None = None
) -> list[Stall]:
    """Every stalled group, the one that says most first.

    `stood` replaces the watchdog's lines where there are none: waits worked out from stacks.
    """
    named = _named_missing(timeline)
    seen = set(timeline.ranks)
    told = told_mismatches(timeline.telling("mismatch"))
    waiting = _of_stacks(stood) if stood else _waits(timeline)
    paired = {rank for calls, waits in waiting.items() if calls.p2p for rank in waits}
    others = Others(world_size, seen, paired, _frontier(timeline), named)
    groups = [judge(calls, waits, others) for calls, waits in waiting.items()]
    if not waiting and not named:
        groups += not_come(timeline, world_size)
    if named and not any(stall.shape == "missing" for stall in groups):
        groups.append(_from_names(named))
    if max(timeline.column("repeated"), default=1) > 1:
        folded_by_ray(groups)
    elif (len(groups) > 1 or paired) and all(
        stall.shape in ("unclear", "all_joined") for stall in groups
    ):
        waits_nowhere(groups, world_size, seen)
    return sorted([*told, *groups], key=lambda s: (_RANK[s.shape], not s.proven, -len(s.waits)))


_RANK = {"mismatch": 0, "conditional": 0, "missing": 1, "shifted": 2, "all_joined": 3, "unclear": 4}


def _waits(timeline: Timeline) -> dict[Calls, dict[int, Wait]]:
    """First pending collective per group and rank, from the watchdog's lines."""
    groups_of = _groups_by_work(timeline)
    found: dict[Calls, dict[int, Wait]] = defaultdict(dict)
    anonymous = -1
    for event in timeline.telling("timeout"):
        rank = event.rank
        if rank is None:
            rank, anonymous = anonymous, anonymous - 1
        call = event.work
        group = call.group or groups_of.get((rank, call.seq))
        waits = found[Calls(group, call.op in P2P_OPS)]
        if rank not in waits or _earlier(call.seq, waits[rank].seq):
            waits[rank] = Wait(
                rank, call.seq, call.op, call.size_in, call.size_out, call.timeout_ms,
                call.elapsed_ms, event.index,
            )  # fmt: skip
    found = _fold_unnamed(found)
    _add_failed(found, timeline)
    return found


def _add_failed(found: dict[Calls, dict[int, Wait]], timeline: Timeline) -> None:
    """Whom a call that the others wait in ended with an error has made it like them."""
    for event in timeline.capturing("op", "seq", "timeout_ms"):
        call, rank = event.work, event.rank
        if rank is None or call.seq is None or event.role != "effect" or event.tells is not None:
            continue
        for waits in found.values():
            same = any((w.seq, w.op) == (call.seq, call.op) for w in waits.values())
            if same and not any(rank in others for others in found.values()):
                of = next(w for w in waits.values() if (w.seq, w.op) == (call.seq, call.op))
                waits[rank] = of._replace(rank=rank, elapsed_ms=None, row=event.index)


def _earlier(seq: int | None, known: int | None) -> bool:
    return seq is not None and (known is None or seq < known)


def _of_stacks(stood: dict[int, Wait]) -> dict[Calls, dict[int, Wait]]:
    """Waits known from stacks: a send and a receive are two sides of one call, no collective."""
    found: dict[Calls, dict[int, Wait]] = defaultdict(dict)
    for rank, wait in stood.items():
        found[Calls(None, wait.op in P2P_OPS)][rank] = wait
    return found


def _fold_unnamed(found: dict[Calls, dict[int, Wait]]) -> dict[Calls, dict[int, Wait]]:
    """Ranks whose group is unknown join the only named group, if there is just one."""
    named = [calls for calls in found if calls.group is not None and not calls.p2p]
    unnamed = Calls(None, p2p=False)
    if unnamed in found and len(named) == 1:
        for rank, wait in found.pop(unnamed).items():
            if rank not in found[named[0]]:
                found[named[0]][rank] = wait
    for waits in found.values():
        if any(rank >= 0 for rank in waits):
            for rank in [rank for rank in waits if rank < 0]:
                del waits[rank]
    return found


def _groups_by_work(timeline: Timeline) -> dict[tuple[int, int | None], str]:
    """(rank, seq) → group, from status lines that name both."""
    return {
        (event.rank, event.seq): event.group
        for event in timeline.telling("frontier")
        if event.rank is not None and event.group is not None
    }


def _frontier(timeline: Timeline) -> dict[int, tuple[int, int, int]]:
    """Rank → (last enqueued, last completed, row), the furthest seen."""
    found: dict[int, tuple[int, int, int]] = {}
    for event in timeline.telling("frontier"):
        enqueued = _int_text(event.fields.get("enqueued"))
        completed = _int_text(event.fields.get("completed"))
        if event.rank is None or enqueued is None or completed is None:
            continue
        if event.rank not in found or (enqueued, completed) > found[event.rank][:2]:
            found[event.rank] = (enqueued, completed, event.index)
    return found


def _named_missing(timeline: Timeline) -> Named | None:
    """Ranks that desync reports, monitored barriers, stall lists or elastic barriers name."""
    named, left = Named(), _NAMED_LIMIT
    naming: dict[tuple[str | None, ...], bool] = {}  # what lines say, and whether it names ranks
    gone = {event.index for event in listed_gone(timeline)}
    for event in timeline.telling("missing"):
        if event.index in gone:
            continue
        op = event.op
        said = (*(event.fields.get(key) for key in ("missing", "ranks", "rank")), op)
        if said not in naming and left > 0:
            ranks = [rank for text in said[:-1] for rank in captured_ranks(text)]
            naming[said], left = bool(ranks), left - len(ranks)
            named.ranks.update(ranks)
            for rank in ranks:
                named.lacking[rank].update([op.upper()] if op else [])
        if naming.get(said):
            named.rows.append(event.index)
    return named if named.ranks else None


def _from_names(named: Named) -> Stall:
    ranks = sorted(named.ranks)
    stall = Stall(None, "missing", missing=ranks, proven=True, rows=named.rows)
    stall.why = f"the log names {ranks_phrase(ranks)} as not having joined"
    if named.crossed:
        stall.shape, stall.missing = "conditional", []
        stall.why = f"{ranks_phrase(ranks)} lack different operations from each other"
    return stall


def _int_text(value: str | None) -> int | None:
    return int(value) if value is not None and value.lstrip("-").isdigit() else None
