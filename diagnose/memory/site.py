"""How often verdicts were right at this site, and what their confidence is worth for that.

A confidence claims a share of verdicts that are right (CLAIMS). What was confirmed moves it, from
the general to the particular: all verdicts, those of this confidence, of these those of this class.
What was expected before each step weighs as if it had been seen in so many verdicts (OF_…).
"""

from __future__ import annotations

from collections.abc import Iterable

from diagnose.catalog.schema import UNKNOWN
from diagnose.diagnosis import Confidence, SiteRecord

# The shares that are measured on jobs whose truth is known.
CLAIMS: dict[Confidence, float] = {"high": 0.98, "medium": 0.90, "low": 0.50}
LEAST = 10  # confirmed verdicts before any of them counts
OF_ALL, OF_LEVEL, OF_CLASS = 4.0, 12.0, 20.0


def record(
    rows: Iterable[tuple[str, str, int, int]], cause: str, confidence: Confidence
) -> SiteRecord | None:
    """What the record of a site says of a verdict; None before LEAST verdicts are confirmed.

    `rows` are (class, confidence, confirmed, correct). An unknown verdict claims nothing: it is
    neither right nor wrong.
    """
    rows = [row for row in rows if row[0] != UNKNOWN]
    if sum(confirmed for _, _, confirmed, _ in rows) < LEAST:
        return None
    of_level = [row for row in rows if row[1] == confidence]
    claimed = sum(CLAIMS[name] * row[2] for row in rows for name in CLAIMS if name == row[1])
    share = CLAIMS[confidence] * (OF_ALL + sum(row[3] for row in rows)) / (OF_ALL + claimed)
    share = min(share, 1.0)
    of_class = [row for row in of_level if row[0] == cause]
    for weight, part in ((OF_LEVEL, of_level), (OF_CLASS, of_class)):
        confirmed, correct = sum(row[2] for row in part), sum(row[3] for row in part)
        share = (weight * share + correct) / (weight + confirmed)
    used = of_class or of_level
    return SiteRecord(
        confirmed=sum(row[2] for row in used),
        correct=sum(row[3] for row in used),
        of_class=bool(of_class),
        share=round(share, 3),
        stated=confidence,
    )


def level(share: float, stated: Confidence) -> Confidence:
    """The confidence whose claim is nearest, never above what the evidence of the job says.

    That earlier verdicts were right says nothing of this one: nobody drains a node for that.
    """
    known = [name for name in CLAIMS if CLAIMS[name] <= CLAIMS[stated]]
    return min(known, key=lambda name: abs(CLAIMS[name] - share))
