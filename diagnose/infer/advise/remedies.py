"""What to do: remedies with the setting for the job's framework, restart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from diagnose.catalog.schema import Catalog, Remedy, Run
from diagnose.diagnosis import Answer, RemedyStep, RestartAdvice
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.phases import Activity
from diagnose.infer.rules.base import Hypothesis

_ORDER = {"now": 0, "fix": 1, "prevent": 2}
# Frameworks whose settings are those of another one, where a remedy does not name them.
_BUILT_ON = {
    "axolotl": "transformers", "ms-swift": "transformers", "llama-factory": "transformers",
    "trl": "transformers", "transformers": "accelerate", "nemo": "lightning",
}  # fmt: skip
_MOVING_CLASSES = ("data.preparation", "slow.")


def remedies(winner: Hypothesis, catalog: Catalog, facts: Facts) -> list[RemedyStep]:
    """The winner's own steps, then its class's for the stages it says nothing about."""
    steps = list(winner.remedies)
    covered = {step.when for step in steps}
    defaults = catalog.classes[winner.cause].remedies
    steps += [step for step in defaults if step.when not in covered]
    named = [*facts.get("framework"), *facts.get("launcher")]
    named += [_BUILT_ON[name] for name in named if name in _BUILT_ON]
    chosen = [_step(step, named) for step in steps]
    unique = {step.do: step for step in chosen}
    return sorted(unique.values(), key=lambda step: _ORDER[step.when])


def _step(remedy: Remedy, frameworks: Iterable[str]) -> RemedyStep:
    return RemedyStep(
        remedy.when,
        remedy.do,
        remedy.why,
        _chosen(remedy.run, frameworks),
        remedy.risk,
        remedy.needs,
    )


def _chosen(runs: Sequence[Run], frameworks: Iterable[str]) -> list[Run]:
    """What is for the first framework that any names, else what is for all, else everything."""
    for framework in frameworks:
        mine = [run for run in runs if run.framework.lower() == framework.lower()]
        if mine:
            return mine
    return [run for run in runs if not run.framework] or list(runs)


def restart(winner: Hypothesis, catalog: Catalog) -> RestartAdvice:
    """The winner's advice, or its class's."""
    default = catalog.classes[winner.cause]
    advice = winner.restart or default.restart
    hosts = winner.hosts if advice == "retry_elsewhere" else []
    return RestartAdvice(advice, hosts, default.restart_why)  # type: ignore[arg-type]


def longer_timeout(winner: Hypothesis, catalog: Catalog, activity: Activity) -> Answer:
    """Would a longer timeout help? Yes only if the late rank is known to be moving."""
    answer = catalog.classes[winner.cause].longer_timeout
    if answer == "yes" and winner.cause.startswith(_MOVING_CLASSES):
        return "yes" if activity.moving and (activity.bar or winner.ranks) else "unknown"
    return answer
