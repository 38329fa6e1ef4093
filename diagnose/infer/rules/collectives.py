"""What the table of collectives says about a hang, in the terms of the other inference.

The verdict of `waitfor` names who is waited for and where; here it becomes a stall with the lines
of the timeline that show it, and a candidate cause. Why the culprit did not come, only the logs
can tell: their candidates (a crash, a save, an Xid) explain this one away where there are any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import Collective, CulpritKind, Evidence, WaitGraph
from diagnose.infer.collectives.verdict import DumpVerdict
from diagnose.infer.events.onset import Start
from diagnose.infer.judge.stall import Shape, Stall, Wait
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.tiers import Tier
from diagnose.timeline.draft import IDLE, PENDING
from diagnose.timeline.event import Event, Timeline

_SHAPE: dict[str, Shape] = {
    "missing": "missing", "stuck_host": "missing", "stuck_device": "all_joined",
    "mismatched": "mismatch", "cycle": "mismatch", "network": "all_joined",
}  # fmt: skip
_KIND: dict[str, CulpritKind] = {
    "missing": "missing", "stuck_host": "stuck_host", "stuck_device": "stuck_device",
    "mismatched": "mismatched",
}  # fmt: skip
_ROWS = 8


def propose(context: Context) -> Iterator[Hypothesis]:
    """The hypothesis that follows from the dumps alone."""
    verdict = context.blocked
    if verdict is not None and context.stalls:
        host_of = context.timeline.hosts_of_ranks
        yield blamed(verdict, context.stalls[0], context.catalog, host_of, alive=context.alive)


def stall_of(verdict: DumpVerdict, timeline: Timeline) -> Stall:
    """The verdict as the stall of one group; `waits` has all ranks that wait in its operation."""
    waits = {
        rank: Wait(
            rank, event.seq, (event.op or "").upper(), None, None, event.timeout_ms, None,
            event.index,
        )
        for rank, event in _first_of_rank(timeline.telling(PENDING)).items()
    }  # fmt: skip
    stall = Stall(verdict.group, _SHAPE[verdict.kind], waits, proven=not verdict.tie)
    stall.op, stall.seq, stall.why = verdict.op, verdict.seq, verdict.why
    if stall.shape == "missing":
        stall.missing = list(verdict.ranks)
    elif stall.shape == "mismatch":
        stall.odd = list(verdict.ranks)
    first = _first_of_rank(timeline.telling(PENDING, IDLE))
    told = [sign.rank for sign in verdict.evidence]
    shown = dict.fromkeys([*verdict.ranks, *told, *verdict.joined])
    stall.rows = [first[rank].index for rank in shown if rank in first][:_ROWS]
    return stall


def _first_of_rank(events: Iterable[Event]) -> dict[int, Event]:
    found: dict[int, Event] = {}
    for event in events:
        if event.rank is not None:
            found.setdefault(event.rank, event)
    return found


def blamed(
    verdict: DumpVerdict,
    stall: Stall,
    catalog: Catalog,
    host_of: Mapping[int, str],
    *,
    alive: bool = True,
) -> Hypothesis:
    """The hypothesis that follows from the table alone.

    `host_of` tells the host of a rank where known: on a single one an operation that all joined
    and nobody finished is no matter of the network. `alive`: who is told of was alive then, as
    whoever writes a dump is; of who only stopped to log calls nothing of the kind is known.
    """
    whys = _WHY.get(verdict.kind, ("", ""))
    if verdict.kind == "stuck_host" and not alive:
        verdict, whys = replace(verdict, kind="missing"), _BEHIND
    name, tier = _finding(verdict, set(host_of.values()))
    cause = catalog.class_shown_by(f"dump.{name}")
    summary = f"{verdict.why[:1].upper()}{verdict.why[1:]}."
    found = Hypothesis(cause, tier, catalog.classes[cause].title, summary, list(stall.rows))
    found.inferred, found.basis = True, "dump"
    found.ranks = list(verdict.ranks)
    found.hosts = sorted({host_of[rank] for rank in verdict.ranks if rank in host_of})
    found.kind = _KIND.get(verdict.kind) if verdict.ranks else None
    one = len(verdict.ranks) == 1
    found.why = whys[0 if one else 1] if verdict.ranks else ""
    found.sure = verdict.sure and verdict.kind == "mismatched"
    return found


_WHY = {
    "missing": (
        "it left no dump, and its peers are waiting for it",
        "they left no dump, and their peers are waiting for them",
    ),
    "stuck_host": (
        "idle; never launched the collective its peers are waiting on",
        "idle; never launched the collective their peers are waiting on",
    ),
    "stuck_device": (
        "it launched the same operations as its peers, and only its device did not finish",
        "they launched the same operations as their peers, and only their devices did not finish",
    ),
    "mismatched": (
        "its calls differ from those of its group",
        "their calls differ from those of their groups",
    ),
}


def collective(verdict: DumpVerdict) -> Collective | None:
    """The operation in which most ranks wait for the culprits.

    Who made another call there has not joined it, unless only such ranks are known.
    """
    if verdict.op is None:
        return None
    others = [rank for rank in verdict.joined if rank not in verdict.ranks]
    joined = others if verdict.kind == "mismatched" and others else [*verdict.joined]
    return Collective(
        verdict.group, verdict.op, verdict.seq, joined, [*verdict.missing], verdict.site
    )


def graph(verdict: DumpVerdict) -> WaitGraph:
    """Who waits for whom."""
    return WaitGraph({rank: str(role) for rank, role in verdict.roles.items()}, [*verdict.edges])


def onset(verdict: DumpVerdict, timeline: Timeline) -> Start:
    """When the first rank enqueued the operation in which the others wait for the culprits."""
    pending = [(e.time, e) for e in timeline.telling(PENDING) if e.time is not None]
    same = [(t, e) for t, e in pending if (e.group, e.seq) == (verdict.group, verdict.seq)]
    if not pending:
        return Start(None, None, "the dumps carry no time")
    time, event = min(same or pending, key=lambda item: item[0])
    why = "when the first rank enqueued the operation that never finished"
    return Start(time, event.index, why)


def undumped(verdict: DumpVerdict) -> list[int]:
    """Ranks of the job that left no dump."""
    return sorted(rank for rank, role in verdict.roles.items() if role == "no dump")


def evidence(verdict: DumpVerdict) -> list[Evidence]:
    """What the dumps say of single ranks, the culprits first."""
    why = {True: "State of the blocking rank", False: "State of a waiting rank"}
    if verdict.kind in ("mismatched", "cycle"):
        why = {True: "State of the diverging rank", False: "State of another rank"}
    return [
        Evidence(
            sign.file, sign.line, sign.text, why[sign.rank in verdict.ranks] * bool(verdict.ranks)
        )
        for sign in verdict.evidence
    ]


def _finding(verdict: DumpVerdict, hosts: set[str]) -> tuple[str, Tier]:
    """What shows a class, and how far the evidence reaches."""
    name = "no_network" if verdict.kind == "network" and len(hosts) == 1 else verdict.kind
    sure, doubtful = TIERS[name]
    return name, sure if verdict.sure else doubtful


# How far the evidence reaches where the dumps are sure, and where they are not.
TIERS: Mapping[str, tuple[Tier, Tier]] = {
    "mismatched": (Tier.OBSERVED, Tier.STRONG),
    "cycle": (Tier.STRONG, Tier.LIKELY),
    "missing": (Tier.STRONG, Tier.CIRCUMSTANTIAL),
    "stuck_host": (Tier.STRONG, Tier.LIKELY),
    "stuck_device": (Tier.STRONG, Tier.LIKELY),
    "network": (Tier.CIRCUMSTANTIAL, Tier.CIRCUMSTANTIAL),
    "no_network": (Tier.WEAK, Tier.WEAK),  # on one host
}
_BEHIND = (
    "it never made the call its peers are waiting in",
    "they never made the call their peers are waiting in",
)


def agrees(verdict: DumpVerdict, stall: Stall) -> bool:
    """Whether the logs prove the same as the dumps: the same ranks, in the same way."""
    named = set(stall.missing) | set(stall.odd)
    same = stall.shape == _SHAPE[verdict.kind] or (stall.shape, verdict.kind) == (
        "conditional",
        "mismatched",
    )
    return stall.proven and same and bool(named) and named == set(verdict.ranks)


def conflict(verdict: DumpVerdict, found: Sequence[Stall]) -> str | None:
    """Where dumps and logs blame different ranks; both sides as one sentence, or None."""
    if not verdict.ranks:
        return None
    for stall in found:
        named = set(stall.missing) | set(stall.odd)
        if stall.proven and named and not named & set(verdict.ranks):
            return (
                f"the logs and the dumps disagree: according to the logs, {stall.why}; "
                f"according to the dumps, {verdict.why}"
            )
    return None
