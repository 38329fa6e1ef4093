"""Many inputs, one after the other: made of a seed and judged by the oracles."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from tests.fuzz import corpus, oracles
from tests.fuzz.case import Case, Outcome, run
from tests.fuzz.mutations import MUTATIONS, Grade, Mutation, of_grade

LIMIT_S = 2.0  # CPU time of one input
# Reports are made of one input in so many: they take longer than the verdict itself.
REPORT_EACH = 10
SLOWEST = 10


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an input is made: a job of the corpus, and mutations with the seed of each."""

    start: str
    chain: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return " + ".join([self.start, *(name for name, _ in self.chain)])


@dataclass(frozen=True, slots=True)
class Violation:
    """What oracle an input fails and how; `number` with the seed of the run makes it again."""

    oracle: str
    number: int
    recipe: Recipe
    words: str


@dataclass
class Tally:
    """What came of the inputs of a run."""

    inputs: int = 0
    harmless: int = 0
    refused: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    drifts: list[Violation] = field(default_factory=list)  # below high confidence: no violations
    violations: list[Violation] = field(default_factory=list)
    slowest: list[tuple[float, int, str]] = field(default_factory=list)


def recipe(seed: int, number: int) -> Recipe:
    """The input `number` of a run with `seed`: damage first, then what must change nothing."""
    rng = Random(f"{seed}:{number}")
    damage = rng.choice([0, 0, 1, 1, 2])
    harmless = rng.choice([1, 1, 2, 3]) if not damage else rng.choice([0, 0, 1])
    chosen: list[Mutation] = [rng.choice(of_grade(Grade.HARMFUL)) for _ in range(damage)]
    calm = [*rng.choices(of_grade(Grade.HARMLESS), k=harmless), *of_grade(Grade.SAME)]
    quiet = rng.sample(calm, harmless)
    # What only stores a file otherwise goes last: its lines cannot be told any more.
    chosen += sorted(quiet, key=lambda mutation: mutation.grade is Grade.SAME)
    chain = tuple((m.name, f"{seed}:{number}:{place}") for place, m in enumerate(chosen))
    return Recipe(rng.choice(corpus.names()), chain)


def made(what: Recipe) -> tuple[Case, Case, tuple[Grade, ...]]:
    """The input, the same before the harmless part of the chain, and the grades of that part.

    Mutations that can do nothing here are left out.
    """
    case = corpus.case(what.start)
    before, after = case, case
    grades: list[Grade] = []
    for name, seed in what.chain:
        mutation = MUTATIONS[name]
        changed = mutation.change(after, Random(seed))
        if changed is None:
            continue
        after = changed
        if mutation.grade is Grade.HARMFUL:
            before = after
        else:
            grades.append(mutation.grade)
    return after, before, tuple(grades)


def judge(
    outcome: Outcome, before: Outcome | None, grades: tuple[Grade, ...], *, reports: bool
) -> Iterator[tuple[str, str]]:
    """The oracles that an input fails, with their words."""
    always = [oracles.no_exception, oracles.not_well, oracles.not_well_unread]
    for oracle in [*always, *([oracles.reported] if reports else [])]:
        if words := oracle(outcome):
            yield oracle.__name__, words
    if before is None or before.error is not None or outcome.error is not None:
        return
    if all(grade is Grade.SAME for grade in grades) and (words := oracles.same(outcome, before)):
        yield "same", words
    elif words := oracles.steady(outcome, before):
        yield "steady", words
    elif words := oracles.drift(outcome, before):
        yield "drift", words


def check(what: Recipe, *, reports: bool = True) -> tuple[Outcome, list[tuple[str, str]], float]:
    """Make and judge one input: what came of it, what it fails, and its CPU time."""
    after, before, grades = made(what)
    begun = time.process_time()
    outcome = run(after)
    spent = time.process_time() - begun
    compared = None
    if grades:
        pristine = before is corpus.case(what.start)
        compared = corpus.outcome(what.start) if pristine else run(before)
    found = list(judge(outcome, compared, grades, reports=reports))
    return outcome, found, spent


def note(tally: Tally, number: int, what: Recipe) -> list[Violation]:
    """Check the input `number` and add it to the tally; gives its violations."""
    outcome, failed, spent = check(what, reports=number % REPORT_EACH == 0)
    if spent > LIMIT_S:  # a busy machine may double the CPU time, but not three times in a row
        spent = min(spent, *(check(what, reports=False)[2] for _ in range(2)))
    tally.inputs += 1
    tally.harmless += all(MUTATIONS[name].grade is not Grade.HARMFUL for name, _ in what.chain)
    tally.refused += bool(outcome.refused)
    verdict = outcome.diagnosis.verdict if outcome.diagnosis else "none"
    tally.verdicts[verdict] += 1
    tally.slowest = sorted([*tally.slowest, (spent, number, str(what))], reverse=True)[:SLOWEST]
    if spent > LIMIT_S:
        failed.append(("slow", f"{spent:.2f} s of CPU time for {outcome.case.size} bytes"))
    found = [Violation(oracle, number, what, words) for oracle, words in failed]
    tally.drifts += [one for one in found if one.oracle == "drift"]
    grave = [one for one in found if one.oracle != "drift"]
    tally.violations += grave
    return grave


def total(tally: Tally) -> list[str]:
    """The figures of a run, and each violation, for people."""
    counts = Counter(one.oracle for one in tally.violations)
    names = ("no_exception", "reported", "slow", "not_well", "not_well_unread", "steady", "same")
    lines = [
        f"{tally.inputs} inputs, {tally.harmless} of them without damage, {tally.refused} refused",
        "verdicts: " + ", ".join(f"{name} {n}" for name, n in sorted(tally.verdicts.items())),
        "violations: " + ", ".join(f"{name} {counts[name]}" for name in names),
        f"other causes below high confidence after harmless mutations: {len(tally.drifts)}",
        "slowest:",
        *(f"  {spent:5.2f} s  input {number}: {what}" for spent, number, what in tally.slowest),
    ]
    for one in [*tally.violations, *tally.drifts]:
        lines.append(f"{one.oracle}: input {one.number}: {one.recipe}: {one.words}")
    return lines
