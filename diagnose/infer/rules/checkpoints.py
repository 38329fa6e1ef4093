"""What a job's checkpoints add to its diagnosis: a cause, a consequence, and where to go on."""

from __future__ import annotations

import re
from dataclasses import replace

import pandas as pd

from diagnose.catalog.schema import Catalog
from diagnose.checkpoint.lost import Lost, lost
from diagnose.checkpoint.model import Checkpoint, Inspection
from diagnose.checkpoint.resume import newest
from diagnose.diagnosis import Diagnosis, Evidence, RemedyStep
from diagnose.infer.events.watchdogs import fold_ranks
from diagnose.infer.rules.base import Candidate

_DAMAGED = ("partial", "corrupt")
_UNREADABLE = 3.5  # beats an exception without a name, not one that says what it is
_MAX_REASONS = 3
# The rank in names of files that each rank writes for itself.
_RANK = re.compile(
    r"(?:rng_state_|random_states_|rank-specific-|pp_rank_|_rank_|(?:^|/)__)(\d{1,7})(?!\d)"
)


def candidates(
    inspection: Inspection, frame: pd.DataFrame, failing: pd.DataFrame, catalog: Catalog
) -> list[Candidate]:
    """A damaged checkpoint as the cause, where the job died over it before its first step.

    Only one that the failure, or the line that says what is loaded, names by its last two parts: a
    job that dies while it saves leaves a damaged one too, as a consequence.
    """
    if failing.empty:
        return []
    before = frame.loc[: failing.index[0]]
    if (before["kind"] == "progress").any():
        return []
    loading = frame[(frame["signature"] == "checkpoint.resume").fillna(False)]
    rows = pd.concat([loading, failing])
    found = []
    for one in inspection.checkpoints:
        naming = rows.index[rows["text"].astype(str).str.contains(_tail(one), regex=False)]
        if one.state not in _DAMAGED or naming.empty:
            continue
        cause = f"checkpoint.{one.state}"
        summary = f"The job was to load {_name(one)}, and {_is(one)}"
        found.append(
            Candidate(
                cause,
                _UNREADABLE,
                catalog.classes[cause].title,
                summary,
                list(dict.fromkeys(int(row) for row in (*naming[:2], *failing.index[:2]))),
                inferred=True,
            )
        )
    return found


def added(diagnosis: Diagnosis, inspection: Inspection, job_timeline: pd.DataFrame,
          catalog: Catalog) -> Diagnosis:  # fmt: skip
    """The diagnosis with the state of the last checkpoint and from which one to resume."""
    last = newest(inspection.checkpoints)
    if last is None:
        return diagnosis
    if diagnosis.verdict not in ("hung", "failed"):
        if last.state not in _DAMAGED:
            return diagnosis
        note = f"{_name(last)} is {last.state} ({_why(last)}): no harm while it is still written"
        return replace(diagnosis, notes=[*diagnosis.notes, note])
    gone = lost(
        job_timeline,
        inspection.resume.step if inspection.resume else None,
        diagnosis.job.world_size,
    )
    return replace(
        diagnosis,
        evidence=[*diagnosis.evidence, *_evidence(last, diagnosis.root_cause.cause)],
        remedies=_remedies(diagnosis, inspection, last, catalog),
        restart=replace(
            diagnosis.restart, why=_restart(diagnosis.restart.why, inspection, last, gone)
        ),
    )


def _evidence(last: Checkpoint, cause: str) -> list[Evidence]:
    if last.state not in _DAMAGED:
        return []
    why = f"the checkpoint written last is {last.state}"
    if not cause.startswith("checkpoint."):
        why = f"also: {why}, as a consequence"
    behind = _behind(last)
    if behind:
        why += f"; {fold_ranks(behind, prefix=True)} did not write all of theirs"
    return [Evidence(_name(last), 0, reason, why) for reason in last.reasons[:_MAX_REASONS]]


def _behind(last: Checkpoint) -> list[int]:
    """The few ranks whose own files are missing: those that hung or died before they wrote them."""
    files = [reason.partition(": missing") for reason in last.reasons]
    named = [_RANK.search(file) for file, missing, _ in files if missing]
    ranks = sorted({int(match[1]) for match in named if match})
    return ranks if last.ranks and len(ranks) * 4 <= last.ranks else []


def _remedies(
    diagnosis: Diagnosis, inspection: Inspection, last: Checkpoint, catalog: Catalog
) -> list[RemedyStep]:
    steps = list(diagnosis.remedies)
    back = inspection.resume
    if back is not None:
        at = "" if back.step is None else f" (step {back.step})"
        chosen = next(one for one in inspection.checkpoints if one.path == back.path)
        why = f"It is whole; {_is(last)}" if last.state != "whole" else "It is the last, and whole"
        do = f"Resume from {_name(chosen)}{at}"
        now = [step for step in steps if step.when == "now"]
        rest = [step for step in steps if step.when != "now"]
        steps = [*now, RemedyStep("now", do, why, back.how), *rest]
    if last.state in _DAMAGED:
        known = {step.do for step in steps}
        steps += [
            RemedyStep(remedy.when, remedy.do, remedy.why, remedy.command)
            for remedy in catalog.classes["checkpoint.partial"].remedies
            if remedy.when == "prevent" and remedy.do not in known
        ]
    return steps


def _restart(why: str, inspection: Inspection, last: Checkpoint, gone: Lost | None) -> str:
    back = inspection.resume
    if back is None:
        text = f"no checkpoint is whole ({_name(last)} is {_told(last)})"
        return f"{why.rstrip('.')}; {text}".lstrip("; ")
    text = f"resume from {back.path.rstrip('/').rpartition('/')[2]}"
    if last.state != "whole":
        text += f", for {_name(last)} is {_told(last)}"
    if gone is not None and gone.steps:
        text += f"; {gone.steps:,} steps come again"
        if gone.gpu_hours is not None:
            text += f" ({gone.gpu_hours:,.1f} GPU-hours)"
    return f"{why.rstrip('.')}; {text}".lstrip("; ")


def _name(one: Checkpoint) -> str:
    return one.path.rstrip("/").rpartition("/")[2]


def _tail(one: Checkpoint) -> str:
    """The last part of the path, with the one before where it alone says little (`step-5`)."""
    parts = one.path.rstrip("/").split("/")
    return "/".join(parts[-2:]) if len(parts[-1]) < 8 else parts[-1]


def _told(one: Checkpoint) -> str:
    return "not known to be whole" if one.state == "unknown" else one.state


def _is(one: Checkpoint) -> str:
    return f"{_name(one)} is {_told(one)}: {_why(one)}"


def _why(one: Checkpoint) -> str:
    return one.reasons[0] if one.reasons else "no reason is known"
