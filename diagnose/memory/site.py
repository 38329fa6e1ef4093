"""How often verdicts were right at this site, and what their confidence is worth for that.

A confidence claims a share of verdicts that are right (CLAIMS). What was confirmed moves it: first
all verdicts of this confidence, then those of this class, each weighed against what was claimed
before as if that had been seen in PRIOR verdicts.
"""

from __future__ import annotations

from collections.abc import Iterable

from diagnose.diagnosis import Confidence, SiteRecord

# The shares that are measured on jobs whose truth is known.
CLAIMS: dict[Confidence, float] = {"high": 0.98, "medium": 0.90, "low": 0.50}
LEAST = 10  # confirmed verdicts before any of them counts
PRIOR = 4.0  # verdicts that the claim is worth


def record(
    rows: Iterable[tuple[str, str, int, int]], cause: str, confidence: Confidence
) -> SiteRecord | None:
    """What the record of a site says of a verdict; None before LEAST verdicts are confirmed.

    `rows` are (class, confidence, confirmed, correct).
    """
    rows = [*rows]
    if sum(confirmed for _, _, confirmed, _ in rows) < LEAST:
        return None
    of_level = [row for row in rows if row[1] == confidence]
    share = CLAIMS[confidence]
    of_class = [row for row in of_level if row[0] == cause]
    for part in (of_level, of_class):
        confirmed, correct = sum(row[2] for row in part), sum(row[3] for row in part)
        share = (PRIOR * share + correct) / (PRIOR + confirmed)
    used = of_class or of_level
    return SiteRecord(
        confirmed=sum(row[2] for row in used),
        correct=sum(row[3] for row in used),
        of_class=bool(of_class),
        share=round(share, 3),
        stated=confidence,
    )


def level(share: float) -> Confidence:
    """The confidence whose claim is nearest."""
    return min(CLAIMS, key=lambda name: abs(CLAIMS[name] - share))
