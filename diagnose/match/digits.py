"""Lines of one shape: what is left of a line where every digit is as good as another.

Ranks print the same lines with other numbers. What an expression finds in one line it finds at the
same places in all lines of that shape, unless it tells digits apart. Most do so only inside of
words (`P2P`, `comm 0x`), so that it is enough that lines have the same digits there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from re import _constants as code  # type: ignore[attr-defined]  # no other parser of these is public
from typing import Any

import regex

from diagnose.lazy import expression
from diagnose.match import patience
from diagnose.match.prefilter import parsed_form

_SAME = bytes.maketrans(b"123456789", b"000000000")
_COUNTS = expression(r"(?<!\\)\{\d*,?\d*\}")
# What may tell digits apart: digits, what depends on what was captured, what `re` does not know.
_SPECIAL = expression(r"[0-9]|\(\?P=|\(\?\(|\[:|\\[aceg-mopquxyzCE-RT-VXY]")
_DIGIT = expression("[0-9]")
_DIGITS = frozenset(map(ord, "0123456789"))
ANYWHERE = b"0"  # of `told_apart`: a digit with no word around it
# A digit of an expression, or what has some that mean something else.
_TOKEN = expression(r"\\.|\{\d*,?\d*\}|(?P<other>\[\^(?:\\.|[^]\\])+\])|[1-9]")
_CODED = expression(r"\\[xuUN0-9]")
_PATIENCE_S = 0.02
_INSIDE: dict[Any, Any] = {
    code.SUBPATTERN: lambda argument: [argument[-1]],
    code.BRANCH: lambda argument: argument[1],
    code.MAX_REPEAT: lambda argument: [argument[2]],
    code.MIN_REPEAT: lambda argument: [argument[2]],
    code.POSSESSIVE_REPEAT: lambda argument: [argument[2]],
    code.ATOMIC_GROUP: lambda argument: [argument],
    code.ASSERT: lambda argument: [argument[1]],
    code.ASSERT_NOT: lambda argument: [argument[1]],
}
_REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT, code.POSSESSIVE_REPEAT)
_LOOKS = (code.ASSERT, code.ASSERT_NOT)
_ASCII = 128
_HOLDS_DIGITS = (code.CATEGORY_DIGIT, code.CATEGORY_WORD, code.CATEGORY_NOT_SPACE)
_NO_DIGITS = (code.CATEGORY_NOT_DIGIT, code.CATEGORY_NOT_WORD, code.CATEGORY_SPACE)


def _nothing(_: Any) -> tuple[()]:
    return ()


def shape(data: bytes) -> bytes:
    """The shape of a line, or of several: as long, with each digit made a 0."""
    return data.translate(_SAME)


@lru_cache(maxsize=8192)
def told_apart(expression: str) -> frozenset[bytes] | None:
    """Words, in the shape of lines and small letters, around the digits that an expression knows.

    Where none of them stands in the shape of a line, it finds the same in all lines of that shape;
    elsewhere in those that have the same digits there. None where that is not sure.
    """
    if not _SPECIAL.search(_COUNTS.sub("", expression)):
        return frozenset()  # nine of ten: categories and ranges hold all digits or none
    try:
        return frozenset(_words(parsed_form(expression)))
    except re.error:  # what `regex` knows more than `re`, and what depends on what was captured
        return None


def blurred(expression: str) -> str:
    """What finds something in the shape of each line in which an expression does.

    Empty, so it finds something everywhere, if that is not sure.
    """
    if told_apart(expression) is None or _CODED.search(expression):
        return ""
    return _TOKEN.sub(_blurred, expression)


def _blurred(token: re.Match[str]) -> str:
    if token["other"] and _DIGIT.search(token["other"]):
        return r"[\s\S]"
    return token.group() if len(token.group()) > 1 else "0"


def may_match(form: str, same: str, *, ignore_case: bool) -> bool:
    """Whether an expression that was `blurred` may match lines of this shape."""
    if not form:
        return True
    try:
        return patience.search(_compiled(form, ignore_case), same, _PATIENCE_S) is not None
    except TimeoutError:
        return True


@lru_cache(maxsize=512)
def _compiled(form: str, ignore_case: bool) -> regex.Pattern[str]:
    return regex.compile(form, regex.IGNORECASE if ignore_case else 0)


def blind(expression: str) -> bool:
    """Whether an expression tells no digit from another."""
    return told_apart(expression) == frozenset()


def digits_in(same: bytes, words: Iterable[bytes]) -> list[tuple[int, int]]:
    """Where words of `told_apart` stand in the shape of a line."""
    found = set()
    low = same.lower()
    for word in words:
        at = low.find(word)
        while at >= 0:
            found.add((at, at + len(word)))
            at = low.find(word, at + 1)
    return sorted(found)


def _words(items: Iterable[tuple[Any, Any]], before: str = "") -> Iterator[bytes]:
    """The words of a sequence; `before` are the characters that stand before it."""
    run, telling = before, False
    for operation, argument in items:
        digit = _tells(operation, argument)
        if digit or (operation is code.LITERAL and argument < _ASCII):
            run += "0" if digit else chr(argument).lower()
            telling = telling or digit
            continue
        if telling:
            yield run.encode()
        again = operation in _REPEATS and argument[1] > 1
        for part in _INSIDE.get(operation, _nothing)(argument):
            yield from _words(part, "" if again or operation in _LOOKS else run)
        run, telling = "", False
    if telling:
        yield run.encode()


def _tells(operation: Any, argument: Any) -> bool:
    """Whether an item is one character and knows some digits from others. May raise re.error."""
    if operation in (code.LITERAL, code.NOT_LITERAL):
        return argument in _DIGITS
    if operation is code.IN:
        return 0 < len(_digits_of(argument)) < len(_DIGITS)
    if operation not in (code.ANY, code.AT) and operation not in _INSIDE:
        raise re.error("a back reference")
    return False


def _digits_of(members: Iterable[tuple[Any, Any]]) -> set[int]:
    """The digits that a class names."""
    named: set[int] = set()
    for operation, argument in members:
        if operation is code.LITERAL:
            named |= _DIGITS & {argument}
        elif operation is code.RANGE:
            named |= {digit for digit in _DIGITS if argument[0] <= digit <= argument[1]}
        elif operation is code.CATEGORY and argument in _HOLDS_DIGITS:
            named |= _DIGITS
        elif operation is code.CATEGORY and argument not in _NO_DIGITS:
            raise re.error("an unknown category")
    return named
