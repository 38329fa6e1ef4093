"""Compares answers with the truth: `python -m benchmarks.hangbench score`.

Each case gets `Marks`, each figure is a share of cases that have the mark. Figures are given for a
track, its open and its sealed cases apart, and for the values of a label; never over tracks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from statistics import median
from typing import Any, Literal

from benchmarks.hangbench.case import Answer, Case, Truth

# How far an answer comes towards the culprit, from the best to the worst.
Level = Literal["rank", "node", "group", "none", "wrong"]
LEVELS: tuple[Level, ...] = ("rank", "node", "group", "none", "wrong")

# What a confidence claims: the share of such answers that are right.
CLAIMS = {"high": 0.98, "medium": 0.90, "low": 0.50}

NODE = 8  # ranks: as many as a group may have where the truth names no suspects


@dataclass(frozen=True, slots=True)
class Marks:
    """How one answer stands to the truth; None where the question does not arise.

    verdict: right. cause: the class is right. cause_named: the same, of answers with a class of
    ours. exact: the culprits and nobody else are named, where evidence determines the rank.
    innocent: somebody is named whom the evidence clears; innocent_high: at high confidence.
    withheld: where evidence does not determine the rank, nobody is named, or suspects alone.
    onset: within the tolerance. missed: a job that hung or failed is called healthy or running.
    alarm: a job that did not is called hung or failed; in track slow, where all work, one that is
    well is called so, or is given a cause or a culprit. silent: a job that hung is called so, with
    its onset. control: the verdict is right of a job that did not hang.
    level: see `Level`. onset_error_s: how far off the onset is.
    answered: a verdict or a rank is named. claims: a cause is named, or of a tool that knows none a
    verdict or a rank; else it abstains. right: nothing that the answer says is wrong, though it may
    say less than the evidence allows: verdict, class where it names one, and no innocent.
    """

    verdict: bool | None
    cause: bool | None
    cause_named: bool | None
    exact: bool | None
    innocent: bool | None
    innocent_high: bool | None
    withheld: bool | None
    onset: bool | None
    missed: bool | None
    alarm: bool | None
    silent: bool | None
    control: bool | None
    answered: bool
    level: Level | None
    onset_error_s: float | None
    claims: bool
    right: bool
    confidence: str | None


# The marks that are counted, in the order in which they are shown, and what a tool must be able to
# say to be counted.
NEEDS: Mapping[str, frozenset[str]] = {
    "right": frozenset(),
    "verdict": frozenset({"verdict"}),
    "missed": frozenset({"verdict"}),
    "alarm": frozenset({"verdict"}),
    "silent": frozenset({"verdict", "onset"}),
    "control": frozenset({"verdict"}),
    "cause": frozenset({"class"}),
    "cause_named": frozenset({"class"}),
    "exact": frozenset({"ranks"}),
    "withheld": frozenset({"ranks"}),
    "innocent": frozenset({"ranks"}),
    "innocent_high": frozenset({"ranks", "confidence"}),
    "onset": frozenset({"onset"}),
    "answered": frozenset(),
}
RATES = tuple(NEEDS)


@dataclass(frozen=True, slots=True)
class Rate:
    """`right` of `of` cases, and the Wilson interval (95 %) of their share."""

    right: int
    of: int

    @property
    def share(self) -> float | None:
        """The share; None of no case."""
        return self.right / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Bounds of the share in the population; None of no case."""
        if not self.of:
            return None
        z, share = 1.959964, self.right / self.of
        middle = share + z * z / (2 * self.of)
        spread = z * math.sqrt(share * (1 - share) / self.of + z * z / (4 * self.of**2))
        scale = 1 + z * z / self.of
        return max(0.0, (middle - spread) / scale), min(1.0, (middle + spread) / scale)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        low, high = self.interval or (None, None)
        return {"right": self.right, "of": self.of, "share": self.share, "low": low, "high": high}


@dataclass(frozen=True, slots=True)
class Point:
    """What is answered at a threshold of confidence and above, and how much of that is right."""

    confidence: str
    coverage: Rate
    correct: Rate


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one tool over some cases. A rate that a tool cannot have is left out.

    level: cases by `Level`. ece: expected calibration error against `CLAIMS`; None without
    confidences. curve: from high alone to all confidences. onset_error_s: median.
    cpu_s, peak_mib: median and largest of a case that the tool ran on; None where not measured.
    """

    cases: int
    errors: int
    rates: Mapping[str, Rate]
    level: Mapping[Level, int]
    onset_error_s: float | None
    ece: float | None
    curve: tuple[Point, ...]
    cpu_s: tuple[float, float] | None
    peak_mib: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {
            "rates": {name: rate.to_dict() for name, rate in self.rates.items()},
            "curve": [
                {
                    "confidence": point.confidence,
                    "coverage": point.coverage.to_dict(),
                    "correct": point.correct.to_dict(),
                }
                for point in self.curve
            ],
        }


def distinct(cases: Iterable[Case]) -> tuple[list[Case], int]:
    """The first case of each shape, and how many were dropped; one without a shape is kept."""
    seen: set[tuple[str, str]] = set()
    kept: list[Case] = []
    dropped = 0
    for case in cases:
        if case.shape and (case.track, case.shape) in seen:
            dropped += 1
            continue
        seen.add((case.track, case.shape))
        kept.append(case)
    return kept, dropped


def marks(case: Case, answer: Answer) -> Marks:
    """Compare one answer with the truth."""
    truth = case.truth
    exact = is_exact(truth, answer)
    innocent = bool(innocents(truth, answer))
    verdict = answer.verdict in truth.verdicts
    cause = (answer.cause in truth.classes) if truth.classes else None
    named = answer.cause not in (None, "unknown") and is_class(answer.cause or "")
    cause_named = cause if named else None
    claim = answer.cause or answer.verdict or ("ranks" if answer.ranks else "unknown")
    error_s = onset_error_s(truth, answer)
    onset = (
        None if truth.onset is None else error_s is not None and error_s <= truth.onset_tolerance_s
    )
    fatal = set(truth.verdicts) <= {"hung", "failed"}
    harmless = not set(truth.verdicts) & {"hung", "failed"}
    silent = case.track == "silent"
    hung = "hung" in truth.verdicts
    return Marks(
        verdict=verdict,
        cause=cause,
        cause_named=cause_named,
        exact=exact if truth.determines == "rank" else None,
        innocent=innocent,
        innocent_high=innocent and answer.confidence == "high",
        withheld=None if truth.determines == "rank" else not innocent,
        onset=onset,
        missed=answer.verdict in ("healthy", "running") if fatal else None,
        alarm=_alarm(case, answer) if harmless else None,
        silent=verdict and onset is not False if silent and hung else None,
        control=verdict if silent and not hung else None,
        answered=answer.verdict not in (None, "unknown") or bool(answer.ranks),
        level=level(truth, answer) if truth.determines == "rank" else None,
        onset_error_s=error_s,
        claims=claim != "unknown",
        right=(verdict or answer.verdict is None) and cause_named is not False and not innocent,
        confidence=answer.confidence,
    )


def _alarm(case: Case, answer: Answer) -> bool | None:
    """Whether a job that is well is said not to be; None in track slow of jobs that are slow."""
    failing = answer.verdict in ("hung", "failed")
    if case.track != "slow":
        return failing
    if case.truth.determines != "none":
        return None
    return failing or bool(answer.ranks) or answer.cause not in (None, "none", "unknown")


def is_class(word: str) -> bool:
    """Whether a cause is a class of ours (`desync.mismatch`) and not a tool's own word."""
    return word in ("none", "unknown") or ("." in word and " " not in word)


def is_exact(truth: Truth, answer: Answer) -> bool:
    """Whether the ranks are the culprits, or another set that is as right."""
    named = set(answer.ranks)
    return any(named == set(ranks) for ranks in (truth.culprits, *truth.accepted))


def innocents(truth: Truth, answer: Answer) -> set[int]:
    """Ranks named that the evidence clears."""
    return set(answer.ranks).difference(truth.culprits, truth.suspects, *truth.accepted)


def level(truth: Truth, answer: Answer) -> Level:
    """How far an answer comes where the evidence determines the rank.

    node: the hosts of the culprits and no other, with no rank or with the culprits among the ranks.
    group: the culprits among no more ranks than there are suspects, or than a node has.
    """
    named, hosts = set(answer.ranks), set(answer.hosts)
    if is_exact(truth, answer):
        return "rank"
    if not named and not hosts:
        return "none"
    holds = any(named >= set(ranks) for ranks in (truth.culprits, *truth.accepted) if ranks)
    if hosts and hosts == set(truth.hosts) and (holds or not named):
        return "node"
    if holds and len(named) <= max(len(truth.suspects), NODE):
        return "group"
    return "wrong"


def onset_error_s(truth: Truth, answer: Answer) -> float | None:
    """Seconds between the onset that a tool names and the true one; None without either."""
    if truth.onset is None or answer.onset is None:
        return None
    try:
        told = datetime.fromisoformat(answer.onset).replace(tzinfo=None)
    except ValueError:
        return None
    return abs((told - datetime.fromisoformat(truth.onset).replace(tzinfo=None)).total_seconds())


def figures(
    cases: Sequence[Case], answers: Mapping[str, Answer], tool: str, can: frozenset[str]
) -> Figures:
    """The figures of a tool over `cases`; where it has no answer it says nothing.

    can: what the tool can say (`GIVES` of its adapter); no figure is made of what it cannot.
    """
    given = [answers.get(case.id) or Answer(case.id, tool) for case in cases]
    all_marks = [marks(case, answer) for case, answer in zip(cases, given, strict=True)]
    rates = {
        name: rate
        for name in RATES
        if NEEDS[name] <= can and (rate := _rate(getattr(one, name) for one in all_marks)).of
    }
    errors_s = [one.onset_error_s for one in all_marks if one.onset_error_s is not None]
    levels = Counter(one.level for one in all_marks if one.level)
    return Figures(
        cases=len(cases),
        errors=sum(answer.error is not None for answer in given),
        rates=rates,
        level={name: levels[name] for name in LEVELS} if "ranks" in can and levels else {},
        onset_error_s=median(errors_s) if errors_s else None,
        ece=calibration_error(all_marks),
        curve=abstention(all_marks),
        cpu_s=_middle_and_most(answer.cpu_s for answer in given if answer.peak_mib),
        peak_mib=_middle_and_most(answer.peak_mib for answer in given if answer.peak_mib),
    )


def calibration_error(all_marks: Sequence[Marks]) -> float | None:
    """Mean distance between what a confidence claims and the share that is right (ECE).

    Over answers that claim something and have a confidence.
    """
    told = [one for one in all_marks if one.claims and one.confidence in CLAIMS]
    if not told:
        return None
    off = 0.0
    for confidence, claim in CLAIMS.items():
        right = [one.right for one in told if one.confidence == confidence]
        off += abs(sum(right) - claim * len(right))
    return off / len(told)


def abstention(all_marks: Sequence[Marks]) -> tuple[Point, ...]:
    """Coverage against correctness as the threshold falls; empty without confidences."""
    points, accepted = [], []
    for confidence in CLAIMS:
        accepted.append(confidence)
        told = [one.right for one in all_marks if one.claims and one.confidence in accepted]
        points.append(
            Point(confidence, Rate(len(told), len(all_marks)), Rate(sum(told), len(told)))
        )
    return tuple(points) if points[-1].coverage.right else ()


def gives(answers: Iterable[Answer]) -> frozenset[str]:
    """What a tool without an adapter can say: all that any of its answers says."""
    known = list(answers)
    said = {
        "verdict": any(answer.verdict for answer in known),
        "class": any(answer.cause and is_class(answer.cause) for answer in known),
        "confidence": any(answer.confidence for answer in known),
        "ranks": any(answer.ranks for answer in known),
        "onset": any(answer.onset for answer in known),
    }
    return frozenset(word for word, ever in said.items() if ever)


def _rate(values: Iterable[bool | None]) -> Rate:
    counted = [value for value in values if value is not None]
    return Rate(sum(counted), len(counted))


def _middle_and_most(values: Iterable[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (median(known), max(known)) if known else None
