"""Rows of a shard: a JSON object a line, with `x` (8 numbers) and `y`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BATCH = 4


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of one shard, as they come from the disk."""
    with path.open(encoding="utf-8", buffering=1) as lines:
        while line := lines.readline():
            yield json.loads(line)


def read_batches(path: Path) -> Iterator[tuple[list[list[float]], list[float]]]:
    """Rows put together to batches; an incomplete one at the end is dropped."""
    rows: list[dict[str, Any]] = []
    for row in read_rows(path):
        rows.append(row)
        if len(rows) == BATCH:
            yield collate(rows)
            rows = []


def collate(rows: list[dict[str, Any]]) -> tuple[list[list[float]], list[float]]:
    """One batch of rows."""
    return [row["x"] for row in rows], [row["y"] for row in rows]


def shard_of(rank: int) -> Path:
    """The shard that a rank trains on."""
    return Path("data", f"shard-{rank:05d}.jsonl")
