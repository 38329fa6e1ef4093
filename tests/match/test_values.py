"""Values of a training: what a line says of them, and where those that stay bad began."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from diagnose.ingest.source import Chunk
from diagnose.match.values import Turn, turns, value_of

GOOD = "step {} loss 2.5"


@pytest.mark.parametrize(
    ("line", "name", "shown", "ill"),
    [
        (GOOD.format(3), "loss", "2.5", None),
        ("{'loss': nan, 'grad_norm': nan, 'epoch': 0.1}", "loss", "nan", "not_finite"),
        ("{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.1}", "grad_norm", "nan", "not_finite"),
        ("{'loss': 1.2, 'grad_norm': 'inf', 'epoch': 0.1}", "grad_norm", "inf", "norm"),
        ("Epoch(train) [1][50/90] loss: 1.2  loss_bbox: nan", "loss", "1.2", None),
        ("pg_loss: nan - aux_loss: 0.2", "pg_loss", "nan", "not_finite"),
        ("loss_cls: nan  loss_bbox: 0.2", "loss_cls", "nan", None),
        ("step 9: train loss nan, val loss 2.0", "train loss", "nan", "not_finite"),
        ("Train: 0 [ 1/9 ( 1%)]  Loss: nan (nan)", "Loss", "nan", "not_finite"),
        ("\x1b[31mstep: 4  \x1b[32mloss:  nan \x1b[0m", "loss", "nan", "not_finite"),
        ("loss_val: nan at step 3", "loss_val", "nan", "not_finite"),
        ("Loss=tensor(nan, device='cuda:0')", "Loss", "nan", "not_finite"),
        ("OVERFLOW! Attempted loss scale: 512, reducing to 256", "loss scale", "256", None),
        ("OVERFLOW! Attempted loss scale: 1, reducing to 1", "loss scale", "1", "overflow"),
        ("loss scaler 0 reducing loss scale to 1.2e-30", "loss scale", "1.2e-30", "overflow"),
        (
            "iteration 3/ 9 | loss scale: 1.0 | number of skipped iterations:   1 | number of nan "
            "iterations:   0 |",
            "loss scale", "1.0", "overflow",
        ),
        (
            "iteration 3/ 9 | loss scale: 1.0 | number of skipped iterations:   0 | number of nan "
            "iterations:   1 |",
            "number of nan iterations", "1", "not_finite",
        ),
    ],
)  # fmt: skip
def test_the_loss_of_the_step_decides(line: str, name: str, shown: str, ill: str | None) -> None:
    found = value_of(line.encode())
    assert found is not None
    assert (found.name, found.shown, found.ill) == (name, shown, ill)


@pytest.mark.parametrize(
    "line",
    [
        "{'eval_loss': nan, 'eval_runtime': 0.01}",
        "validation loss: nan | perplexity: inf",
        "val_loss is nan for bucket 3",
        "Val: loss nan acc nan",
        "[val] loss: nan",
        "dev loss: nan",
        "Validation loss (mean): nan",
        "loss (val): nan",
        "holdout loss: nan",
        "best loss so far: inf",
        "Early stopping: best_loss inf",
        "prev_loss: inf",
        "loss_std: nan",
        "max_grad_norm: inf",
        "grad clip norm: inf",
        "mIoU: nan  acc: 0.4",
        "{'train_runtime': 12.3, 'train_loss': nan, 'epoch': 3.0}",
        "iteration 3/ 9 | loss scale: 4096.0 | number of skipped iterations:   1 |",
        "normalization layer 12 frozen",
    ],
)
def test_an_evaluation_and_a_search_for_a_scale_say_nothing(line: str) -> None:
    assert value_of(line.encode()) is None


@pytest.mark.parametrize("scale", ["1.0.0", "..", "9" * 400])
def test_a_scale_that_is_no_number_is_passed_over(scale: str) -> None:
    line = f"iteration 3/ 9 | loss scale: {scale} | number of skipped iterations:   1 |"
    found = value_of(line.encode())
    assert found is None or found.ill == "overflow"


def turned(lines: Sequence[str], parts: int = 1) -> list[Turn]:
    """The turns of a source with these lines, which is read in so many chunks."""
    size = -(-len(lines) // parts)
    chunks, offset = [], 0
    for first in range(0, len(lines), size):
        data = "".join(f"{line}\n" for line in lines[first : first + size]).encode()
        chunks.append(Chunk(data, offset, first + 1))
        offset += len(data)
    return turns(chunks[-1:], lambda number: chunks[number : number + 1], len(chunks))


def test_the_first_bad_value_of_the_last_run_is_found() -> None:
    lines = [f"step {n} loss {'nan' if n == 5 or n >= 700 else 2.5}" for n in range(1_000)]
    for parts in (1, 7):
        (turn,) = turned(lines, parts)
        assert (turn.ill, turn.step, turn.good_step, turn.last_step) == (
            "not_finite", "700", "699", "999",
        )  # fmt: skip
        assert (turn.first.line, turn.before and turn.before.line) == (701, 700)
        assert turn.good is not None
        assert turn.good.shown == "2.5"


def test_values_that_recover_are_no_turn() -> None:
    assert turned([f"step {n} loss {'nan' if 40 < n < 60 else 2.5}" for n in range(90)]) == []
    skips = [f"reducing loss scale to {2.0 ** (3 - n)}" for n in range(9)]
    assert [turn.ill for turn in turned([GOOD.format(1), *skips])] == ["overflow"]
    assert turned([*skips, *(GOOD.format(n) for n in range(9))]) == []


def test_a_piece_is_read_once_for_all_authors() -> None:
    lines = [
        f"[rank{n % 64}]: step {n // 64} loss {'nan' if n > 900 else 2.5}" for n in range(6400)
    ]
    text = "".join(f"{line}\n" for line in lines).encode()
    cut = [text.rindex(b"\n", 0, len(text) * part // 8) + 1 if part else 0 for part in range(8)]
    ends = [*cut[1:], len(text)]
    read: list[int] = []

    def piece(number: int) -> list[Chunk]:
        read.append(number)
        data = text[cut[number] : ends[number]]
        return [Chunk(data, cut[number], text.count(b"\n", 0, cut[number]) + 1)]

    found = turns(piece(7), piece, 8)
    assert {turn.step for turn in found} == {"14", "15"}
    assert len(found) == 64
    assert len(read) < 12


def test_authors_are_judged_apart() -> None:
    lines = [
        f"[rank{rank}]: step {n} loss {'nan' if rank == 2 and n > 9 else 2.5}"
        for n in range(30)
        for rank in range(4)
    ]
    (turn,) = turned(lines)
    assert (turn.first.prefix.rank, turn.step, turn.several) == (2, "10", 20)


def test_a_loss_that_rose_for_good_is_told_from_a_spike_and_from_noise() -> None:
    def curve(rise: float, back: int) -> list[str]:
        values = (rise if 60 <= n < back else 1 + n % 5 / 50 for n in range(120))
        return [f"step {n} loss {value:.3f}" for n, value in enumerate(values)]

    (turn,) = turned(curve(4.0, 120))
    assert (turn.ill, turn.step, turn.value.shown, turn.good_step) == (
        "raised",
        "60",
        "4.000",
        "59",
    )
    assert turned(curve(4.0, 80)) == []
    assert turned(curve(1.8, 120)) == []
    noise = [f"step {n} loss {0.02 if n * 7 % 11 < 6 else 0.4}" for n in range(120)]
    assert turned(noise) == []
    assert turned([f"{line} kl 0.2 reward 1.0" for line in curve(4.0, 120)]) == []
    assert turned([line.replace("loss", "value_loss") for line in curve(4.0, 120)]) == []
    again = [*curve(4.0, 80), *(f"step {n} loss 4.0" for n in range(40))]
    assert turned(again) == []  # another run, whose loss starts high


def test_a_training_of_few_steps_may_swing() -> None:
    swing = "047 033 025 024 028 037 050 067 086 107 129 150 170 188 203 212 217 214 203 184"
    beside = "x" * 300
    steps = [f"step {n} loss 0.{value} {beside}" for n, value in enumerate(swing.split())]
    assert turned(steps) == []
    before = [f"step {n} loss 0.0{40 + n} {beside}" for n in range(20)]
    assert [turn.ill for turn in turned([*before, *steps])] == ["raised"]


def test_a_step_of_too_many_digits_is_no_step() -> None:
    (turn,) = turned([f"step {'9' * 5_000} loss nan" for _ in range(9)])
    assert (turn.ill, turn.step) == ("not_finite", None)
