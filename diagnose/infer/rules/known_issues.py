"""Known issues: entries of the catalog that name a cause which no single line names.

Most ask for a word or a fact that a job does not have: an index says which a job may have at all.
"""

from __future__ import annotations

import fnmatch
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from diagnose.catalog.entries import how_to_check, meets
from diagnose.catalog.schema import ANY_JOB, WORDS_APART, Catalog, Condition, KnownIssue
from diagnose.catalog.stored import issue_index
from diagnose.infer.events.facts import Facts
from diagnose.infer.judge.verdict import DIFFER, Verdict
from diagnose.infer.rules.base import Context, Hypothesis, Tier
from diagnose.stories.passing import WAITED
from diagnose.timeline.event import Meaning, Timeline

_ROLES = ("cause", "effect", "aftermath")
_TELLS = ("exception", "trouble", "handled")
_SIZE = 1 << 20  # of all lines
_ROWS_OF_STALL, _ROWS = 4, 8
_TIERS = {"high": Tier.PROVEN, "medium": Tier.STRONG, "low": Tier.CIRCUMSTANTIAL}
_UNCHECKED = 2  # at most, of issues whose versions the log does not say
# States of who waits, or of a job that may: a process that failed had no need to.
_WAITS = frozenset({"timeout", "mismatch", "behind", "no_progress"})
_STATE_OF_KIND = {
    "mismatched": "mismatch", "conditional": "mismatch", "cycle": "mismatch",
    "deadlock": "mismatch", "shifted": "behind",
    "missing": "missing_ranks", "stuck_host": "missing_ranks",
    "all_joined": "all_joined", "network": "all_joined", "stuck_device": "all_joined",
}  # fmt: skip
_FIRST_COLLECTIVES = 5


def possible(
    catalog: Catalog, facts: Facts, signatures: Iterable[str], text: str
) -> list[KnownIssue]:
    """The issues that may hold, in the order of the catalog; wordings are looked for in `text`."""
    index = _index(catalog)
    lines = {*text.translate(WORDS_APART).split("\n")}
    present = {ANY_JOB, *" ".join(lines).split()}
    present.update(f"signature {id_.lower()}" for id_ in signatures)
    present.update(f"{fact} {value.lower()}" for fact, has in facts.values.items() for value in has)
    found = {number for key in index.keys() & present for number in index[key]}
    return [catalog.known_issues[number] for number in sorted(found)]


@lru_cache(maxsize=2)
def _index(catalog: Catalog) -> Mapping[str, Sequence[int]]:
    return issue_index(catalog.known_issues)


class Lines(NamedTuple):
    """The lines as one text, where each begins, and the index of its event."""

    text: str = ""
    starts: Sequence[int] = ()
    rows: Sequence[int] = ()

    def find(self, wording: str) -> int | None:
        """The event of the first line that has this wording; `*` stands for any text between."""
        first, *rest = wording.split("*")
        at = self.text.find(first)
        while at >= 0:
            end = self.text.find("\n", at)
            if _in_order(rest, self.text, at + len(first), end):
                return self.rows[bisect_right(self.starts, at) - 1]
            at = self.text.find(first, end)
        return None


def lines_of(timeline: Timeline) -> Lines:
    """Each different line once, in order."""
    starts, rows, texts, size = [], [], [], 0
    for text, row in _different(timeline):
        if size + len(text) > _SIZE:
            break
        starts.append(size)
        rows.append(row)
        texts.append(text)
        size += len(text)
    return Lines("".join(texts), starts, rows)


def _different(timeline: Timeline) -> Iterator[tuple[str, int]]:
    seen = set()
    for event in timeline.where(_tells):
        if event.text not in seen:
            seen.add(event.text)
            yield " ".join(event.text.split()) + "\n", event.index


def _tells(meaning: Meaning) -> bool:
    return meaning.role in _ROLES or meaning.signal in _TELLS


def _in_order(parts: list[str], text: str, start: int, end: int) -> bool:
    for part in parts:
        at = text.find(part, start, end)
        if at < 0:
            return False
        start = at + len(part)
    return True


class Situation(NamedTuple):
    """What conditions of known issues may ask about.

    `signatures` maps the ids seen to the index of their first event, `rows` are indices of events
    that show the hang itself. `ended`: a process failed, and nobody was seen to wait.
    """

    facts: Facts
    signatures: dict[str, int]
    phase: str | None
    ops: frozenset[str]
    states: frozenset[str]
    causes: frozenset[str]
    stall: Verdict | None = None
    ended: bool = False
    rows: Sequence[int] = ()
    lines: Lines = Lines()


def propose(context: Context) -> list[Hypothesis]:
    """One hypothesis for every known issue whose conditions hold."""
    return known(context.catalog, situation(context))


def known(catalog: Catalog, situation: Situation) -> list[Hypothesis]:
    """The same, of a situation; those that depend on versions unknown to the log come last."""
    sure: list[Hypothesis] = []
    unchecked: list[Hypothesis] = []
    seen, text = situation.signatures, situation.lines.text
    for issue in possible(catalog, situation.facts, seen, text):
        if situation.ended and _of_waiting(issue, catalog):
            continue
        answer = holds(issue, situation)
        if answer:
            sure.append(_hypothesis(issue, situation))
        elif answer is None and len(unchecked) < _UNCHECKED and _specific(issue):
            unchecked.append(_to_check(issue, situation))
    return [*sure, *unchecked]


def _of_waiting(issue: KnownIssue, catalog: Catalog) -> bool:
    """Whether it is that ranks wait for each other, by what it asks for: no line of its own."""
    asked = (*issue.all, *issue.any)
    states = {state for condition in asked for state in condition.state}
    own = any(condition.wording or condition.cause for condition in asked)
    return bool(states & _WAITS) and not own and catalog.classes[issue.cause].hang == "hangs"


def situation(context: Context) -> Situation:
    """What conditions may ask about, of a job."""
    timeline, found = context.timeline, context.stalls
    states = {state for stall in found for state in _states(stall)}
    states |= {"timeout"} if timeline.signalling("store_wait") else set()
    steps = {e.step for e in timeline.kind("progress") if e.step is not None}
    states |= {"progress_then_stop"} if steps else {"no_progress"}
    states |= {"step_0"} if steps and max(steps) == 0 else set()
    classes = context.catalog.classes
    crashed = any(classes[one.cause].is_crash for one in context.proposed)
    states |= {"crashed"} if crashed else set()
    waits = found or timeline.signalling(*WAITED, "stuck", "complaint")
    failed = any(event.kind in ("exception", "exit") for event in context.failing)
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
        causes=frozenset(c.cause for c in context.proposed if c.tier >= Tier.LIKELY),
        stall=found[0] if found else None,
        ended=failed and not waits,
        rows=rows,
        lines=lines_of(timeline),
    )


def _states(stall: Verdict) -> Iterator[str]:
    if stall.waits:
        yield "timeout"
    if stall.kind in _STATE_OF_KIND:
        yield _STATE_OF_KIND[stall.kind]
    if stall.tiny:
        yield "tiny_collective"
    if (stall.seq or 99) <= _FIRST_COLLECTIVES:
        yield "first_collectives"


def holds(issue: KnownIssue, situation: Situation) -> bool | None:
    """Whether all of `all`, one of `any` (if given) and none of `none` hold.

    None where that depends on versions which the log does not say.
    """
    return _all(_parts(issue, situation))


def _parts(issue: KnownIssue, situation: Situation) -> Iterator[bool | None]:
    yield from (_true(condition, situation) for condition in issue.all)
    if issue.any:
        yield _not(_all(_not(_true(condition, situation)) for condition in issue.any))
    yield from (_not(_true(condition, situation)) for condition in issue.none)


def _all(answers: Iterable[bool | None]) -> bool | None:
    """False if any is, else None if any is."""
    result: bool | None = True
    for answer in answers:
        if answer is False:
            return False
        result = None if answer is None else result
    return result


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _true(condition: Condition, situation: Situation) -> bool | None:
    return _all(_tests(condition, situation))


def _tests(condition: Condition, situation: Situation) -> Iterator[bool | None]:
    """What is asked, each as it is needed: of most conditions the first answer is no."""
    facts = situation.facts
    if condition.signature:
        yield _any_glob(condition.signature, situation.signatures)
    if condition.framework:
        yield _any_glob(condition.framework, facts.get("framework"))
    if condition.trainer:
        yield _any_glob(condition.trainer, facts.get("trainer"))
    if condition.fact:
        yield any(_fact(text, facts) for text in condition.fact)
    if condition.phase:
        yield situation.phase in condition.phase
    if condition.op:
        yield bool(situation.ops.intersection(condition.op))
    if condition.state:
        yield bool(situation.states.intersection(condition.state))
    if condition.cause:
        yield _any_glob(condition.cause, situation.causes)
    if condition.version:
        yield _version(condition.version, facts)
    if condition.wording:
        yield _wording_row(condition, situation) is not None


def _wording_row(condition: Condition, situation: Situation) -> int | None:
    """The first line with the wording asked for."""
    rows = [row for text in condition.wording if (row := situation.lines.find(text)) is not None]
    return min(rows, default=None)


def _any_glob(patterns: list[str], values: object) -> bool:
    return any(
        fnmatch.fnmatchcase(str(value).lower(), pattern.lower())
        for value in values  # type: ignore[attr-defined]
        for pattern in patterns
    )


def _fact(text: str, facts: Facts) -> bool:
    name, _, pattern = text.partition("=")
    return _any_glob([pattern or "*"], facts.get(name))


def _version(texts: list[str], facts: Facts) -> bool | None:
    """Whether any holds; None if none does and of one it is unknown."""
    return _not(_all(_not(meets(facts.versions, text)) for text in texts))


def _specific(issue: KnownIssue) -> bool:
    """Whether the log shows more of it than that a framework hangs or crashes."""
    return any(c.wording or c.signature or c.trainer or c.fact for c in (*issue.all, *issue.any))


def _to_check(issue: KnownIssue, situation: Situation) -> Hypothesis:
    """It may be this one: the version decides, and the log does not say it."""
    versions = situation.facts.versions
    unknown = [
        text for texts in _versions(issue) for text in texts if meets(versions, text) is None
    ]
    checks = list(dict.fromkeys(how_to_check(text) for text in unknown))
    found = _hypothesis(issue, situation)
    found.tier, found.sure = Tier.GUESS, False
    found.grounds, found.vague = ["version unknown"], True
    found.hint += f", and the log does not say the version; check with: {'; '.join(checks)}"
    found.summary = f"{issue.summary} This is a {found.hint}."
    return found


def _versions(issue: KnownIssue) -> list[list[str]]:
    """The versions asked for: one of each list."""
    return [c.version for c in (*issue.all, *issue.any) if c.version]


def _hypothesis(issue: KnownIssue, situation: Situation) -> Hypothesis:
    stall = situation.stall
    versions = " and ".join(" or ".join(texts) for texts in _versions(issue))
    found = Hypothesis(
        cause=issue.cause,
        tier=_TIERS[issue.confidence],
        title=issue.title,
        summary=issue.summary,
        rows=list(dict.fromkeys([*_shown(issue, situation), *situation.rows]))[:_ROWS],
        signature=issue.id,
        sure=issue.confidence == "high",
        inferred=True,
        remedies=list(issue.remedies),
        restart=issue.restart,
        basis="issue",
        grounds=[f"{issue.confidence} confidence", *(["its version"] if versions else [])],
        support=bool(versions),
        hint=f"known issue of {versions} ({issue.title})" if versions else "",
    )
    if stall is not None:
        found.ranks = [*stall.ranks] if stall.kind in DIFFER or stall.absent else []
        found.why = stall.why if found.ranks else ""
        if found.ranks:
            found.kind = "mismatched" if stall.kind in DIFFER else "missing"
    if issue.kind in ("missing", "mismatched", "slow", "stuck_host", "crashed") and found.ranks:
        found.kind = issue.kind  # type: ignore[assignment]
    return found


def _shown(issue: KnownIssue, situation: Situation) -> list[int]:
    """First the lines with its wording, then those of the signatures it asks for."""
    conditions = (*issue.all, *issue.any)
    worded = [row for c in conditions if (row := _wording_row(c, situation)) is not None]
    asked = [glob for condition in conditions for glob in condition.signature]
    shown = [row for id_, row in situation.signatures.items() if _any_glob(asked, [id_])]
    return [*sorted(worded), *sorted(shown)]
