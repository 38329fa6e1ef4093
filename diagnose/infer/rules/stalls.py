"""Candidates that no line states: why a collective stopped, from who stood where.

Mismatches come from comparing ranks; a missing rank is explained by what was going on at the
onset: work that one rank does while the others wait, or nothing the log shows.
"""

from __future__ import annotations

import pandas as pd

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import CulpritKind
from diagnose.infer.events.onset import Activity
from diagnose.infer.events.tracebacks import dumped, stances
from diagnose.infer.events.watchdogs import Stall, fold_ranks
from diagnose.infer.rules.base import Candidate

# The class that explains a wait for one rank, by what that rank was busy with.
_BUSY_CLASS = {
    "preprocessing": "data.preparation",
    "model_load": "slow.model_load",
    "checkpoint": "slow.checkpoint",
    "evaluation": "slow.evaluation",
    "inference": "slow.evaluation",
}
_DOING = {
    "preprocessing": "preparing data",
    "model_load": "loading the model",
    "checkpoint": "saving a checkpoint",
    "evaluation": "evaluating",
    "inference": "generating",
}
# Collectives this early in a group belong to set-up: barriers around data preparation.
_EARLY_SEQ = 5
# What the main rank does for all others; models are loaded by every rank.
_MAIN_ONLY = ("preprocessing", "checkpoint", "evaluation")
_BEYOND_TRAINING = ("evaluation", "checkpoint", "shutdown")


def inferred(
    found: list[Stall], activity: Activity, frame: pd.DataFrame, catalog: Catalog
) -> list[Candidate]:
    """Candidates for every stalled group, and for waits on a store without any collective."""
    candidates = []
    ended = frame[(frame["tells"] == "finished").fillna(False)]
    finished = {int(rank) for rank in ended["rank"].dropna()}
    steps = frame[(frame["kind"] == "progress") & (frame["phase"] != "evaluation").fillna(True)]
    training = {int(rank) for rank in steps["rank"].dropna()}
    ahead = _ahead(frame, catalog)
    if ahead is not None:
        candidates.append(ahead)
    for stall in found:
        if stall.shape in ("mismatch", "conditional", "shifted"):
            candidates.append(_mismatch(stall, activity, catalog))
            if stall.shape == "mismatch" and not stall.proven:
                continue
        else:
            candidates.append(_waiting(stall, activity, catalog, finished, training))
    gathering = _gathering(frame, catalog)
    if gathering is not None:
        candidates.append(gathering)
    store = frame[(frame["tells"] == "store_wait").fillna(False)]
    if len(store) and not any(stall.waits for stall in found):
        candidates.append(_store(store, activity, catalog))
    if not found and store.empty:
        candidates += _stacks_only(frame, activity, catalog)
    blocked = frame[(frame["tells"] == "host_blocked").fillna(False)]
    if len(blocked):
        candidates.append(_blocked(blocked, catalog))
    return candidates


def _candidate(
    cause: str, score: float, catalog: Catalog, summary: str, stall: Stall | None = None
) -> Candidate:
    return Candidate(
        cause=cause,
        score=score,
        title=catalog.classes[cause].title,
        summary=summary,
        rows=list(stall.rows[:8]) if stall else [],
        inferred=True,
    )


def _mismatch(stall: Stall, activity: Activity, catalog: Catalog) -> Candidate:
    cause, score = "desync.mismatch", 4.5
    summary = f"{stall.why[:1].upper()}{stall.why[1:]}."
    if stall.shape == "conditional":
        cause, score = "desync.conditional", 5.0
        summary = (
            "Ranks took different branches: some wait in a barrier while others run a larger "
            "collective that only they entered."
        )
    elif stall.shape == "shifted":
        score = 3.5
        if activity.phase in _MAIN_ONLY:
            cause = "desync.conditional"
            summary = (
                f"Ranks are one collective apart around {_DOING[activity.phase]}: {stall.why}."
            )
    candidate = _candidate(cause, score, catalog, summary, stall)
    candidate.ranks = stall.odd
    candidate.kind = "mismatched" if stall.odd else None
    candidate.why = f"{fold_ranks(stall.odd, prefix=True)} differs from the others" * bool(
        stall.odd
    )
    candidate.sure = stall.proven and stall.shape != "shifted"
    return candidate


def _waiting(
    stall: Stall, activity: Activity, catalog: Catalog, finished: set[int], training: set[int]
) -> Candidate:
    waiting = [rank for rank in stall.joined if rank >= 0]
    who = _who(stall, waiting, activity)
    tiny = stall.tiny or (
        not stall.sized and stall.op in (None, "ALLREDUCE", "BROADCAST", "BARRIER", "ALLGATHER")
    )
    busy = _BUSY_CLASS.get(activity.phase or "")
    done = sorted(finished & set(stall.missing or who))
    if done:
        return _uneven(stall, done, catalog, "reached the end of its work")
    evaluates = activity.phase == "evaluation" and activity.rank not in (None, *waiting)
    if evaluates and activity.rank is not None and training & set(waiting):
        # Every rank tells of its own steps, so it is not work that rank 0 does for all.
        return _uneven(stall, [activity.rank], catalog, "had gone on to evaluation")
    if stall.shape == "all_joined" and not activity.moving:
        return _joined(stall, catalog)
    if stall.proven and stall.missing and activity.rank not in (None, *stall.missing):
        busy = None  # the busy rank joined: it is not the one the others wait for
    if busy and (activity.moving or activity.frame):
        doing = _DOING[activity.phase or ""]
        subject = fold_ranks(who, prefix=True).capitalize() if who else "One rank"
        summary = f"{subject} was still {doing} while the others waited in {_call(stall)}."
        score = 5.0 if activity.spans_wait else 4.0 if activity.moving else 3.0
        score -= 0.0 if tiny or activity.spans_wait else 1.0
        candidate = _candidate(busy, score, catalog, summary, stall)
        candidate.rows = [*([activity.row] if activity.row is not None else []), *candidate.rows]
        candidate.sure = activity.spans_wait and tiny
        candidate.ranks, candidate.kind = who, "slow" if who else None
        candidate.why = f"busy {doing}; the only rank without a timeout" if who else ""
        return candidate
    prepared = activity.phase == "preprocessing"
    if (
        stall.tiny
        and stall.seq is not None
        and (stall.seq > 1 or prepared)
        and stall.seq <= _EARLY_SEQ
    ):
        summary = (
            f"The first collectives of the job stopped at {_call(stall)}, a barrier of the kind "
            "put around work that one rank does first, most often preparing the data."
        )
        candidate = _candidate("data.preparation", 2.5, catalog, summary, stall)
        candidate.ranks, candidate.kind = who, "missing" if who else None
        candidate.why = "the only rank without a timeout" if who else ""
        return candidate
    return _absent(stall, who, catalog)


def _stacks_only(frame: pd.DataFrame, activity: Activity, catalog: Catalog) -> list[Candidate]:
    """Somebody took the stacks of a job that stood still: the phase they show is all there is."""
    rows = dumped(frame)
    cause = _BUSY_CLASS.get(activity.phase or "")
    if rows.empty or cause is None:
        return []
    doing = _DOING[activity.phase or ""]
    candidate = _candidate(cause, 2.25, catalog, f"The stacks show a process that is {doing}.")
    candidate.rows = [int(i) for i in rows.index[rows["phase"].notna()][:4]]
    return [candidate]


def _ahead(frame: pd.DataFrame, catalog: Catalog) -> Candidate | None:
    """A minority whose stacks stand beyond the training loop in which all others still are."""
    stood = stances(frame)
    beyond = sorted(r for r, s in stood.items() if s.phase in _BEYOND_TRAINING)
    training = [r for r, s in stood.items() if s.phase == "training" and s.op is not None]
    # Work of rank 0 alone (evaluation, saving) is a branch, not less work.
    if not beyond or beyond == [0] or len(training) <= len(beyond):
        return None
    names = fold_ranks(beyond, prefix=True)
    phase = stood[beyond[0]].phase
    summary = (
        f"{names.capitalize()} had left the training loop for {phase} while the others still "
        "trained: it had fewer batches."
    )
    candidate = _candidate("desync.uneven_work", 4.75, catalog, summary)
    candidate.rows = [stood[rank].row for rank in [*beyond, *training[:2]]]
    candidate.ranks, candidate.kind = beyond, "mismatched"
    candidate.why = "its stack stands in another phase than all others'"
    return candidate


def _uneven(stall: Stall, done: list[int], catalog: Catalog, did: str) -> Candidate:
    names = fold_ranks(done, prefix=True)
    summary = (
        f"{names.capitalize()} {did} while others still waited in "
        f"{_call(stall)}: it had less to do."
    )
    candidate = _candidate("desync.uneven_work", 5.0, catalog, summary, stall)
    candidate.ranks, candidate.kind = done, "missing"
    candidate.why = f"it {did}; the others wait"
    return candidate


def _absent(stall: Stall, who: list[int], catalog: Catalog) -> Candidate:
    ranks: list[int] = []
    if stall.missing:
        names = fold_ranks(stall.missing, prefix=True)
        never = "never joined" if stall.proven else "perhaps never joined"
        summary = f"{names.capitalize()} {never} {_call(stall)}; the log does not say why."
        score = 4.0 if stall.proven else 2.5
        ranks = stall.missing if stall.proven else []
    else:
        summary = (
            f"Ranks waited for {_call(stall)} in vain; the log does not show who did not come."
        )
        score = 1.5
    candidate = _candidate("desync.missing_rank", score, catalog, summary, stall)
    candidate.ranks, candidate.kind = ranks, "missing" if ranks else None
    candidate.why = stall.why if ranks else ""
    return candidate


def _joined(stall: Stall, catalog: Catalog) -> Candidate:
    summary = (
        f"All ranks of the group joined {_call(stall)} and none finished it: a matter of network, "
        "GPU or driver, not of a missing rank. The log does not tell which."
    )
    return _candidate("unknown", 2.0, catalog, summary, stall)


def _who(stall: Stall, waiting: list[int], activity: Activity) -> list[int]:
    """The rank the others wait for.

    Named or clearly missing ranks; else the rank whose bar or marker shows it busy; else rank 0,
    which does the work that only one process does, if it is not among those that wait.
    """
    if stall.missing and stall.proven:
        return stall.missing
    busy_alone = activity.phase in _BUSY_CLASS and activity.moving
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


def _store(rows: pd.DataFrame, activity: Activity, catalog: Catalog) -> Candidate:
    positions = [int(i) for i in rows.index[:6]]
    busy = _BUSY_CLASS.get(activity.phase or "")
    if busy and (activity.moving or activity.frame):
        doing = _DOING[activity.phase or ""]
        summary = f"Ranks waited at the store for one that was still {doing}."
        candidate = _candidate(busy, 3.5, catalog, summary)
        candidate.rows = [*([activity.row] if activity.row is not None else []), *positions]
        waiting = {int(rank) for rank in rows["rank"].dropna()}
        if waiting and 0 not in waiting:
            candidate.ranks, candidate.kind = [0], "slow"
            candidate.why = "the main rank does this work while the others wait"
        return candidate
    summary = "Ranks waited at the store for others that did not come in time."
    candidate = _candidate("rendezvous.timeout", 2.5, catalog, summary)
    candidate.rows = positions
    return candidate


def unfinished_gathering(frame: pd.DataFrame) -> pd.Series | None:
    """The last line that counts who came (n of world), if the count is not the world size."""
    counted = frame[frame["fields"].map(lambda f: "joined" in f and "world_size" in f)]
    if counted.empty:
        return None
    last = counted.iloc[-1]
    later = frame[(frame.index > last.name) & (frame["kind"] == "progress")]
    same = int(last["fields"]["joined"]) == int(last["fields"]["world_size"])
    return None if same or len(later) >= 2 else last


def _gathering(frame: pd.DataFrame, catalog: Catalog) -> Candidate | None:
    last = unfinished_gathering(frame)
    if last is None:
        return None
    joined, world = int(last["fields"]["joined"]), int(last["fields"]["world_size"])
    if joined < world:
        summary = f"Only {joined} of {world} processes came to the rendezvous."
    else:
        summary = (
            f"{joined} processes registered for a job of {world}: left over from an earlier "
            "attempt, or started more than once."
        )
    candidate = _candidate("rendezvous.timeout", 4.0, catalog, summary)
    candidate.rows = [int(last.name)]
    return candidate


def _blocked(rows: pd.DataFrame, catalog: Catalog) -> Candidate:
    ranks: list[int] = sorted({int(rank) for rank in rows["rank"].dropna()})
    kind: CulpritKind | None = "stuck_host" if len(ranks) == 1 else None
    summary = "A host thread was stuck: the watchdog itself made no progress (GIL or a CUDA call)."
    candidate = _candidate("stall.host", 3.5 if kind else 2.5, catalog, summary)
    candidate.rows = [int(i) for i in rows.index[:6]]
    candidate.ranks, candidate.kind = (ranks if kind else []), kind
    candidate.why = "its own watchdog or GIL check reports it" if kind else ""
    return candidate
