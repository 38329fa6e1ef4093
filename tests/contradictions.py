"""What the fields of one diagnosis may not say of each other, or of the log they are about."""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagnose.diagnosis import WELL, Diagnosis
from diagnose.job.model import Job
from diagnose.report import words

_MISSED = 6  # lines of the usual interval
_SILENT_S = 30.0
_SENTENCE = re.compile(
    r"\b[Rr]anks \d[\d, -]*(?: and \d+)? (?:was|is|has|does|never was)\b"
    r"|\b[Rr]ank \d+ (?:were|are|have|do)\b|\b1 (?:ranks|jobs|files|frames|lines|signatures)\b"
)


def contradictions(job: Job, found: Diagnosis) -> Iterator[str]:
    """Each contradiction in words; none in a report that is to be believed."""
    yield from _of_a_job_that_is_well(job, found)
    yield from _culprits(job, found)
    yield from _times(job, found)
    yield from _words(found)
    if job.documents.stacks and "diagnose collect" in str(found.missing_evidence):
        yield "asks to collect what was collected"


def _of_a_job_that_is_well(job: Job, found: Diagnosis) -> Iterator[str]:
    cause = found.root_cause.cause
    shown_by = job.catalog.classes[cause].shown_by
    if found.verdict not in WELL or any(one.startswith(("pace.", "values.")) for one in shown_by):
        return
    if cause != "none" or found.culprits.ranks or found.culprits.hosts:
        yield f"a job that is well has {found.culprits} and the cause {cause}"


def _culprits(job: Job, found: Diagnosis) -> Iterator[str]:
    blamed, kind = set(found.culprits.ranks), found.culprits.kind
    if kind is not None and not blamed and not found.culprits.hosts:
        yield f"a kind without culprits: {found.culprits}"
    call = found.collective
    if call is not None and set(call.joined) & set(call.missing):
        yield f"ranks that joined and did not: {call}"
    wrong = kind in ("missing", "mismatched")
    if call is not None and wrong and blamed & set(call.joined) and not set(call.joined) <= blamed:
        yield f"{kind}, and joined the collective: {sorted(blamed & set(call.joined))}"
    dead = {
        event.rank
        for event in job.events.kind("exit")
        if event.fields.get("exitcode") not in (None, "0", "+0", "-15")
    }
    if kind == "slow" and blamed and blamed <= dead:
        yield f"still making progress, and ended: {sorted(blamed)}"
    if found.longer_timeout_helps == "yes" and kind == "crashed":
        yield "a longer timeout would help a rank that failed"
    lengthens = {one.id for one in job.catalog.settings.values() if one.lengthens}
    places = [
        line for name in lengthens for place in job.catalog.settings[name].places
        for line in place.run.lines
    ]  # fmt: skip
    advised = [line for step in found.remedies for run in step.run for line in run.lines]
    if found.longer_timeout_helps == "no" and {*advised} & {*places}:
        yield f"a longer timeout does not help, and is advised: {[*{*advised} & {*places}]}"
    if found.verdict in ("running", "hung") and not found.remedies:
        looked_at = any(one.predicate == "seen_at_work" for one in found.reasons)
        if not looked_at:
            yield f"{found.verdict}, and no step to take"
    if not set(found.restart.exclude_hosts) <= set(found.culprits.hosts):
        yield f"hosts left out that nobody blames: {found.restart.exclude_hosts}"
    size = found.job.world_size
    if size and any(rank >= size for rank in blamed):
        yield f"ranks {sorted(blamed)} of {size}"


def _times(job: Job, found: Diagnosis) -> Iterator[str]:
    timed = any(time is not None for time in job.events.column("time"))
    if timed and "no timestamps" in found.onset.why:
        yield f"lines have timestamps, but: {found.onset.why}"
    progress = found.progress
    if found.verdict == "hung" and found.onset.time is None and progress and timed:
        steps = job.events.kind("progress")
        if any(event.time is not None for event in steps):
            yield f"the onset is unknown beside steps with a time: {found.onset.why}"
    if found.verdict == "running" and progress and progress.seconds_a_line:
        silent = progress.silent_s or 0.0
        if silent > max(_SILENT_S, _MISSED * progress.seconds_a_line):
            yield f"at work, and silent for {silent} s"
    chain = [link.time for link in found.causal_chain if link.time is not None]
    if chain != sorted(chain):
        yield f"the chain is not in order: {chain}"


def _words(found: Diagnosis) -> Iterator[str]:
    texts = [
        found.root_cause.summary,
        words.culprits(found),
        found.culprits.why,
        found.onset.why,
        *(step.do for step in found.remedies),
        *(one.why for one in found.evidence),
        *found.notes,
    ]
    for text in texts:
        if wrong := _SENTENCE.search(text):
            yield f"{wrong[0]!r} in {text!r}"
    raised = found.exception
    crash = found.root_cause.cause == "crash.exception"
    if crash and raised is not None:
        summary = found.root_cause.summary
        if raised.type and raised.type not in summary:
            yield f"{raised.type} is not in {summary!r}"
        place = raised.where
        if place and f"{place.file.rpartition('/')[2]}:{place.line}" not in summary:
            yield f"the line {place.line} of {place.file} is not in {summary!r}"
