"""What to do: remedies with the setting for the job's framework, restart, what to capture."""

from __future__ import annotations

from collections.abc import Iterable

from diagnose.catalog.schema import Catalog, Remedy
from diagnose.diagnosis import Answer, Confidence, MissingEvidence, RemedyStep, RestartAdvice
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.onset import Activity
from diagnose.infer.events.watchdogs import fold_ranks
from diagnose.infer.rules.base import Candidate

_ORDER = {"now": 0, "fix": 1, "prevent": 2}
# Frameworks whose settings are those of another one, where a remedy does not name them.
_BUILT_ON = {
    "axolotl": "transformers", "ms-swift": "transformers", "llama-factory": "transformers",
    "trl": "transformers", "transformers": "accelerate", "nemo": "lightning",
}  # fmt: skip
_UNDUMPED = "look on their nodes: a rank that died or could not write has none there either"
_MOVING_CLASSES = ("data.preparation", "slow.")


def remedies(winner: Candidate, catalog: Catalog, facts: Facts) -> list[RemedyStep]:
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
    settings = {name.lower(): setting for name, setting in remedy.settings.items()}
    for framework in frameworks:
        if framework.lower() in settings:
            return RemedyStep(remedy.when, remedy.do, remedy.why, settings[framework.lower()])
    command = remedy.command
    if not command and settings:
        command = "\n".join(f"{name}: {setting}" for name, setting in settings.items())
    return RemedyStep(remedy.when, remedy.do, remedy.why, command)


def restart(winner: Candidate, catalog: Catalog) -> RestartAdvice:
    """The winner's advice, or its class's."""
    default = catalog.classes[winner.cause]
    advice = winner.restart or default.restart
    hosts = winner.hosts if advice == "retry_elsewhere" else []
    return RestartAdvice(advice, hosts, default.restart_why)  # type: ignore[arg-type]


def longer_timeout(winner: Candidate, catalog: Catalog, activity: Activity) -> Answer:
    """Would a longer timeout help? Yes only if the late rank is known to be moving."""
    answer = catalog.classes[winner.cause].longer_timeout
    if answer == "yes" and winner.cause.startswith(_MOVING_CLASSES):
        return "yes" if activity.moving and (activity.bar or winner.ranks) else "unknown"
    return answer


def capture_next(
    winner: Candidate,
    confidence: Confidence,
    catalog: Catalog,
    facts: Facts,
    waits: bool,
    undumped: list[int] | None = None,
) -> list[MissingEvidence]:
    """What would settle the question, with the variable names of the job's own versions.

    `undumped` are the ranks without a Flight Recorder dump, None where there is no dump at all.
    """
    wanted: list[MissingEvidence] = []
    if confidence == "high":
        return wanted
    if facts.world_size and len(facts.ranks_seen) < facts.world_size:
        missing = facts.world_size - len(facts.ranks_seen)
        if missing and facts.ranks_seen:
            wanted.append(
                MissingEvidence(
                    f"the logs of {missing} of {facts.world_size} ranks",
                    "torchrun --log-dir logs --tee 3 keeps one file per rank; give the folder to "
                    "diagnose",
                )
            )
    if waits and undumped is None:
        wanted.append(_flight_recorder(facts))
    elif undumped:
        what = f"the Flight Recorder dumps of {fold_ranks(undumped, prefix=True)}"
        wanted.append(MissingEvidence(what, _UNDUMPED))
    if winner.cause in ("desync.missing_rank", "unknown", "stall.host") and waits:
        wanted.append(
            MissingEvidence(
                "where the silent ranks stand",
                "while it hangs, on every node: for p in $(pgrep -f train); do py-spy dump "
                "--pid $p; done",
            )
        )
    for line in catalog.classes[winner.cause].capture:
        if waits and "flight recorder" in line.lower():
            continue  # named above, with the variables of this version
        what, _, how = line.partition(": ")
        wanted.append(MissingEvidence(what, how))
    return wanted[:5]


def _flight_recorder(facts: Facts) -> MissingEvidence:
    version = facts.first("version.torch") or ""
    numbers = [int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit()]
    new = len(numbers) == 2 and numbers >= [2, 8]
    old = len(numbers) == 2 and numbers < [2, 2]
    if old:
        how = "needs torch 2.2 or later; until then TORCH_DISTRIBUTED_DEBUG=DETAIL"
    elif new:
        how = "TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_TEMP_FILE=/shared/fr/rank_ (with "
        how += "TORCH_NCCL_DUMP_ON_TIMEOUT=1)"
    else:
        how = "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
        how += "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/fr/rank_"
        if not numbers:
            how += " (torch 2.8 and later: TORCH_FR_BUFFER_SIZE, TORCH_FR_DUMP_TEMP_FILE)"
    return MissingEvidence("which rank did not join: Flight Recorder dumps of all ranks", how)
