"""Secrets over several lines: key files, base64 in columns, what a line end cuts or hangs below.

Lines of a log have prefixes, and lines of other ranks stand between those of a key: on each line
only what belongs to the secret is taken, and all of it has one value, so one mask. What goes on in
the next line (cut by a terminal, a paste or a log shipper, or hung there) is found in a view that
joins lines without what stands before them: prefixes, indentation, bars.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from string import ascii_letters, digits
from typing import NamedTuple

from diagnose.formats import data
from diagnose.lazy import expression
from diagnose.redact.credentials import drawn, mixed
from diagnose.redact.views import Span, View

# RFC 7468 and its PGP and OpenSSH kin; in JSON the newlines are `\n`.
_NAMED = r"(?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
_MARK = expression(
    rf"-----(?:BEGIN {_NAMED}(?:(?:[ \t]|\\[nr])*[A-Za-z0-9+/=]{{16,}}+)*|(?P<last>END) {_NAMED})"
)
_KEY_MAX = 16_384  # characters from the first line of a key to its last
_KEY_GAP = 8  # lines of others inside a key whose end is not there
_LONG = 40  # characters of a line of a key after such lines
_WIDE = 60  # … and from which on no word is so long
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
        if mark["last"]:
            begin = max(done, mark.start() - _KEY_MAX)
            before = list(_bodies(text, begin, mark.start(), backwards=True))
            spans = [*before[::-1], Span(*mark.span(), "")]
            done = mark.end()
        elif after and after["last"] and after.end() - mark.start() <= _KEY_MAX:
            spans = list(_closed(text, mark, after))
            done = after.end()
        else:
            end = min(after.start() if after else len(text), mark.end() + _KEY_MAX)
            rest = _bodies(text, mark.end(), end, backwards=False)
            spans = [Span(*mark.span(), ""), *rest]
            done = spans[-1].end
        found += _as_one(text, spans)
    return found


def _closed(text: str, begin: re.Match[str], end: re.Match[str]) -> Iterator[Span]:
    """The pieces of a key between its first and its last line."""
    if "\n" not in text[begin.start() : end.end()]:
        yield Span(begin.start(), end.end(), "")
        return
    prefix = text[text.rfind("\n", 0, begin.start()) + 1 : begin.start()]
    yield Span(*begin.span(), "")
    lines = list(lines_of(text, begin.end(), end.start()))
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
    return text.lower() != text if len(text) >= _WIDE else _key_like(text)


def lines_of(text: str, start: int, end: int) -> Iterator[Line]:
    """The lines of a part of a text."""
    for line in text[start:end].split("\n"):
        yield Line(start, line)
        start += len(line) + 1


def _as_one(text: str, spans: list[Span]) -> list[Span]:
    value = "\n".join(text[span.start : span.end] for span in spans)
    return [Span(span.start, span.end, "private-key", value) for span in spans]


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
    return _as_one(text, run)


def _key_like(text: str) -> bool:
    return mixed(text) and text.lower() != text and text.upper() != text


Find = Callable[[str], Iterable[Span]]

_SIGNS = "_+/=.~%:@?&$!-"
_OPEN = frozenset(ascii_letters + digits + _SIGNS)
_RUN = f"[A-Za-z0-9{_SIGNS}]"
_TOKEN_HEAD = expression(rf"{_RUN}{{1,512}}+")
_INDENT = expression(r"[ \t]{0,40}(?:[|│>] ?)?")
# Of the rows of prefixes, what names a process; one of letters alone may be a name and its colon.
_TAG = rf"(?![\w\s])(?:{data('secrets/tags')}) ?"
_PREFIX = expression(rf"(?:\[[^\]\n]{{1,60}}\]:? ?|\S{{1,60}}[:|>] |{_TAG})+")
_LABEL, _BRACKET = expression(_TAG), expression(rf"\[|{_TAG}")
_STAMP = expression(
    r"\d{1,4}[-/:.]\d\d(?:[-/:.T ]\d|\b)|\d+\.\d+(?![\w.+/=~%&?-])|\d+(?![\w.+/=~%&?-])"
)
# A name with underscores and its value: taken for the rest of a token, it would show the value.
_ASSIGNED = expression(r"[A-Za-z]\w{0,40}_\w{1,40}=(?![=\s]|\Z)")
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
    r"(?i:tokens?|keys?|secrets?(?:string)?|passw(?:or)?ds?|passphrase|passcode|pass|pwd|pw|auth"
    r"|credentials?)(?:[_-]?\d{1,2})?(?P<end>[\"']?\s{0,2}(?::=|=>|[:=])\s{0,4}(?P<block>[|>][-+]?\d?)?"
    r"|[\"']?,?|(?:\s[^<>\n]{0,60})?>|\s?[=:]?\s?\\{1,8})\s{0,4}\Z"
)
_SHORT = 32  # characters that such a name and its sign take; a tag of XML may take more
_VALUE = expression(r"[\"']?value\b")  # of a name in a list of pairs
_DEEPER = 2  # blanks
_BELOW = 16  # lines of a block or a list of YAML
_ITEM = expression(r"-\s{1,4}(?=\S)")  # of a list of YAML, which may stand as deep as its name


def wrapped(
    text: str, find: Find, unfinished: Callable[[Sequence[str]], Iterable[int]]
) -> list[Span]:
    """Secrets that begin in one line, or whose name ends it, and that go on in the next ones.

    `find` gives the secrets of one line; only ends of lines are joined that may be `unfinished`.
    """
    if "\n" not in text:
        return []
    begun = unfinished([row[-_TAIL:] for row in text.split("\n")[:-1]])
    lines = list(lines_of(text, 0, len(text))) if begun else []
    found: list[Span] = []
    number = 0
    for at in begun:
        row = lines[at].text
        near = len(row) - (_TAIL if row[-1:] == ">" else _SHORT)
        if end := _HANGING.search(row, max(0, near)):
            found += _hung(lines, at, end, find)
        # Inside a word a line is cut that is as wide as a terminal, or above a tagged one: who tags
        # lines of others (`[rank0]: `) tags the rest of a line that he cut, however short.
        wide = len(row) >= _MIN_WIDTH or _LABEL.match(lines[at + 1].text)
        if at >= number and row[-1] in _OPEN and wide:
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
    form = _NUMBER.sub("0", prefix.group()) if prefix else ""
    length = 0
    for line in lines[at + 1 :]:
        begin = _begin(line.text, form)
        head = None if _ASSIGNED.match(line.text, begin) else _TOKEN_HEAD.match(line.text, begin)
        if head is None or (not length and _STAMP.match(head.group())):
            return
        yield head.group(), line.start + begin, line.start + head.end()
        length += len(head.group())
        if head.end() < len(line.text) or length > _LONGEST:
            return


def _begin(line: str, form: str) -> int:
    """Where the text of a line begins, after what a launcher or a terminal wrote before it.

    `form` is that of the prefix of the line above it, "" where it has none.
    """
    begin = len(line) - len(_INDENT.sub("", line, count=1))
    prefix = _PREFIX.match(line, begin)
    # Two lines of one writer have the same in front; a name and its colon is no such prefix.
    if prefix and (_BRACKET.match(line, begin) or _NUMBER.sub("0", prefix.group()) == form):
        return prefix.end() if len(prefix.group()) >= 4 else begin
    return begin


def _goes_on(lines: list[Line], at: int, rest: tuple[str, int, int]) -> bool:
    """Whether a line that ends in a whole token was cut inside it: `rest`, which the token would
    take of the next one, is no word of a log.
    """
    word, _, end = rest
    least = _LEFT if mixed(word) else _LETTERS
    after = lines[at + 1].text[end - lines[at + 1].start :]
    if drawn(word) or (len(word) >= least and not after.strip("\"',;)}] ")):
        return True
    width = len(lines[at].text)
    near = lines[max(0, at - _NEAR) : at + _NEAR]
    odd = any(c.isdigit() or c.isupper() for c in word)
    return width >= _WRAPS and odd and all(len(line.text) <= width for line in near)


# --- values below their names ---------------------------------------------------------------------


def _hung(lines: list[Line], at: int, end: re.Match[str], find: Find) -> Iterator[Span]:
    """The values below a line whose name and its sign `end` are, of YAML, XML, JSON or a shell."""
    line = lines[at]
    sign = end["end"].strip()
    head = line.text[max(0, end.start() - _TAIL) : end.start("block") if end["block"] else None]
    head = head.rstrip().rstrip("\\") + " " * (not sign.endswith(">") or bool(end["block"]))
    for below in lines[at + 1 : at + 1 + _BELOW]:
        skip = _shared(line.text[: end.start()], below.text)
        value = below.text[skip:].lstrip()
        item = _ITEM.match(value) if sign.endswith(":") else None
        above = line.text[skip:]
        deep = len(below.text) - skip - len(value) - (len(above) - len(above.lstrip()))
        if item and deep >= 0:
            value, deep = value[item.end() :], _DEEPER
        if not value or not (deep >= _DEEPER or (not end["block"] and _fits(sign, value.rstrip()))):
            return
        start = len(below.text) - len(value)
        view = View([(head, 0, 0), (value, below.start + start, below.start + len(below.text))])
        for span in find(view.text):
            if span.start >= len(head):
                yield from view.back(span)
        if not end["block"] and not item:
            return


def _shared(line: str, below: str) -> int:
    """Characters that a launcher wrote before the second of two lines, as before the first."""
    bare = below.lstrip()
    prefix = _PREFIX.match(bare)
    return len(below) - len(bare) + prefix.end() if prefix and prefix.group() in line else 0


def _fits(sign: str, value: str) -> bool:
    """Whether a line that is no deeper is the value of a name that ends with `sign`."""
    if sign.endswith(("\\", ">")):
        return True
    if sign in ("", '"', "'", ",", '",', "',"):
        return _VALUE.match(value) is not None
    return " " not in value and mixed(value)
