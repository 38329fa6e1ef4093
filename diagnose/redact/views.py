"""A text as it is meant: escapes decoded, look-alikes plain, lines joined; and the way back.

What looks for secrets knows one way to write them. Text that writes them otherwise (percent
signs, entities, escapes of JSON and Python, full-width or Cyrillic letters, a value on the next
line) is searched in such a view, and what is found there is taken out of the text itself.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from diagnose.lazy import expression


class Span(NamedTuple):
    """Characters `start` to `end` of a text are of this kind (`hf-token`, `password`, …).

    `value` is what they are a part of, where they are not all of it.
    """

    start: int
    end: int
    kind: str
    value: str = ""


def lowered(text: str) -> str:
    """`text` in lower case, every character in its old place."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(c.lower() if c.isascii() else c for c in text)


_DEPTH = 3  # times that a text is escaped in an escaped one


class Piece(NamedTuple):
    """`size` characters of a view from `at` on stand for `start` to `end` of the text."""

    at: int
    size: int
    start: int
    end: int


class View:
    """Another way to read a text."""

    def __init__(self, parts: Iterable[tuple[str, int, int]]) -> None:
        """Each part: what is read, and which characters of the text that stands for."""
        kept = list(parts)
        self.text = "".join(read for read, _, _ in kept)
        self._pieces: list[Piece] = []
        at = 0
        for read, start, end in kept:
            self._pieces.append(Piece(at, len(read), start, end))
            at += len(read)
        self._ats = [piece.at for piece in self._pieces]

    def back(self, span: Span) -> Iterator[Span]:
        """The characters of the text that a span of the view stands for, all of one value."""
        value = span.value or self.text[span.start : span.end]
        found: list[tuple[int, int]] = []
        first = bisect_right(self._ats, span.start) - 1
        for at, size, start, end in self._pieces[first : bisect_right(self._ats, span.end - 1)]:
            if end - start == size:  # letter by letter
                end = min(end, start + span.end - at)  # noqa: PLW2901
                start += max(0, span.start - at)  # noqa: PLW2901
            if start >= end:
                continue
            if found and found[-1][1] == start:
                found[-1] = found[-1][0], end
            else:
                found.append((start, end))
        return (Span(start, end, span.kind, value) for start, end in found)


def through(
    text: str, find: Callable[[str], Iterable[Span]], *, views: bool = True
) -> Iterator[Span]:
    """What `find` finds in a text and in its views, if it may have any: characters of the text."""
    yield from find(text)
    seen: list[View] = []
    for view in _views(text) if views else ():
        seen.append(view)
        spans = list(find(view.text))
        for one in reversed(seen):
            spans = [part for span in spans for part in one.back(span)]
        yield from spans


def _views(text: str) -> Iterator[View]:
    """A view of a text, one of that view, and so on."""
    for _ in range(_DEPTH):
        if not encoded(text):
            return
        view = View(_decoded(text))
        if view.text == text:
            return
        yield view
        text = view.text


def plain_lines(text: str) -> str:
    """Those lines of a text that have views, as these are."""
    return "\n".join(view.text for line in text.split("\n") for view in _views(line))


# --- escapes and look-alikes ----------------------------------------------------------------------

# Letters of other scripts that look like Latin ones, and signs that look like those of ASCII;
# what is full-width, small or mathematical is told by its compatible form.
_ALIKE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u043a\u04cf"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425\u0405\u0406\u0408\u04c0"
    "\u03bf\u03b1\u03c5\u03ba\u03c1\u03bd\u03b9\u03c4\u03c7\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c"
    "\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u0131\u0251\u0261\u201c\u201d\u201e\u00ab\u00bb\u2018\u2019\u201a"
    "\ua789\u2236\u02f8",
    'aeopcyxijshdqwklABEKMHOPCTYXSIJIoaukpvitxABEZHIKMNOPTYXiag"""""\'\'\':::',
)
_OTHER = expression(
    "[\u00ab\u00bb\u0131\u0251\u0261\u02f8\u0391-\u03c9\u0405-\u0408\u0410-\u0425\u0430-\u0458\u04bb\u04c0"
    "\u04cf\u0501-\u051d\u2018-\u201f\u2236\ua789\ufe50-\ufe6b\uff01-\uff5e\U0001d400-\U0001d7ff]"
)
_ESCAPE = expression(
    r"(?:\\u001[bB]|\\x1[bB]|\\033|\\e)\[[0-9;]{0,16}[A-Za-z]"  # a colour, written out
    r"|(?P<percent>%(?:[0-7][0-9A-Fa-f]|[C-Fc-f][0-9A-Fa-f](?:%[89ABab][0-9A-Fa-f]){1,3}))"
    r"|\\{1,8}(?:u(?P<unicode>[0-9A-Fa-f]{4})|x(?P<hex>[0-9A-Fa-f]{2}))"
    r"|(?P<entity>&(?:#\d{2,3}|#[xX][0-9A-Fa-f]{2}|quot|apos|amp|lt|gt|nbsp|equals|colon|num);)"
)
_BLANKS = expression(r"(\s+)")
_FORM = expression(r"\+[\w.-]{1,64}\+|%[0-9A-Fa-f]{2}")
_HINT = expression(r"%[0-9A-Fa-f]{2}|\\[ux0e]|\+[\w.-]{1,64}\+|&(?:#|[a-z]{2,6};)")


def encoded(text: str) -> bool:
    """Whether a text may have another view."""
    signs = "%" in text or "\\" in text or "+" in text or "&" in text
    return bool((signs and _HINT.search(text)) or (not text.isascii() and _OTHER.search(text)))


def _decoded(text: str) -> Iterator[tuple[str, int, int]]:
    if not text.isascii():
        text = _OTHER.sub(lambda match: _like(match.group()), text)
    if "+" in text:  # words of a form that was sent, where a plus is a blank
        words = _BLANKS.split(text)
        text = "".join(word.replace("+", " ") if _FORM.search(word) else word for word in words)
    done = 0
    for escape in _ESCAPE.finditer(text):
        if done < escape.start():
            yield text[done : escape.start()], done, escape.start()
        yield _read(escape), *escape.span()
        done = escape.end()
    if done < len(text):
        yield text[done:], done, len(text)


def _read(escape: re.Match[str]) -> str:
    """What an escape stands for; a line end is a blank, as a view has the lines of its text."""
    if escape.lastgroup is None:
        return ""
    if escape["percent"]:
        read = unquote(escape["percent"])
    elif escape["entity"]:
        from html import unescape  # noqa: PLC0415 -- a table of all entities, which few texts have

        read = unescape(escape["entity"])
    else:
        read = chr(int(escape[escape.lastgroup], 16))
    return read if read.isprintable() else " "


@lru_cache(maxsize=1024)
def _like(char: str) -> str:
    """The character of ASCII that another looks like, or that one itself."""
    same = unicodedata.normalize("NFKC", char).translate(_ALIKE)
    return same if len(same) == 1 and same.isascii() else char
