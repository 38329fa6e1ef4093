"""Closed sets of words in which programs report failure: errno, signals, CUDA errors, Xid.

A vocabulary is one YAML file of `patterns/vocabulary/`: the words of one set, each with the class
that follows from it by itself, or from what else stands on the line. Words yield to signatures;
they name causes in the lines of programs that nobody wrote a signature for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Literal, NamedTuple

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


class WordIndex(NamedTuple):
    """What a search needs of all vocabularies: their ids, those of codes, words by a token.

    A word is (spelling, where the token is in it, number of the vocabulary, number of the word).
    """

    ids: Sequence[str]
    coded: Sequence[int]
    by_token: Mapping[str, Sequence[tuple[str, int, int, int]]]


def word_index(vocabularies: Sequence[Vocabulary]) -> WordIndex:
    """The index of these; each word that is no code is under its longest token."""
    by_token: dict[str, list[tuple[str, int, int, int]]] = {}
    for number, vocabulary in enumerate(vocabularies):
        for place, word in enumerate(() if vocabulary.pattern else vocabulary.words):
            for spelling in word.spellings:
                tokens = re.finditer(r"\w+", spelling)
                token = max(tokens, key=lambda token: len(token.group()), default=None)
                if token is not None:
                    row = (spelling, token.start(), number, place)
                    by_token.setdefault(token.group(), []).append(row)
    coded = [number for number, one in enumerate(vocabularies) if one.pattern]
    return WordIndex([one.id for one in vocabularies], coded, by_token)
