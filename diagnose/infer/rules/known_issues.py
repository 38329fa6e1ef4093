"""Known issues: entries of the catalog that name a cause which no single line names."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field

from diagnose.catalog.schema import Catalog, Condition, KnownIssue
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.watchdogs import Stall
from diagnose.infer.rules.base import Candidate

_SCORE = {"high": 5.5, "medium": 4.25, "low": 2.75}


@dataclass(frozen=True, slots=True)
class Situation:
    """What conditions of known issues may ask about.

    `signatures` maps the ids seen to the position of their first match, `rows` are positions that
    show the stall itself.
    """

    facts: Facts
    signatures: dict[str, int]
    phase: str | None
    ops: frozenset[str]
    states: frozenset[str]
    causes: frozenset[str]
    stall: Stall | None = None
    rows: list[int] = field(default_factory=list)


def known(catalog: Catalog, situation: Situation) -> list[Candidate]:
    """A candidate for every known issue whose conditions hold."""
    return [_candidate(i, situation, catalog) for i in catalog.known_issues if holds(i, situation)]


def holds(issue: KnownIssue, situation: Situation) -> bool:
    """Whether all of `all`, one of `any` (if given) and none of `none` hold."""
    return (
        all(_true(condition, situation) for condition in issue.all)
        and (not issue.any or any(_true(condition, situation) for condition in issue.any))
        and not any(_true(condition, situation) for condition in issue.none)
    )


def _true(condition: Condition, situation: Situation) -> bool:
    facts = situation.facts
    tests = [
        not condition.signature or _any_glob(condition.signature, situation.signatures),
        not condition.framework or _any_glob(condition.framework, facts.get("framework")),
        not condition.trainer or _any_glob(condition.trainer, facts.get("trainer")),
        not condition.fact or any(_fact(text, facts) for text in condition.fact),
        not condition.version or any(_version(text, facts) for text in condition.version),
        not condition.phase or situation.phase in condition.phase,
        not condition.op or bool(situation.ops.intersection(condition.op)),
        not condition.state or bool(situation.states.intersection(condition.state)),
        not condition.cause or _any_glob(condition.cause, situation.causes),
    ]
    return all(tests)


def _any_glob(patterns: list[str], values: object) -> bool:
    return any(
        fnmatch.fnmatchcase(str(value).lower(), pattern.lower())
        for value in values  # type: ignore[attr-defined]
        for pattern in patterns
    )


def _fact(text: str, facts: Facts) -> bool:
    name, _, pattern = text.partition("=")
    return _any_glob([pattern or "*"], facts.get(name))


def _version(text: str, facts: Facts) -> bool:
    match = re.fullmatch(r"\s*([\w.-]+)\s*(<=|>=|==|<|>)\s*([\w.+]+)\s*", text)
    if match is None:
        return False
    package, operator, wanted = match.groups()
    have = facts.first(f"version.{package}")
    if have is None:
        return False
    left, right = _numbers(have), _numbers(wanted)
    return {
        "<": left < right, "<=": left <= right, "==": left == right, ">=": left >= right,
        ">": left > right,
    }[operator]  # fmt: skip


def _numbers(version: str) -> tuple[int, ...]:
    release = version.partition("+")[0]
    numbers = [int(number) for number in re.findall(r"\d+", release)[:3]]
    return (*numbers, *[0] * (3 - len(numbers)))


def _candidate(issue: KnownIssue, situation: Situation, catalog: Catalog) -> Candidate:
    stall = situation.stall
    asked = [glob for condition in (*issue.all, *issue.any) for glob in condition.signature]
    shown = [row for id_, row in situation.signatures.items() if _any_glob(asked, [id_])]
    candidate = Candidate(
        cause=issue.cause,
        score=_SCORE[issue.confidence],
        title=issue.title,
        summary=issue.summary,
        rows=list(dict.fromkeys([*sorted(shown), *situation.rows]))[:8],
        signature=issue.id,
        sure=issue.confidence == "high",
        inferred=True,
        remedies=list(issue.remedies),
        restart=issue.restart,
    )
    if stall is not None:
        candidate.ranks = stall.odd or (stall.missing if stall.proven else [])
        candidate.why = stall.why if candidate.ranks else ""
        if candidate.ranks:
            candidate.kind = "mismatched" if stall.odd else "missing"
    if issue.kind in ("missing", "mismatched", "slow", "stuck_host", "crashed") and candidate.ranks:
        candidate.kind = issue.kind  # type: ignore[assignment]
    return candidate
