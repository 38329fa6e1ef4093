"""Whether a regular expression of an entry can be used at all, and what it costs all searches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

import hyperscan as hs
import regex

from diagnose.catalog.schema import Signature
from diagnose.match.build import searched
from diagnose.match.literals import LEAST, begins_with_repeat, parts, positions, rarest, required
from diagnose.match.rows import (
    Pattern,
    hyperscan_form,
    pattern_flags,
    patterns_of,
)
from diagnose.search import Automaton, compile_database

MAX_LENGTH = 8000  # characters
# States that the automata may spend on one pattern: a hundredth of all that the shipped catalog
# has behind the literals, and a tenth of what it searches for in every line.
MOST_STATES, MOST_STATES_EVERYWHERE = 2600, 1200
# A literal must not be in more of the lines that a job logs each step: they are nearly all of a
# log, and those with a literal are searched a second time.
COMMON = 1 / 12
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
    begin = () if literals else _begin(form)
    if len(begin) > 1 and _met(begin, ordinary, ignore_case) > COMMON_BEGIN:
        return f"slow: begins with words that are in most lines of progress: {expression}"
    for literal in sorted(literals):
        if _met([literal], ordinary, ignore_case) > COMMON:
            return f"slow: {literal!r}, its rarest text, is in lines of progress: {expression}"
    return None


def _begin(form: str) -> Collection[str]:
    """The first words of which each match has one."""
    return next(iter(parts(form)), frozenset())


def _met(words: Iterable[str], lines: Sequence[str], ignore_case: bool) -> float:
    """The share of lines that hold one of these words."""
    if ignore_case:
        words, lines = [word.lower() for word in words], [line.lower() for line in lines]
    words = list(words)
    return sum(any(word in line for word in words) for line in lines) / max(1, len(lines))
