"""From stored bytes to sources: of their kind, or of what was put into one.

Several files are put into one by `tail -n +1 rank_*.log`, `head` or `more`. Read as one log, the
ranks would seem to run one after the other, each as another attempt. So the parts are read as the
files that they were, and their names tell who wrote them. `tail -f` names a file whenever another
one has grown before it: what stands below one name is one file.

Of a Jupyter notebook (https://nbformat.readthedocs.io/en/latest/format_description.html) each cell
is a source: what it printed, as a terminal would have shown it. The lines of an exception are
IPython's, of any version; they are given as Python prints them, with the cell for the file:
`File "In[3]", line 2, in <module>`.

Of a document that keeps lines of logs these are sources beside it, under the names that it gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any, NamedTuple

from diagnose.ingest.names import printable
from diagnose.ingest.raw import BytesStore, JoinedStore, Reader, SliceStore, Store, reason
from diagnose.ingest.read import Content, Opened, TextChunks, look, no_chunks
from diagnose.ingest.sniff import HEADING, Container
from diagnose.ingest.source import TEXT_KINDS, Budget, Source, is_document
from diagnose.lazy import expression
from diagnose.parse.detectors import logs_of
from diagnose.parse.path import PathHints, read_path
from diagnose.parse.tracebacks import TRACEBACK

_NO_HINTS = PathHints()
HOLD_MEMBERS = frozenset({Container.ARCHIVE, Container.TWICE})  # perhaps: a tar, compressed


def source_of(
    store: Store,
    name: str,
    size: int,
    budget: Budget | None = None,
    cut: str = "",
    mtime: float | None = None,
    hints: PathHints = _NO_HINTS,
) -> Source:
    """A source of stored bytes, told by their start; what cannot be read is `unreadable`.

    `budget` bounds it, from now on as its own. `cut` says why these are not all bytes that there
    should be, `hints` are what the path tells.
    """
    budget = budget or Budget()
    try:
        opened = look(store, name, budget)
    except OSError as error:
        opened = Opened("unreadable", reason(error), None, "utf-8", 0)
    as_text, whole = opened.kind in TEXT_KINDS, is_document(opened.kind)
    held = opened.container not in (None, Container.EXCERPTS) and not as_text
    missed = opened.kind == "unreadable" or held
    budget.unread += [part for part in (opened.note if missed else "", cut) if part]
    return Source(
        name=name,
        kind=opened.kind,
        size=size,
        chunks=TextChunks(store, opened, budget) if as_text else no_chunks,
        content=Content(store, opened, budget) if whole else bytes,
        mtime=mtime,
        note="; ".join(part for part in (opened.note, cut) if part),
        notes=budget.notes,
        unread=budget.unread,
        container=opened.container,
        budget=budget if budget.archive else None,
        **asdict(hints),
    )


def nothing(name: str, kind: str, note: str, *, unread: bool | None = None) -> Source:
    """A source with nothing to read; `kind` and `note` say why.

    `unread`: whether there may be a log in it nevertheless; by default if it is `unreadable`.
    """
    missed = kind == "unreadable" if unread is None else unread
    return Source(name, kind, 0, no_chunks, note=note, unread=[note] if missed else [])


def may_be_archive(source: Source) -> bool:
    """Whether a look at its start leaves open that a source is an archive."""
    return source.container in HOLD_MEMBERS


_HOLD_FILES = frozenset({Container.CONCATENATED, Container.NOTEBOOK})
_BLOCK = 1 << 20
_LONGEST = 4 << 10  # bytes of a heading
_MOST, _HEADINGS = 50_000, 1_000_000  # files in one, and how often they are named


class _Heading(NamedTuple):
    """What names a file: where it stands, and where the file begins below it.

    `gap`: the bytes above it by which `tail` parts it from what it printed before.
    """

    name: str
    at: int
    below: int
    gap: int = 0


def parts_of(source: Source) -> list[Source]:
    """The files that were printed one after the other into a source, the cells of a notebook, or
    a document and the lines of logs in it; itself where it is one file.

    They are named `all.log!rank_3.log`, as if the source were an archive.
    """
    if source.container is Container.EXCERPTS:
        return [source, *_excerpts(source)]
    chunks = source.chunks
    if source.container not in _HOLD_FILES or not isinstance(chunks, TextChunks):
        return [source]
    if not chunks.opened.as_stored:
        return [source]
    if source.container is Container.NOTEBOOK:
        return cells_of(source, chunks.store)
    try:
        with chunks.store.open() as reader:
            found = [*_headings(reader), _Heading("", reader.size, reader.size)]
    except OSError:
        return [source]  # whoever reads it tells
    repeated = len({heading.name for heading in found}) < len(found)
    spans: dict[str, list[tuple[int, int]]] = {}
    for heading, following in pairwise(found):
        size = following.at - heading.below - repeated * following.gap
        spans.setdefault(heading.name, []).append((heading.below, size))
    if not 2 <= len(spans) <= _MOST or len(found) > _HEADINGS:
        return [source]
    return [_part(source, chunks.store, name, own) for name, own in spans.items()]


def _inside(source: Source, store: Store, size: int, name: str, hints: PathHints) -> Source:
    """What is under a name in a source."""
    budget, name = source.budget and source.budget.apart(), f"{source.name}!{name}"
    return source_of(store, name, size, budget, mtime=source.mtime, hints=hints)


def _excerpts(source: Source) -> Iterator[Source]:
    for given, text in logs_of(source.content(), source.name):
        name, data = printable(given), text.encode(errors="replace")
        hints = read_path(f"{source.name}!{name}")
        yield _inside(source, BytesStore(data), len(data), name, hints)


def _part(source: Source, store: Store, name: str, spans: Sequence[tuple[int, int]]) -> Source:
    """One of the files, of all stretches of the source that are its own."""
    size = sum(own for _, own in spans)
    part = SliceStore(store, *spans[0]) if len(spans) == 1 else JoinedStore(store, spans)
    return _inside(source, part, size, name, read_path(name))


def _headings(reader: Reader) -> list[_Heading]:
    found: list[_Heading] = []
    for offset in range(0, reader.size, _BLOCK):
        block = reader.read_at(offset, _BLOCK + _LONGEST)
        for match in HEADING.finditer(block):
            begins_line = match.start() > 0 or offset == 0
            if begins_line and match.start() <= _BLOCK and len(found) < _HEADINGS:
                name = printable((match["tail"] or match["more"]).decode(errors="replace"))
                at, gap = match.start(), block.endswith(b"\n\n", 0, match.start())
                found.append(_Heading(name, offset + at, offset + match.end(), int(gap)))
    return found


_LARGEST = 64 << 20  # bytes of a notebook
_MOST_CELLS = 10_000  # cells
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
    for number, cell in enumerate(cells[:_MOST_CELLS], 1):
        text = "".join(_printed_by(cell)) if isinstance(cell, dict) else ""
        if text.strip():
            count = cell.get("execution_count")
            name = f"In[{count}]" if isinstance(count, int) else f"cell {number}"
            data = text.encode(errors="replace")
            found.append(_inside(source, BytesStore(data), len(data), name, _NO_HINTS))
    return found or [source]


def _printed_by(cell: dict[str, Any]) -> Iterator[str]:
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
