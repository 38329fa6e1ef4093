"""Times of steps read again from logs: whose they are, tables of timers, large logs."""

from __future__ import annotations

from pathlib import Path

import pytest

import diagnose
from diagnose.job import pace as reader
from diagnose.timeline.pace import Pace

TIMERS = (
    " [2026-06-02 08:00:0{0}] iteration        {0}/      90 | consumed samples: 8 | elapsed time "
    "per iteration (ms): 400.0 | lm loss: 1.0 |\ntimes across ranks (ms):\n  forward-compute:\n"
    "     rank  0: 100.00\n     rank  1: 2{0}0.00\n  optimizer:\n     rank  0: 5.00\n"
)


def read(folder: Path, **files: str) -> Pace:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return diagnose.load([folder]).pace


def test_megatrons_table_gives_each_rank_its_own_times(tmp_path: Path) -> None:
    found = read(tmp_path, console="".join(TIMERS.format(n) for n in (1, 2, 3)))
    assert {rank: [*track.of("forward")] for rank, track in found.ranks.items()} == {
        0: [(1, 0.1), (2, 0.1), (3, 0.1)],
        1: [(1, 0.21), (2, 0.22), (3, 0.23)],
    }
    (console,) = found.others.values()
    assert [*console.of("total")] == [(1, 0.4), (2, 0.4), (3, 0.4)]


def test_lines_without_a_step_are_counted_for_each_rank(tmp_path: Path) -> None:
    line = "[2026-06-02 08:00:00,1] [INFO] [logging.py:96] [Rank {0}] time (ms) | fwd: {1}.5\n"
    text = "".join(line.format(rank, 10 * n + rank) for n in (1, 2) for rank in (0, 1))
    found = read(tmp_path, console=text)
    assert {rank: [*track.steps] for rank, track in found.ranks.items()} == {
        0: [-1, -2],
        1: [-1, -2],
    }


def test_files_of_one_node_are_its_ranks_where_nothing_names_any(tmp_path: Path) -> None:
    line = "Epoch: [0][ {0}/90]\tTime  0.060 ( 0.061)\tData  0.0{1} ( 0.011)\n"
    files = {
        f"logs__attempt_0__{rank}__stdout.log": "".join(line.format(n, rank + 1) for n in (1, 2))
        for rank in (0, 1)
    }
    found = read(tmp_path, **files)
    assert {rank: [*track.of("data")] for rank, track in found.ranks.items()} == {
        0: [(1, 0.01), (2, 0.01)],
        1: [(1, 0.02), (2, 0.02)],
    }


def test_a_bar_of_an_evaluation_is_not_the_training(tmp_path: Path) -> None:
    train = "".join(f"{n}%|# | {n}/900 [00:0{n}<00:30, 2.00it/s]\n" for n in (1, 2, 3, 4))
    evaluation = "".join(f"{n}%|# | {n}/9 [00:0{n}<00:30, 50.00it/s]\n" for n in (1, 2, 3))
    (track,) = read(tmp_path, console=train + evaluation).others.values()
    assert [*track.of("total")] == [(1, 0.5), (2, 0.5), (3, 0.5), (4, 0.5)]


def test_of_a_large_log_places_spread_over_it_are_read(tmp_path: Path) -> None:
    row = (
        "2026-06-02 08:00:00,000 [rank0] INFO train: step {0}/99999 step_time=0.5 "
        + "x" * 80
        + "\n"
    )
    count = 3 * reader.MAX_BYTES // len(row)
    text = "".join(row.format(n) for n in range(1, count))
    steps = read(tmp_path, console=text).ranks[0].steps
    assert len(steps) < count // 2
    assert steps[0] < count // 50
    assert steps[-1] > count - 500


@pytest.mark.parametrize("encoding", ["utf-16", "returns"])
def test_of_a_large_log_in_another_encoding_the_beginning_is_read(
    encoding: str, tmp_path: Path
) -> None:
    row = "2026-06-02 08:00:00,000 [rank0] INFO train: step {0}/99999 step_time=0.5 loss 1.25\n"
    text = "".join(row.format(n) for n in range(1, 2 * reader.MAX_BYTES // len(row)))
    data = text.replace("\n", "\r").encode() if encoding == "returns" else text.encode(encoding)
    (tmp_path / "console.log").write_bytes(data)
    job = diagnose.load([tmp_path])
    assert job.pace.ranks[0].steps[:3].tolist() == [1, 2, 3]


def test_input_that_says_nothing_gives_nothing(tmp_path: Path) -> None:
    found = read(
        tmp_path, console="step\nrank: \n\x00\x00time (ms)\nforward-compute:\n     rank  0: 1.5\n"
    )
    assert not found.ranks
    assert not found.gpus
