"""Lines of thin signatures: samples, and last words of authors, wherever chunks are cut."""

from __future__ import annotations

from itertools import product

import pytest

import diagnose
from diagnose.catalog.schema import Catalog, Signature
from diagnose.ingest.source import Chunk
from diagnose.match.compile import matcher_of
from diagnose.match.thin import BLOCK, FULL, LAST_WORDS, Thin
from tests.sizes import few

STEP = Signature("t.step", "A step", "progress", [r"step (?P<step>\d+) loss"], thin=True)
MATCHER = matcher_of(Catalog([STEP], [], {}, "test"))


def steps(data: bytes, sizes: list[int]) -> tuple[list[bytes], list[bytes]]:
    """The sampled and the last lines, with chunks of about these sizes, the last one again."""
    thin, place, sampled = Thin(MATCHER), 0, []
    sizes = list(sizes)
    while place < len(data):
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        cut = data.find(b"\n", place + size) + 1 or len(data)
        chunk = Chunk(data[place:cut], place, 1)
        sampled += [line_at(chunk.data, to) for _, to in thin.feed(place, chunk)]
        place = cut
    last = [line_at(c.data, to) for _, c, hits in thin.last_words(len(data)) for _, to in hits]
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


def test_the_last_line_of_each_author_is_kept() -> None:
    data = log(BLOCK + 60, 4)
    last = [b"[rank%d]" % rank for rank in range(4)]
    assert [line.split(b":")[0] for line in steps(data, [BLOCK])[1]] == last


def test_of_an_author_without_a_tag_the_last_few() -> None:
    data = b"".join(b"step %d loss 2\n" % n for n in range(100, 200))
    assert steps(data, [500])[1] == [b"step %d loss 2" % n for n in range(200 - LAST_WORDS, 200)]


def test_a_block_gives_one_sample_of_a_pattern() -> None:
    assert len(steps(log(3 * BLOCK - 1000, 1), [1 << 20])[0]) == 3


def test_last_steps_of_all_ranks_are_known_when_a_log_is_a_little_longer_than_a_chunk() -> None:
    text = log(BLOCK + 60, 4).decode()
    last = diagnose.load_text(text).ranks["last_step"]
    highest = int(text.splitlines()[-1].split()[2])
    assert sorted(last) == list(range(highest - 3, highest + 1))
