"""Whether texts hold any of several words, all looked for at once, or an expression.

Python's own `in` reads the text once for each word, and words of common letters slow it down; `re`
stops at each place at which an expression might begin.
"""

from __future__ import annotations

from functools import lru_cache

import hyperscan as hs

from diagnose.automaton import Automaton, compile_database


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
def finder(expression: bytes) -> Automaton:
    """Finds where in a text an expression ends; as quick as `held`."""
    return compile_database([expression], [0], [0])
