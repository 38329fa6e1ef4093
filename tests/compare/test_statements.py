"""What lines state by name: each row of the table has samples, and each name is the one stated."""

from __future__ import annotations

import re

import pytest

from diagnose.comparison.statements import hosts_in, may_state, statements
from diagnose.formats import table

ROWS = [row for row in table.written(table.STATEMENTS) if "match" in row]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['kind']} {row['samples'][0]}")
def test_every_row_has_samples_that_it_matches(row: dict[str, list[str]]) -> None:
    for sample in row["samples"]:
        assert re.search(str(row["match"]), sample), sample
        assert str(row.get("holds", "")) in sample
        assert may_state(sample)


@pytest.mark.parametrize(
    ("line", "stated"),
    [
        ("NCCL version 2.26.2+cuda12.6", [("version", "nccl", "2.26.2+cuda12.6")]),
        (
            "NCCL_IB_HCA set by environment to mlx5_0,mlx5_1.",
            [("environment", "NCCL_IB_HCA", "mlx5_0,mlx5_1")],
        ),
        (
            "train.py --lr 0.1 --bf16 --master-port 2031",
            [("argument", "--lr", "0.1"), ("argument", "--bf16", "")],
        ),
        ("Namespace(lr=0.1, betas=(0.9, 0.95), pid=77)", [("argument", "lr", "0.1")]),
        ("step 3 loss=2.1 elapsed_time=3.2 grad_norm: 0.3,", []),
        ("error: cannot open it, retry later", []),
        ("WANDB_API_KEY=0123456789abcdef", []),
    ],
)  # fmt: skip
def test_names_and_values(line: str, stated: list[tuple[str, str, str]]) -> None:
    assert [*statements(line)] == stated


def test_machines_are_named_where_a_line_says_so() -> None:
    assert [*hosts_in("rank 3 of 8 on gpu-node-01: pid 12")] == ["gpu-node-01"]
    assert [*hosts_in("warming up on step100 of cuda-12.1")] == []


@pytest.mark.parametrize("unit", ["--a ", "a=", "A_B=", "a: ", "on a1 ", "1.1.", "'a': '", "a .. "])
def test_long_lines_take_no_longer_than_their_length(unit: str) -> None:
    """It would take hours were any row not linear."""
    assert len([*statements(unit * 20_000)]) < 20_000
    assert len([*hosts_in(unit * 20_000)]) < 20_000
