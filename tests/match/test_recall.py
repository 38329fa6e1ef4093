"""What is remembered of lines by their shape is what a search of each of them gives."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import pytest

from diagnose.catalog.load import load_catalog
from diagnose.catalog.schema import Catalog, Signature
from diagnose.formats import table as table_of_rows
from diagnose.ingest.source import Chunk, Source
from diagnose.match import gather, scanner, shapes
from diagnose.match.compile import Matcher, compile_matcher
from diagnose.match.lines import author_of, text_of
from diagnose.match.rows import shape
from diagnose.match.scanner import SourceScan, scan_source
from diagnose.match.shapes import Asked, Form, ShapeTable
from diagnose.parse.pace import may_tell, times_in
from diagnose.parse.prefix import peel
from tests.match.matchers import matcher_of

PREFIXES = (
    "", "[default3]:[rank11]:", "[E820 11:47:24.069865760 ProcessGroupNCCL.cpp:607] [Rank 3] ",
    "2024-05-01 10:00:00,123 INFO ", "node-01:4000:4901 [3] NCCL WARN ", "3: ", "[1,3]<stderr>:",
    "[12/10 11:59:20] ", "(Worker pid=5, ip=10.0.0.2) ", '{"rank": 3, "log": "x", "message": "',
)  # fmt: skip


def scanned(matcher: Matcher, *lines: str) -> SourceScan:
    data = "\n".join(lines).encode(errors="surrogateescape")

    def read() -> Iterator[Chunk]:
        yield Chunk(data, 0, 1)

    return scan_source(Source("job.log", "text", len(data), read), matcher)


def afresh(matcher: Matcher) -> None:
    """Let it forget all that it knows."""
    matcher.__dict__.pop("shapes", None)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "SEARCHES_PAY", 0)
    monkeypatch.setattr(scanner, "READINGS_PAY", 0)


class Forgets(ShapeTable):
    """Remembers nothing of what lines hold or say."""

    def learned(self, same: bytes, line: bytes, asked: Asked) -> Form | None:
        return None


def alone(matcher: Matcher, *lines: str) -> SourceScan:
    """The same, each line looked at by itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(matcher.__dict__, "shapes", Forgets(lambda _: ()))
        patch.setattr(gather, "SEARCHES_PAY", 1 << 60)
        return scanned(matcher, *lines)


def others(line: str, seed: random.Random) -> str:
    return re.sub("[0-9]", lambda _: seed.choice("0123456789"), line)


def examples() -> list[str]:
    signatures = load_catalog([], examples=True).signatures
    lines = [example.line for entry in signatures for example in entry.examples]
    lines += [line for entry in signatures for line in entry.near_miss]
    return [row for line in lines for row in line.split("\n")]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is looked up before the automata search, as of large sources."""
    monkeypatch.setattr(gather, "SMALL", 0)


@pytest.mark.usefixtures("at_once", "large")
@pytest.mark.slow
def test_the_examples_of_the_catalog_as_lines_of_large_sources() -> None:
    test_the_examples_of_the_catalog_with_other_numbers(8)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_the_examples_of_the_catalog_with_other_numbers(every: int) -> None:
    check(every, str)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_the_examples_of_the_catalog_among_characters_that_are_no_ascii(every: int) -> None:
    seed = random.Random(15)
    strange = ("█", "▊ ", "完成", "é", "\u00a0", "\udcff", "\udce2\udc96", "İ", "٣")

    def among(line: str) -> str:
        at = seed.randrange(len(line) + 1)
        return line[:at] + seed.choice(strange) + line[at:] + seed.choice(strange)

    check(every, among)


def check(every: int, change: Callable[[str], str]) -> None:
    seed = random.Random(14)
    lines = [change(line) for line in examples()]
    seed.shuffle(lines)
    lines = [seed.choice(PREFIXES) + line for line in islice(lines, 0, None, every)]
    matcher = matcher_of_shipped()
    for at in range(0, len(lines), 60):
        some = lines[at : at + 60]
        jobs = [some, some, *([others(line, seed) for line in some] for _ in range(3))]
        afresh(matcher)
        found = [scanned(matcher, *job) for job in jobs]
        for job, result in zip(jobs, found, strict=True):
            assert_same(result, alone(matcher, *job))


def test_messages_and_authors_by_shape_are_those_of_each_line() -> None:
    seed, table = random.Random(16), ShapeTable(lambda _: ())
    lines = [seed.choice(PREFIXES) + line for line in examples()[::9]]
    for line in [*lines, *(others(line, seed) for line in lines * 3)]:
        data = line.encode(errors="surrogateescape")
        text = text_of(data)
        assert table.message(text) == (peel(text).message or text).strip()
        assert table.author(data, 0, shape(data)) == author_of(data)


def test_times_of_steps_by_shape_are_those_of_each_line() -> None:
    seed, table = random.Random(17), ShapeTable(lambda _: ())
    samples = [one for row in table_of_rows.written(table_of_rows.PACE) for one in row["samples"]]
    lines = [seed.choice(PREFIXES) + line for line in samples]
    lines.append("iteration 7/ 100 | step_time: 99999.0 | iter_time: 0.25")
    found = 0
    for line in [*lines, *(others(line, seed) for line in lines * 4)]:
        data = line.encode(errors="surrogateescape")
        prefix = peel(data.decode(errors="replace"))
        times = times_in(prefix.message) if may_tell(data) else None
        known = table.times(data)
        assert (known[2] if known else None) == times, line
        if known is not None:
            found += 1
            assert known[1] == prefix.message
            assert replace(known[0], message="") == replace(prefix, message="")
    assert found > 3 * len(samples)


def assert_same(result: SourceScan, expected: SourceScan) -> None:
    for line in (*result.lines, *expected.lines):
        line.prefix = replace(line.prefix, message="")  # kept of none that is remembered
    assert result.lines == expected.lines
    assert result.counts == expected.counts


def matcher_of_shipped() -> Matcher:
    return compile_matcher(load_catalog([]))


ENDED = Signature("t.ended", "", "effect", [r"ended,? .*status [1-9]\b"])
OTHER = Signature("t.other", "", "context", [r"work (?P<n>\d+)"])


def test_lines_that_only_look_like_one_with_digits_are_not_searched(
    at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = matcher_of(Catalog([ENDED, OTHER], [], {}, "t"))
    line = "23:59:59.{0} status last ended: work {0}"
    for number in range(1001, 1004):
        scanned(matcher, line.format(number))
    monkeypatch.setattr(matcher, "find", nothing)
    monkeypatch.setattr(matcher, "scan", nothing)
    assert [one.matches for one in scanned(matcher, line.format(2007)).lines] == [
        [(1, {"n": "2007"})]
    ]


CODE = Signature("t.code", "", "cause", [r"code [12] of (?P<rank>\d+)"], cause="env.config")
ANCHORED = Signature("t.anchored", "", "context", [r"^step (?P<step>\d+)$"])
MATCHER = matcher_of(Catalog([CODE, ANCHORED], [], {}, "t"))


@pytest.fixture
def taught(monkeypatch: pytest.MonkeyPatch) -> Matcher:
    """A matcher that has seen these two lines, and cannot look at any of their shape."""
    monkeypatch.setattr(gather, "SEARCHES_PAY", 0)
    monkeypatch.setattr(scanner, "READINGS_PAY", 0)
    afresh(MATCHER)
    for _ in range(2):
        scanned(
            MATCHER, "[rank1]: code 1 of 40", "[E820 11:47:24.069860 a.cpp:60] step 7", "", "x1"
        )
    return MATCHER


def nothing(*_: object) -> None:
    raise AssertionError("it was searched")


def test_a_line_of_a_known_shape_is_not_searched(
    taught: Matcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taught, "find", nothing)
    monkeypatch.setattr(taught, "scan", nothing)
    result = scanned(
        taught, "[rank7]: code 1 of 59", "x2", "[E820 12:00:01.069870 a.cpp:61] step 8"
    )
    assert [(line.line, line.offset, line.prefix.rank) for line in result.lines] == [
        (1, 0, 7), (3, 25, None),
    ]  # fmt: skip
    assert [line.matches for line in result.lines] == [[(0, {"rank": "59"})], [(1, {"step": "8"})]]
    assert result.lines[1].prefix.stamp is not None
    assert result.counts == {0: 1, 1: 1}


@pytest.mark.parametrize(
    "line",
    [
        "[rank7]: code 2 of 59",
        "[rank7]: code 3 of 59",
        "[E820 99:47:24.069860 a.cpp:60] step 7",
        "[E920 11:47:24.069860 a.cpp:60] step 7",
    ],
)
def test_digits_that_matter(taught: Matcher, line: str) -> None:
    result = scanned(taught, line, line, line)
    assert_same(result, alone(MATCHER, line, line, line))


def test_a_line_that_says_nothing_behind_a_time_teaches_nothing_of_numbers_that_are_none(
    taught: Matcher,
) -> None:
    told, other = (f"[E820 {hour}:47:24.069860 a.cpp:60] step 7" + " of 9" for hour in (11, 99))
    hours = Signature("t.hours", "", "context", [r"^\[E820 .* step \d+"])
    matcher = matcher_of(Catalog([hours], [], {}, "t"))
    assert not scanned(matcher, told, told, told).lines
    assert_same(scanned(matcher, other), alone(matcher, other))
    assert scanned(matcher, other).counts == {0: 1}


def test_lines_of_a_paste_keep_their_numbers(taught: Matcher) -> None:
    chunk = Chunk(b"x3\n[rank7]: code 1 of 59\n", 10, 4, [4, 9], [10, 77])
    [found] = scan_source(Source("a", "text", 0, lambda: iter([chunk])), taught).lines
    assert (found.line, found.offset) == (9, 77)


def test_lines_that_matched_are_peeled_once(taught: Matcher) -> None:
    lines = ["none", "[rank7]: code 1 of 59", "[rank7]: code 1 of 6\rnone"]
    result = scanned(taught, *lines)
    assert [line.text for line in result.edges] == [
        *lines[:2],
        "[rank7]: code 1 of 6",
        *lines[:2],
        "none",
    ]
    by_text = {line.text: line.prefix for line in result.lines}
    assert [line.prefix is by_text.get(line.text) for line in result.edges] == [
        False, True, True, False, True, False,
    ]  # fmt: skip


def test_a_full_memory_begins_anew(taught: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "MOST", 10_000)
    lines = [f"{'x' * (number % 90)} code 1 of {'y' * number}" for number in range(90)]
    for _ in range(3):
        scanned(taught, *lines)
    assert len(taught.shapes.entries) < 40


@pytest.mark.usefixtures("large")
def test_what_has_no_mark_is_found_in_large_sources(at_once: None) -> None:
    short = Signature("t.short", "", "cause", [r"^a\d"], cause="env.config")
    matcher = matcher_of(Catalog([CODE, short], [], {}, "t"))
    for _ in range(3):
        assert scanned(matcher, "a1", "code 1 of 4", "b", "a2").counts == {0: 1, 1: 2}


@pytest.mark.parametrize("data", [b"code 1 of 4\rcode 1 of 5\n", b"code 1 of 4" + b" x" * 2500])
def test_what_is_cut_is_searched_in_any_case(taught: Matcher, data: bytes) -> None:
    for _ in range(3):
        found = scan_source(Source("a", "text", 0, lambda: iter([Chunk(data, 0, 1)])), taught)
        assert len(found.lines) == data.count(b"code")
