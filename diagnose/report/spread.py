"""Secrets over several lines: key files, base64 in columns, tokens that a terminal wrapped.

Lines of a log have prefixes, and lines of other ranks stand between those of a key: on each line
only what belongs to the secret is taken, and all of it has one value, so one mask.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
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


class _Line(NamedTuple):
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
    lines = list(_lines(text, stop, end.start()))
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
    lines = list(_lines(text, start, end))
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


def _lines(text: str, start: int, end: int) -> Iterator[_Line]:
    for line in text[start:end].split("\n"):
        yield _Line(start, line)
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


# --- tokens wrapped by a terminal -----------------------------------------------------------------

_SIGNS = "_+/=.~%:@?&$!-"
_OPEN = frozenset(ascii_letters + digits + _SIGNS)
_RUN = f"[A-Za-z0-9{_SIGNS}]"
_HEAD = expression(rf"{_RUN}{{1,512}}+")
_INDENT = expression(r"[ \t]{0,40}(?:[|│>] ?)?")
_PREFIX = expression(r"(?:\[[^\]\n]{1,60}\]:? ?|\S{1,60}[:|>] )+")
_STAMP = expression(r"\d{1,4}[-/:.]\d\d|\d+\.\d+\b|\d+\b")
_TAIL = 256  # characters of a line that a token's beginning is looked for in
_LONGEST = 8192  # characters of one wrapped token
_MIN_WIDTH = 40  # of a terminal
_WRAPS = 60  # from that width on a whole token may go on in the next line
_NEAR = 8  # lines that tell how wide the terminal was


class _Piece(NamedTuple):
    """Characters `start` to `end` of the text; `at` in the joined one."""

    at: int
    start: int
    end: int


def wrapped(
    text: str,
    find: Callable[[str], Iterable[Span]],
    unfinished: Callable[[Sequence[str]], Iterable[int]],
) -> list[Span]:
    """Secrets that begin at the end of a line and go on in the next ones.

    `find` gives the secrets of one line; only ends of lines are joined that may be `unfinished`.
    """
    if "\n" not in text:
        return []
    rows = text.split("\n")
    begun = unfinished([row[-_TAIL:] for row in rows[:-1]])
    begun = [at for at in begun if len(rows[at]) >= _MIN_WIDTH and rows[at][-1] in _OPEN]
    lines = list(_lines(text, 0, len(text))) if begun else []
    found: list[Span] = []
    number = 0
    for at in begun:
        if at < number:
            continue
        line = lines[at]
        number = at + 1
        tail = line.text[-_TAIL:]
        joined, pieces, used = _joined(lines, number, tail)
        if not pieces:
            continue
        first = _Piece(0, line.start + len(line.text) - len(tail), line.start + len(line.text))
        sure = {span.start for span in find(tail) if span.end == len(tail)}
        for span in find(joined):
            if not span.start < len(tail) < span.end:
                continue
            if span.start in sure and not _goes_on(lines, number - 1, joined[len(tail) :]):
                continue
            spans = list(_split(span, [first, *pieces]))
            found += [one._replace(value=joined[span.start : span.end]) for one in spans]
        number += max(0, used - 1)
    return found


def _joined(lines: list[_Line], number: int, tail: str) -> tuple[str, list[_Piece], int]:
    """`tail` and what may go on from it in the lines from `number` on; how many these are."""
    joined, pieces, used = tail, list[_Piece](), 0
    prefixed = _PREFIX.match(lines[number - 1].text) is not None
    for line in lines[number:]:
        skip = _INDENT.match(line.text)
        begin = skip.end() if skip else 0
        prefix = _PREFIX.match(line.text, begin)
        if prefix and (prefixed or line.text[begin] == "[") and len(prefix.group()) >= 4:
            begin = prefix.end()
        head = _HEAD.match(line.text, begin)
        if head is None or (not used and _STAMP.match(head.group())):
            break
        pieces.append(_Piece(len(joined), line.start + begin, line.start + head.end()))
        joined += head.group()
        used += 1
        if head.end() < len(line.text) or len(joined) > _LONGEST:
            break
    return joined, pieces, used


def _goes_on(lines: list[_Line], number: int, rest: str) -> bool:
    """Whether a line that ends in a whole token was wrapped inside it."""
    width = len(lines[number].text)
    near = lines[max(0, number - _NEAR) : number + _NEAR]
    drawn = any(c.isdigit() or c.isupper() for c in rest)
    return width >= _WRAPS and drawn and all(len(line.text) <= width for line in near)


def _split(span: Span, pieces: list[_Piece]) -> Iterator[Span]:
    """A span of the joined text as spans of the text."""
    for piece in pieces:
        start = max(span.start, piece.at)
        end = min(span.end, piece.at + piece.end - piece.start)
        if start < end:
            move = piece.start - piece.at
            yield Span(start + move, end + move, span.kind)
