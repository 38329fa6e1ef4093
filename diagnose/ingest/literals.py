"""Whether and where texts hold any of several words or expressions, all looked for at once.

Python's own `in` reads the text once for each word, and words of common letters slow it down; `re`
stops at each place at which an expression might begin.
"""

from __future__ import annotations

from functools import lru_cache

import hyperscan as hs

from diagnose.search import Automaton, compile_database


@lru_cache(maxsize=16)
def _compiled(words: tuple[bytes, ...]) -> Automaton:
    """Finds each of the words once."""
    count = len(words)
    return compile_database(
        words, range(count), [int(hs.HS_FLAG_SINGLEMATCH)] * count, literal=True
    )


def held(data: bytes, words: tuple[bytes, ...]) -> frozenset[bytes]:
    """Those of `words`, which hold no NUL, that are in `data`."""
    return frozenset(words[number] for number, _ in _compiled(words).hits(data))


@lru_cache(maxsize=16)
def _finder(once: tuple[bytes, ...], each: tuple[bytes, ...]) -> Automaton:
    flags = [int(hs.HS_FLAG_SINGLEMATCH)] * len(once) + [0] * len(each)
    return compile_database(once + each, range(len(flags)), flags)


def places(
    data: bytes, once: tuple[bytes, ...], each: tuple[bytes, ...] = ()
) -> dict[bytes, list[int]]:
    """The expressions that match in `data`, with where their matches end.

    Of those `once` only where the first one does. Together they cost little more than one alone,
    but mixed ones take long to compile: best are words, and classes of characters before words.
    """
    expressions = once + each
    found: dict[bytes, list[int]] = {}
    for number, end in _finder(once, each).hits(data):
        found.setdefault(expressions[number], []).append(end)
    return found
