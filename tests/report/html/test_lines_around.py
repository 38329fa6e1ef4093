import gzip

import pytest

import diagnose
from diagnose.diagnosis import Evidence
from diagnose.job import reread
from diagnose.report import safe
from diagnose.report.html.page import quotes as quoted
from diagnose.report.safe import Row, around, scrubber

from .jobs import fixture, watchdog


def evidence(line: int, source: str = "job.log") -> Evidence:
    return Evidence(source, line, "", "")


def log(lines: int, at: int) -> str:
    return "".join(
        (watchdog(3) if number == at else f"line {number}") + "\n" for number in range(1, lines + 1)
    )


@pytest.mark.parametrize("small", [reread.SMALL, 0], ids=["whole", "window"])
def test_five_lines_to_each_side(tmp_path, monkeypatch, small) -> None:
    monkeypatch.setattr(reread, "SMALL", small)
    (tmp_path / "job.log").write_text(log(5000, 3000))
    job = diagnose.load(tmp_path)
    rows = around(job, [evidence(3000)])["job.log", 3000]
    assert [row.number for row in rows] == list(range(2995, 3006))
    assert rows[0] == Row(2995, "line 2995")
    assert rows[5].text == watchdog(3)
    assert rows[10] == Row(3005, "line 3005")


@pytest.mark.parametrize("small", [reread.SMALL, 0], ids=["whole", "window"])
def test_the_first_and_the_last_line(tmp_path, monkeypatch, small) -> None:
    monkeypatch.setattr(reread, "SMALL", small)
    (tmp_path / "job.log").write_text(log(3, 1) + "\n\n" + watchdog(4))
    job = diagnose.load(tmp_path)
    found = around(job, [evidence(1), evidence(6)])
    assert [row.number for row in found["job.log", 1]] == [1, 2, 3, 4, 5, 6]
    assert [row.number for row in found["job.log", 6]] == [1, 2, 3, 4, 5, 6]


def test_a_large_source_is_read_at_the_offset_only(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(reread, "SMALL", 0)
    (tmp_path / "job.log").write_text("x" * 200 + "\n" + log(50_000, 40_000))
    job = diagnose.load(tmp_path)
    [source] = job.sources
    read: list[int] = []
    real = type(source.chunks.store).open  # type: ignore[attr-defined]

    def counted(store):
        manager = real(store)

        class Counting:
            def __enter__(self):
                self.reader = manager.__enter__()
                return self

            def __exit__(self, *problem):
                return manager.__exit__(*problem)

            def read_at(self, offset, length):
                data = self.reader.read_at(offset, length)
                read.append(len(data))
                return data

        return Counting()

    monkeypatch.setattr(type(source.chunks.store), "open", counted)
    assert around(job, [evidence(40_001)])["job.log", 40_001][5].text == watchdog(3)
    assert sum(read) <= 2 * reread.WINDOW


def test_a_large_compressed_source_has_no_context(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(reread, "SMALL", 0)
    (tmp_path / "job.log.gz").write_bytes(gzip.compress(log(100, 50).encode()))
    job = diagnose.load(tmp_path)
    assert around(job, [evidence(50, "job.log.gz")]) == {}


def test_a_small_compressed_source_has(tmp_path) -> None:
    (tmp_path / "job.log.gz").write_bytes(gzip.compress(log(100, 50).encode()))
    job = diagnose.load(tmp_path)
    assert around(job, [evidence(50, "job.log.gz")])["job.log.gz", 50][5].text == watchdog(3)


def test_of_a_bar_the_last_picture_and_of_a_huge_line_its_start(tmp_path) -> None:
    text = "a" * 3_000_00 + "\n" + watchdog(1) + "\n10%|#\r50%|##\r100%|###\r\nend\n"
    (tmp_path / "job.log").write_bytes(text.encode())
    rows = around(diagnose.load(tmp_path), [evidence(2)])["job.log", 2]
    assert [row.text[:8] for row in rows if row.number != 2] == ["aaaaaaaa", "100%|###", "end"]
    assert len(rows[0].text) == reread.LINE_LIMIT


def test_a_source_that_is_gone_or_unknown_gives_nothing(tmp_path) -> None:
    path = tmp_path / "job.log"
    path.write_text(log(20, 5))
    job = diagnose.load(tmp_path)
    job.timeline  # noqa: B018  built before the file goes
    path.unlink()
    assert around(job, [evidence(5), evidence(1, "other")]) == {}


PRIVATE = "-----BEGIN " + "RSA PRIVATE KEY-----"
BODY = ["Ab1" + "cD2eF3gH4iJ5" * 5 + "k"] * 60


@pytest.mark.parametrize("small", [reread.SMALL, 0], ids=["whole", "window"])
def test_a_key_that_begins_far_above_is_known(tmp_path, monkeypatch, small) -> None:
    """Of 62 lines of a key six stand in the quote, its beginning does not."""
    monkeypatch.setattr(reread, "SMALL", small)
    lines = [PRIVATE, *BODY, watchdog(3), "step 7"]
    (tmp_path / "job.log").write_text("\n".join(f"[rank0]: {line}" for line in lines) + "\n")
    rows = around(diagnose.load(tmp_path), [evidence(62)], scrubber(redact=True).block)
    assert [row.text for row in rows["job.log", 62]] == [
        *["[rank0]: [private-key-1]"] * 5,
        f"[rank0]: {watchdog(3)}",
        "[rank0]: step 7",
    ]


def test_only_so_many_lines_and_characters_are_looked_at(tmp_path) -> None:
    (tmp_path / "job.log").write_text(("x" * 300 + "\n") * 500 + watchdog(3) + "\n" + "y\n" * 500)
    seen: list[int] = []

    def show(lines):
        seen.append(sum(map(len, lines)))
        assert len(lines) <= 2 * safe.REACH + 1
        return list(lines)

    rows = around(diagnose.load(tmp_path), [evidence(501)], show)
    assert len(rows["job.log", 501]) == 2 * safe.AROUND + 1
    assert seen[0] <= 2 * reread.WINDOW


def test_a_line_where_a_chunk_begins_is_shown(tmp_path) -> None:
    lines = [f"line {number} {'x' * 100}" for number in range(1, 60_001)]
    with gzip.open(tmp_path / "job.log.gz", "wt") as file:
        file.write("\n".join(lines))
    job = diagnose.load(tmp_path)
    border = [*job.sources[0].chunks()][1].first_line
    rows = around(job, [evidence(border, "job.log.gz")])["job.log.gz", border]
    assert [row.text for row in rows] == lines[border - 6 : border + 5]


def _lines(count: int) -> list[str]:
    odd = ["", "  indented", "a\rb\rc", "größer " * 3, "x" * 9000]
    return [odd[n % 5] if n % 7 == 0 else f"line {n}" for n in range(1, count + 1)]


@pytest.mark.parametrize("line", [1, 40, 120, 199, 200])
def test_where_it_is_stored_or_read_again_from_its_start_the_rows_are_the_same(
    tmp_path, monkeypatch, line
) -> None:
    lines = _lines(200)
    lines[line - 1] = watchdog(3)
    (tmp_path / "job.log").write_text("\n".join(lines) + "\n", newline="")
    job = diagnose.load(tmp_path)
    [source] = job.sources
    whole = reread._from_whole(source, {line}, 80, 80)
    monkeypatch.setattr(reread, "_from_whole", None)
    assert reread.lines_near(job, [("job.log", line)], 80, 80) == {"job.log": whole}
    assert reread.lines_around(job, [("job.log", line)], 80, 80) == {("job.log", line): whole}


def test_lines_near_to_several_places_are_those_around_each(tmp_path) -> None:
    """Whether their windows overlap or are far apart in a large log."""
    lines = [f"step {number} " + "x" * 200 for number in range(40_000)]
    places = [5, 6, 40, 9_000, 9_100, 39_990]
    for line in places:
        lines[line - 1] = watchdog(line % 8)
    (tmp_path / "job.log").write_text("\n".join(lines) + "\n", newline="")
    job = diagnose.load(tmp_path)
    near = reread.lines_near(job, [("job.log", line) for line in places], 20, 3)["job.log"]
    alone = [reread.lines_around(job, [("job.log", line)], 20, 3) for line in places]
    rows = {number: text for one in alone for own in one.values() for number, text in own.items()}
    assert near == rows
    assert all(near[number] == lines[number - 1] for number in near)
    assert {*places} <= near.keys()


def test_lines_of_a_paste_are_those_that_were_scanned(tmp_path) -> None:
    text = "".join(f"> {line}\n" for line in [*["step 1"] * 20, watchdog(3), watchdog(4), "end"])
    (tmp_path / "job.log").write_text(text)
    rows = around(diagnose.load(tmp_path), [evidence(21)])["job.log", 21]
    assert [row.text for row in rows[4:7]] == ["step 1", watchdog(3), watchdog(4)]


def test_what_a_stack_means_is_no_line_of_it() -> None:
    job, found = fixture("stacks-dataloader")
    scrub = scrubber(redact=True)
    quotes = quoted(found, lambda items: around(job, items, scrub.block), scrub)
    [quote] = [one for one in quotes if one.places == "stacks_20261121_161616.txt:77"]
    assert quote.meaning.startswith("Rank 3: blocked in the data loader at train.py:16: ")
    assert [line.text for line in quote.lines][:2] == [
        "Thread 0x00007fb3de1eab80 (most recent call first):",
        '  File "/usr/lib/python3.11/selectors.py", line 415 in select',
    ]
    assert [line.number for line in quote.lines] == [77, 78, 79, 80, 81, 82]
    assert [line.marked for line in quote.lines] == [True] + [False] * 5


def test_what_a_dump_without_lines_means_stands_alone() -> None:
    job, found = fixture("flight-recorder-mismatch")
    scrub = scrubber(redact=True)
    for quote in quoted(found, lambda items: around(job, items, scrub.block), scrub):
        assert quote.meaning
        assert quote.lines == []
