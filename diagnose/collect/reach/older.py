"""Lets the side of a node run on Python 3.10, which images of a year or two ago have.

Nothing else of this package may be imported before `adapt` was called.
"""

from __future__ import annotations

import datetime
import re
import sys
from typing import Any

OLDEST = (3, 10)

# An escape, a class of characters, or a quantifier followed by the + that makes it possessive.
_TOKEN = re.compile(
    r"(?P<keep>\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<quantifier>[*+?]|\{\d*,?\d*\})\+", re.DOTALL
)


def adapt(version: tuple[int, ...] = sys.version_info[:2]) -> None:
    """Add what this version of Python lacks and the node's side uses."""
    if version >= (3, 11):
        return
    datetime.UTC = datetime.timezone.utc  # noqa: UP017
    compiled = re.compile

    def compile_greedy(pattern: Any, flags: Any = 0) -> Any:
        return compiled(greedy(pattern) if isinstance(pattern, str | bytes) else pattern, flags)

    re.compile = compile_greedy


def greedy(pattern: Any) -> Any:
    """A regular expression without possessive quantifiers (3.11), which matches as much or more."""
    if isinstance(pattern, bytes):
        return greedy(pattern.decode("latin-1")).encode("latin-1")
    return _TOKEN.sub(lambda found: found["keep"] or found["quantifier"], pattern)
