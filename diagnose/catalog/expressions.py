"""Whether an expression of an entry can be used, what it costs, and whether examples show it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate

import hyperscan as hs
import regex

from diagnose.catalog.matches import parts_of, uncovered
from diagnose.catalog.schema import Catalog, Example, Match, Signature
from diagnose.match.build import announced, searched
from diagnose.match.compile import Matcher
from diagnose.match.literals import LEAST, begins_with_repeat, parts, positions, rarest, required
from diagnose.match.rows import (
    Pattern,
    hyperscan_form,
    pattern_flags,
    patterns_of,
)
from diagnose.parse.prefix import peel
from diagnose.search import Automaton, compile_database, hits_of

MAX_LENGTH = 8000  # characters
# States that the automata may spend on one pattern: a hundredth of all that the shipped catalog
# has behind the literals, and a tenth of what it searches for in every line.
MOST_STATES, MOST_STATES_EVERYWHERE = 2600, 1200
# A literal must not be in more of the lines that a job logs each step: they are nearly all of a
# log, and those with a literal are searched a second time.
COMMON = 1 / 12
# Kinds of names of hosts, one of which may be in front of each line of a log.
HOSTS = (
    "gpu012", "gpu-a-013", "gpunode7", "node-01", "dgx-h100-02", "hgx17", "worker-3", "compute-5",
    "cn1024", "nid001234", "ip-10-0-0-2", "trainer-0-1", "server12", "host01", "login1", "master-0",
)  # fmt: skip
# Where no literal announces a pattern, the automaton wakes at each of the words it may begin with.
COMMON_BEGIN = 1 / 2


def unusable(expression: str, *, ignore_case: bool) -> str | None:
    """Why the matcher could not take an expression; None if it can."""
    return malformed(expression) or not_linear(expression, ignore_case=ignore_case)


def malformed(expression: str) -> str | None:
    """Why it is no regular expression; None if it is one."""
    if len(expression) > MAX_LENGTH:
        return f"does not compile: longer than {MAX_LENGTH} characters: {expression[:80]}…"
    try:
        regex.compile(expression)
    except regex.error as error:
        return f"does not compile: {error}: {expression}"
    except RecursionError:
        return f"does not compile: nested too deeply: {expression[:80]}…"
    return None


def not_linear(expression: str, *, ignore_case: bool) -> str | None:
    """Why no automaton can search for it; None if one can."""
    entry = Signature("", "", "context", [expression], ignore_case=ignore_case)
    try:
        automaton_of([entry])
    except hs.error as error:
        return f"not linear-time (Hyperscan: {error}): {expression}"
    return None


def automaton_of(signatures: Sequence[Signature]) -> Automaton:
    """One that searches for all expressions of these, by their numbers. Raises hs.error."""
    numbered = patterns_of(signatures)
    return compile_database(
        [hyperscan_form(pattern.expression) for pattern in numbered],
        range(len(numbered)),
        [pattern_flags(pattern, first=False) for pattern in numbered],
    )


def costly(expression: str, *, ignore_case: bool, ordinary: Sequence[str]) -> str | None:
    """Why an expression that can be used would slow all searches; None if it does not.

    Told by its form and not by a clock; `benchmarks/pattern_cost.py` measures. `ordinary` are
    lines of progress.
    """
    pattern = Pattern(0, expression, expression.startswith("^"), ignore_case)
    form = hyperscan_form(expression).decode()
    literals = {*map(rarest, required(form) or ())}
    try:
        everywhere = not pattern.anchored and begins_with_repeat(form)
        states = sum(map(positions, searched(pattern, "bulk" if literals else "rest")))
    except re.error:  # `regex` and Hyperscan know more than `re`: no form to judge by
        return None
    if not literals and everywhere:
        return f"slow: begins with a repeat and has no text of {LEAST} characters: {expression}"
    limit = MOST_STATES if literals else MOST_STATES_EVERYWHERE
    if states > limit:
        return f"slow: {states:,} states, more than {limit:,}; split it up: {expression[:80]}…"
    # The first words of which each match has one.
    begin: Collection[str] = () if literals else next(iter(parts(form)), frozenset())
    if len(begin) > 1 and _met(begin, ordinary, ignore_case) > COMMON_BEGIN:
        return f"slow: begins with words that are in most lines of progress: {expression}"
    for literal in sorted(announced(pattern)):
        if _met([literal], HOSTS, ignore_case):
            return f"slow: {literal!r} is in names of hosts, so in all their lines: {expression}"
    for literal in sorted(literals):
        if _met([literal], ordinary, ignore_case) > COMMON:
            return f"slow: {literal!r}, its rarest text, is in lines of progress: {expression}"
    return None


def _met(words: Iterable[str], lines: Sequence[str], ignore_case: bool) -> float:
    """The share of lines that hold one of these words."""
    if ignore_case:
        words, lines = [word.lower() for word in words], [line.lower() for line in lines]
    words = list(words)
    return sum(any(word in line for word in words) for line in lines) / max(1, len(lines))


LONGEST = 200  # characters that a person reads as one piece


def example_problems(signatures: Sequence[Signature]) -> Iterator[str]:
    """What is wrong with the examples of entries; `regex` takes all of their expressions."""
    try:
        search = _Search(signatures)
    except hs.error as error:
        alone = [*none_linear(signatures)]
        yield from alone or [f"catalog: the patterns do not compile together: {error}"]
        return
    first = 0
    for signature in signatures:
        yield from _of_entry(signature, first, search)
        first += len(signature.match)


def none_linear(signatures: Sequence[Signature]) -> Iterator[str]:
    """The expressions of entries that no automaton can search for."""
    for signature in signatures:
        for expression in signature.match:
            problem = not_linear(expression, ignore_case=signature.ignore_case)
            if problem:
                yield f"{signature.id}: {problem}"


def _of_entry(signature: Signature, first: int, search: _Search) -> Iterator[str]:
    """`first` is the number of its first expression."""
    name = signature.id
    if not signature.near_miss:
        yield f"{name}: near_miss: at least one line that looks alike and must not match"
    rest = [Match()] * (len(signature.match) - len(signature.written))
    rows = zip(signature.match, [*signature.written, *rest], strict=True)
    for number, (expression, written) in enumerate(rows, start=first):
        unshown = _unshown(expression, written, ignore_case=signature.ignore_case)
        yield from (f"{name}: match: {problem}" for problem in unshown)
        for example in written.examples:
            yield from (f"{name}: example: {one}" for one in _missed(example, number, search))
    for line in signature.near_miss:
        for number, expression in enumerate(signature.match, start=first):
            if search.captures(number, line) is not None:
                yield f"{name}: near_miss: matches {expression[:80]}: {line[:80]}"


def _unshown(expression: str, written: Match, *, ignore_case: bool) -> Iterator[str]:
    """What a reader does not see of an expression, or not at once."""
    for part in parts_of(written):
        if len(part) > LONGEST:
            yield f"longer than {LONGEST} characters: {part[:80]}…"
    if not written.examples:
        yield f"no example: {expression[:120]}"
        return
    texts = [example.line for example in written.examples]
    for missing in uncovered(expression, texts, ignore_case=ignore_case):
        if missing != expression:  # else no line at all matches it, which is said of each
            yield f"no example shows: {missing[:160]}"


def _missed(example: Example, number: int, search: _Search) -> Iterator[str]:
    """What an expression does not find in its example."""
    shown = example.line.strip()[:120]
    captures = search.captures(number, example.line)
    if captures is None:
        yield f"does not match: {shown}"
        return
    for key, value in example.captures.items():
        if captures.get(key) != value:
            yield f"{key}: expected {value!r}, got {captures.get(key)!r}: {shown}"


class _Search:
    """One search for all expressions in all examples, as in a log of them."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._automaton = automaton_of(signatures)
        self._matcher = Matcher(Catalog(list(signatures), [], {}, "check"), {})
        texts = [
            text
            for entry in signatures
            for text in (*(example.line for example in entry.examples), *entry.near_miss)
        ]
        self._found = self._in_all([*dict.fromkeys(row for text in texts for row in _rows(text))])

    def _in_all(self, rows: Sequence[str]) -> dict[str, set[int]]:
        """The numbers of the expressions that may match each row."""
        encoded = [row.encode() for row in rows]
        ends = [*accumulate(len(row) + 1 for row in encoded)]
        found: list[set[int]] = [set() for _ in rows]
        for number, to in hits_of(self._automaton, b"\n".join(encoded)):
            found[bisect_right(ends, max(to - 1, 0))].add(number)
        return dict(zip(rows, found, strict=True))

    def captures(self, number: int, text: str) -> dict[str, str] | None:
        """Those of the first row of a text that this expression matches."""
        for row in _rows(text):
            found = self._matcher.confirm(number, row, peel(row).message)
            if found is not None and (number in self._found[row] or self._alone(number, row)):
                return found
        return None

    def _alone(self, number: int, row: str) -> bool:
        """Whether an automaton of this expression finds it: beside others a match may be lost.

        The tests see whether one is lost in the automata that jobs are searched with.
        """
        pattern = self._matcher.patterns[number]
        entry = Signature("", "", "context", [pattern.expression], ignore_case=pattern.ignore_case)
        return bool(hits_of(automaton_of([entry]), row.encode()))


def _rows(text: str) -> list[str]:
    return re.split(r"[\r\n]+", text.strip("\n"))
