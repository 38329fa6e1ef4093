"""Lines that lost the line end between them: processes that share a pipe, text folded by a form.

Only what is certain is parted: behind each tag that a launcher puts before a line of a rank, and a
traceback that stands in one line.
"""

from __future__ import annotations

import re
from itertools import pairwise

# `[rank3]: text` of torch's own excepthook, `[default3]:text` of torchrun; two may stand in a row.
_TAG = r"\[(?:rank|default)\d+\]:"
# A label or a time may stand before the first: `3: `, `2024-08-08 13:01:55 `.
_BEFORE_TAG = re.compile(r"(?:\S{0,39}\d\S{0,39}\s){0,3}")
_TAGS = re.compile(rf"(?:{_TAG} ?)+")
_TRACEBACK = "Traceback (most recent call last):"
_BEFORE_FRAME = re.compile(r"\s{0,20}(?=\bFile \"[^\"\n]{1,500}\", line \d+, in )")
_BEFORE_EXCEPTION = re.compile(
    r"(?<=[\s)\]}\"'^~])(?=(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): )"
)

# What makes a source worth a closer look, on bytes because it is asked of every small source.
_TAG_BYTES = re.compile(rb"[\w.)%\"']\[(?:rank|default)\d{1,5}\]:")
_FOLDED_BYTES = re.compile(rb"Traceback \(most recent call last\):[ \t]{0,20}File \"")


def may_be_glued(data: bytes) -> bool:
    """Whether some line of `data` holds more than one."""
    # Tags at the start of lines are the rule, and counting is far faster than a look at each.
    inside = any(
        tag in data and data.count(tag) > data.count(b"\n" + tag) + data.startswith(tag)
        for tag in (b"[rank", b"[default")
    )
    if inside and _TAG_BYTES.search(data) is not None:
        return True
    return _TRACEBACK.encode() in data and _FOLDED_BYTES.search(data) is not None


def part(rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Numbered lines, with those that hold several parted; the parts keep the number."""
    return [
        (number, piece)
        for number, text in rows
        for tagged in _at_tags(text)
        for piece in _at_frames(tagged)
    ]


def _at_tags(text: str) -> list[str]:
    tags = list(_TAGS.finditer(text))
    if len(tags) < 2 or not _BEFORE_TAG.fullmatch(text, 0, tags[0].start()):
        return [text]
    # A tag that words lead up to begins a line; what leads up to the first belongs to it.
    starts = [
        tag.start() for before, tag in pairwise(tags) if text[before.end() : tag.start()].strip()
    ]
    return [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]


def _at_frames(text: str) -> list[str]:
    at = text.find(_TRACEBACK)
    if at < 0 or _BEFORE_FRAME.search(text, at) is None:
        return [text]
    head, tail = text[: at + len(_TRACEBACK)], text[at + len(_TRACEBACK) :]
    *frames, last = _BEFORE_FRAME.split(tail)
    return [head, *(frame for frame in frames if frame), *_BEFORE_EXCEPTION.split(last, maxsplit=1)]
