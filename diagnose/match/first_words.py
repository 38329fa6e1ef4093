"""The first words of a source where it says them again: appended runs begin like the first one.

They need no signature, so programs of any kind and language are seen to start again. Only sources
of bounded size are looked at, as files that are appended to are seldom large; and what is said
often is no beginning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from diagnose.ingest.source import Chunk
from diagnose.lazy import expression
from diagnose.match.authors import author_of
from diagnose.match.digits import shape
from diagnose.match.lines import LINE_WINDOW, Raw, filled_lines, text_of
from diagnose.parse.prefix import peel

LIMIT = 4 << 20  # bytes of the sources that are looked at
_MOST = 64  # times that first words are said
_LEAST = 12  # characters
_LETTERS = expression(r"[^\W\d_]{3,}\W+[^\W\d_]{2,}|[^\W\d_]{8,}")  # two words, or a long one
_PROCESS = expression(rb":\d++:\d++ ")  # of another run another one


class Again(NamedTuple):
    """A line with the first words of its source, and the line before it, if any, else itself."""

    before: Raw
    line: Raw


def said_again(chunks: Sequence[Chunk], first: Sequence[Raw]) -> list[Again]:
    """Where the chunks of a whole source, which begins with these lines, say its first words."""
    if sum(len(chunk.data) for chunk in chunks) > LIMIT:
        return []
    words = _words(first)
    known: dict[bytes, bool] = {}
    found: list[tuple[Chunk, int, int]] = []
    authors: set[bytes] = set()
    for chunk in chunks if words else ():
        at = chunk.data.find(words)
        while at >= 0:
            start, end = _line_at(chunk.data, at)
            row = chunk.data[start:end]
            same = shape(row)
            if same not in known:
                known[same] = _message(row).encode() == words
            if known[same]:
                found.append((chunk, start, end))
                authors.add(_PROCESS.sub(b"", author_of(row)))
                if len(found) > _MOST:
                    return []
            at = chunk.data.find(words, at + len(words))
    # Said once by each of its ranks they begin one run.
    return [_again(*one) for one in found] if len(found) > len(authors) else []


def _words(first: Iterable[Raw]) -> bytes:
    """The message of the first line that is no rule or number, and not among last words."""
    messages = [_message(raw.data) for raw in first]
    if any(one.startswith("Traceback ") for one in messages):
        return b""
    found = (one for one in messages if len(one) >= _LEAST and _LETTERS.search(one))
    return next(found, "").encode()


def _message(data: bytes) -> str:
    text = text_of(data)
    return (peel(text).message or text).strip()


def _line_at(data: bytes, at: int) -> tuple[int, int]:
    """Start and end of the line there, as far as it is looked at."""
    start = data.rfind(b"\n", max(0, at - LINE_WINDOW), at) + 1
    end = data.find(b"\n", at, at + LINE_WINDOW)
    return start, end if end >= 0 else len(data)


def _again(chunk: Chunk, start: int, end: int) -> Again:
    """The line between these places, and the one before it."""
    data, number = chunk.data, chunk.newlines(start)
    (line,) = filled_lines(chunk, [(number, data[start:end])])
    low = data.rfind(b"\n", max(0, start - LINE_WINDOW), max(0, start - 1)) + 1
    rows = [(number - 1, data[low : start - 1])] if start else []
    return Again(next(filled_lines(chunk, rows), line), line)
