"""What a job's checkpoints add to its diagnosis: their state, and where to go on."""

from __future__ import annotations

import re
from dataclasses import replace

from diagnose.catalog.schema import Catalog, Run
from diagnose.checkpoint.model import Checkpoint, Inspection, Lost, lost, newest
from diagnose.diagnosis import Diagnosis, Evidence, RemedyStep
from diagnose.infer.advise.remedies import step_of
from diagnose.infer.rules.checkpoints import adjective, name, state_of, why_damaged
from diagnose.text.ranks import plural, ranks_phrase
from diagnose.timeline.event import Timeline

_DAMAGED = ("partial", "corrupt")
_MAX_REASONS = 3
# The rank in names of files that each rank writes for itself.
_RANK = re.compile(
    r"(?:rng_state_|random_states_|rank-specific-|pp_rank_|_rank_|(?:^|/)__)(\d{1,7})(?!\d)"
)


def added(diagnosis: Diagnosis, inspection: Inspection, timeline: Timeline,
          catalog: Catalog) -> Diagnosis:  # fmt: skip
    """The diagnosis with the state of the last checkpoint and from which one to resume."""
    last = newest(inspection.checkpoints)
    if last is None:
        return diagnosis
    if diagnosis.verdict not in ("hung", "failed"):
        if last.state not in _DAMAGED:
            return diagnosis
        note = f"{name(last)} is {adjective(last)} ({why_damaged(last)}); harmless during a save"
        return replace(diagnosis, notes=[*diagnosis.notes, note])
    gone = lost(
        timeline, inspection.resume.step if inspection.resume else None, diagnosis.job.world_size
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
    why = f"the most recent checkpoint is {adjective(last)}"
    if not cause.startswith("checkpoint."):
        why = f"consequence: {why}"
    ranks = _ranks_missing(last)
    if ranks:
        why += f"; {ranks_phrase(ranks)} did not finish writing"
    return [
        Evidence(name(last), 0, reason, why, quoted=False) for reason in last.reasons[:_MAX_REASONS]
    ]


def _ranks_missing(last: Checkpoint) -> list[int]:
    """The few ranks whose own files are missing: those that hung or died before they wrote them."""
    named = map(_RANK.search, last.missing)
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
        why = (
            f"It is intact; {state_of(last)}"
            if last.state != "whole"
            else "It is the most recent one, and intact"
        )
        do = f"Resume from {name(chosen)}{at}"
        now = [step for step in steps if step.when == "now"]
        rest = [step for step in steps if step.when != "now"]
        steps = [*now, RemedyStep("now", do, why, [Run(back.kind, [back.how])]), *rest]
    if last.state in _DAMAGED:
        known = {step.do for step in steps}
        steps += [
            step_of(remedy, catalog, diagnosis.job.frameworks)
            for remedy in catalog.classes[catalog.class_shown_by("resume.partial")].remedies
            if remedy.when == "prevent" and remedy.do not in known
        ]
    return steps


def _restart(why: str, inspection: Inspection, last: Checkpoint, gone: Lost | None) -> str:
    back = inspection.resume
    if back is None:
        text = f"there is no usable checkpoint ({name(last)} is {adjective(last)})"
        return f"{why.rstrip('.')}; {text}".lstrip("; ")
    text = f"resume from {back.path.rstrip('/').rpartition('/')[2]}"
    if last.state != "whole":
        text += f", because {name(last)} is {adjective(last)}"
    if gone is not None and gone.steps:
        text += f"; this repeats {gone.steps:,} {plural(gone.steps, 'step')}"
        if gone.gpu_hours is not None:
            text += f" (about {gone.gpu_hours:,.1f} GPU-hours)"
    return f"{why.rstrip('.')}; {text}".lstrip("; ")
