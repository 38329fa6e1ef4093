"""The samples of the rows of stack dumps."""

from __future__ import annotations

from typing import Any

import pytest

from diagnose.formats import table
from diagnose.parse.stack_blocks import Blocks, Where
from diagnose.parse.stacks import Form, taken_by
from diagnose.parse.tracebacks import Stack

ROWS = table.written(table.STACKS)
SAMPLES = [(row, sample) for row in ROWS for sample in row["samples"]]
IDS = [f"{row['tool']}: {sample['line']}" for row, sample in SAMPLES]
FRAME = ("frame", "place")


def taken(row: dict[str, Any], line: str) -> tuple[Form | None, list[Stack]]:
    """By which row a line is taken where such lines are, and the stacks with it."""
    blocks = Blocks("x", Where())
    inside = row.get("inside", [row["tool"]] if row["what"] in FRAME else [])
    if row["what"] == "failed":
        blocks.section(Where(3), debug=True)
    if row["what"] in ("parent", "end"):
        blocks.process(Where())
    if inside:
        blocks.thread(inside[0], 1, "7", "", "")
    if row["what"] == "place":
        taken_by("#0  0x00007f in wait (a=1)", 1, blocks)
    by = taken_by(line, 2, blocks)
    if row["what"] in ("process", "section", "parent", "end"):
        blocks.thread("py-spy", 3, "8", "", "")
    return by, blocks.stacks()


def shown(row: dict[str, Any], sample: dict[str, Any], stacks: list[Stack]) -> dict[str, Any]:
    """What the last stack shows, as far as a sample of this row says it."""
    stack = stacks[-1] if stacks else None
    if stack is None or row["what"] == "noise":
        return {}
    found: dict[str, Any] = {}
    if row["what"] in ("thread", "bare"):
        found = {"thread": stack.thread, "status": stack.status}
    if row["what"] in ("frame", "bare") and stack.frames:
        frame = stack.frames[-1]
        found |= {"func": frame.func, "file": frame.file, "lineno": frame.line}
        found |= {"native": frame.native}
    elif row["what"] == "place":
        found = {"file": stack.frames[-1].file, "lineno": stack.frames[-1].line}
    elif row["what"] == "failed":
        found = {"status": stack.status}
    who = {"pid": stack.pid, "rank": stack.rank, "local_rank": stack.local_rank}
    who |= {"host": stack.host, "parent": stack.parent} if row["what"] != "failed" else {}
    if row["what"] == "end":
        who["pid"] = stacks[0].pid if len(stacks) > 1 else sample.get("pid")
    if row["what"] not in (*FRAME, "failed"):
        found |= who
    return {
        name: value
        for name, value in found.items()
        if value not in ("", None) and value is not False
    }


@pytest.mark.parametrize(("row", "sample"), SAMPLES, ids=IDS)
def test_sample(row: dict[str, Any], sample: dict[str, Any]) -> None:
    by, stacks = taken(row, sample["line"])
    assert by is not None
    assert (by.tool, by.pattern) == (row["tool"], row["match"])
    expected = {name: value for name, value in sample.items() if value not in (None, "")}
    assert {"line": sample["line"], **shown(row, sample, stacks)} == expected


@pytest.mark.parametrize(
    ("row", "line"), [(row, line) for row in ROWS for line in row.get("refused", ())]
)
def test_refused(row: dict[str, Any], line: str) -> None:
    by, _ = taken(row, line)
    assert by is None or by.pattern != row["match"]


def test_the_table_is_that_of_the_files() -> None:
    """Else `python -m diagnose.formats.table` was not run."""
    assert table.kept(table.STACKS) == table._made(table.STACKS)
    assert table.kept(table.FRAMES) == table._made(table.FRAMES)


def test_each_row_has_a_sample() -> None:
    assert [row for row in ROWS if not row["samples"] and row["what"] != "variable"] == []
