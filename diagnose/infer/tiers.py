"""How far each kind of evidence reaches, in one place: seven tiers instead of numbers.

Rules give a hypothesis its tier, `decide.ranking` compares tiers: a higher one weighs more, however
many there are of a lower one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import get_args

from diagnose.catalog.schema import Strength
from diagnose.diagnosis import EvidenceTier

_WORDS: tuple[EvidenceTier, ...] = get_args(EvidenceTier)


class Tier(IntEnum):
    """How much a hypothesis is worth by itself; the higher one weighs more."""

    NONE = 0  # taken back by what came after it, or seen only as others ended: no verdict
    GUESS = 1  # an exit status, a likeness, a wait for nobody in particular; explains nothing else
    WEAK = 2  # a line that more than one cause leaves
    CIRCUMSTANTIAL = 3  # who was where, with gaps
    LIKELY = 4  # the least that is told with medium confidence, and that explains stronger ones
    STRONG = 5  # a line says so, or ranks surely did not come; other causes may leave the same
    OBSERVED = 6  # what the ranks did shows it; the least that is told with high confidence
    PROVEN = 7  # a line says so that nothing else leaves

    @property
    def word(self) -> EvidenceTier:
        """Its name as people and JSON have it."""
        return _WORDS[self]


_DECISIVE: Mapping[str, Tier] = {
    "timely": Tier.PROVEN,
    "late": Tier.OBSERVED,  # seen only after the first wait or teardown
    "in_trouble": Tier.LIKELY,  # who ended a job that had printed errors that no entry knows
    "doubted": Tier.STRONG,  # other ranks went on for long
    "recovered": Tier.CIRCUMSTANTIAL,  # its rank went on afterwards
    "late_ending": Tier.CIRCUMSTANTIAL,  # what launchers do to victims, after the first wait
}
_STRONG: Mapping[str, Tier] = {
    "timely": Tier.STRONG,
    "generic": Tier.LIKELY,  # an entry that others know better
    "late": Tier.CIRCUMSTANTIAL,
    "in_trouble": Tier.CIRCUMSTANTIAL,
    "doubted": Tier.WEAK,
    "recovered": Tier.GUESS,
    "late_ending": Tier.NONE,
}
_WEAK: Mapping[str, Tier] = {
    "timely": Tier.WEAK,
    "generic": Tier.GUESS,
    "cut": Tier.GUESS,  # the line breaks off in the message
    "late": Tier.GUESS,
    "in_trouble": Tier.GUESS,
    "doubted": Tier.NONE,
    "recovered": Tier.NONE,
    "late_ending": Tier.NONE,
}
_STATED: Mapping[Strength, Mapping[str, Tier]] = {
    "decisive": _DECISIVE, "strong": _STRONG, "weak": _WEAK,
}  # fmt: skip


def stated(strength: Strength, grounds: Iterable[str]) -> Tier:
    """The tier of what a line of an entry states, under all that holds of the line."""
    tiers = _STATED[strength]
    return min((tiers.get(ground, tiers["timely"]) for ground in grounds), default=tiers["timely"])
