"""What is said where a run starts, once in each run by each of its processes."""

from __future__ import annotations

from diagnose.timeline.draft import BEGINS, Draft
from diagnose.timeline.event import Meaning

_PHASES = ("init", "preprocessing", "model_load")
# Of facts those that only a start tells: which launcher, which versions, the table of devices.
_FACTS = (".launcher.", "version", "gpu.smi.")

# What is said once in each run: the entry, and the rank or device that it names.
Key = tuple[str | None, int | None]


def start(draft: Draft) -> Key | None:
    """What it is the start of, where it is a line of a start."""
    meaning = draft.meaning
    if not may_start(meaning):
        return None
    if meaning.tells == BEGINS:
        return BEGINS, draft.rank
    numbers = (draft.device, draft.mapped_rank, draft.rank, draft.local_rank)
    return meaning.signature, next((number for number in numbers if number is not None), None)


def may_start(meaning: Meaning) -> bool:
    """Whether a line that means this is one of a start."""
    if meaning.tells == "rank_map":
        return meaning.role != "effect"  # the table of those that failed
    return meaning.tells == BEGINS or (meaning.kind == "phase" and meaning.phase in _PHASES)


def says_start(draft: Draft) -> str | None:
    """The entry of a line that a program, its launcher or a library says as it starts."""
    meaning = draft.meaning
    if meaning.tells == BEGINS:
        return BEGINS
    if meaning.kind == "phase":
        return meaning.signature if meaning.phase in _PHASES and not meaning.ends_phase else None
    return meaning.signature if opens(draft) else None


def opens(draft: Draft) -> bool:
    """Whether a process says it as it starts, and at no other time."""
    meaning = draft.meaning
    if meaning.tells == BEGINS:
        return True
    if meaning.kind == "phase":
        return meaning.phase == "init" and not meaning.ends_phase
    name = meaning.signature or ""
    return meaning.kind == "fact" and any(word in name for word in _FACTS)
