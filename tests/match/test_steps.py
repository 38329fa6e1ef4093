"""Lines of per-step signatures: samples, and last words of authors, wherever chunks are cut."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import diagnose
from diagnose.catalog.schema import Catalog, Signature
from diagnose.ingest.source import Chunk
from diagnose.match.gather import search
from diagnose.match.lines import author_of
from diagnose.match.steps import (
    BLOCK,
    FEW_AUTHORS,
    FULL,
    GLANCE,
    LAST_WORDS,
    STRIDE,
    TAIL_MIN,
    StepSearch,
)
from tests.match.matchers import matcher_of
from tests.sizes import few

STEP = Signature("t.step", "A step", "progress", [r"step (?P<step>\d+) loss"], per_step=True)
MATCHER = matcher_of(Catalog([STEP], [], {}, "test"))


def steps(data: bytes, sizes: list[int]) -> tuple[list[bytes], list[bytes]]:
    """The sampled and the last lines, with chunks of about these sizes, the last one again."""
    search, place, sampled = StepSearch(MATCHER), 0, []
    sizes = list(sizes)
    while place < len(data):
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        cut = data.find(b"\n", place + size) + 1 or len(data)
        chunk = Chunk(data[place:cut], place, 1)
        sampled += [line_at(chunk.data, to) for _, to in search.feed(place, chunk)]
        place = cut
    last = [line_at(c.data, to) for _, c, hits in search.last_words(len(data)) for _, to in hits]
    return sampled, sorted(last)


def line_at(data: bytes, to: int) -> bytes:
    return data[data.rfind(b"\n", 0, to) + 1 : data.find(b"\n", to)]


def log(size: int, ranks: int) -> bytes:
    lines, have, n = [], 0, 0
    while have < size:
        lines.append(
            b"[rank%d]: step %d loss 2.1 and some words to fill the line\n" % (n % ranks, n)
        )
        have += len(lines[-1])
        n += 1
    return b"".join(lines)


@pytest.mark.parametrize(
    ("size", "quiet"),
    few(product([3000, FULL + 70, BLOCK + 60, 2 * BLOCK + 5000], [0, 700_000, 6_000_000]), 4),
)
def test_cuts_change_nothing(size: int, quiet: int) -> None:
    data = log(size, 4) + b"another word\n" * (quiet // 13)
    whole = steps(data, [len(data)])
    for sizes in ([1 << 20], [BLOCK], [size - 100, 50], [333_333], [70_000, 9_000_000]):
        assert steps(data, sizes) == whole


def test_the_last_lines_of_each_author_are_kept() -> None:
    data = log(BLOCK + 60, 4)
    last = [b"[rank%d]" % rank for rank in range(4) for _ in range(LAST_WORDS)]
    assert sorted(line.split(b":")[0] for line in steps(data, [BLOCK])[1]) == last


def test_of_many_authors_all_but_a_few_have_one() -> None:
    many = FEW_AUTHORS + 5
    data = b"".join(b"[rank%d]: step %d loss 2\n" % (n % many, n) for n in range(9 * many))
    found = Counter(line.split(b":")[0] for line in steps(data, [500])[1])
    assert Counter(found.values()) == {LAST_WORDS: FEW_AUTHORS, 1: 5}


def test_of_an_author_without_a_tag_the_last_few() -> None:
    data = b"".join(b"step %d loss 2\n" % n for n in range(100, 200))
    assert steps(data, [500])[1] == [b"step %d loss 2" % n for n in range(200 - LAST_WORDS, 200)]


def test_a_block_gives_one_sample_of_a_pattern() -> None:
    assert len(steps(log(3 * BLOCK - 1000, 1), [1 << 20])[0]) == 3


OTHER = Signature("t.other", "Another", "context", [r"other \w+"], per_step=True)


def test_a_window_is_searched_as_far_as_its_first_glance_with_a_match() -> None:
    search = StepSearch(matcher_of(Catalog([STEP, OTHER], [], {}, "test")))
    filling = b"x" * 63 + b"\n"
    first = filling * ((BLOCK + STRIDE) // 64)
    window = b"step 1 loss 2\n" + filling * (GLANCE // 64) + b"other word\n"
    late = filling * (STRIDE // 64 - len(window) // 64 + 2 * GLANCE // 64) + b"step 2 loss 2\n"
    data = first + window + late + filling * (STRIDE // 64)
    found = [line_at(data, to) for _, to in search.feed(0, Chunk(data, 0, 1))]
    assert found == [b"step 1 loss 2"]
    assert search.last_stride == BLOCK // STRIDE + 2


def test_last_steps_of_all_ranks_are_known_when_a_log_is_a_little_longer_than_a_chunk() -> None:
    text = log(BLOCK + 60, 4).decode()
    last = diagnose.load_text(text).ranks["last_step"]
    highest = int(text.splitlines()[-1].split()[2])
    assert sorted(last) == list(range(highest - 3, highest + 1))


def last_words(data: bytes) -> list[bytes]:
    """The last lines of each author in the end of a small source, line by line."""
    begin = data.rfind(b"\n", 0, max(len(data) - TAIL_MIN, 0)) + 1
    kept: Counter[bytes] = Counter()
    lines = []
    for line in reversed(data[begin:].split(b"\n")):
        author = author_of(line)
        if MATCHER.scan_steps(line) and kept[author] < LAST_WORDS:
            kept[author] += 1
            lines.append(line)
    return sorted(lines)


TAGS = [
    b"",
    b"",
    b"[rank0]: ",
    b"[rank3]: ",
    b"a-b: [",
    b"[1,2]<stdout>:",
    b"7: ",
    b"n1:22:33 [0] ",
    b"12:13:14 ",
    b"a b: [",
]
SAID = [b"step %d loss 2.0", b"step %d", b"%d words that match nothing"]
ROWS = st.tuples(st.sampled_from(TAGS), st.sampled_from(SAID), st.integers(1, 300))


@given(st.lists(ROWS, min_size=1, max_size=12), st.sampled_from([900, 5000, 40_000]))
def test_last_words_are_those_of_a_look_at_every_line(
    rows: list[tuple[bytes, bytes, int]], chunk: int
) -> None:
    numbers = iter(range(100_000, 999_999))
    lines = [tag + said % next(numbers) for tag, said, times in rows for _ in range(times)]
    data = b"\n".join(lines) + b"\n"
    assert steps(data, [chunk])[1] == last_words(data)


@given(st.lists(ROWS, min_size=1, max_size=12), st.integers(0, 3))
@example([(b"[rank3]: ", SAID[0], 5), (b"[rank0]: ", SAID[0], 5)], 0)
@pytest.mark.slow
def test_of_known_lines_the_same_is_kept(rows: list[tuple[bytes, bytes, int]], more: int) -> None:
    numbers = iter(range(100_000, 999_999))
    lines = [tag + said % next(numbers) for tag, said, times in rows for _ in range(times)]
    lines += [b"a line that is new: step %d loss 3" % number for number in range(more)]
    chunk = Chunk(b"\n".join(lines) + b"\n", 0, 1)
    MATCHER.__dict__.pop("shapes", None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diagnose.match.gather.SEARCHES_PAY", 0)
        for _ in range(2):
            search(Chunk(b"\n".join(lines[: len(lines) - more]) + b"\n", 0, 1), 0, MATCHER)
        told = search(chunk, 0, MATCHER).steps
    assert (told is None) == (4 * more > len(lines) + 1)
    expected, searched = StepSearch(MATCHER), StepSearch(MATCHER)
    assert searched.feed(0, chunk, told) == expected.feed(0, chunk)
    size = len(chunk.data)
    assert [hits for *_, hits in searched.last_words(size)] == [
        hits for *_, hits in expected.last_words(size)
    ]
