"""Undoing what copying and pasting does to a log: quote marks, line numbers, escapes, wrapping.

Only for small sources, and conservative: every step asks for proof that the text was pasted, so
that an ordinary log comes through byte for byte. What stays is judged line by line later anyway;
what is removed wrongly is lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from diagnose.ingest.unwrap import join_wrapped, may_be_wrapped

PASTE_LIMIT = 4 << 20  # bytes of a source that may be a paste
_SAMPLE_LINES = 300
_MOST = 0.6  # of the non-empty lines: people write a sentence above what they paste
_NUMBERED = 0.8


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its newline, and its 1-based number in the original."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Normal:
    """Normalised text, and the original number of each of its lines."""

    data: bytes
    lines: list[int]


def normalise(data: bytes) -> Normal | None:
    """Undo pasting in a whole source; None if there is nothing to undo.

    Bytes that are not UTF-8 stay as they are.
    """
    if not _suspicious(data):
        return None
    text = data.decode(errors="surrogateescape")
    ends = text.endswith("\n")
    rows = text.removesuffix("\n").split("\n")
    before = [Line(number, row) for number, row in enumerate(rows, 1)]
    lines = before
    for step in (
        _visible,
        _without_colours,
        _unquoted,
        _unfenced,
        _unnumbered,
        _unescaped_html,
        _unescaped_markdown,
        _unindented,
    ):
        lines = step(lines)
    lines = [
        Line(number, row)
        for number, row in join_wrapped([(line.number, line.text) for line in lines])
    ]
    if lines == before:
        return None
    joined = "\n".join(line.text for line in lines) + ("\n" if ends and lines else "")
    return Normal(joined.encode(errors="surrogateescape"), [line.number for line in lines])


# What makes a source worth a closer look, on bytes because it is asked of every small source.
_QUOTE_BYTES = re.compile(rb" {0,3}[>|]")
_NUMBER_BYTES = re.compile(rb"\s{0,8}\[?\d{1,7}(?:[\]:|\s]|\Z)")
_ENTITY_BYTES = re.compile(rb"&(?:lt|gt|quot|amp|nbsp|#39|#x27);")
_ESCAPE_BYTES = re.compile(rb"\\[#_\[*]")
_INDENT_BYTES = re.compile(rb"\n*(?:  |\t)")
_INVISIBLE_BYTES = [mark.encode() for mark in "\u200b\ufeff\u2060\u00a0\u202f\u2007"]


def _suspicious(data: bytes) -> bool:
    sample = [line for line in data[: 64 << 10].split(b"\n", _SAMPLE_LINES) if line.strip()]
    quoted = sum(1 for line in sample if _QUOTE_BYTES.match(line))
    numbered = sum(1 for line in sample if _NUMBER_BYTES.match(line))
    return (
        max(quoted, numbered) > 0.3 * len(sample)
        or b"```" in data
        or b"[0m" in data
        or (b"&" in data and _ENTITY_BYTES.search(data) is not None)
        or (b"\\" in data and _ESCAPE_BYTES.search(data) is not None)
        or _INDENT_BYTES.match(data) is not None
        or (not data.isascii() and any(mark in data for mark in _INVISIBLE_BYTES))
        or may_be_wrapped(data)
    )


# How lines of logs begin; Megatron's own "> initialized …" does not look like this behind its ">".
_LOGGISH = re.compile(
    r"\s*(?:\[|\(\w+ pid=|\d{2,4}[-:]\d\d|[EWIF]\d{3,4} |(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)[: |]|Traceback \(|File \""
    r"|frame \\?#\d|[\w.]+(?:Error|Exception)\b|[\w.-]+:\d+:\d+ |srun: |slurmstepd|terminate called"
    r"|\d{1,5}: )"
)


def _filled(lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if line.text.strip()]


_INVISIBLE = dict.fromkeys(map(ord, "\u200b\ufeff\u2060")) | dict.fromkeys(
    map(ord, "\u00a0\u202f\u2007"), " "
)


def _visible(lines: list[Line]) -> list[Line]:
    """Zero-width characters of chats removed, their non-breaking spaces made spaces."""
    return [
        line if line.text.isascii() else Line(line.number, line.text.translate(_INVISIBLE))
        for line in lines
    ]


_COLOUR = re.compile(r"(?:\^\[)?\[(?:\d{1,3}(?:;\d{1,3}){0,4})?m")


def _without_colours(lines: list[Line]) -> list[Line]:
    """Colour codes whose ESC got lost on the way: `[36m(task pid=1)[0m`."""
    found = [code for line in lines for code in _COLOUR.findall(line.text)]
    if len(found) < 2 or not any(code.endswith("[0m") for code in found):
        return lines
    return [Line(line.number, _COLOUR.sub("", line.text)) for line in lines]


_MARKS = {
    ">": re.compile(r" {0,3}((?:> ?)+)"),
    "|": re.compile(r" {0,3}((?:\|(?: |$))+)"),
}


def _unquoted(lines: list[Line]) -> list[Line]:
    """Quote marks of mail, Markdown and chats removed, to the depth most lines have."""
    filled = _filled(lines)
    for mark, pattern in _MARKS.items():
        matches = [match for line in filled if (match := pattern.match(line.text))]
        if not matches or len(matches) < _MOST * len(filled):
            continue
        if mark == "|" and sum(line.text.rstrip().endswith("|") for line in filled) > 1:
            continue  # a table, such as nvidia-smi's
        if not any(_LOGGISH.match(match.string, match.end()) for match in matches):
            continue
        depth = Counter(match[1].count(mark) for match in matches).most_common(1)[0][0]
        space = "(?: |$)" if mark == "|" else " ?"
        strip = re.compile(rf" {{0,3}}(?:{re.escape(mark)}{space}){{1,{depth}}}")
        return [
            Line(
                line.number,
                strip.sub("", line.text, count=1) if strip.match(line.text) else line.text,
            )
            for line in lines
        ]
    return lines


_FENCE = re.compile(r"\s{0,3}`{3,}[\w+-]{0,20}\s*")


def _unfenced(lines: list[Line]) -> list[Line]:
    """Lines that only open or close a code block dropped; also marks glued to a log line."""
    kept = []
    for line in lines:
        if "```" not in line.text:
            kept.append(line)
        elif not _FENCE.fullmatch(line.text):
            text = line.text
            if text.startswith("```") and _LOGGISH.match(text, 3):
                text = text.lstrip("`")
            kept.append(Line(line.number, text.rstrip("`") if text.endswith("```") else text))
    return kept


_NUMBERS = (
    re.compile(r"\s{0,8}\[(\d{1,7})\](?: |$)"),
    re.compile(r"\s{0,8}(\d{1,7}):(?: |$)"),
    re.compile(r"\s{0,8}(\d{1,7}) ?\|(?: |$|(?=\S))"),
    re.compile(r"\s{0,8}(\d{1,7})(?:\t|  +|\s*$)"),
)


def _unnumbered(lines: list[Line]) -> list[Line]:
    """Leading line numbers removed, where they rise by one on most lines."""
    filled = _filled(lines)
    for pattern in _NUMBERS:
        matches = [match for line in filled if (match := pattern.match(line.text))]
        if len(matches) < max(3, _NUMBERED * len(filled)):
            continue
        numbers = [int(match[1]) for match in matches]
        rises = sum(b - a == 1 for a, b in pairwise(numbers))
        if rises < _NUMBERED * (len(numbers) - 1) or numbers[0] == 0:
            continue
        if _are_labels([match.string[match.end() :] for match in matches], numbers[0]):
            continue
        return [
            Line(
                line.number,
                pattern.sub("", line.text, count=1) if pattern.match(line.text) else line.text,
            )
            for line in lines
        ]
    return lines


_DIGITS = re.compile(r"\d+")


def _are_labels(texts: list[str], first: int) -> bool:
    """Whether leading numbers are ranks or steps rather than line numbers.

    Ranks in order all say the same thing, and so do steps: launchers print `3: text` and
    `[3] text`. From the hundreds on, lines that begin like log lines settle it.
    """
    if first >= 100 and sum(_LOGGISH.match(text) is not None for text in texts) > 0.5 * len(texts):
        return False
    shapes = {_DIGITS.sub("0", text) for text in texts if text.strip()}
    return len(shapes) < 0.5 * len(texts)


_ENTITY = re.compile(r"&(?:lt|gt|quot|amp|nbsp|#39|#x27);")
_CHARACTERS = {
    "&lt;": "<",
    "&gt;": ">",
    "&quot;": '"',
    "&amp;": "&",
    "&nbsp;": " ",
    "&#39;": "'",
    "&#x27;": "'",
}


def _unescaped_html(lines: list[Line]) -> list[Line]:
    """HTML entities resolved, where none of the characters they stand for occurs raw."""
    text = "\n".join(line.text for line in lines)
    entities = {_CHARACTERS[entity] for entity in _ENTITY.findall(text)} - {"&", " "}
    if not entities or "<" in text or ">" in text or any(raw in text for raw in entities):
        return lines
    return [
        Line(line.number, _ENTITY.sub(lambda m: _CHARACTERS[m[0]], line.text)) for line in lines
    ]


def _unescaped_markdown(lines: list[Line]) -> list[Line]:
    r"""Markdown's `\_`, `\[`, `\#`, `\*` resolved, where the character never occurs without."""
    text = "\n".join(line.text for line in lines)
    escaped = [
        character
        for character in "_[]*#"
        if f"\\{character}" in text and not re.search(rf"(?<!\\)\{character}", text)
    ]
    pattern = re.compile(rf"\\([{re.escape(''.join(escaped))}])") if escaped else None
    frames = re.compile(r"(?<=\bframe )\\(#\d)")
    return [
        Line(
            line.number, frames.sub(r"\1", pattern.sub(r"\1", line.text) if pattern else line.text)
        )
        if "\\" in line.text
        else line
        for line in lines
    ]


_INDENT = re.compile(r"(?: {2,}|\t[ \t]*)")


def _unindented(lines: list[Line]) -> list[Line]:
    """Indentation common to all lines removed: two columns or more, before log lines."""
    filled = _filled(lines)
    match = _INDENT.match(filled[0].text) if filled else None
    if match is None:
        return lines
    common = match[0]
    for line in filled:
        while not line.text.startswith(common):
            common = common[:-1]
    outer = [line.text[len(common) :] for line in filled]
    if not _INDENT.match(common) or not any(
        _LOGGISH.match(text) and not text.startswith((" ", "\t", 'File "')) for text in outer
    ):
        return lines
    return [Line(line.number, line.text.removeprefix(common)) for line in lines]
