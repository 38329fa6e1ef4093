"""Phrases that stand for an expression where a line was found by a literal already.

Literals compile in no time, thousands of expressions take seconds. What is searched instead finds
all that the expression does and now and then more, which the confirmation refuses.
"""

from __future__ import annotations

from collections.abc import Iterator

from diagnose.lazy import expression
from diagnose.match.prefilter import parts

_LEAST = 12  # characters of words that hardly another message has
_MOST = 64  # phrases of one expression
_SPECIAL = expression(r"[^\w\s]")  # may mean something in an expression
_BOUNDS = expression(r"(?<!\\)\{(?P<least>\d*),\d+\}")
_CLASS = expression(r"\[\^?\]?(?:\\.|[^]\\])*\]")
_QUANTIFIERS = "?*+{"


def simpler(expression: str) -> list[str]:
    """Expressions one of which matches wherever this one does; most of them are plain phrases.

    Alternatives with a phrase of their own become that; bounds of repeats, which cost an automaton
    a state for each count, are left out.
    """
    own = _phrases(expression)
    words, left = (own, None) if own else _apart(expression)
    found = [_SPECIAL.sub(r"\\\g<0>", phrase) for phrase in sorted(words)]
    return [*found, unbounded(left)] if left is not None else found


def unbounded(expression: str) -> str:
    """The same with repeats of any length."""
    return _BOUNDS.sub(lambda found: "*" if found["least"] in ("", "0") else "+", expression)


def _phrases(expression: str) -> frozenset[str] | None:
    """Phrases one of which every match contains; None without."""
    if len(expression) < _LEAST or " " not in expression:
        return None
    good = [part for part in parts(expression) if len(part) <= _MOST and all(map(_phrase, part))]
    return max(good, key=lambda part: (min(map(len, part)), -len(part)), default=None)


def _phrase(literal: str) -> bool:
    """Whether this is words: a path or the name of a logger is in all that its program prints."""
    return len(literal) >= _LEAST and " " in literal.strip()


def _apart(expression: str) -> tuple[frozenset[str], str | None]:
    """Phrases of alternatives, and an expression for the alternatives that have none."""
    if "|" not in expression:
        return frozenset(), expression
    start, end, inner = 0, len(expression), expression
    if len(_alternatives(expression)) == 1:
        choices = (one for one in _groups(expression) if len(_alternatives(one[2])) > 1)
        start, end, inner = max(choices, key=lambda one: len(one[2]), default=(0, 0, ""))
    words: set[str] = set()
    left: list[str] = []
    for one in _alternatives(inner):
        own = _phrases(one)
        deeper, rest = (own, None) if own else _apart(one)
        words |= deeper
        left += [] if rest is None else [rest]
    if not words:
        return frozenset(), expression
    if not left:
        return frozenset(words), None
    return frozenset(words), f"{expression[:start]}(?:{'|'.join(left)}){expression[end:]}"


def _marks(expression: str) -> Iterator[tuple[int, str, int]]:
    """Place, character and depth of what groups are made of."""
    at = depth = 0
    while at < len(expression):
        char = expression[at]
        if char == "\\":
            at += 1
        elif char == "[" and (found := _CLASS.match(expression, at)):
            at = found.end() - 1
        elif char == "(":
            yield at, char, depth
            depth += 1
        elif char == ")":
            depth -= 1
            yield at, char, depth
        elif char == "|":
            yield at, char, depth
        at += 1


def _alternatives(expression: str) -> list[str]:
    """The parts between the bars that are in no group."""
    cuts = [at for at, char, depth in _marks(expression) if char == "|" and not depth]
    starts, ends = [0, *(at + 1 for at in cuts)], [*cuts, len(expression)]
    return [expression[start:end] for start, end in zip(starts, ends, strict=True)]


def _groups(expression: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and inside of the outermost groups that are there once in each match."""
    start = 0
    for at, char, depth in _marks(expression):
        if depth or char == "|":
            continue
        if char == "(":
            start = at
        elif expression[at + 1 : at + 2] not in _QUANTIFIERS or at + 1 == len(expression):
            inner = expression[start + 1 : at].removeprefix("?:")
            if not inner.startswith("?"):
                yield start, at + 1, inner
