"""The learned reader: what it makes of a line, and of which file."""

from __future__ import annotations

import json
import math
from time import thread_time
from zlib import compress, decompress

import pytest

from diagnose.catalog import learn, reader
from diagnose.catalog.load import default_dir, load_catalog
from diagnose.errors import CatalogError
from diagnose.known_line import known_line


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("FATAL: cannot extend the restart file, disk quota exhausted", "env.storage"),
        ("abort: number of processes 7 must divide the grid dimensions 64 x 64", "env.config"),
        ("endpoint on mlx5_2: RDMA write failed, remote access error", "net.fabric"),
        ("device memory exhausted: cannot allocate 20 GiB on gpu 3", "crash.gpu_oom"),
        ("peer closed the connection", reader.AFTERMATH),
        ("epoch 3 step 120 loss 1.25 lr 0.0001", reader.NOTHING),
    ],
)
def test_a_line_of_no_known_program_is_read(line: str, cause: str) -> None:
    reading = reader.model().read(line)
    assert reading.cause == cause
    assert reading.names_cause == (cause not in (reader.AFTERMATH, reader.NOTHING))
    assert 0 < reading.probability <= 1


def test_the_words_that_weighed_most_are_those_of_the_class() -> None:
    reading = reader.model().read("worker 3 of pool blue: disk quota exceeded on write")
    assert set(reading.words[:2]) == {"disk", "quota"}
    assert len(reading.words) == 3


def test_numbers_and_addresses_do_not_change_what_a_line_says() -> None:
    model = reader.model()
    one = model.read("rank 3: connect to 10.0.0.7 port 29500 refused at 0x7f1e692ecdb4")
    other = model.read("rank 511: connect to 192.168.3.44 port 1 refused at 0xdeadbeef")
    assert one == other


@pytest.mark.parametrize("line", ["", "   ", "=====", "0x7f1e692ecdb4"])
def test_a_line_without_words_says_nothing(line: str) -> None:
    assert reader.model().read(line) == reader.Reading(reader.NOTHING, 0.0)


def test_words_are_parted_as_programs_write_them() -> None:
    assert reader.tokens("DataLoaderWorker NCCLError no_such_file: 42") == [
        "data", "loader", "worker", "nccl", "error", "no", "such", "file", "0",
    ]  # fmt: skip


def test_a_long_line_costs_no_more_than_its_first_part() -> None:
    words = "connection refused by the coordinator "
    assert reader.features(words * 100_000) == reader.features((words * 20)[:400])


def test_a_line_is_read_in_milliseconds() -> None:
    model = reader.model()
    lines = [f"worker {n}: could not open the trajectory file for output, exit" for n in range(50)]
    start = thread_time()
    for line in lines:
        model.read(line)
    assert (thread_time() - start) / len(lines) < 0.02  # 1 ms here; another machine may be slow


def test_the_model_is_small_and_of_these_lines() -> None:
    """Else somebody changed what it learns from: `python -m diagnose.catalog.learn`."""
    path = default_dir() / "learned" / reader.FILE
    assert path.stat().st_size <= 2_000_000
    rows = learn.labelled(load_catalog(examples=True), default_dir() / "learned")
    assert reader.model().source == learn.digest(rows)


def test_a_damaged_model_is_refused() -> None:
    data = decompress((default_dir() / "learned" / reader.FILE).read_bytes())
    head, _, tables = data.partition(b"\n")
    for changes, complaint in (({"format": 99}, "format 99"), ({"classes": []}, "not complete")):
        damaged = json.dumps({**json.loads(head), **changes}).encode() + b"\n" + tables
        with pytest.raises(ValueError, match=complaint):
            reader.unpacked(compress(damaged))


def test_a_name_is_no_word_that_weighs() -> None:
    reading = reader.model().read("disk quota exceeded for zaphod in /home/zaphod/beeblebrox")
    assert reading.cause == "env.storage"
    assert not {"zaphod", "beeblebrox"} & {*reading.words}


def test_labelled_lines_are_checked(tmp_path) -> None:
    (tmp_path / "own.tsv").write_text("net.socket\town\tcannot reach the server\n")
    assert learn.read_lines(tmp_path, ["net.socket"]) == [
        learn.Labelled("net.socket", "own", "cannot reach the server")
    ]
    (tmp_path / "own.tsv").write_text("net.sockets\town\tcannot reach the server\n")
    with pytest.raises(CatalogError, match=r"own\.tsv:1"):
        learn.read_lines(tmp_path, ["net.socket"])


def test_every_labelled_line_has_a_known_class_and_stands_once() -> None:
    folder = default_dir() / "learned"
    rows = learn.read_lines(folder, load_catalog().classes)
    assert len({(row.source, row.line) for row in rows}) == len(rows)
    assert all(len(row.line) <= 300 for row in rows)
    assert {path.stem for path in folder.glob("*.tsv")} == {row.source for row in rows}


def test_no_near_miss_is_labelled_with_the_class_that_it_is_none_of() -> None:
    """But where another entry proves that class by the line."""
    catalog = load_catalog(examples=True)
    labels = {(row.line, row.label) for row in learn.read_lines(
        default_dir() / "learned", catalog.classes
    )}  # fmt: skip
    named = {
        line.strip(): entry.cause
        for entry in catalog.signatures
        if entry.role == "cause"
        for line in entry.near_miss
        if (line.strip(), entry.cause) in labels
    }
    wrong = [
        line
        for line, cause in named.items()
        if all(found.cause != cause for found, _ in known_line(line).matches)
    ]
    assert wrong == []


def test_how_sure_an_answer_is_follows_how_often_such_answers_are_right() -> None:
    right = [True] * 3 + [False]  # and half of them where the classes are equally likely
    slope, shift = learn._logistic([math.log(9)] * 4 + [0.0] * 2, [*right, True, False])
    assert reader.calibrated(math.log(9), slope, shift) == pytest.approx(0.75)
    assert reader.calibrated(0.0, slope, shift) == pytest.approx(0.5)


def test_the_surer_the_model_the_higher_is_the_probability() -> None:
    model = reader.model()
    worth = [reader.surplus([one, 0.0, 0.0], model.sharpness) for one in (0.1, 0.5, 1.0, 40.0)]
    likely = [reader.calibrated(one, model.slope, model.shift) for one in worth]
    assert likely == sorted(likely)
    assert likely[0] < likely[-1] <= 1


@pytest.mark.slow
def test_the_model_is_what_its_lines_give() -> None:
    pytest.importorskip("sklearn")
    rows = learn.labelled(load_catalog(examples=True), default_dir() / "learned")
    built, shipped = reader.unpacked(learn.build(rows)), reader.model()
    assert (built.classes, built.rarity, built.slope, built.shift, built.least) == (
        shipped.classes, shipped.rarity, shipped.slope, shipped.shift, shipped.least,
    )  # fmt: skip
    # The last bit of a sum may differ on another machine, and a weight with it by one.
    apart = [abs(a - b) for a, b in zip(built.weights, shipped.weights, strict=True)]
    assert max(apart) <= 1
    assert sum(apart) <= len(apart) // 10_000
