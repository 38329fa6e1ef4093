"""Secrets that go on in the next line: cut by a terminal, a paste or a log shipper, or hung there.

The lines are joined in a view without what stands before them: prefixes, indentation, bars.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from string import ascii_letters, digits

from diagnose.lazy import expression
from diagnose.report.shapes import Span, drawn, mixed
from diagnose.report.spread import Line, lines_of
from diagnose.report.views import View

Find = Callable[[str], Iterable[Span]]

_SIGNS = "_+/=.~%:@?&$!-"
_OPEN = frozenset(ascii_letters + digits + _SIGNS)
_RUN = f"[A-Za-z0-9{_SIGNS}]"
_HEAD = expression(rf"{_RUN}{{1,512}}+")
_INDENT = expression(r"[ \t]{0,40}(?:[|│>] ?)?")
_PREFIX = expression(r"(?:\[[^\]\n]{1,60}\]:? ?|\S{1,60}[:|>] )+")
_STAMP = expression(
    r"\d{1,4}[-/:.]\d\d(?:[-/:.T ]\d|\b)|\d+\.\d+(?![\w.+/=~%&?-])|\d+(?![\w.+/=~%&?-])"
)
_NUMBER = expression(r"[0-9]+")
_TAIL = 256  # characters of a line that a token's beginning is looked for in
_LONGEST = 8192  # characters of one wrapped token
_MIN_WIDTH = 40  # of a terminal
_WRAPS = 60  # from that width on a whole token may go on in the next line
_NEAR = 8  # lines that tell how wide the terminal was
_LEFT = 6  # characters of a word alone in its line that may be the rest of a secret …
_LETTERS = 16  # … where it has no digits

# A name at the end of a line, its value below it.
_HANGING = expression(
    r"(?i:tokens?|key|secret(?:string)?|passw(?:or)?d|passphrase|passcode|pass|pwd|pw|auth"
    r"|credentials?)(?:[_-]?\d{1,2})?(?P<end>[\"']?\s{0,2}(?::=|=>|[:=])\s{0,4}(?P<block>[|>][-+]?\d?)?"
    r"|[\"']?,?|(?:\s[^<>\n]{0,60})?>|\s?[=:]?\s?\\{1,8})\s{0,4}\Z"
)
_SHORT = 32  # characters that such a name and its sign take; a tag of XML may take more
_VALUE = expression(r"[\"']?value\b")  # of a name in a list of pairs
_DEEPER = 2  # blanks
_BELOW = 16  # lines of a block of YAML


def wrapped(
    text: str, find: Find, unfinished: Callable[[Sequence[str]], Iterable[int]]
) -> list[Span]:
    """Secrets that begin in one line, or whose name ends it, and that go on in the next ones.

    `find` gives the secrets of one line; only ends of lines are joined that may be `unfinished`.
    """
    if "\n" not in text:
        return []
    rows = text.split("\n")
    begun = unfinished([row[-_TAIL:] for row in rows[:-1]])
    lines: list[Line] = []
    found: list[Span] = []
    number = 0
    for at in begun:
        row = rows[at]
        lines = lines or list(lines_of(text, 0, len(text)))
        near = len(row) - (_TAIL if row[-1:] == ">" else _SHORT)
        if end := _HANGING.search(row, max(0, near)):
            found += _hung(lines, at, end, find)
        if at < number or len(row) < _MIN_WIDTH or row[-1] not in _OPEN:
            continue
        spans, number = _cut(lines, at, find)
        found += spans
    return found


# --- tokens cut by the end of a line --------------------------------------------------------------


def _cut(lines: list[Line], at: int, find: Find) -> tuple[list[Span], int]:
    """What goes on from the end of a line, and the first line that does not belong to it."""
    line = lines[at]
    tail = line.text[-_TAIL:]
    end = line.start + len(line.text)
    parts = [(tail, end - len(tail), end), *_rest(lines, at)]
    if len(parts) == 1:
        return [], at + 1
    view = View(parts)
    sure = {span.start for span in find(tail) if span.end == len(tail)}
    found: list[Span] = []
    for span in find(view.text):
        if not span.start < len(tail) < span.end:
            continue
        word, begin, _ = parts[1]
        taken = word[: span.end - len(tail)]
        if span.start not in sure or _goes_on(lines, at, (taken, begin, begin + len(taken))):
            found += view.back(span)
    return found, at + len(parts) - 1


def _rest(lines: list[Line], at: int) -> Iterator[tuple[str, int, int]]:
    """What may go on from the end of a line in the lines below it."""
    prefix = _PREFIX.match(lines[at].text)
    form = _form(prefix.group()) if prefix else ""
    length = 0
    for line in lines[at + 1 :]:
        begin = _begin(line.text, form)
        head = _HEAD.match(line.text, begin)
        if head is None or (not length and _STAMP.match(head.group())):
            return
        yield head.group(), line.start + begin, line.start + head.end()
        length += len(head.group())
        if head.end() < len(line.text) or length > _LONGEST:
            return


def _form(prefix: str) -> str:
    """What two lines of one writer have alike in front; a name and its colon is no such prefix."""
    return _NUMBER.sub("0", prefix)


def _begin(line: str, form: str) -> int:
    """Where the text of a line begins, after what a launcher or a terminal wrote before it.

    `form` is that of the prefix of the line above it, "" where it has none.
    """
    skip = _INDENT.match(line)
    begin = skip.end() if skip else 0
    prefix = _PREFIX.match(line, begin)
    alike = prefix is not None and (line[begin] == "[" or _form(prefix.group()) == form)
    if prefix and alike and len(prefix.group()) >= 4:
        return prefix.end()
    return begin


def _goes_on(lines: list[Line], at: int, rest: tuple[str, int, int]) -> bool:
    """Whether a line that ends in a whole token was cut inside it: `rest`, which the token would
    take of the next one, is no word of a log.
    """
    word, _, end = rest
    least = _LEFT if mixed(word) else _LETTERS
    if drawn(word) or (_alone(lines[at + 1], end) and len(word) >= least):
        return True
    width = len(lines[at].text)
    near = lines[max(0, at - _NEAR) : at + _NEAR]
    odd = any(c.isdigit() or c.isupper() for c in word)
    return width >= _WRAPS and odd and all(len(line.text) <= width for line in near)


def _alone(line: Line, end: int) -> bool:
    return not line.text[end - line.start :].strip("\"',;)}] ")


# --- values below their names ---------------------------------------------------------------------


def _hung(lines: list[Line], at: int, end: re.Match[str], find: Find) -> Iterator[Span]:
    """The values below a line whose name and its sign `end` are, of YAML, XML, JSON or a shell."""
    line = lines[at]
    sign = end["end"].strip()
    head = line.text[max(0, end.start() - _TAIL) : end.start("block") if end["block"] else None]
    head = head.rstrip().rstrip("\\") + " " * (not sign.endswith(">") or bool(end["block"]))
    for below in lines[at + 1 : at + 1 + (_BELOW if end["block"] else 1)]:
        skip = _shared(line.text[: end.start()], below.text)
        value = below.text[skip:].lstrip()
        start = len(below.text) - len(value)
        deeper = start - skip >= _depth(line.text[skip:]) + _DEEPER
        if not value or not (deeper or (not end["block"] and _fits(sign, value.rstrip()))):
            return
        view = View([(head, 0, 0), (value, below.start + start, below.start + len(below.text))])
        for span in find(view.text):
            if span.start >= len(head):
                yield from view.back(span)


def _shared(line: str, below: str) -> int:
    """Characters that a launcher wrote before the second of two lines, as before the first."""
    bare = below.lstrip()
    prefix = _PREFIX.match(bare)
    return len(below) - len(bare) + prefix.end() if prefix and prefix.group() in line else 0


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _fits(sign: str, value: str) -> bool:
    """Whether a line that is no deeper is the value of a name that ends with `sign`."""
    if sign.endswith(("\\", ">")):
        return True
    if sign in ("", '"', "'", ",", '",', "',"):
        return _VALUE.match(value) is not None
    return " " not in value and mixed(value)
