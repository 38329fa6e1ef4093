"""What to capture next time, with the variable names of the job's own versions."""

from __future__ import annotations

from collections.abc import Collection

from diagnose.catalog.schema import Catalog, Held
from diagnose.diagnosis import Confidence, MissingEvidence
from diagnose.infer.events.facts import Facts
from diagnose.infer.rules.base import Hypothesis
from diagnose.text.ranks import ranks_phrase

# Torch 2.9 renamed the variables; either name works there, only the older one before it.
_RECORDER = (
    "TORCH_FR_BUFFER_SIZE=2000 TORCH_FR_DUMP_TEMP_FILE=/shared/fr/rank_ and, before torch 2.9, "
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/fr/rank_; with "
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1"
)
_UNDUMPED = "check their nodes; a rank that died or could not write a dump has none there either"


def capture_next(
    winner: Hypothesis,
    confidence: Confidence,
    catalog: Catalog,
    facts: Facts,
    waits: bool,
    undumped: list[int] | None = None,
    held: Collection[Held] = (),
) -> list[MissingEvidence]:
    """What would settle the question, with the variable names of the job's own versions.

    `undumped` are the ranks without a Flight Recorder dump, None where there is no dump at all;
    `held` is other evidence that is there.
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
        what = f"the Flight Recorder dumps of {ranks_phrase(undumped)}"
        wanted.append(MissingEvidence(what, _UNDUMPED))
    of_class = catalog.classes[winner.cause]
    stacks = [] if "stacks" in held else of_class.capture_stacks
    if of_class.vague and waits and not {"stacks", "bundle"} & {*held}:
        stacks = []
        wanted.append(
            MissingEvidence(
                "the stacks of the silent ranks",
                "while it hangs: diagnose collect --triage, on every node or with --slurm, "
                "--kubernetes, --hosts or --via (in a container with the capability SYS_PTRACE)",
            )
        )
    for line in [*stacks, *of_class.capture]:
        if (waits or "dumps" in held) and "flight recorder" in line.lower():
            continue  # it is there, or named above with the variables of this version
        what, _, how = line.partition(": ")
        wanted.append(MissingEvidence(what, how))
    return wanted[:5]


def _flight_recorder(facts: Facts) -> MissingEvidence:
    version = facts.first("version.torch") or ""
    numbers = [int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit()]
    how = _RECORDER
    if len(numbers) == 2 and numbers < [2, 2]:
        how = "needs torch 2.2 or later; until then TORCH_DISTRIBUTED_DEBUG=DETAIL"
    return MissingEvidence("which rank never joined: Flight Recorder dumps of all ranks", how)
