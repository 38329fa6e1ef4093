"""Undoing what copying and pasting does to a log: quote marks, line numbers, escapes, line ends.

Only for small sources, and conservative: every step asks for proof that the text was pasted, so
that an ordinary log comes through byte for byte. What stays is judged line by line later anyway;
what is removed wrongly is lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from diagnose.formats import table
from diagnose.ingest import unwrap
from diagnose.ingest.unwrap import join_wrapped, may_be_wrapped
from diagnose.lazy import expression
from diagnose.parse.prefix import peel
from diagnose.parse.tracebacks import TRACEBACK
from diagnose.search import places

_SAMPLE_LINES = 300
_MOST = 0.6  # of the non-empty lines: people write a sentence above what they paste
_RISING = 0.8  # of the line numbers
_LEAST_GREPPED = 5  # lines whose numbers have gaps, as proof
_LEAST_ENDS = 5  # that are spelled out in a source of one line
_INDENTED = 0.8  # of the non-empty lines: the name of who wrote it may stand above


class Normal(NamedTuple):
    """Normalised text, and the original number of each of its lines."""

    data: bytes
    lines: list[int]


def normalise(data: bytes) -> Normal | None:
    """Undo pasting in a whole source; None if there is nothing to undo.

    Bytes that are not UTF-8 stay as they are.
    """
    one_line = _in_one_line(data)
    if not (one_line or _set_off(data[:_HEAD]) or _marked(data)):
        return None
    text = data.decode(errors="surrogateescape")
    ends = text.endswith("\n")
    before = text.removesuffix("\n").split("\n")
    if one_line:
        before = before[0].replace(r"\t", "\t").replace(r"\"", '"').split(r"\n")
    plain = _unescaped_html(_without_colours(_visible(before)))  # its quote marks may be &gt;
    rows = _unfenced(_unquoted(_unindented(plain)))
    numbers, texts = [number for number, _ in rows], [text for _, text in rows]
    for step in (_unnumbered, _unescaped_markdown, _unindented):
        texts = step(texts)
    rows = part(join_wrapped(list(zip(numbers, texts, strict=True))))
    numbers, texts = [number for number, _ in rows], [text for _, text in rows]
    if one_line:
        numbers = [1] * len(numbers)
    elif texts == before:
        return None
    joined = "\n".join(texts) + ("\n" if ends and texts else "")
    return Normal(joined.encode(errors="surrogateescape"), numbers)


# What makes a source worth a closer look, on bytes because it is asked of every small source.
_QUOTE_BYTES = expression(rb" {0,3}[>|]")
_NUMBER_BYTES = expression(rb"\s{0,8}\[?\d{1,7}(?:[\]:|\s]|\Z)")
_ESCAPE_BYTES = expression(rb"\\[#_\[*]")
_MARKS_BYTES = (rb"```", rb"\[0m", rb"&(?:lt|gt|quot|amp|nbsp|#39|#x27);")
_INDENT_BYTES = expression(rb"  |\t")
_ANY_OF_THREE = expression(rb"\n(?:[ \t\r\v\f>|]|\[?\d+[\]:|\s])")  # or looks like it
_HEAD = 64 << 10  # bytes that mostly hold the sample
_SAME_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_BEGINNING = 18  # bytes of a line that tell whether one of these three begins it
_INVISIBLE_BYTES = [mark.encode() for mark in "\u200b\ufeff\u2060\u00a0\u202f\u2007"]


def _in_one_line(data: bytes) -> bool:
    """Whether it is a log as a string of JSON or of a program holds it: line ends spelled out."""
    begun = data[:1] not in (b"{", b"[") or data[1:2].isalpha()  # else a record, or several
    return begun and data.find(b"\n", 0, -1) < 0 and data.count(rb"\n") >= _LEAST_ENDS


def _set_off(head: bytes) -> bool:
    """Whether quote marks, numbers or blanks stand before so many lines as in a paste."""
    if not _ANY_OF_THREE.search(b"\n%b\n" % head):
        return False
    # The lines of a program begin alike, but for digits, so that few of them are looked at.
    lines = head.split(b"\n", _SAMPLE_LINES)
    starts = b"\n".join([line[:_BEGINNING] for line in lines]).translate(_SAME_DIGITS)
    # Of a line that begins with so many blanks the rest was cut off.
    begun = {
        start: count
        for start, count in Counter(starts.split(b"\n")).items()
        if len(start) == _BEGINNING or (start and not start.isspace())
    }
    quoted, numbered, indented = (
        sum([count for line, count in begun.items() if form.match(line)])
        for form in (_QUOTE_BYTES, _NUMBER_BYTES, _INDENT_BYTES)
    )
    filled = sum(begun.values())
    return max(quoted, numbered) > 0.3 * filled or indented >= 0.7 * filled


def _marked(data: bytes) -> bool:
    """Whether anything in the text may be due to pasting, wrapping or gluing."""
    found = places(data, _ONCE, _EACH)
    return (
        not found.keys().isdisjoint(_MARKS_BYTES)
        or (b"\\" in data and _ESCAPE_BYTES.search(data) is not None)
        or (not data.isascii() and any(mark in data for mark in _INVISIBLE_BYTES))
        or may_be_wrapped(data, found)
        or may_be_glued(data, found)
    )


# How lines of logs begin; Megatron's own "> initialized …" does not look like this behind its ">".
_LOGGISH = expression(
    r"\s*(?:\[|\(\w+ pid=|\d{2,4}[-:]\d\d|[EWIF]\d{3,4} "
    r"|(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)[: |]"
    r"|Traceback \(|File \""
    r"|frame \\?#\d|[\w.]+(?:Error|Exception)\b|[\w.-]+:\d+:\d+ |srun: |slurmstepd|terminate called"
    rf"|\d{{1,5}}: |[\w.-]*\d: |{table.read().tags})"
)
# The same below another mark: quoted, numbered.
_PASTED = expression(rf"(?:> ?){{0,4}}(?:{_LOGGISH.pattern}|\s{{0,8}}\d{{1,7}}(?:[ :\t|]|\Z))")


def _filled(texts: list[str]) -> list[str]:
    return [text for text in texts if text and not text.isspace()]


_INVISIBLE = dict.fromkeys(map(ord, "\u200b\ufeff\u2060")) | dict.fromkeys(
    map(ord, "\u00a0\u202f\u2007"), " "
)


def _visible(texts: list[str]) -> list[str]:
    """Zero-width characters of chats removed, their non-breaking spaces made spaces."""
    return [text if text.isascii() else text.translate(_INVISIBLE) for text in texts]


_COLOUR = expression(r"(?:\^\[)?\[(?:\d{1,3}(?:;\d{1,3}){0,4})?m")


def _without_colours(texts: list[str]) -> list[str]:
    """Colour codes whose ESC got lost on the way removed: `[36m(task pid=1)[0m`."""
    codes = [code for text in texts if "m" in text for code in _COLOUR.findall(text)]
    if len(codes) < 2 or not any(code.endswith("[0m") for code in codes):
        return texts
    return [_COLOUR.sub("", text) for text in texts]


_MARKS = {
    ">": (expression(r" {0,3}((?:> ?)+)"), "> ?"),
    "|": (expression(r" {0,3}((?:\|(?: |$))+)"), r"\|(?: |$)"),
}


def _unquoted(texts: list[str]) -> list[str]:
    """Quote marks of mail, Markdown and chats removed, to the depth most lines have."""
    filled = _filled(texts)
    for mark, (pattern, one) in _MARKS.items():
        matches = [match for text in filled if (match := pattern.match(text))]
        if not matches or len(matches) < _MOST * len(filled):
            continue
        if mark == "|" and sum(text.rstrip().endswith("|") for text in filled) > 1:
            continue  # a table, such as nvidia-smi's
        # Programs mark lines of theirs, too, but never an empty or a numbered one.
        if not any(
            match.end() == len(match.string) or _PASTED.match(match.string, match.end())
            for match in matches
        ):
            continue
        depth = Counter(match[1].count(mark) for match in matches).most_common(1)[0][0]
        # `>text` has no space of its own: what follows its mark belongs to the text.
        spaced = all(
            match[1].endswith(" ") or match.end() == len(match.string) for match in matches
        )
        last = one if spaced else mark
        marks = re.compile(rf" {{0,3}}(?:{one}){{0,{depth - 1}}}{last}")
        return [_without_start(marks, text) for text in texts]
    return texts


def _without_start(start: re.Pattern[str], text: str) -> str:
    """The text without what `start` matches at its beginning."""
    match = start.match(text)
    return text if match is None else text[match.end() :]


_FENCE = expression(r"\s{0,3}`{3,}[\w+-]{0,20}\s*")


def _unfenced(texts: list[str]) -> list[tuple[int, str]]:
    """The lines with their numbers, without those that only open or close a code block.

    Of lines with the marks glued to them, as chats have, only the marks go.
    """
    rows = []
    for number, text in enumerate(texts, 1):
        if "```" not in text:
            rows.append((number, text))
        elif not _FENCE.fullmatch(text):
            glued = text.startswith("```") and _PASTED.match(text, 3)
            bare = text.lstrip("`") if glued else text
            rows.append((number, bare.rstrip("`") if bare.endswith("```") else bare))
    return rows


_NUMBERS = (
    expression(r"\s{0,8}\[(\d{1,7})\](?: |$)"),
    expression(r"\s{0,8}(\d{1,7}):(?: |$)"),
    expression(r"(\d{1,7}):"),
    expression(r"\s{0,8}(\d{1,7}) ?\| ?"),
    expression(r"\s{0,8}(\d{1,7})(?:\t|  |\s*$)"),
    expression(r"\s{0,8}(\d{1,7})(?: |$)"),
)


def _unnumbered(texts: list[str]) -> list[str]:
    """Leading line numbers removed, where they rise on most lines: by one, or as grep's do."""
    filled = _filled(texts)
    for pattern in _NUMBERS:
        matches = [match for text in filled if (match := pattern.match(text))]
        if len(matches) < max(3, _MOST * len(filled)):
            continue
        numbers = [int(match[1]) for match in matches]
        if not _are_line_numbers(numbers, [match.string[match.end() :] for match in matches]):
            continue
        rest = [_without_start(pattern, text) for text in texts]
        # Columns may stand further apart than the least that tells them apart.
        gaps = [len(text) - len(text.lstrip(" ")) for text in rest if text.strip()]
        return [text[min(gaps, default=0) :] for text in rest]
    return texts


_DIGITS = expression(r"\d+")


def _are_line_numbers(numbers: list[int], texts: list[str]) -> bool:
    """Whether the numbers in front of the texts are line numbers, not ranks or steps.

    Launchers print `3: text` and `[3] text`. Ranks in order all say the same thing, and so do
    steps. From the hundreds on, lines that begin like log lines settle it.
    """
    if numbers[0] == 0:
        return False
    steps = [b - a for a, b in pairwise(numbers)]
    dense = sum(step == 1 for step in steps) >= _RISING * len(steps)
    never_fall = min(steps) > 0
    if not dense and not (never_fall and len(texts) >= _LEAST_GREPPED):
        return False
    loggish = sum(_LOGGISH.match(text) is not None for text in texts) > 0.5 * len(texts)
    if loggish and numbers[0] >= 100:
        return True
    if never_fall:
        named = (peel(text) for text in texts)
        ranks = [one.group_rank if one.rank is None else one.rank for one in named]
        agree = [a == b for a, b in zip(numbers, ranks, strict=True) if b is not None]
        if agree and loggish:
            return sum(agree) < 0.5 * len(agree)
    shapes = Counter(_DIGITS.sub("0", text) for text in texts if text.strip())
    if not shapes:
        return False
    if never_fall:
        return shapes.most_common(1)[0][1] < 0.5 * shapes.total() and (dense or loggish)
    return len(shapes) >= 0.5 * len(texts)


_ENTITY = expression(r"&(?:lt|gt|quot|amp|nbsp|#39|#x27);")
_CHARACTERS = {
    "&lt;": "<", "&gt;": ">", "&quot;": '"', "&amp;": "&", "&nbsp;": " ", "&#39;": "'",
    "&#x27;": "'",
}  # fmt: skip


def _unescaped_html(texts: list[str]) -> list[str]:
    """HTML entities resolved, where none of the characters they stand for occurs raw."""
    whole = "\n".join(texts)
    entities = {_CHARACTERS[entity] for entity in _ENTITY.findall(whole)} - {"&", " "}
    if not entities or "<" in whole or ">" in whole or any(raw in whole for raw in entities):
        return texts
    return [_ENTITY.sub(lambda entity: _CHARACTERS[entity[0]], text) for text in texts]


_FRAME = expression(r"(?<=\bframe )\\(?=#\d)")


def _unescaped_markdown(texts: list[str]) -> list[str]:
    r"""Markdown's `\_`, `\[`, `\]`, `\#`, `\*` resolved where the bare character never occurs.

    `frame \#0` is resolved in any case.
    """
    whole = "\n".join(texts)
    if "\\" not in whole:
        return texts
    escaped = [
        character
        for character in "_[]*#"
        if re.search(rf"(?<!\\)\\\{character}", whole)
        and not re.search(rf"(?<!\\)\{character}|\\\\\{character}", whole)
    ]
    if escaped:
        escape = re.compile(rf"\\(?=[{re.escape(''.join(escaped))}])")
        texts = [escape.sub("", text) for text in texts]
    return [_FRAME.sub("", text) if "\\" in text else text for text in texts]


_INDENT = expression(r" {2,}|\t[ \t]*")


def _unindented(texts: list[str]) -> list[str]:
    """Common indentation removed: two columns or more, before log lines.

    A few lines without it may stand around them: who wrote it, the command.
    """
    filled = _filled(texts)
    inside = [text for text in filled if _INDENT.match(text)]
    if not inside or len(inside) < _INDENTED * len(filled):
        return texts
    match = _INDENT.match(inside[0])
    common = match[0] if match else ""
    for text in inside:
        while not text.startswith(common):
            common = common[:-1]
    if not _INDENT.match(common):
        return texts
    outer = [text[len(common) :] for text in inside]
    proofs = sum(
        _PASTED.match(text) is not None
        and not text.startswith((" ", "\t", 'File "'))
        and (len(inside) == len(filled) or not text.startswith("frame #"))
        for text in outer
    )
    # Reports and stacks are indented below their heading, so that one line proves nothing there.
    if proofs < (1 if len(inside) == len(filled) else 0.3 * len(outer)):
        return texts
    return [text.removeprefix(common) for text in texts]


# --- lines that lost the line end between them ----------------------------------------------------
#
# Processes that share a pipe, text folded by a form. Only what is certain is parted: behind each
# tag that a launcher or NCCL puts before a line of a process, and a traceback that is in one line.
# Where one process wrote in the middle of another one's line, the rest of that line is in the next
# row and is put back.

# `[rank3]: text` of torch's own excepthook, `[default3]:text` of torchrun; two may stand in a row.
_GLUED = table.read().glued
_TAG = f"(?:{'|'.join(map(''.join, _GLUED))})"
_OWN_TAG = table.read().match_of("rank")  # a process itself prints it
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
    rf"\d(?:it/s|s/it){_SHOWN}\](?=Traceback \(most recent|\[[EWIF] ?\w|{_OWN_TAG}|  File \")"
    rf"|/s{_SHOWN}\](?=Traceback \(most recent|  File \")"
)
_AFTER_BAR_BYTES = expression(
    rb"(?:it/s|s/it|/s)(?:, [^\[\]\n]{1,300})?\]"
    rb"(?:Traceback \(most|\[[EWIF] ?\w|%b|  File \")" % _OWN_TAG.encode()
)
# The end and the start of what was cut inside a word, a number or a list.
_CUT_END, _CUT_START = expression(r"[\w(,=]\Z"), expression(r"[\w)=,.]")

# What makes a source worth a closer look, on bytes because it is asked of every small source.
_TAGS_INSIDE = {
    rb"[\w.)%%\"',(=]%b" % word.encode(): expression(rest.encode()) for word, rest in _GLUED
}
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
GLUED_ONCE, GLUED_EACH = (
    (*_BARS, *_LEVELS_INSIDE, _FOLDED, _NCCL),
    (*_TAGS_INSIDE,),
)  # see `search.places`

_ONCE, _EACH = _MARKS_BYTES + unwrap.ONCE + GLUED_ONCE, unwrap.EACH + GLUED_EACH

_Row = tuple[int, str]


def may_be_glued(data: bytes, found: Mapping[bytes, list[int]]) -> bool:
    """Whether some line of `data` holds more than one; `found`: the places of what shows it."""
    tags = ((place, rest) for tag, rest in _TAGS_INSIDE.items() for place in found.get(tag, ()))
    if any(rest.match(data, place) for place, rest in tags):
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
    tags = _TAGS
    hosts = {found[1] for _, text in rows if (found := _NCCL_LINE.match(text))}
    if hosts:  # known from the starts of lines
        named = "|".join(map(re.escape, sorted(hosts, key=len, reverse=True)))
        nccl = rf"(?:{_TAG} ?)*(?:{named}){_NCCL_TAG}"
        tags = re.compile(rf"{nccl}|(?:{_TAG} ?)+|{_LEVEL_TAG}")
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
