"""What stacks in the log say: a rank beyond the training loop, or a job that only stood still."""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.catalog.schema import Catalog
from diagnose.infer import scoring
from diagnose.infer.events.phases import Activity
from diagnose.infer.events.tracebacks import dumped, last_tracebacks
from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.busy import busy_class, doing, unstated
from diagnose.text.ranks import ranks_phrase
from diagnose.timeline.event import Timeline

_BEYOND_TRAINING = ("evaluation", "checkpoint", "shutdown")
_ROWS = 4


def propose(context: Context) -> Iterator[Hypothesis]:
    """Hypotheses from the last stack of each rank."""
    timeline, catalog = context.timeline, context.catalog
    yield from _ahead(timeline, catalog)
    if not context.stalls and not timeline.telling("store_wait"):
        yield from _stacks_only(timeline, context.activity, catalog)


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
        f"{names.capitalize()} had left the training loop for {phase} while the other ranks were "
        "still training: fewer batches."
    )
    found = unstated("desync.uneven_work", scoring.AHEAD, catalog, summary)
    found.basis = "traceback"
    found.rows = [stood[rank].row for rank in [*beyond, *training[:2]]]
    found.ranks, found.kind = beyond, "mismatched"
    found.why = "stack in a different phase than all other ranks"
    yield found


def _stacks_only(timeline: Timeline, activity: Activity, catalog: Catalog) -> Iterator[Hypothesis]:
    """Somebody took the stacks of a job that stood still: the phase they show is all there is."""
    frames = dumped(timeline)
    cause = busy_class(activity.phase, catalog)
    if not frames or cause is None:
        return
    found = unstated(
        cause,
        scoring.STACKS_ONLY,
        catalog,
        f"The stacks show a process {doing(activity.phase)}.",
    )
    found.basis = "stack"
    found.rows = [frame.index for frame in frames if frame.phase is not None][:_ROWS]
    yield found
