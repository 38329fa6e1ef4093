"""The scan: exact places, per-step signatures, floods, and independence of chunk borders."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagnose.catalog.schema import Catalog, Signature
from diagnose.ingest.source import Chunk, Source
from diagnose.match import gather
from diagnose.match import scanner as scan
from diagnose.match.compile import MATCH_TIMEOUT_S
from diagnose.match.lines import LINE_WINDOW, TEXT_LIMIT, Reading
from tests.match.matchers import matcher_of

ERROR = Signature("t.error", "", "cause", [r"bad thing (?P<value>\d+)"], cause="env.config")
ANCHORED = Signature("t.anchored", "", "context", [r"^step zero$"])
STEP = Signature("t.step", "", "progress", [r"step (?P<step>\d+)\b"], per_step=True)
UNLESS = Signature("t.unless", "", "effect", ["closed by peer"], unless=["gracefully"])
ALL = [ERROR, ANCHORED, STEP, UNLESS]


MATCHER = matcher_of(Catalog(ALL, [], {}, "t"))


def source(*chunks: bytes) -> Source:
    def read() -> Iterator[Chunk]:
        offset, line = 0, 1
        for data in chunks:
            yield Chunk(data, offset, line)
            offset += len(data)
            line += data.count(b"\n")

    return Source("job.log", "text", sum(map(len, chunks)), read)


def places(result: scan.SourceScan) -> list[tuple[str, int, int, dict[str, str]]]:
    return [
        (ALL[number].id, line.line, line.offset, captures)
        for line in result.lines
        for number, captures in line.matches
    ]


def test_places_and_captures() -> None:
    result = scan.scan_source(source(b"start\nbad thing 7 here\n\nx bad thing 8"), MATCHER)
    assert places(result) == [
        ("t.error", 2, 6, {"value": "7"}),
        ("t.error", 4, 24, {"value": "8"}),
    ]
    assert [line.text for line in result.lines] == ["bad thing 7 here", "x bad thing 8"]


def test_carriage_returns_cut_lines() -> None:
    result = scan.scan_source(source(b"10%\rbad thing 1\r20%\nnext\n"), MATCHER)
    assert [(line.line, line.offset, line.text) for line in result.lines] == [(1, 4, "bad thing 1")]


def test_an_anchor_means_the_message_behind_the_prefixes() -> None:
    result = scan.scan_source(source(b"[rank3]: step zero\nnot step zero\n"), MATCHER)
    assert [(line.line, line.prefix.rank) for line in result.lines] == [(1, 3)]


def test_unless_cancels() -> None:
    result = scan.scan_source(source(b"closed by peer\nclosed by peer gracefully\n"), MATCHER)
    assert [line.line for line in result.lines] == [1]


def test_thin_signatures_keep_the_first_and_the_last_of_each_rank() -> None:
    lines = [b"[rank%d]: step %d\n" % (rank, step) for step in range(50) for rank in (0, 1)]
    result = scan.scan_source(source(b"".join(lines)), MATCHER)
    kept = [
        (line.prefix.rank, captures["step"])
        for line in result.lines
        for _, captures in line.matches
    ]
    last = [(rank, str(step)) for step in range(46, 50) for rank in (0, 1)]
    assert kept == [(0, "0"), *last]


def test_a_flood_keeps_both_ends_and_the_exact_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "KEEP_FIRST", 3)
    monkeypatch.setattr(gather, "KEEP_LAST", 2)
    result = scan.scan_source(source(b"".join(b"bad thing %d\n" % i for i in range(10))), MATCHER)
    assert [c["value"] for line in result.lines for _, c in line.matches] == [
        "0",
        "1",
        "2",
        "8",
        "9",
    ]
    assert result.counts[0] == 10


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_all_floods_together_are_bounded_however_a_source_is_parted(
    monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    for name, value in (("KEEP_FIRST", 40), ("KEEP_LAST", 20), ("KEEP_ALL", 100)):
        monkeypatch.setattr(gather, name, value)
    monkeypatch.setattr(gather, "KEEP_LEAST", 5)
    patterns = [number**2 % 11 for number in range(700)]
    size = len(patterns) // parts
    found = []
    for at in range(0, len(patterns), size):
        found.append(gather.Gathered(lines=size))
        places = range(at, at + size)
        found[-1].take(Reading(one, one - at, 0, b"", (patterns[one],)) for one in places)
    whole = gather.join(found, lambda *_: iter(()), MATCHER)
    kept = sorted(
        line.place for line in [*whole.kept, *itertools.chain.from_iterable(whole.flood.values())]
    )
    of_each = [[i for i, one in enumerate(patterns) if one == number] for number in range(11)]
    # Half of the first and of the last lines, and half of these, are few enough.
    wanted = {*(i for own in of_each for i in [*own[:10], *own[-5:]])}
    assert kept == sorted(wanted)
    assert len(kept) <= 100
    dropped = {n: len(own) - 15 for n, own in enumerate(of_each) if len(own) > 15}
    assert whole.dropped() == dropped


def test_a_very_long_line_is_bounded() -> None:
    data = b"x" * 100_000 + b" bad thing 5 " + b"y" * 100_000
    result = scan.scan_source(source(data), MATCHER)
    assert len(result.lines) == 1
    assert len(result.lines[0].text) <= TEXT_LIMIT + 8
    assert result.lines[0].matches == [(0, {"value": "5"})]


def test_after_some_lines_made_to_hurt_long_lines_get_little_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, given_s = [0.0], []

    def search(_number: int, _line: str, _message: str, timeout_s: float) -> None:
        given_s.append(timeout_s)
        clock[0] += timeout_s

    monkeypatch.setattr(scan, "thread_time", lambda: clock[0])
    monkeypatch.setattr(MATCHER, "find", search)
    MATCHER.__dict__.pop("shapes", None)
    long, short = b"bad thing 1" + b" x" * scan.HARMLESS + b"\n", b"bad thing 2\n"
    scan.scan_source(source(long * 30 + short), MATCHER)
    hurt, others = scan.HURTFUL_LINES, 30 - scan.HURTFUL_LINES
    assert given_s == [scan.LINE_BUDGET_S] * hurt + [scan.LITTLE_S] * others + [MATCH_TIMEOUT_S]


@pytest.mark.parametrize("blank", [b" ", b'","'], ids=["words", "json"])
def test_a_long_line_is_cut_between_words(blank: bytes) -> None:
    """Half a token could not be told from a word; nor could a value without its name."""
    token = b"tok_" + b"aB3d" * 9
    filler = blank.join([b"word"] * 2500)
    for shift in range(0, 48, 3):
        for at in (TEXT_LIMIT // 2, LINE_WINDOW, -TEXT_LIMIT // 2 + 20):
            line = filler + b" bad thing 5 " + filler
            place = len(filler) - at + shift
            start = line.rfind(blank, 0, place) + len(blank)
            line = line[:start] + b"key=" + blank + token + blank + line[start:]
            [found] = scan.scan_source(source(b"x\n" + line + b"\n"), MATCHER).lines
            pieces = {token[i : i + 8].decode() for i in range(len(token) - 7)}
            if any(piece in found.text for piece in pieces):
                assert token.decode() in found.text
                assert f"key={blank.decode()}{token.decode()}" in found.text
            assert "bad thing 5" in found.text


def test_a_source_that_breaks_off_keeps_what_was_read() -> None:
    def read() -> Iterator[Chunk]:
        yield Chunk(b"bad thing 1\n", 0, 1)
        raise OSError("disk gone")

    result = scan.scan_source(Source("job.log", "text", 0, read), MATCHER)
    assert result.problem == "reading stopped: disk gone"
    assert len(result.lines) == 1


def test_edges_are_the_first_and_last_lines() -> None:
    data = b"".join(b"line %d\n" % i for i in range(1, 31))
    result = scan.scan_source(source(data[:100], data[100:]), MATCHER)
    numbers = [line.line for line in result.edges]
    assert numbers == [1, 2, 3, 4, 27, 28, 29, 30]
    assert [line.text for line in result.edges][-1] == "line 30"


@given(
    st.lists(
        st.sampled_from([b"quiet\n", b"bad thing 3\n", b"closed by peer\n", b"a\rb\n"]), max_size=30
    ),
    st.sets(st.integers(1, 29)),
)
def test_chunk_borders_do_not_matter(lines: list[bytes], cuts: set[int]) -> None:
    borders = [0, *sorted(cut for cut in cuts if cut < len(lines)), len(lines)]
    pieces = [b"".join(lines[a:b]) for a, b in itertools.pairwise(borders)]
    whole = scan.scan_source(source(b"".join(lines)), MATCHER)
    split = scan.scan_source(source(*[piece for piece in pieces if piece]), MATCHER)
    assert places(split) == places(whole)
    assert split.counts == whole.counts


def edges(*chunks: bytes) -> list[tuple[int, str]]:
    return [(line.line, line.text) for line in scan.scan_source(source(*chunks), MATCHER).edges]


def test_edges_are_found_behind_and_before_any_number_of_blanks() -> None:
    blanks = b" \n" * 9000
    rows = b"  one\n\n two \r three\n"
    found = [(9001, "  one"), (9003, " two "), (9001, "  one"), (9003, " three")]
    assert edges(blanks + rows + blanks) == found
    assert edges(blanks, rows, blanks) == found
    assert edges(blanks, blanks) == []


def test_edges_of_long_lines() -> None:
    long = b"[rank3]: " + b"x" * 9000 + b" CUDA out of memory."
    (first, text), last, *more = edges(b"\n" * 9000, long)
    assert (first, len(text), text[:12]) == (9001, TEXT_LIMIT + 8, "[rank3]: xxx")
    assert last == (9001, "[rank3]: " + "x" * 503 + " ... " + "x" * 3564 + " CUDA out of memory.")
    assert more == []
    assert [line for line, _ in edges(b"one\n" + long + b"\ntwo\n")] == [1, 2, 3]
