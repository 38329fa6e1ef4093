"""Jupyter notebooks: what each cell printed, as the text that a terminal would have shown.

Format: https://nbformat.readthedocs.io/en/latest/format_description.html. The lines of an exception
are IPython's, of any version; they are given as Python prints them, with the cell for the file:
`File "In[3]", line 2, in <module>`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from diagnose.ingest.raw import BytesStore, Store
from diagnose.ingest.recognise import source_of
from diagnose.ingest.source import Source
from diagnose.lazy import expression
from diagnose.parse.tracebacks import TRACEBACK

_LARGEST = 64 << 20  # bytes of a notebook
_MOST = 10_000  # cells
_COLOUR = expression(r"\x1b\[[0-9;]*m")
_RULE = expression(r"-{8,}\s*\Z")
_CELL = expression(
    r"(?:Cell |Input )?In ?\[(?P<cell>\d+)\](?:, in (?P<old>[^(]+)\(?.*|, line \d+(?:, in (?P<func>"
    r"[\w<>.]+).*)?)\s*\Z"
)
_FILE = expression(r"File (?P<file>.+?)(?::\d+)?, in (?P<func>[\w<>.]+)")
_OLD_FILE = expression(r"(?P<file>\S+\.py|<ipython-input-[^>]+>) in (?P<func>[\w<>.]+)")
_OLD_CELL = expression(r"<ipython-input-(\d+)-[^>]*>")
_HERE = expression(r"-+> ?(?P<line>\d+) ?(?P<code>.*)")
_AROUND = expression(r"\s*\d+(?: .*)?\Z")  # a line of the program beside the one that is meant


def cells_of(source: Source, store: Store) -> list[Source]:
    """What each cell of a notebook printed, as `train.ipynb!In[3]`; the source if it is none."""
    try:
        with store.open() as reader:
            if reader.size > _LARGEST:
                return [source]
            notebook = json.loads(reader.read_at(0, reader.size))
    except (OSError, ValueError, RecursionError):
        return [source]  # whoever reads it tells
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or "nbformat" not in notebook:
        return [source]
    found = []
    for number, cell in enumerate(cells[:_MOST], 1):
        text = "".join(_printed(cell)) if isinstance(cell, dict) else ""
        if text.strip():
            count = cell.get("execution_count")
            name = f"In[{count}]" if isinstance(count, int) else f"cell {number}"
            data = text.encode(errors="replace")
            found.append(
                source_of(
                    BytesStore(data), f"{source.name}!{name}", len(data),
                    source.budget and source.budget.apart(), mtime=source.mtime,
                )
            )  # fmt: skip
    return found or [source]


def _printed(cell: dict[str, Any]) -> Iterator[str]:
    """What a cell printed, each output ending its line."""
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        if not isinstance(output, dict):
            continue
        data = output.get("data")
        text = _joined(output.get("text"))
        text = text or _joined(data.get("text/plain") if isinstance(data, dict) else None)
        trace = output.get("traceback")
        if isinstance(trace, list):
            text += "\n".join(as_python(_COLOUR.sub("", _joined(trace, "\n")).splitlines()))
        yield text if not text or text.endswith("\n") else f"{text}\n"


def _joined(value: object, between: str = "") -> str:
    if isinstance(value, list):
        return between.join(one for one in value if isinstance(one, str))
    return value if isinstance(value, str) else ""


def as_python(lines: Iterable[str]) -> Iterator[str]:
    """A traceback of IPython, without colours, as Python prints it."""
    frame: tuple[str, str] | None = None
    for line in lines:
        here = _HERE.match(line)
        if _RULE.match(line):
            continue
        if TRACEBACK in line:
            yield f"{TRACEBACK}:"
        elif (found := _frame(line)) is not None:
            frame = found
        elif frame is not None and here is not None:
            yield f'  File "{frame[0]}", line {here["line"]}, in {frame[1]}'
            yield f"    {here['code'].strip()}"
        elif line.strip() and not (frame is not None and _AROUND.match(line)):
            yield line


def _frame(line: str) -> tuple[str, str] | None:
    """The file or cell of a frame, and its function."""
    if cell := _CELL.match(line):
        function = (cell["old"] or cell["func"] or "<module>").strip()
        return f"In[{cell['cell']}]", "<module>" if function.startswith("<") else function
    found = _FILE.match(line) or _OLD_FILE.match(line)
    if found is None:
        return None
    cell = _OLD_CELL.match(found["file"])
    return f"In[{cell[1]}]" if cell else found["file"], found["func"]
