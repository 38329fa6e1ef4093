"""Causes that no line states: why a collective stopped, from who stood where.

Mismatches come from comparing ranks; a missing rank is explained by what was going on at the
onset: work that one rank does while the others wait, or nothing the log shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import CulpritKind
from diagnose.infer import scoring
from diagnose.infer.events.failures import unfinished_gathering
from diagnose.infer.events.phases import Activity
from diagnose.infer.events.tracebacks import dumped, last_tracebacks
from diagnose.infer.events.watchdogs import Stall
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Event, Timeline

_DOING = {
    "preprocessing": "preparing data",
    "model_load": "loading the model",
    "checkpoint": "saving a checkpoint",
    "evaluation": "evaluating",
    "inference": "generating",
}
# Collectives this early in a group belong to set-up: barriers around data preparation.
_EARLY_SEQ = 5
# Operations that may be a barrier, where the log tells no sizes.
_MAY_BE_TINY = (None, "ALLREDUCE", "BROADCAST", "BARRIER", "ALLGATHER")
# What the main rank does for all others; models are loaded by every rank.
_MAIN_ONLY = ("preprocessing", "checkpoint", "evaluation")
_BEYOND_TRAINING = ("evaluation", "checkpoint", "shutdown")


def propose(context: Context) -> list[Hypothesis]:
    """Hypotheses for every group that stopped, and for waits on a store without any collective."""
    return _of_stalls(context, context.stalls)


def agreeing(context: Context) -> list[Hypothesis]:
    """The same for the groups of the logs that say what the dumps say."""
    return _of_stalls(context, context.agreeing) if context.agreeing else []


def _of_stalls(context: Context, found: Sequence[Stall]) -> list[Hypothesis]:
    timeline, activity, catalog = context.timeline, context.activity, context.catalog
    hypotheses = [*_ahead(timeline, catalog)]
    for stall in found:
        if stall.shape in ("mismatch", "conditional", "shifted"):
            hypotheses.append(_mismatch(stall, activity, catalog))
            if stall.shape == "mismatch" and not stall.proven:
                continue
        else:
            hypotheses.append(_waiting(stall, context))
    hypotheses += _gathering(timeline, catalog)
    store = timeline.telling("store_wait")
    if store and not any(stall.waits for stall in found):
        hypotheses.append(_store(store, activity, catalog))
    if not found and not store:
        hypotheses += _stacks_only(timeline, activity, catalog)
    blocked = timeline.telling("host_blocked")
    if blocked:
        hypotheses.append(_blocked(blocked, catalog))
    return hypotheses


def _hypothesis(
    cause: str, score: float, catalog: Catalog, summary: str, stall: Stall | None = None
) -> Hypothesis:
    return Hypothesis(
        cause=cause,
        score=score,
        title=catalog.classes[cause].title,
        summary=summary,
        rows=list(stall.rows[:8]) if stall else [],
        inferred=True,
    )


def _mismatch(stall: Stall, activity: Activity, catalog: Catalog) -> Hypothesis:
    cause, score = "desync.mismatch", scoring.MISMATCH
    summary = f"{stall.why[:1].upper()}{stall.why[1:]}."
    if stall.shape == "conditional":
        cause, score = "desync.conditional", scoring.CONDITIONAL
        summary = (
            "Ranks took different branches: some wait in a barrier while others run a larger "
            "collective that only they entered."
        )
    elif stall.shape == "shifted":
        score = scoring.SHIFTED
        if activity.phase in _MAIN_ONLY:
            cause = "desync.conditional"
            summary = (
                f"Ranks are one collective apart around {_doing(activity.phase)}: {stall.why}."
            )
    found = _hypothesis(cause, score, catalog, summary, stall)
    found.ranks = stall.odd
    found.kind = "mismatched" if stall.odd else None
    found.why = f"{ranks_phrase(stall.odd)} differs from the others" * bool(stall.odd)
    found.sure = stall.proven and stall.shape != "shifted"
    return found


def _waiting(stall: Stall, context: Context) -> Hypothesis:
    """Ranks that all wait for the same call: for whom, and what was it doing?"""
    activity, catalog = context.activity, context.catalog
    waiting = {rank for rank in stall.joined if rank >= 0}
    who = _who(stall, waiting, activity)
    done = sorted(_finished(context.timeline) & set(stall.missing or who))
    if done:
        return _uneven(stall, done, catalog, "reached the end of its work")
    ahead = _evaluating(activity, waiting, context.timeline)
    if ahead is not None:
        return _uneven(stall, [ahead], catalog, "had gone on to evaluation")
    if stall.shape == "all_joined" and not activity.moving:
        return _joined(stall, catalog)
    # Where the busy rank joined, it is not the one the others wait for.
    joined = stall.proven and stall.missing and activity.rank not in (None, *stall.missing)
    if _busy_class(activity.phase, catalog) and not joined and (activity.moving or activity.frame):
        return _busy(stall, who, activity, catalog)
    first = 1 if activity.phase == "preprocessing" else 2
    if stall.tiny and stall.seq is not None and first <= stall.seq <= _EARLY_SEQ:
        return _early_barrier(stall, who, catalog)
    return _absent(stall, catalog)


def _finished(timeline: Timeline) -> set[int]:
    return {event.rank for event in timeline.telling("finished") if event.rank is not None}


def _evaluating(activity: Activity, waiting: set[int], timeline: Timeline) -> int | None:
    """The rank that had gone on to evaluation while others still trained.

    Only where every rank tells of its own steps: else it is work that rank 0 does for all.
    """
    if activity.phase != "evaluation" or activity.rank is None or activity.rank in waiting:
        return None
    trained = {event.rank for event in timeline.kind("progress") if event.phase != "evaluation"}
    return activity.rank if trained & waiting else None


def _busy(stall: Stall, who: list[int], activity: Activity, catalog: Catalog) -> Hypothesis:
    """The rank that the others wait for was at work of the kind that only one rank does."""
    doing = _doing(activity.phase)
    subject = ranks_phrase(who).capitalize() if who else "One rank"
    summary = f"{subject} was still {doing} while the others waited in {_call(stall)}."
    tiny = stall.tiny or (not stall.sized and stall.op in _MAY_BE_TINY)
    score = scoring.BUSY_MOVING if activity.moving else scoring.BUSY_SEEN
    score += 0.0 if tiny else scoring.NOT_A_BARRIER
    score = scoring.BUSY_SPANS_WAIT if activity.spans_wait else score
    cause = _busy_class(activity.phase, catalog) or "unknown"
    found = _hypothesis(cause, score, catalog, summary, stall)
    found.rows = [*([activity.row] if activity.row is not None else []), *found.rows]
    found.sure = activity.spans_wait and tiny
    found.ranks, found.kind = who, "slow" if who else None
    found.why = f"busy {doing}; the only rank without a timeout" if who else ""
    return found


def _busy_class(phase: str | None, catalog: Catalog) -> str | None:
    """The class of a wait for a rank that is at this work while the others wait."""
    return next((cause.id for cause in catalog.classes.values() if phase in cause.busy), None)


def _doing(phase: str | None) -> str:
    return _DOING.get(phase or "", f"busy ({phase})")


def _early_barrier(stall: Stall, who: list[int], catalog: Catalog) -> Hypothesis:
    summary = (
        f"The first collectives of the job stopped at {_call(stall)}, a barrier of the kind "
        "put around work that one rank does first, most often preparing the data."
    )
    found = _hypothesis("data.preparation", scoring.EARLY_BARRIER, catalog, summary, stall)
    found.ranks, found.kind = who, "missing" if who else None
    found.why = "the only rank without a timeout" if who else ""
    return found


def _stacks_only(timeline: Timeline, activity: Activity, catalog: Catalog) -> list[Hypothesis]:
    """Somebody took the stacks of a job that stood still: the phase they show is all there is."""
    frames = dumped(timeline)
    cause = _busy_class(activity.phase, catalog)
    if not frames or cause is None:
        return []
    doing = _doing(activity.phase)
    found = _hypothesis(
        cause, scoring.STACKS_ONLY, catalog, f"The stacks show a process that is {doing}."
    )
    found.rows = [frame.index for frame in frames if frame.phase is not None][:4]
    return [found]


def _ahead(timeline: Timeline, catalog: Catalog) -> Iterator[Hypothesis]:
    """A minority whose stacks stand beyond the training loop in which all others still are."""
    stood = last_tracebacks(timeline)
    beyond = sorted(r for r, s in stood.items() if s.phase in _BEYOND_TRAINING)
    training = [r for r, s in stood.items() if s.phase == "training" and s.op is not None]
    # Work of rank 0 alone (evaluation, saving) is a branch, not less work.
    if not beyond or beyond == [0] or len(training) <= len(beyond):
        return
    names = ranks_phrase(beyond)
    phase = stood[beyond[0]].phase
    summary = (
        f"{names.capitalize()} had left the training loop for {phase} while the others still "
        "trained: it had fewer batches."
    )
    found = _hypothesis("desync.uneven_work", scoring.AHEAD, catalog, summary)
    found.rows = [stood[rank].row for rank in [*beyond, *training[:2]]]
    found.ranks, found.kind = beyond, "mismatched"
    found.why = "its stack stands in another phase than all others'"
    yield found


def _uneven(stall: Stall, done: list[int], catalog: Catalog, did: str) -> Hypothesis:
    names = ranks_phrase(done)
    summary = (
        f"{names.capitalize()} {did} while others still waited in "
        f"{_call(stall)}: it had less to do."
    )
    found = _hypothesis("desync.uneven_work", scoring.UNEVEN_WORK, catalog, summary, stall)
    found.ranks, found.kind = done, "missing"
    found.why = f"it {did}; the others wait"
    return found


def _absent(stall: Stall, catalog: Catalog) -> Hypothesis:
    ranks: list[int] = []
    if stall.missing:
        names = ranks_phrase(stall.missing)
        never = "never joined" if stall.proven else "perhaps never joined"
        summary = f"{names.capitalize()} {never} {_call(stall)}; the log does not say why."
        score = scoring.NEVER_JOINED if stall.proven else scoring.PERHAPS_NEVER_JOINED
        ranks = stall.missing if stall.proven else []
    else:
        summary = (
            f"Ranks waited for {_call(stall)} in vain; the log does not show who did not come."
        )
        score = scoring.NOBODY_NAMED
    found = _hypothesis("desync.missing_rank", score, catalog, summary, stall)
    found.ranks, found.kind = ranks, "missing" if ranks else None
    found.why = stall.why if ranks else ""
    return found


def _joined(stall: Stall, catalog: Catalog) -> Hypothesis:
    summary = (
        f"All ranks of the group joined {_call(stall)} and none finished it: a matter of network, "
        "GPU or driver, not of a missing rank. The log does not tell which."
    )
    return _hypothesis("unknown", scoring.ALL_JOINED, catalog, summary, stall)


def _who(stall: Stall, waiting: set[int], activity: Activity) -> list[int]:
    """The rank the others wait for.

    Named or clearly missing ranks; else the rank whose bar or marker shows it busy; else rank 0,
    which does the work that only one process does, if it is not among those that wait.
    """
    if stall.missing and stall.proven:
        return stall.missing
    busy_alone = activity.phase in _DOING and activity.moving
    if activity.rank is not None and activity.rank not in waiting and busy_alone:
        return [activity.rank]
    if waiting and 0 not in waiting and busy_alone and activity.phase in _MAIN_ONLY:
        return [0]
    return []


def _call(stall: Stall) -> str:
    op = stall.op or "a collective"
    size = next((w.size_in for w in stall.waits.values() if w.size_in is not None), None)
    parts = [op] + ([f"of {size:,} element{'s' * (size != 1)}"] if size is not None else [])
    parts += [f"(SeqNum {stall.seq})"] if stall.seq is not None else []
    return " ".join(parts)


def _store(waits: Sequence[Event], activity: Activity, catalog: Catalog) -> Hypothesis:
    positions = [event.index for event in waits[:6]]
    busy = _busy_class(activity.phase, catalog)
    if busy and (activity.moving or activity.frame):
        doing = _doing(activity.phase)
        summary = f"Ranks waited at the store for one that was still {doing}."
        found = _hypothesis(busy, scoring.BUSY_AT_STORE, catalog, summary)
        found.rows = [*([activity.row] if activity.row is not None else []), *positions]
        waiting = {event.rank for event in waits if event.rank is not None}
        if waiting and 0 not in waiting:
            found.ranks, found.kind = [0], "slow"
            found.why = "the main rank does this work while the others wait"
        return found
    summary = "Ranks waited at the store for others that did not come in time."
    found = _hypothesis("rendezvous.timeout", scoring.STORE, catalog, summary)
    found.rows = positions
    return found


def _gathering(timeline: Timeline, catalog: Catalog) -> Iterator[Hypothesis]:
    """Processes that did not all come to the rendezvous, by the line that counts them."""
    last = unfinished_gathering(timeline)
    if last is None:
        return
    joined, world = int(last.fields["joined"]), int(last.fields["world_size"])
    if joined < world:
        summary = f"Only {joined} of {world} processes came to the rendezvous."
    else:
        summary = (
            f"{joined} processes registered for a job of {world}: left over from an earlier "
            "attempt, or started more than once."
        )
    score = scoring.INCOMPLETE_GATHERING
    found = _hypothesis("rendezvous.timeout", score, catalog, summary)
    found.rows = [last.index]
    yield found


def _blocked(told: Sequence[Event], catalog: Catalog) -> Hypothesis:
    ranks = sorted({event.rank for event in told if event.rank is not None})
    kind: CulpritKind | None = "stuck_host" if len(ranks) == 1 else None
    score = scoring.HOST_BLOCKED if kind else scoring.HOSTS_BLOCKED
    summary = "A host thread was stuck: the watchdog itself made no progress (GIL or a CUDA call)."
    found = _hypothesis("stall.host", score, catalog, summary)
    found.rows = [event.index for event in told[:6]]
    found.ranks, found.kind = (ranks if kind else []), kind
    found.why = "its own watchdog or GIL check reports it" if kind else ""
    return found
