"""Undoing what copying and pasting does to a log: quote marks, line numbers, escapes, line ends.

Only for small sources, and conservative: every step asks for proof that the text was pasted, so
that an ordinary log comes through byte for byte. What stays is judged line by line later anyway;
what is removed wrongly is lost.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from diagnose.ingest import glued, unwrap
from diagnose.ingest.glued import may_be_glued, part
from diagnose.ingest.unwrap import join_wrapped, may_be_wrapped
from diagnose.lazy import expression
from diagnose.search import places

_SAMPLE_LINES = 300
_MOST = 0.6  # of the non-empty lines: people write a sentence above what they paste
_RISING = 0.8  # of the line numbers
_LEAST_GREPPED = 5  # lines whose numbers have gaps, as proof
_INDENTED = 0.8  # of the non-empty lines: the name of who wrote it may stand above


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
    before = text.removesuffix("\n").split("\n")
    rows = _unfenced(_unquoted(_unindented(_without_colours(_visible(before)))))
    numbers, texts = [number for number, _ in rows], [text for _, text in rows]
    for step in (_unnumbered, _unescaped_html, _unescaped_markdown, _unindented):
        texts = step(texts)
    rows = part(join_wrapped(list(zip(numbers, texts, strict=True))))
    numbers, texts = [number for number, _ in rows], [text for _, text in rows]
    if texts == before:
        return None
    joined = "\n".join(texts) + ("\n" if ends and texts else "")
    return Normal(joined.encode(errors="surrogateescape"), numbers)


# What makes a source worth a closer look, on bytes because it is asked of every small source.
_QUOTE_BYTES = expression(rb" {0,3}[>|]")
_NUMBER_BYTES = expression(rb"\s{0,8}\[?\d{1,7}(?:[\]:|\s]|\Z)")
_ESCAPE_BYTES = expression(rb"\\[#_\[*]")
_MARKS_BYTES = (rb"```", rb"\[0m", rb"&(?:lt|gt|quot|amp|nbsp|#39|#x27);")
_ONCE, _EACH = _MARKS_BYTES + unwrap.ONCE + glued.ONCE, unwrap.EACH + glued.EACH
_INDENT_BYTES = expression(rb"  |\t")
_ANY_OF_THREE = rb"\n(?:[ \t\r\v\f>|]|\[?\d+[\]:|\s])"  # looks like it, or is it
_HEAD = 64 << 10  # bytes that mostly hold the sample
_SAME_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_BEGINNING = 18  # bytes of a line that tell whether one of these three begins it
_INVISIBLE_BYTES = [mark.encode() for mark in "\u200b\ufeff\u2060\u00a0\u202f\u2007"]


def _suspicious(data: bytes) -> bool:
    return _set_off(data[:_HEAD]) or _marked(data)


def _set_off(head: bytes) -> bool:
    """Whether quote marks, numbers or blanks stand before so many lines as in a paste."""
    if not places(b"\n%b\n" % head, (_ANY_OF_THREE,)):
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
    r"|\d{1,5}: |[\w.-]*\d: )"
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
_RANK = expression(r"\[rank(\d+)\]|\[Rank (\d+)\]")


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
        agree = [
            number == int(match[1] or match[2])
            for number, text in zip(numbers, texts, strict=True)
            if (match := _RANK.search(text))
        ]
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
    "&lt;": "<",
    "&gt;": ">",
    "&quot;": '"',
    "&amp;": "&",
    "&nbsp;": " ",
    "&#39;": "'",
    "&#x27;": "'",
}


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
