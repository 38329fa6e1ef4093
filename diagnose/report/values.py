"""What the searches for secrets share: text in lower case, and values that are none."""

from __future__ import annotations

import re
from collections.abc import Set
from contextlib import suppress
from importlib import import_module

from diagnose.lazy import expression

_LONG = 4096  # characters from which on making an automaton pays
JUDGED = 128  # characters of a value that are looked at

_PLACEHOLDER = expression(
    r"(?:none|null|nil|nan|true|false|yes|no|on|off|str|int|bool|bytes|string|undefined|unset|empty"
    r"|missing|required|redacted|hidden|masked|default|unknown|invalid|failed|expired|not[ _-]set"
    r"|\W*|%[sdr])\Z"
    r"|<[^<>]{0,64}>|\*{2}|\.{3}|…|%\(|\{[\w.]{0,64}(?:![rsa])?\}|\{\{|\[|\$[{(]|x{4}",
    re.IGNORECASE,
)
_VARIABLE = expression(r"\$[A-Z_][A-Z0-9_]*\Z")


def words(text: str) -> frozenset[str]:
    """The words of `text`, as a set to look things up in."""
    return frozenset(text.split())


def words_in(text: str, wanted: tuple[str, ...]) -> Set[str]:
    """Those of `wanted`, which are ASCII, that are in `text`; after a long one looked for at once.

    One by one in the program that collects from nodes, which only has the standard library.
    """
    if len(text) >= _LONG or wanted in _AT_ONCE:
        with suppress(ImportError):
            literals = import_module("diagnose.ingest.literals")  # by name: that program lacks it
            if wanted not in _AT_ONCE:
                _AT_ONCE[wanted] = tuple(word.encode() for word in wanted)
            found = literals.held(text.encode(errors="replace"), _AT_ONCE[wanted])
            return {word.decode() for word in found}
    return {word for word in wanted if word in text}


_AT_ONCE: dict[tuple[str, ...], tuple[bytes, ...]] = {}  # words that there is an automaton for


def lowered(text: str) -> str:
    """`text` in lower case, every character in its old place."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(c.lower() if c.isascii() else c for c in text)


def placeholder(value: str) -> bool:
    """Whether a value only stands for one: `None`, `<redacted>`, `${HF_TOKEN}`."""
    return bool(_PLACEHOLDER.match(value) or _VARIABLE.match(value))
