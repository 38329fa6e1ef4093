from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.ingest.archive_formats import Entry, StreamFeed, tar_entries
from diagnose.ingest.source import Budget
from tests.archives import END, header, member

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


def entries(data: bytes) -> tuple[list[Entry], list[str]]:
    budget = Budget()
    return [*tar_entries(StreamFeed(iter([data])), budget)], budget.notes


def test_a_damaged_header_loses_its_member_only() -> None:
    lost = b"\1" + member(b"b.log", b"b\n" * 600)[1:]
    found, notes = entries(member(b"a.log", b"a\n") + lost + member(b"c.log", b"c\n") + END)
    assert [entry.name for entry in found] == ["a.log", "c.log"]
    assert notes == ["damaged header at byte 1024: members may be missing"]


def test_many_damaged_headers_are_noted_once_and_counted() -> None:
    lost = b"\1" + member(b"b.log")[1:]
    found, notes = entries((lost + member(b"a.log")) * 1000 + END)
    assert len(found) == 1000
    assert notes == ["damaged header at byte 0: members may be missing"]
    budget = Budget(headers=9)
    data = (lost + member(b"a.log")) * 1000
    assert len([*tar_entries(StreamFeed(iter([data])), budget)]) == 4
    assert budget.notes[1:] == ["more than 9 headers: the archive was read up to there"]


def test_times_in_a_gnu_header_are_no_folder() -> None:
    head = bytearray(header(b"a.log", magic=b"ustar  \0"))
    head[345:356] = b"15033275620"
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    assert [entry.name for entry in entries(bytes(head) + END)[0]] == ["a.log"]


def test_garbage_is_looked_through_for_a_bounded_way() -> None:
    feed = StreamFeed(b"\1" * (1 << 16) for _ in range(1 << 20))
    assert [*tar_entries(feed, Budget())] == []
    assert feed.position < 2 << 20


def test_records_of_extended_headers_count_as_headers() -> None:
    body = b"5 a=\n" * 1000
    flood = header(b"x", len(body), b"x") + body + bytes(-len(body) % 512)
    budget = Budget(headers=500)
    data = flood * 100 + member(b"a.log") + END
    assert [*tar_entries(StreamFeed(iter([data])), budget)] == []
    assert budget.notes == ["more than 500 headers: the archive was read up to there"]


@pytest.mark.parametrize("text", [b"", b"-", b"\x80\0\0\0\0\0\4\0", b" 1_1\0"])
def test_a_checksum_is_a_number_of_digits(text: bytes) -> None:
    odd = bytearray(member(b"b.log"))
    odd[148:156] = text.ljust(8, b"\0")
    found, notes = entries(bytes(odd) + member(b"c.log") + END)
    assert [entry.name for entry in found] == ["c.log"]
    assert notes == ["damaged header at byte 0: members may be missing"]


def test_a_checksum_of_signed_bytes_as_old_writers_have_it() -> None:
    odd = bytearray(header("ä.log".encode()))
    odd[148:156] = b" " * 8
    odd[148:156] = b"%06o\0 " % (sum(odd) - 256 * 2)
    assert [entry.name for entry in entries(bytes(odd) + END)[0]] == ["ä.log"]
