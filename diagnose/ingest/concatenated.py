"""Several files in one, as `tail -n +1 rank_*.log` or `head` prints them: each under its name.

Read as one log, the ranks would seem to run one after the other, each as another attempt. So the
parts are read as the files that they were, and their names tell who wrote them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from diagnose.ingest.archive_stores import SliceStore
from diagnose.ingest.compress import DEFAULT_LIMITS
from diagnose.ingest.file_names import printable
from diagnose.ingest.raw import Reader
from diagnose.ingest.read import TextChunks
from diagnose.ingest.recognise import source_of
from diagnose.ingest.sniff import HEADING, Container
from diagnose.ingest.source import Source
from diagnose.parse.path import read_path

_BLOCK = 1 << 20
_LONGEST = 4 << 10  # bytes of a heading
_MOST = 50_000  # parts of one file


class _Heading(NamedTuple):
    """A line that names a file: where it stands, and where the file begins below it."""

    name: str
    at: int
    below: int


def parts_of(source: Source) -> list[Source]:
    """The files that were printed one after the other into a source; itself where it is one file.

    They are named `all.log!rank_3.log`, as if the source were an archive.
    """
    chunks = source.chunks
    if source.container is not Container.CONCATENATED or not isinstance(chunks, TextChunks):
        return [source]
    if chunks.opened.codec is not None or chunks.opened.encoding != "utf-8":
        return [source]
    try:
        with chunks.store.open() as reader:
            found = [*_headings(reader), _Heading("", reader.size, reader.size)]
    except OSError:
        return [source]  # whoever reads it tells
    names = [heading.name for heading in found]
    if len(found) < 3 or len({*names}) < len(names):
        return [source]
    parts = []
    for heading, following in pairwise(found):
        size = max(0, following.at - heading.below)
        parts.append(
            source_of(
                SliceStore(chunks.store, heading.below, size),
                f"{source.name}!{heading.name}",
                size,
                DEFAULT_LIMITS,
                meter=source.meter,
                mtime=source.mtime,
                hints=read_path(heading.name),
            )
        )
    return parts


def _headings(reader: Reader) -> list[_Heading]:
    found: list[_Heading] = []
    for offset in range(0, reader.size, _BLOCK):
        block = reader.read_at(offset, _BLOCK + _LONGEST)
        for match in HEADING.finditer(block):
            begins_line = match.start() > 0 or offset == 0
            if begins_line and match.start() <= _BLOCK and len(found) < _MOST:
                name = printable(match[1].decode(errors="replace"))
                found.append(_Heading(name, offset + match.start(), offset + match.end()))
    return found
