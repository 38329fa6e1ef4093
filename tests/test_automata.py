"""Searches of several threads at once find what one after the other finds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import hyperscan as hs
import pytest

from diagnose.search import compile_database

THREADS = 8


def test_threads_share_a_database() -> None:
    automaton = compile_database([b"fo+d", b"bar"], [1, 2], [0, 0])
    blocks = [(b"." * 50_000 + b"food" + b"bar" * number) * 20 for number in range(THREADS)]
    serial = [automaton.hits(block) for block in blocks]
    together = Barrier(THREADS)

    def search(block: bytes) -> list[list[tuple[int, int]]]:
        together.wait()
        return [automaton.hits(block) for _ in range(20)]

    with ThreadPoolExecutor(THREADS) as threads:
        found = list(threads.map(search, blocks))
    assert [len(hits) for hits in serial] == [20 * (1 + number) for number in range(THREADS)]
    assert found == [[hits] * 20 for hits in serial]


def test_a_search_leaves_its_memory_to_the_next() -> None:
    automaton = compile_database([b"bar"], [2], [0])
    for _ in range(3):
        assert automaton.hits(b"a bar") == [(2, 5)]
    assert len(automaton._free) == 1


def test_too_little_memory_for_a_search_is_an_error_like_any_other() -> None:
    class Full:
        scratch = None

        def scan(self, *_: object, **__: object) -> None:
            raise hs.NoMemoryError("Unable to allocate memory.")

    automaton = compile_database([b"a"], [0], [0])
    automaton.database = Full()
    with pytest.raises(MemoryError, match="Unable to allocate"):
        automaton.hits(b"a")
