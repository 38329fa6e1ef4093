"""Notebooks: what their cells printed, and IPython's tracebacks of all its versions."""

from __future__ import annotations

import json
from typing import Any

import pytest

import diagnose
from diagnose.ingest import text_source
from diagnose.ingest.recognise import as_python, parts_of

RED, PLAIN = "\x1b[0;31m", "\x1b[0m"
RULE = f"{RED}{'-' * 75}{PLAIN}"
HEAD = f"{RED}KeyError{PLAIN}                                  Traceback (most recent call last)"
END = f"{RED}KeyError{PLAIN}: 'text'"


def code(count: int | None, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "cell_type": "code", "execution_count": count, "source": ["train()\n"],
        "outputs": [*outputs],
    }  # fmt: skip


def notebook(*cells: dict[str, Any]) -> str:
    head = {"cell_type": "markdown", "source": ["# CUDA out of memory\n"]}
    return json.dumps({"cells": [head, *cells], "metadata": {}, "nbformat": 4}, indent=1)


def printed(*lines: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": [f"{line}\n" for line in lines]}


def error(*trace: str) -> dict[str, Any]:
    return {"output_type": "error", "ename": "KeyError", "evalue": "'text'", "traceback": [*trace]}


FRAMES = {
    "8": [
        f"Cell {RED}In[3], line 2{PLAIN}\n      1 for s in range(3):\n----> 2     train(s)\n",
        "File /w/data.py:77, in Rows.__iter__(self)\n     76     row = 1\n---> 77     yield row\n",
    ],
    "8.0": [
        "Input In [3], in <cell line: 1>()\n      1 for s in range(3):\n----> 2     train(s)\n",
        "File /w/data.py:77, in Rows.__iter__(self)\n     76     row = 1\n---> 77     yield row\n",
    ],
    "7": [
        "<ipython-input-3-0a1b> in <module>\n      1 for s in range(3):\n----> 2     train(s)\n",
        "/w/data.py in Rows.__iter__(self)\n     76     row = 1\n---> 77     yield row\n",
    ],
}


@pytest.mark.parametrize("version", [*FRAMES])
def test_an_exception_stands_in_its_cell_at_its_line(version: str) -> None:
    steps = printed("step 1 loss 2.1", "step 2 loss 2.0")
    text = notebook(code(1), code(3, steps, error(RULE, HEAD, *FRAMES[version], END)), code(None))
    (cell,) = parts_of(text_source(text, "train.ipynb"))
    assert cell.name == "train.ipynb!In[3]"
    assert b"".join(chunk.data for chunk in cell.chunks()).decode().splitlines() == [
        "step 1 loss 2.1",
        "step 2 loss 2.0",
        "Traceback (most recent call last):",
        '  File "In[3]", line 2, in <module>',
        "    train(s)",
        '  File "/w/data.py", line 77, in Rows.__iter__',
        "    yield row",
        "KeyError: 'text'",
    ]
    result = diagnose.diagnose(diagnose.load_text(text))
    assert result.root_cause.summary == "KeyError: 'text' in data.py:77 (Rows.__iter__)."
    assert result.exception is not None
    assert [(frame.file, frame.line) for frame in result.exception.frames] == [
        ("In[3]", 2),
        ("/w/data.py", 77),
    ]
    assert (result.exception.line, result.progress and result.progress.last_step) == (8, 2)


def test_a_function_of_another_cell() -> None:
    lines = ["Cell In[2], line 5, in train(step)", "      4 def train(step):", "----> 5     go()"]
    assert [*as_python(lines)] == ['  File "In[2]", line 5, in train', "    go()"]


def test_what_is_no_notebook_stays_as_it_is() -> None:
    for text in ('{"cells": [1', '{"cells": [], "nbformat": 4}', '{"metadata": {}, "x": 1}', "{}"):
        source = text_source(text)
        assert parts_of(source) == [source]
    cell = {"cell_type": "code", "outputs": [None, {"text": 3}, {"data": []}, {"traceback": [1]}]}
    source = text_source(json.dumps({"cells": [3, cell], "nbformat": 4}))
    assert parts_of(source) == [source]


def test_a_cell_that_was_not_counted_goes_by_its_place() -> None:
    shown = {"output_type": "display_data", "data": {"text/plain": ["step 1 loss 2"]}}
    (cell,) = parts_of(text_source(notebook(code(None, shown)), "a.ipynb"))
    assert cell.name == "a.ipynb!cell 2"
