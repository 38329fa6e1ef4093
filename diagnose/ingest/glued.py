"""Lines that lost the line end between them: processes that share a pipe, text folded by a form.

Only what is certain is parted: behind each tag that a launcher or NCCL puts before a line of a
process, and a traceback that stands in one line. Where one process wrote in the middle of another
one's line, the rest of that line stands in the next row and is put back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

from diagnose.lazy import expression
from diagnose.parse.tracebacks import TRACEBACK
from diagnose.search import places

# `[rank3]: text` of torch's own excepthook, `[default3]:text` of torchrun; two may stand in a row.
_TAG = r"\[(?:rank|default)\d+\]:"
# `INFO:root:text` of Python's own loggers.
_LEVEL_TAG = r"(?<![ \t])(?:DEBUG|INFO|WARNING|ERROR|CRITICAL):root:"
# A label or a time may stand before the first: `3: `, `2024-08-08 13:01:55 `.
_BEFORE_TAG = expression(r"(?:\S{0,39}\d\S{0,39}\s){0,3}")
_TAGS = expression(rf"(?:{_TAG} ?)+|{_LEVEL_TAG}")
# `node7:123:456 [0] ` of NCCL.
_NCCL_TAG = r":\d{1,8}:\d{1,8} \[\d{1,3}\] (?:NCCL |[\w/.-]{1,80}\.(?:cc|cu|h):\d{1,6} )"
_NCCL_LINE = expression(rf"([A-Za-z0-9][\w.-]{{0,80}}){_NCCL_TAG}")
_TRACEBACK = f"{TRACEBACK}:"
_BEFORE_FRAME = expression(r"\s{0,20}(?=\bFile \"[^\"\n]{1,500}\", line \d+, in )")
_BEFORE_EXCEPTION = expression(
    r"(?<=[\s)\]}\"'^~])(?=(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception): )"
)
# What a logger or Python prints right behind a progress bar, which ends without a line end. A bar
# ends in its speed, or in what the program shows beside it: `2.1it/s]`, `2.1it/s, loss=0.4]`.
_SHOWN = r"(?:, [^\[\]\n]{1,300})?"
_AFTER_BAR = expression(
    rf"\d(?:it/s|s/it){_SHOWN}\](?=Traceback \(most recent|\[[EWIF] ?\w|\[rank\d|  File \")"
    rf"|/s{_SHOWN}\](?=Traceback \(most recent|  File \")"
)
_AFTER_BAR_BYTES = expression(
    rb"(?:it/s|s/it|/s)(?:, [^\[\]\n]{1,300})?\]"
    rb"(?:Traceback \(most|\[[EWIF] ?\w|\[rank\d|  File \")"
)
# The end and the start of what was cut inside a word, a number or a list.
_CUT_END, _CUT_START = expression(r"[\w(,=]\Z"), expression(r"[\w)=,.]")

# What makes a source worth a closer look, on bytes because it is asked of every small source.
_TAGS_INSIDE = (rb"[\w.)%\"',(=]\[rank", rb"[\w.)%\"',(=]\[default")
_REST_OF_TAG = expression(rb"\d{1,5}\]:")
_LEVELS_INSIDE = tuple(
    rb"[\w.)%%\"',(=]%b:root:" % level for level in (b"DEBUG", b"INFO", b"WARNING", b"ERROR")
)
_NCCL_BYTES = expression(rb":(?<=[\w.-]:)\d{1,8}:\d{1,8} \[\d{1,3}\] ")
_NCCL, _NCCL_REPEATED = rb" NCCL ", rb" NCCL [^\n]*:\d+ \[\d+\] "
_DEVICE_BYTES = expression(rb"\[\d{1,3}\] ")
_APART = 400  # bytes between two of NCCL's tags
_BARS = (rb"\w\]Traceback \(most", rb"\w\]\[[EWIFr]", rb"\w\]  File \"")
_FOLDED = rb"call last\):[ \tF]"
_FOLDED_BYTES = expression(rb"Traceback \(most recent call last\):[ \t]{0,20}File \"")
ONCE, EACH = (*_BARS, *_LEVELS_INSIDE, _FOLDED, _NCCL), _TAGS_INSIDE  # see `literals.places`

_Row = tuple[int, str]


def may_be_glued(data: bytes, found: Mapping[bytes, list[int]]) -> bool:
    """Whether some line of `data` holds more than one; `found`: the `places` of ONCE and EACH."""
    tags = (place for tag in _TAGS_INSIDE for place in found.get(tag, ()))
    if any(_REST_OF_TAG.match(data, place) for place in tags):
        return True
    if not found.keys().isdisjoint(_LEVELS_INSIDE):
        return True
    repeated = _NCCL in found and places(data, (_NCCL_REPEATED,))
    if repeated and any(map(_follows_device, _NCCL_BYTES.finditer(data))):
        return True
    if not found.keys().isdisjoint(_BARS) and _AFTER_BAR_BYTES.search(data):
        return True
    return _FOLDED in found and _FOLDED_BYTES.search(data) is not None


def _follows_device(tag: re.Match[bytes]) -> bool:
    """Whether the line had a device in front of this tag of NCCL's already, as its tags end."""
    data, end = tag.string, tag.start() - 1
    low = max(0, end - _APART)
    start = data.rfind(b"\n", low, end) + 1 or max(0, low - len(b"[999] "))
    if data.find(b"] ", start, end) < 0:
        return False
    return any(device.end() >= low for device in _DEVICE_BYTES.finditer(data, start, end))


def part(rows: list[_Row]) -> list[_Row]:
    """Numbered lines, with those that hold several parted; the parts keep the number."""
    hosts = {found[1] for _, text in rows if (found := _NCCL_LINE.match(text))}
    tags = _with_nccl(hosts) if hosts else _TAGS
    parted: list[_Row] = []
    cut = False  # whether another process wrote into the last but one
    for number, text in rows:
        bar = _AFTER_BAR.search(text)
        if bar is not None:
            parted.append((number, text[: bar.end()]))
        pieces = _at_tags(text[bar.end() :] if bar else text, tags)
        if cut and _CUT_START.match(text) and not tags.search(text):
            before, line = parted[-2]
            parted[-2] = (before, line + text)
            cut = False
            continue
        cut = len(pieces) == 2 and _CUT_END.search(pieces[0]) is not None
        parted += [(number, piece) for piece in pieces]
    return [(number, piece) for number, text in parted for piece in _at_frames(text)]


def _with_nccl(hosts: Iterable[str]) -> re.Pattern[str]:
    """The tags, with NCCL's of hosts that are known from the starts of lines."""
    named = "|".join(map(re.escape, sorted(hosts, key=len, reverse=True)))
    return re.compile(rf"(?:{_TAG} ?)*(?:{named}){_NCCL_TAG}|(?:{_TAG} ?)+|{_LEVEL_TAG}")


def _at_tags(text: str, pattern: re.Pattern[str]) -> list[str]:
    tags = list(pattern.finditer(text))
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
