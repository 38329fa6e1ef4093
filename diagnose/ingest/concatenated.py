"""Several files in one, as `tail -n +1 rank_*.log`, `head` or `more` prints them, each named.

Read as one log, the ranks would seem to run one after the other, each as another attempt. So the
parts are read as the files that they were, and their names tell who wrote them. `tail -f` names a
file whenever another one has grown before it: what stands below one name is one file.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from diagnose.ingest.archive_stores import JoinedStore, SliceStore
from diagnose.ingest.file_names import printable
from diagnose.ingest.raw import Reader, Store
from diagnose.ingest.read import TextChunks
from diagnose.ingest.recognise import source_of
from diagnose.ingest.sniff import HEADING, Container
from diagnose.ingest.source import Source
from diagnose.parse.path import read_path

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
    """The files that were printed one after the other into a source, or the cells of a notebook;
    itself where it is one file.

    They are named `all.log!rank_3.log`, as if the source were an archive.
    """
    chunks = source.chunks
    if source.container not in _HOLD_FILES or not isinstance(chunks, TextChunks):
        return [source]
    if chunks.opened.codec is not None or chunks.opened.encoding != "utf-8":
        return [source]
    if source.container is Container.NOTEBOOK:
        from diagnose.ingest.notebook import cells_of  # noqa: PLC0415  few jobs have one

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


def _part(source: Source, store: Store, name: str, spans: Sequence[tuple[int, int]]) -> Source:
    """One of the files, of all stretches of the source that are its own."""
    size = sum(own for _, own in spans)
    part = SliceStore(store, *spans[0]) if len(spans) == 1 else JoinedStore(store, spans)
    return source_of(
        part,
        f"{source.name}!{name}",
        size,
        source.budget and source.budget.apart(),
        mtime=source.mtime,
        hints=read_path(name),
    )


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
