"""Closed sets of words in which programs report failure: errno, signals, CUDA errors, Xid.

A vocabulary is one YAML file of `patterns/vocabulary/`: the words of one set, each with the class
that follows from it by itself, or from what else stands on the line. Words yield to signatures;
they name causes in the lines of programs that nobody wrote a signature for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Literal

from diagnose.lazy import dataclass

Strength = Literal["weak", "medium", "strong"]
WordRole = Literal["cause", "aftermath"]
HARMLESS, UNKNOWN = "none", "unknown"
STRICT = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Near:
    """What a word means beside something else: `text` is a regular expression for its line."""

    __pydantic_config__ = STRICT

    text: str
    cause: str  # `class` in YAML
    strength: Strength | None = None
    role: WordRole | None = None
    why_not: str = ""  # `not` in YAML
    healthy: str = ""


@dataclass(frozen=True, slots=True)
class Word:
    """One word with its spellings, or a code with its numbers.

    `cause`: a class; `none` for what is harmless, `unknown` for what proves trouble but no class.
    `why_not`: what it must not be taken for. `healthy`: where it stands in logs of jobs that did
    not fail.
    """

    __pydantic_config__ = STRICT

    spellings: list[str]  # `word` in YAML
    cause: str  # `class` in YAML
    strength: Strength
    role: WordRole = "cause"
    near: list[Near] = field(default_factory=list)
    why_not: str = ""  # `not` in YAML
    healthy: str = ""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """One closed set.

    With `pattern`, a regular expression with one group `word`, the words are codes, which mean
    something only where it matches; `triggers` are literals of which a line with a match has one,
    `noun` is what such a code is called: `Xid`.
    """

    __pydantic_config__ = STRICT

    id: str  # the name of its file
    about: str
    references: list[str]
    words: list[Word]
    pattern: str = ""
    triggers: list[str] = field(default_factory=list)
    noun: str = ""


def literals(vocabulary: Vocabulary) -> Iterator[str]:
    """Every text of which a line with one of its words has one."""
    if vocabulary.pattern:
        yield from vocabulary.triggers
    else:
        for word in vocabulary.words:
            yield from word.spellings
