"""What is wrong with the words of a catalog."""

from __future__ import annotations

from collections.abc import Iterator

import regex

from diagnose.catalog.schema import Catalog
from diagnose.catalog.vocabulary import Vocabulary, Word
from diagnose.match.words import Words

_SHORTEST = 3  # characters of a word that means something without a pattern


def word_problems(catalog: Catalog, classes: set[str]) -> Iterator[str]:
    """Problems of all vocabularies: unknown classes, words never found, and words given twice."""
    owners: dict[str, tuple[str, Word]] = {}
    words = Words(catalog.vocabularies)
    for vocabulary in catalog.vocabularies:
        if not vocabulary.references:
            yield f"{vocabulary.id}: references: needed, the primary source"
        broken = list(_broken(vocabulary))
        yield from broken
        for word in vocabulary.words:
            at = f"{vocabulary.id}: {word.spellings[0]}"
            for cause in {word.cause, *(near.cause for near in word.near)} - classes:
                yield f"{at}: unknown class {cause}"
            if vocabulary.pattern or broken:
                continue
            for spelling in word.spellings:
                if len(spelling) < _SHORTEST or not words.knows(spelling, word):
                    yield f"{at}: {spelling!r} is never found: it needs a token and length"
                other, same = owners.setdefault(spelling, (vocabulary.id, word))
                if same is not word:
                    yield f"{at}: {spelling!r} is in {other} too"


def _broken(vocabulary: Vocabulary) -> Iterator[str]:
    texts = [near.text for word in vocabulary.words for near in word.near]
    for text in [*texts, *filter(None, [vocabulary.pattern])]:
        try:
            regex.compile(text)
        except regex.error as error:
            yield f"{vocabulary.id}: {text}: {error}"
    if vocabulary.pattern and "(?P<word>" not in vocabulary.pattern:
        yield f"{vocabulary.id}: pattern: needs a group named word"
    needed = {bool(vocabulary.pattern), bool(vocabulary.triggers), bool(vocabulary.noun)}
    if len(needed) > 1:
        yield f"{vocabulary.id}: a pattern needs triggers and a noun, and only a pattern does"
