"""A training whose values are bad to its end: NaN, overflow without end, a loss that rose for good.

No line states a failure; the job may even have ended well. What it has trained since is worthless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from diagnose.infer.events.failures import done
from diagnose.infer.judge.values import BadValues, Sign
from diagnose.infer.rules.base import Context, Hypothesis, Tier, inferred

# How far each sign reaches, and that of a line or two.
_TIERS: Mapping[Sign, tuple[Tier, Tier]] = {
    "not_finite": (Tier.STRONG, Tier.WEAK),
    "overflow": (Tier.LIKELY, Tier.NONE),
    "norm": (Tier.LIKELY, Tier.NONE),
    "raised": (Tier.CIRCUMSTANTIAL, Tier.NONE),
    "norm_raised": (Tier.WEAK, Tier.NONE),
}
_RISEN = "The {name} rose to {value} at {place} and is {last}"
_SINCE: Mapping[Sign, str] = {
    "not_finite": "The {name} is {value} since {place}",
    "overflow": "Steps are skipped for overflow, and the loss scale is {last} since {place}",
    "norm": "The {name} is {value} since {place}",
    "raised": _RISEN,
    "norm_raised": _RISEN,
}


def propose(context: Context) -> Iterator[Hypothesis]:
    """What the values of the training show, if they are bad at its end."""
    values = context.values
    if values is None:
        return
    sure, unsure = _TIERS[values.sign]
    tier = sure if values.lasting else unsure
    if context.stalls:
        tier = min(tier, Tier.WEAK)  # ranks that wait for each other show more
    cause = context.catalog.class_shown_by(f"values.{values.sign}")
    title = _SINCE[values.sign].format(place=_place(values), **_words(values))
    summary = f"{title}, to the end of the log{_details(values)}. {_state(context)}".rstrip()
    found = inferred(cause, tier, context.catalog, summary, values.rows)
    found.title = title
    found.basis, found.ranks = "values", [*values.ranks]
    if found.ranks:
        found.why = "its loss went bad before those of all other ranks"
    yield found


def _words(values: BadValues) -> dict[str, str]:
    fields = values.first.fields
    return {word: fields[word] for word in ("name", "value", "last")}


def _details(values: BadValues) -> str:
    """The last step, if it is another one, and the last good value."""
    fields, text = values.first.fields, ""
    first = values.first.step
    if first is not None and fields.get("last_step", str(first)) != str(first):
        text = f" (step {int(fields['last_step']):,})"
    if "good" in fields:
        at = f" at step {int(fields['good_step']):,}" if "good_step" in fields else ""
        text += f"; the last good value is {fields['good']}{at}"
    return text


def _state(context: Context) -> str:
    """What became of the job, where nothing else says."""
    if context.failing:
        return ""
    if done(context.stories):
        return "No process failed: by its own words the job ended well."
    return "No process failed: the job was still running where its log ends."


def _place(values: BadValues) -> str:
    step, line = values.first.step, values.first.line
    place = f"step {step:,}" if step is not None else f"line {line:,}"
    return place if "seen" in values.first.fields else f"{place} or before"
