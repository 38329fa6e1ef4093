"""A job, or one of its processes, whose regular lines stopped long before somebody ended it.

What was begun and not finished then is a lead to its cause. Who ended it, a limit, a signal or a
person, saw what the log shows too, and is no cause.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.infer.rules.base import Context, Hypothesis
from diagnose.infer.rules.busy import busy_class, doing, unstated
from diagnose.infer.tiers import Tier
from diagnose.stories.lone import Lone
from diagnose.stories.silence import Silence
from diagnose.text.ranks import ranks_phrase
from diagnose.text.times import duration


def propose(context: Context) -> Iterator[Hypothesis]:
    """What the job was about when it fell silent; unknown where no line says."""
    silence = context.silence
    if silence is None or context.stalls:
        return
    activity = context.activity
    cause = busy_class(activity.phase, context.catalog) if activity.moving else None
    busy = f" while it was {doing(activity.phase)}" if cause else ""
    summary = _summary(silence, busy)
    found = unstated(cause or "unknown", Tier.STRONG, context.catalog, summary)
    found.rows, found.basis = _rows(silence), "silence"
    found.explains = sorted(context.catalog.endings)
    if silence.lone is not None:
        _blame(found, silence.lone)
    yield found


def _rows(silence: Silence) -> list[int]:
    rows = [silence.began.index, silence.last.index]
    if silence.ended is not None:
        rows.append(silence.ended.index)
    return list(dict.fromkeys(rows))


def _summary(silence: Silence, busy: str) -> str:
    lone, usual = silence.lone, silence.usual_s
    apart = f"; before, lines came every {duration(usual)}" if usual else ""
    if not silence.whole or silence.seconds is None:
        assert lone is not None
        return (
            f"{_name(lone)} wrote no more progress{apart}, while the others wrote "
            f"{lone.lines} more lines: it hangs, or only its output is lost."
        )
    first = ""
    if lone is not None:
        more = "one more line" if lone.lines == 1 else f"{lone.lines} more lines"
        first = f" {_name(lone)} was the first, the others wrote {more}."
    text = f"The job fell silent{busy} for {duration(silence.seconds)}{apart}.{first}"
    if silence.ended is None:
        return f"{text} Nothing ended it: look at it while it hangs."
    return f"{text} Whoever ended it then is not the cause."


def _name(lone: Lone) -> str:
    if lone.rank is not None:
        return ranks_phrase([lone.rank]).capitalize()
    kind = {"process": "Process", "host": "Host", "source": "Log"}.get(lone.author.kind, "Task")
    return f"{kind} {':'.join(str(part) for part in lone.author.name if part is not None)}"


def _blame(found: Hypothesis, lone: Lone) -> None:
    """Name the one author, if it is known by its rank or host."""
    host = lone.author.name[0]
    if lone.rank is not None:
        found.ranks = [lone.rank]
    elif lone.author.kind in ("host", "process") and isinstance(host, str):
        found.hosts = [host]
    if found.ranks or found.hosts:
        found.kind, found.why = "missing", "it wrote no more progress, and the others went on"
