"""Closed sets of words in which programs report failure: errno, signals, CUDA errors, Xid.

A vocabulary is one YAML file of `patterns/vocabulary/`: the words of one set, each with the class
that follows from it by itself, or from what else stands on the line. Words yield to signatures;
they name causes in the lines of programs that nobody wrote a signature for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Strength = Literal["weak", "medium", "strong"]
WordRole = Literal["cause", "aftermath"]
HARMLESS, UNKNOWN = "none", "unknown"
_STRENGTHS: tuple[Strength, ...] = ("weak", "medium", "strong")
_ROLES: tuple[WordRole, ...] = ("cause", "aftermath")


@dataclass(frozen=True, slots=True)
class Near:
    """What a word means beside something else: `text` is a regular expression for its line."""

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

    id: str  # the name of its file
    about: str
    references: list[str]
    words: list[Word]
    pattern: str = ""
    triggers: list[str] = field(default_factory=list)
    noun: str = ""


def vocabulary_of(name: str, data: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of a file's plain data. Raises ValueError with a message for the user."""
    _closed("the file", data, {"about", "references", "pattern", "triggers", "noun", "words"})
    if not isinstance(data.get("words"), list):
        raise ValueError("words: expected a list")
    words = [_word(number, row) for number, row in enumerate(data["words"])]
    return Vocabulary(
        name, str(data.get("about", "")), list(data.get("references", [])), words,
        str(data.get("pattern", "")), list(data.get("triggers", [])), str(data.get("noun", "")),
    )  # fmt: skip


def _word(number: int, row: Any) -> Word:
    at = f"words[{number}]"
    if not isinstance(row, dict) or "word" not in row:
        raise ValueError(f"{at}: expected a mapping with word, class and strength")
    _closed(at, row, {"word", "class", "strength", "role", "near", "not", "healthy"})
    spellings = row["word"] if isinstance(row["word"], list) else [row["word"]]
    if not all(isinstance(spelling, str) and spelling for spelling in spellings):
        raise ValueError(f"{at}: word: expected texts; put numbers in quotes")
    near = []
    for one in row.get("near", []):
        _closed(f"{at}: near", one, {"text", "class", "strength", "role", "not", "healthy"})
        near.append(
            Near(
                one["text"], one["class"], _one_of(at, one.get("strength"), _STRENGTHS),
                _one_of(at, one.get("role"), _ROLES),
                one.get("not", ""), one.get("healthy", ""),
            )
        )  # fmt: skip
    return Word(
        spellings, row["class"], _one_of(at, row["strength"], _STRENGTHS),
        _one_of(at, row.get("role", "cause"), _ROLES), near,
        row.get("not", ""), row.get("healthy", ""),
    )  # fmt: skip


def _closed(at: str, row: Mapping[str, Any], keys: set[str]) -> None:
    unknown = sorted(set(row) - keys)
    if unknown:
        raise ValueError(f"{at}: unknown key {unknown[0]}, expected {', '.join(sorted(keys))}")


def _one_of(at: str, value: Any, known: Any) -> Any:
    if value is not None and value not in known:
        raise ValueError(f"{at}: {value}: expected one of {', '.join(known)}")
    return value


def literals(vocabulary: Vocabulary) -> Iterator[str]:
    """Every text of which a line with one of its words has one."""
    if vocabulary.pattern:
        yield from vocabulary.triggers
    else:
        for word in vocabulary.words:
            yield from word.spellings
