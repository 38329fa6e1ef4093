"""Whether each expression matches its examples, and all of it is shown by them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

import hyperscan as hs

from diagnose.catalog.alternatives import uncovered
from diagnose.catalog.expressions import automaton_of, not_linear
from diagnose.catalog.matches import parts_of
from diagnose.catalog.schema import Catalog, Example, Match, Signature
from diagnose.match.compile import Matcher
from diagnose.parse.prefix import peel
from diagnose.search import hits_of

LONGEST = 200  # characters that a person reads as one piece


def example_problems(signatures: Sequence[Signature]) -> Iterator[str]:
    """What is wrong with the examples of entries; `regex` takes all of their expressions."""
    try:
        search = _Search(signatures)
    except hs.error as error:
        alone = [*_not_linear(signatures)]
        yield from alone or [f"catalog: the patterns do not compile together: {error}"]
        return
    first = 0
    for signature in signatures:
        yield from _of_entry(signature, first, search)
        first += len(signature.match)


def _not_linear(signatures: Sequence[Signature]) -> Iterator[str]:
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
