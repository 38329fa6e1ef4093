from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from diagnose.ingest.archive_tar import StreamFeed

TEXT = bytes(range(100))


@given(
    st.lists(st.integers(1, 30), max_size=9),
    st.lists(st.tuples(st.sampled_from(["take", "peek", "skip", "pieces"]), st.integers(0, 40))),
)
def test_a_stream_is_read_forward_wherever_its_blocks_end(
    sizes: list[int], steps: list[tuple[str, int]]
) -> None:
    ends = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    feed = StreamFeed(iter([TEXT[a:b] for a, b in pairwise(ends)]))
    there = TEXT[: ends[-1]]
    at = 0
    for step, length in steps:
        if step == "skip":
            feed.skip_to(at + length)
        elif step == "pieces":
            assert b"".join(feed.pieces(length)) == there[at : at + length]
        else:
            assert getattr(feed, step)(length) == there[at : at + length]
        at = at if step == "peek" else min(at + length, len(there))
        assert feed.position == at
