"""Literals of which a line must have one, so that an expression can match it at all.

Thousands of expressions in one automaton are slower than thousands of literals. Most lines of a log
have none of the literals, and only those that do are searched for the expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from re import _constants as code  # type: ignore[attr-defined]  # no other parser of these is public
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from diagnose.lazy import expression

LEAST = 5  # characters of a literal: shorter ones are everywhere
_MOST = 64  # literals of one expression
_LONG = 12  # characters beyond which a literal is no better

_POSIX = expression(r"\[:\^?\w+:\]")
_REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT)
# Lines of which a log may hold millions: what they say announces nothing.
BULK = """
host:1:2 [0] NCCL INFO AllReduce: opCount 1f sendbuff 0x7f recvbuff 0x7f count 1 datatype 7 op 0
root 0 comm 0x55 [nranks=8] stream 0x55 AllGather: ReduceScatter: Broadcast: Reduce: AlltoAll:
Gather: Scatter: Send: Recv: opCount
""".lower()

_Literals = frozenset[str]


@lru_cache(maxsize=8192)  # all of the databases ask
def required(expression: str) -> _Literals | None:
    """Literals one of which every match contains; None if there are no good ones."""
    best = max(parts(expression), key=_worth, default=None)
    if not best or len(best) > _MOST or _length(best) < LEAST or in_bulk(best):
        return None
    return best


def _best(items: Iterable[Any]) -> _Literals | None:
    """The rarest set of a sequence: the longest, of equally long ones the smallest."""
    return max(_sets(items), key=_worth, default=None)


def _worth(literals: _Literals) -> tuple[bool, int, int]:
    return not in_bulk(literals), min(_length(literals), _LONG), -len(literals)


def in_bulk(literals: Iterable[str]) -> bool:
    """Whether there are lines of which a log may hold millions with one of these literals."""
    return any(literal.lower() in BULK for literal in literals)


def _length(literals: _Literals) -> int:
    return min(map(len, literals))


@lru_cache(maxsize=8192)  # more than one question is asked of each
def parts(expression: str) -> tuple[_Literals, ...]:
    """Sets of literals, of each of which every match contains one, in their order."""
    try:
        parsed = parsed_form(expression)
    except re.error:
        return ()
    return () if parsed.state.flags & re.IGNORECASE else tuple(_sets(parsed))


def parsed_form(expression: str) -> Any:
    """Raises re.error for what `regex` and Hyperscan know more than `re`."""
    if _POSIX.search(expression):
        raise re.error("`re` reads such a class as something else")
    return parser.parse(expression)


def positions(expression: str) -> int:
    """Characters and classes of an expression: what an automaton has states for.

    Raises re.error for what `re` does not know.
    """
    return _positions(parsed_form(expression))


def _positions(items: Iterable[Any]) -> int:
    found = 0
    for operation, argument in items:
        if operation is code.SUBPATTERN:
            found += _positions(argument[-1])
        elif operation is code.BRANCH:
            found += sum(map(_positions, argument[1]))
        elif operation in _REPEATS:
            found += max(argument[0], 1) * _positions(argument[2])
        elif operation is not code.AT:
            found += 1
    return found


def begins_with_repeat(expression: str) -> bool:
    """Whether any byte may begin a match, and any number of them; as `positions`."""
    items = list(parsed_form(expression))
    while items and items[0][0] is code.SUBPATTERN:
        items = list(items[0][1][-1])
    return bool(items) and items[0][0] in _REPEATS and items[0][1][1] is code.MAXREPEAT


def _sets(items: Iterable[Any]) -> Iterator[_Literals]:
    """The sets of each part of a sequence that is always there; neighbouring characters joined."""
    run = ""
    for operation, argument in items:
        if operation is code.LITERAL:
            run += chr(argument)
            continue
        if operation is code.AT:
            continue  # no character of its own
        if run:
            yield frozenset((run,))
            joined = {run + begin for begin in _begins([(operation, argument)])}
            if len(joined) <= _MOST:
                yield frozenset(joined)
        run = ""
        yield from _of_part(operation, argument)
    if run:
        yield frozenset((run,))


def _begins(items: Iterable[Any]) -> Iterator[str]:
    """The literals that a sequence may begin with; empty where it begins otherwise."""
    run = ""
    for operation, argument in items:
        if operation is code.LITERAL:
            run += chr(argument)
        elif operation is code.BRANCH:
            for one in argument[1]:
                yield from (run + begin for begin in _begins(one))
            return
        elif operation is code.SUBPATTERN and not argument[1] & re.IGNORECASE:
            yield from (run + begin for begin in _begins(argument[-1]))
            return
        elif operation is not code.AT:
            break
    yield run


def _of_part(operation: Any, argument: Any) -> Iterator[_Literals]:
    if operation is code.SUBPATTERN:
        if not argument[1] & re.IGNORECASE:
            yield from _sets(argument[-1])
    elif operation is code.BRANCH:
        alternatives = [_best(one) for one in argument[1]]
        if all(alternatives):
            yield frozenset().union(*(one for one in alternatives if one))
    elif operation in _REPEATS and argument[0] >= 1:
        yield from _sets(argument[2])
