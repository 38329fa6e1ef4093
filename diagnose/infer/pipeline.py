"""Timeline → Diagnosis: one step a module, each a function of frames.

`diagnose` runs the steps in order: pick the attempt, gather facts, work out the collectives, the
onset and the phase, collect candidates that the log states and those that follow from who stood
where, rank them, and tell the winner with its evidence and advice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from diagnose.catalog.schema import Catalog
from diagnose.diagnosis import (
    Collective,
    Culprits,
    Diagnosis,
    Evidence,
    JobFacts,
    Onset,
    RestartAdvice,
    RootCause,
    Verdict,
)
from diagnose.infer.advise import narrative as story
from diagnose.infer.advise import remedies as advice
from diagnose.infer.decide import fusion as documents
from diagnose.infer.decide.ranking import THRESHOLD, borrow_culprits, confidence, merge, rank
from diagnose.infer.events.facts import Facts, gather
from diagnose.infer.events.failures import WAITED, failures, unexplained, went_on
from diagnose.infer.events.onset import Activity, Start, find_activity, find_onset, finished_bars
from diagnose.infer.events.teardown import settled
from diagnose.infer.events.tracebacks import dumped, stances
from diagnose.infer.events.watchdogs import Stall, Wait, fold_ranks, stalls
from diagnose.infer.rules import collectives as held_up
from diagnose.infer.rules.base import Candidate
from diagnose.infer.rules.known_issues import Situation, known
from diagnose.infer.rules.signatures import exits, stated
from diagnose.infer.rules.stalls import inferred
from diagnose.timeline.build import hosts_of_ranks

if TYPE_CHECKING:
    from diagnose.job.load import Job

# Unknown error lines that are shown, and how much of one stands in the verdict.
_TROUBLE_SHOWN, _QUOTED = 4, 200
_HUNG = ("desync.", "slow.", "stall.", "data.preparation", "hw.gpu", "net.", "unknown")
_FAILED = ("crash.", "env.", "checkpoint.")  # nothing waits in vain there
# Where a job usually is when this kind of cause strikes, if the log does not show it.
_USUAL_PHASE = {
    "net": "init", "net.fabric": "training", "env": "init", "rendezvous": "init",
    "crash": "training", "hw": "training", "desync": "training", "data": "training",
    "scheduler": "training", "user": "training", "stall": "training", "slow": "training",
}  # fmt: skip
# Evidence whose phase is that of the trouble; other rows tell what went on beside it.
_OF_ITS_OWN = ("cause", "aftermath")
_STRONG = ("decisive", "strong")
_ATTEMPTS_TOLD = 20  # earlier attempts with a note of their own
# What a job does again and again between training steps.
_WITHIN_TRAINING = ("evaluation", "checkpoint", "inference")
_PHASE_OF_CLASS = {
    "rendezvous.": "init", "data.preparation": "preprocessing", "slow.model_load": "model_load",
    "slow.checkpoint": "checkpoint", "checkpoint.partial": "checkpoint",
    "slow.evaluation": "evaluation", "slow.compile": "init",
}  # fmt: skip


def diagnose(job: Job) -> Diagnosis:
    """The verdict on a job. Deterministic: the same events in any order give the same verdict."""
    verdict = _diagnose(job)
    if job.checkpoints is None:
        return verdict
    from diagnose.infer.rules import checkpoints  # noqa: PLC0415  most jobs come without

    return checkpoints.added(verdict, job.checkpoints, job.timeline, job.catalog)


def _diagnose(job: Job) -> Diagnosis:
    frame, attempts = _attempt(job.timeline)
    catalog = job.catalog
    facts = gather(job.timeline, {s.id: s for s in catalog.signatures})
    about = JobFacts(
        world_size=facts.world_size, hosts=facts.hosts, attempts=attempts,
        frameworks=facts.get("framework"), versions=facts.versions, ranks_seen=facts.ranks_seen,
    )  # fmt: skip
    failing = failures(frame)
    held = documents.held_up(job, frame, failing)
    if failing.empty and held is None and not _silent_hang(frame, facts, catalog):
        return _quiet(frame, catalog, about, job)

    found = _stalls(frame, facts)
    notes = list(job.notes)
    same: list[Stall] = []
    if held is not None:
        notes += [*held.notes, *filter(None, [held_up.conflict(held, found)])]
        same = [stall for stall in found if held_up.agrees(held, stall)]
        found = [held_up.stall_of(held, frame)]
    candidates = [*stated(frame, catalog, facts.world_size), *exits(frame, catalog)]
    first = _first_failure(frame, failing, candidates)
    start = find_onset(frame, first)
    if held is not None and start.time is None:
        start = held_up.onset(held, frame)
    waiting = {rank for stall in found for rank in stall.joined if rank >= 0}
    activity = find_activity(frame, start, first, waiting)
    host_of = hosts_of_ranks(frame)
    follows = inferred(found, activity, frame, catalog)
    agreed = inferred(same, activity, frame, catalog) if same else []
    candidates += [*documents.joined(follows, job, held, found, frame, host_of), *agreed]
    if job.checkpoints is not None:
        from diagnose.infer.rules import checkpoints  # noqa: PLC0415  most jobs come without

        candidates += checkpoints.candidates(job.checkpoints, frame, failing, catalog)
    situation = _situation(frame, facts, activity, found, candidates)
    candidates += known(catalog, situation)
    ranked = rank(merge([c for c in candidates if c.score >= THRESHOLD]))
    if not ranked:
        ranked = [_unknown(failing, catalog)]
    winner = ranked[0]
    borrow_culprits(ranked, frame)
    if winner.ranks and not winner.hosts:
        winner.hosts = sorted({host_of[r] for r in winner.ranks if r in host_of})
    grid = documents.grid_of(job, facts)
    unit = documents.unit_of(winner, grid, host_of)
    level = confidence(ranked)
    waits = bool(found)
    return Diagnosis(
        verdict=_verdict(winner, frame, silent=failing.empty or held is not None),
        root_cause=RootCause(winner.cause, winner.title, winner.summary, level, winner.signature),
        culprits=Culprits(winner.ranks, winner.hosts, winner.kind, _join(winner.why, unit)),
        phase=_phase(frame, winner, activity, start),
        onset=Onset(story.iso(start.time), start.why),
        collective=held_up.collective(held) if held is not None else _collective(found),
        longer_timeout_helps=advice.longer_timeout(winner, catalog, activity),
        causal_chain=story.chain(winner, frame, catalog, activity, job.clocks),
        evidence=documents.evidence(winner, frame, catalog, found, held, job.places),
        alternatives=story.alternatives(ranked),
        remedies=advice.remedies(winner, catalog, facts),
        restart=advice.restart(winner, catalog),
        missing_evidence=advice.capture_next(
            winner, level, catalog, facts, waits, held_up.undumped(held) if held else None
        ),
        job=about,
        graph=held_up.graph(held) if held is not None else None,
        topology=grid,
        places=job.places,
        notes=[
            *notes,
            *documents.clock_notes(job),
            *_earlier_attempts(job.timeline, catalog, attempts),
        ],
    )


def _join(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _attempt(timeline: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The last attempt that left anything but facts, and the number of attempts."""
    numbers = sorted({int(n) for n in timeline["attempt"].dropna().unique()})
    told = timeline["role"].isin(["cause", "effect", "progress", "phase"])
    telling = timeline.loc[told, "attempt"]
    if telling.empty or not numbers:
        return settled(timeline), max(len(numbers), 1)
    last = numbers[-1] if telling.isna().any() else int(telling.max())
    rows = timeline[(timeline["attempt"] == last).fillna(True)]
    return settled(rows.reset_index(drop=True)), len(numbers)


def _silent_hang(frame: pd.DataFrame, facts: Facts, catalog: Catalog) -> bool:
    """A freeze without any failure line.

    A known issue whose every condition the log shows, or stacks that somebody took of a process
    that did not end.
    """
    if went_on(frame):
        return False
    if len(dumped(frame)):
        return True
    activity = find_activity(frame, Start(None, None, ""), None, set())
    situation = _situation(frame, facts, activity, [], [])
    return any(candidate.score >= 4.0 for candidate in known(catalog, situation))


def _quiet(frame: pd.DataFrame, catalog: Catalog, about: JobFacts, job: Job) -> Diagnosis:
    """No failure in the log: healthy if it was read to its end and shows work, else unknown."""
    phases = frame.loc[frame["kind"] == "phase", "phase"].astype(object)
    beyond_init = phases.notna() & (phases != "init")
    working = beyond_init.any() or (frame["kind"] == "progress").any() or went_on(frame)
    trouble = unexplained(frame)
    if working and trouble.empty and not job.unread:
        return _healthy(frame, catalog, about, job)
    evidence = [
        Evidence(str(row.source), int(row.line), story.clean(row.text), "")
        for row in trouble.head(_TROUBLE_SHOWN).itertuples()
    ]
    summary = "Nothing in this input is known to the catalog: no failure, no progress."
    if evidence:
        said = evidence[-1].text[:_QUOTED]
        summary = f"An error that the catalog does not know stands unanswered in the log: {said}"
    elif working:
        summary = f"No sign of a failure, but the input was not read to its end: {job.unread[0]}."
    quiet = Candidate("unknown", 0.0, catalog.classes["unknown"].title, summary)
    facts = Facts(world_size=about.world_size, ranks_seen=about.ranks_seen)
    return Diagnosis(
        verdict="unknown",
        root_cause=RootCause("unknown", quiet.title, summary, "low"),
        phase=_last_phase(frame),
        onset=Onset(None, "no failure in the log"),
        evidence=evidence,
        remedies=advice.remedies(quiet, catalog, facts),
        restart=RestartAdvice("none", [], "there is nothing to restart for"),
        missing_evidence=advice.capture_next(quiet, "low", catalog, facts, waits=False),
        job=about,
        notes=list(job.notes),
    )


def _healthy(frame: pd.DataFrame, catalog: Catalog, about: JobFacts, job: Job) -> Diagnosis:
    title = catalog.classes["none"].title
    summary = "The log shows a job at work and no sign of a failure."
    return Diagnosis(
        verdict="healthy",
        root_cause=RootCause("none", title, summary, "medium"),
        phase=_last_phase(frame),
        onset=Onset(None, "no failure in the log"),
        remedies=[],
        restart=RestartAdvice("none", [], "there is nothing to restart for"),
        missing_evidence=[],
        job=about,
        notes=list(job.notes),
    )


def _stalls(frame: pd.DataFrame, facts: Facts) -> list[Stall]:
    """Stalled groups from watchdog lines; from stacks that end in collectives where none exist."""
    found = stalls(frame, facts.world_size)
    if any(w.seq is not None or w.op is not None for stall in found for w in stall.waits.values()):
        return found
    stood = {r: s for r, s in stances(frame).items() if s.op is not None}
    # Who stands in a collective has come, though it printed another error than the others.
    named = [
        stall
        for stall in found
        if (stall.missing and stall.proven and not set(stall.missing) & set(stood)) or stall.odd
    ]
    waited = frame[(frame["tells"] == "timeout").fillna(False) & frame["rank"].notna()]
    if named or not stood or waited.empty:
        return found
    times = waited.groupby("rank")["timeout_ms"].first().dropna()
    timeouts = {int(rank_): int(ms) for rank_, ms in times.items()}
    synthetic = {
        r: Wait(r, None, s.op, 1 if s.op == "BARRIER" else None, None, timeouts.get(r), None, s.row)
        for r, s in stood.items()
    }
    return stalls(frame, facts.world_size, synthetic)


def _first_failure(
    frame: pd.DataFrame, failures: pd.DataFrame, candidates: list[Candidate]
) -> int | None:
    rows = [c.rows[0] for c in candidates if c.rows and c.score >= 3.5]
    return min([*rows, *(int(i) for i in failures.index[:1])], default=None)


def _situation(
    frame: pd.DataFrame,
    facts: Facts,
    activity: Activity,
    found: list[Stall],
    candidates: list[Candidate],
) -> Situation:
    states: set[str] = set()
    ops: set[str] = set()
    for stall in found:
        ops |= {wait.op for wait in stall.waits.values() if wait.op} | {stall.op or ""}
        states |= {"timeout"} if stall.waits else set()
        states |= {"mismatch"} if stall.shape in ("mismatch", "conditional") else set()
        states |= {"behind"} if stall.shape == "shifted" else set()
        states |= {"missing_ranks"} if stall.shape == "missing" else set()
        states |= {"all_joined"} if stall.shape == "all_joined" else set()
        states |= {"tiny_collective"} if stall.tiny else set()
        states |= {"first_collectives"} if (stall.seq or 99) <= 5 else set()
    if (frame["tells"] == "store_wait").fillna(False).any():
        states.add("timeout")
    steps = frame.loc[frame["kind"] == "progress", "step"].dropna()
    states |= {"no_progress"} if steps.empty else {"progress_then_stop"}
    states |= {"step_0"} if len(steps) and steps.max() == 0 else set()
    states |= {"crashed"} if any(c.cause.startswith("crash.") for c in candidates) else set()
    rows = [row for stall in found[:1] for row in stall.rows[:4]]
    if activity.row is not None:
        rows.insert(0, activity.row)
    first = frame["signature"].dropna().drop_duplicates()
    return Situation(
        facts=facts,
        signatures={str(id_): int(row) for row, id_ in first.items()},
        phase=activity.phase,
        ops=frozenset(ops - {""}),
        states=frozenset(states),
        causes=frozenset(c.cause for c in candidates if c.score >= 3.5),
        stall=found[0] if found else None,
        rows=rows,
    )


def _unknown(failures: pd.DataFrame, catalog: Catalog) -> Candidate:
    summary = "The job failed, but nothing in these lines says why."
    rows = [int(i) for i in failures.index[:4]]
    return Candidate("unknown", 1.0, catalog.classes["unknown"].title, summary, rows, inferred=True)


def _verdict(winner: Candidate, frame: pd.DataFrame, *, silent: bool) -> Verdict:
    """Hung: ranks waited in vain and nobody died of it first; failed: everything else.

    `silent`: no line shows a failure, or dumps or stacks show that it stood still.
    """
    if silent and winner.inferred and not winner.cause.startswith(_FAILED):
        return "hung"
    waited = silent or frame["tells"].isin(WAITED).any()
    return "hung" if waited and winner.cause.startswith(_HUNG) else "failed"


def _phase(frame: pd.DataFrame, winner: Candidate, activity: Activity, start: Start) -> str | None:
    for prefix, phase in _PHASE_OF_CLASS.items():
        if winner.cause.startswith(prefix):
            return phase
    rows = frame.loc[winner.rows] if winner.rows else frame.head(0)
    own = rows.loc[rows["role"].isin(_OF_ITS_OWN), "phase"].dropna()
    within = own.eq("training").any() and activity.phase in _WITHIN_TRAINING
    if len(own) and not within:
        return str(own.iloc[0])
    if activity.phase:
        return activity.phase
    end = start.row if start.row is not None else len(frame)
    steps = frame[(frame["kind"] == "progress") & (frame.index <= end)]
    if len(steps):
        return "training"
    told = _last_phase(frame.loc[:end])
    if told is None and rows["phase"].notna().any():
        told = str(rows["phase"].dropna().iloc[0])
    return told or _USUAL_PHASE.get(winner.cause, _USUAL_PHASE.get(winner.cause.split(".")[0]))


def _last_phase(frame: pd.DataFrame) -> str | None:
    marks = frame[frame["kind"].isin(["phase", "progress"])]
    phases = marks.loc[~finished_bars(marks), "phase"].dropna()
    return str(phases.iloc[-1]) if len(phases) else None


def _collective(found: list[Stall]) -> Collective | None:
    if not found:
        return None
    stall = found[0]
    missing = stall.missing if stall.shape == "missing" else []
    return Collective(
        stall.group, stall.op, stall.seq, [r for r in stall.joined if r >= 0], missing
    )


def _earlier_attempts(timeline: pd.DataFrame, catalog: Catalog, attempts: int) -> list[str]:
    """One line per earlier attempt: what it died of, as far as a line says so."""
    numbers = sorted({int(n) for n in timeline["attempt"].dropna().unique()})
    titles = {signature.id: signature.title for signature in catalog.signatures}
    causes = timeline[(timeline["role"] == "cause").fillna(False) & timeline["attempt"].notna()]
    died: dict[int, Any] = {}
    for row in causes[["attempt", "strength", "rank", "signature"]].itertuples():
        known = died.setdefault(int(row.attempt), row)
        if known.strength not in _STRONG and row.strength in _STRONG:
            died[int(row.attempt)] = row
    notes = []
    ended = [number for number in numbers[: attempts - 1] if number in died]
    for number in ended[:_ATTEMPTS_TOLD]:
        row = died[number]
        who = "" if pd.isna(row.rank) else f" ({fold_ranks([int(row.rank)], prefix=True)})"
        notes.append(f"attempt {number} ended with: {titles[str(row.signature)]}{who}")
    if len(ended) > _ATTEMPTS_TOLD:
        notes.append(f"and {len(ended) - _ATTEMPTS_TOLD:,} more attempts died of a known cause")
    return notes


__all__ = ["diagnose"]
