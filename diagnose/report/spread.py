"""Secrets over several lines: key files, base64 in columns.

Lines of a log have prefixes, and lines of other ranks stand between those of a key: on each line
only what belongs to the secret is taken, and all of it has one value, so one mask.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from string import ascii_letters, digits
from typing import NamedTuple

from diagnose.lazy import expression
from diagnose.report.shapes import Span, mixed

# RFC 7468 and its PGP and OpenSSH kin; in JSON the newlines are `\n`.
_MARK = expression(
    r"-----(BEGIN|END) (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"|-----(BEGIN|END) SSH2 ENCRYPTED PRIVATE KEY-----"
)
_KEY_MAX = 16_384  # characters from the first line of a key to its last
_KEY_GAP = 8  # lines of others inside a key whose end is not there
_LONG = 40  # characters of a line of a key after such lines
_WIDE = 60  # … and from which on no word is so long
_INLINE = expression(r"(?:(?:[ \t]|\\[nr])*+[A-Za-z0-9+/=]{16,}+)*+")
# The last word of a line, or of the text in a line of JSON.
_BODY = expression(
    r"(?:(?<![^\s\"'|>])|(?<=\\n))[A-Za-z0-9+/]{16,}+={0,2}(?=(?:\\n)?(?:\"[^\n]*|['},]{0,3})\s*\Z)"
)
_LAST = expression(r"(?<!\S)[A-Za-z0-9+/=]+(?=(?:\\n)?[\"',}]{0,3}\s*\Z)")
_FIRST = expression(r"[A-Za-z0-9+/=]+(?=\\n|\"|\s*\Z)")


class Line(NamedTuple):
    """A line and where it starts in its text."""

    start: int
    text: str


def key_files(text: str) -> list[Span]:
    """Private keys, also where their first or their last line is not in `text`."""
    if "PRIVATE KEY" not in text:
        return []
    marks = list(_MARK.finditer(text))
    found: list[Span] = []
    done = 0
    for index, mark in enumerate(marks):
        if mark.start() < done:
            continue
        after = marks[index + 1] if index + 1 < len(marks) else None
        if mark[1] == "END":
            begin = max(done, mark.start() - _KEY_MAX)
            before = list(_bodies(text, begin, mark.start(), backwards=True))
            spans = [*before[::-1], Span(*mark.span(), "")]
            done = mark.end()
        elif after and after[1] == "END" and after.end() - mark.start() <= _KEY_MAX:
            spans = list(_closed(text, mark, after))
            done = after.end()
        else:
            end = min(after.start() if after else len(text), mark.end() + _KEY_MAX)
            inline = _INLINE.match(text, mark.end(), end)
            stop = inline.end() if inline else mark.end()
            spans = [Span(mark.start(), stop, ""), *_bodies(text, stop, end, backwards=False)]
            done = spans[-1].end
        found += _as_one(text, spans, "private-key")
    return found


def _closed(text: str, begin: re.Match[str], end: re.Match[str]) -> Iterator[Span]:
    """The pieces of a key between its first and its last line."""
    if "\n" not in text[begin.start() : end.end()]:
        yield Span(begin.start(), end.end(), "")
        return
    prefix = text[text.rfind("\n", 0, begin.start()) + 1 : begin.start()]
    inline = _INLINE.match(text, begin.end())
    stop = inline.end() if inline else begin.end()
    yield Span(begin.start(), stop, "")
    lines = list(lines_of(text, stop, end.start()))
    for line in lines[1:-1]:
        start = len(prefix) if line.text.startswith(prefix) else len(line.text)
        piece = _FIRST.match(line.text, start) or _body_of(line.text)
        if piece is None and line is lines[-2]:
            piece = _LAST.search(line.text)
        if piece:
            yield Span(line.start + piece.start(), line.start + piece.end(), "")
    yield Span(*end.span(), "")


def _bodies(text: str, start: int, end: int, *, backwards: bool) -> Iterator[Span]:
    """What looks like lines of a key, going away from its first or last line."""
    gap = 0
    lines = list(lines_of(text, start, end))
    for line in reversed(lines) if backwards else lines:
        if not line.text:
            continue
        piece = _body_of(line.text)
        if piece and (gap == 0 or len(piece.group()) >= _LONG):
            yield Span(line.start + piece.start(), line.start + piece.end(), "")
            gap = 0
            continue
        gap += 1
        if gap > _KEY_GAP:
            return


def _body_of(line: str) -> re.Match[str] | None:
    piece = _BODY.search(line)
    return piece if piece and _body(piece.group()) else None


def _body(text: str) -> bool:
    """Whether a run of base64 is no word and no hash."""
    if len(text) >= _WIDE:
        return text.lower() != text
    return _key_like(text)


def lines_of(text: str, start: int, end: int) -> Iterator[Line]:
    """The lines of a part of a text."""
    for line in text[start:end].split("\n"):
        yield Line(start, line)
        start += len(line) + 1


def _as_one(text: str, spans: Iterable[Span], kind: str) -> list[Span]:
    kept = list(spans)
    value = "\n".join(text[span.start : span.end] for span in kept)
    return [Span(span.start, span.end, kind, value) for span in kept]


# --- columns of base64: the middle of a key file --------------------------------------------------

_COLUMN = expression(
    r"(?:(?<![A-Za-z0-9+/=])|(?<=\\n))"
    r"(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70}|[A-Za-z0-9+/]{76})(?=\\n|[\"',}\s]|\Z)"
)
_REST = expression(r"\s(?:[^\n]{0,120}?\s)?([A-Za-z0-9+/]{4,76}={0,2})(?=[ \t]*(?:\n|\Z))")
# Characters of a column, all made one: a search for the narrowest costs less than for any word.
_IN_COLUMN = bytes(65 * (chr(code) in ascii_letters + digits + "+/") for code in range(256))
_NARROWEST = b"A" * 64
_APART = 4  # lines between two of a column, of others


def columns(text: str) -> list[Span]:
    """Two or more words of base64 of the same width, mostly a line each, and the short last one."""
    if len(text) < 129 or _NARROWEST not in text.encode("ascii", "replace").translate(_IN_COLUMN):
        return []
    found: list[Span] = []
    run: list[Span] = []
    for match in _COLUMN.finditer(text):
        if not _key_like(match.group()):
            continue
        span = Span(*match.span(), "")
        if run and (
            run[-1].end - run[-1].start != span.end - span.start
            or text.count("\n", run[-1].end, span.start) > _APART + 1
        ):
            found += _column(text, run)
            run = []
        run.append(span)
    return found + _column(text, run)


def _column(text: str, run: list[Span]) -> list[Span]:
    if len(run) < 2:
        return []
    rest = _REST.match(text, run[-1].end)
    if rest and (rest[1].endswith("=") or (len(rest[1]) >= 16 and _body(rest[1]))):
        run = [*run, Span(*rest.span(1), "")]
    return _as_one(text, run, "private-key")


def _key_like(text: str) -> bool:
    return mixed(text) and text.lower() != text and text.upper() != text
