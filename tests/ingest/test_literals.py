"""Words looked for at once: what Python's `in` would say of each."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from diagnose.search import held, places

WORDS = (b"ab", b"b", b"[0m", b"a\\", b"aab")


@given(st.lists(st.sampled_from([b"a", b"b", b"[", b"0m", b"\\", b"\n"])).map(b"".join))
def test_the_same_words_as_one_by_one(data: bytes) -> None:
    assert held(data, WORDS) == {word for word in WORDS if word in data}


def test_threads_search_at_once() -> None:
    texts = [b"x" * 100_000 + word for word in WORDS] * 20
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda text: held(text, WORDS), texts))
    assert found == [{word for word in WORDS if word in text} for text in texts]


@given(st.text("abA_\n", max_size=40))
def test_expressions_end_where_they_do_by_re(text: str) -> None:
    data, form, word = text.encode(), rb"[a-z]\n[a-z]|[A-Z_]\n[A-Z_]", rb"_a"
    ends = [end for end in range(3, len(data) + 1) if re.match(form, data[end - 3 : end])]
    first = [found.end() for found in re.finditer(word, data)][:1]
    assert places(data, (word,), (form,)) == {
        expression: places for expression, places in ((word, first), (form, ends)) if places
    }
