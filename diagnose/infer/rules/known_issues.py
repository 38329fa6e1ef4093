"""Known issues: entries of the catalog that name a cause which no single line names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from diagnose.catalog.schema import Catalog, Condition, KnownIssue
from diagnose.infer import scoring
from diagnose.infer.events.facts import Facts
from diagnose.infer.events.stalled import Stall
from diagnose.infer.rules.base import Context, Hypothesis

_ROWS_OF_STALL, _ROWS = 4, 8


@dataclass(frozen=True, slots=True)
class Situation:
    """What conditions of known issues may ask about.

    `signatures` maps the ids seen to the index of their first event, `rows` are indices of events
    that show the hang itself.
    """

    facts: Facts
    signatures: dict[str, int]
    phase: str | None
    ops: frozenset[str]
    states: frozenset[str]
    causes: frozenset[str]
    stall: Stall | None = None
    rows: list[int] = field(default_factory=list)


def propose(context: Context) -> list[Hypothesis]:
    """One hypothesis for every known issue whose conditions hold."""
    return known(context.catalog, situation(context))


def known(catalog: Catalog, situation: Situation) -> list[Hypothesis]:
    """The same, of a situation."""
    return [_hypothesis(i, situation, catalog) for i in catalog.known_issues if holds(i, situation)]


def situation(context: Context) -> Situation:
    """What conditions may ask about, of a job."""
    timeline, found = context.timeline, context.stalls
    states = {state for stall in found for state in _states(stall)}
    states |= {"timeout"} if timeline.telling("store_wait") else set()
    steps = {e.step for e in timeline.kind("progress") if e.step is not None}
    states |= {"progress_then_stop"} if steps else {"no_progress"}
    states |= {"step_0"} if steps and max(steps) == 0 else set()
    crashed = any(one.cause.startswith("crash.") for one in context.proposed)
    states |= {"crashed"} if crashed else set()
    rows = [row for stall in found[:1] for row in stall.rows[:_ROWS_OF_STALL]]
    if context.activity.row is not None:
        rows.insert(0, context.activity.row)
    ops = {op for stall in found for op in (stall.op, *(w.op for w in stall.waits.values()))}
    return Situation(
        facts=context.facts,
        signatures={id_: events[0].index for id_, events in timeline.by_signature.items()},
        phase=context.activity.phase,
        ops=frozenset(op for op in ops if op),
        states=frozenset(states),
        causes=frozenset(c.cause for c in context.proposed if c.score >= scoring.STRONG),
        stall=found[0] if found else None,
        rows=rows,
    )


_STATE_OF_SHAPE = {
    "mismatch": "mismatch", "conditional": "mismatch", "shifted": "behind",
    "missing": "missing_ranks", "all_joined": "all_joined",
}  # fmt: skip
_FIRST_COLLECTIVES = 5


def _states(stall: Stall) -> Iterator[str]:
    if stall.waits:
        yield "timeout"
    if stall.shape in _STATE_OF_SHAPE:
        yield _STATE_OF_SHAPE[stall.shape]
    if stall.tiny:
        yield "tiny_collective"
    if (stall.seq or 99) <= _FIRST_COLLECTIVES:
        yield "first_collectives"


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


def _hypothesis(issue: KnownIssue, situation: Situation, catalog: Catalog) -> Hypothesis:
    stall = situation.stall
    asked = [glob for condition in (*issue.all, *issue.any) for glob in condition.signature]
    shown = [row for id_, row in situation.signatures.items() if _any_glob(asked, [id_])]
    found = Hypothesis(
        cause=issue.cause,
        score=scoring.OF_ISSUE[issue.confidence],
        title=issue.title,
        summary=issue.summary,
        rows=list(dict.fromkeys([*sorted(shown), *situation.rows]))[:_ROWS],
        signature=issue.id,
        sure=issue.confidence == "high",
        inferred=True,
        remedies=list(issue.remedies),
        restart=issue.restart,
    )
    if stall is not None:
        found.ranks = stall.odd or (stall.missing if stall.proven else [])
        found.why = stall.why if found.ranks else ""
        if found.ranks:
            found.kind = "mismatched" if stall.odd else "missing"
    if issue.kind in ("missing", "mismatched", "slow", "stuck_host", "crashed") and found.ranks:
        found.kind = issue.kind  # type: ignore[assignment]
    return found
