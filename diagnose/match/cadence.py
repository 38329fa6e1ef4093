"""Progress in words that no signature knows: lines that recur while a number in them grows.

Numbers, times and addresses are masked, which makes a line a template. A template that speaks of
work (steps, losses, speeds, n of m) and returns with a growing counter is progress, whatever its
framework. Only the end of a source is looked at, and only where no signature saw progress.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from diagnose.lazy import expression
from diagnose.match.authors import author_of
from diagnose.match.digits import shape

REACH = 24 << 10  # bytes of the end of a source that are looked at
_LEAST = 2  # lines, and values of the counter, that make a cadence
_TOLD = 4  # last lines of a template that become events, besides its first
_LINE = 600  # bytes of a line that are looked at
_MOST_NUMBERS = 40

_TIMES = expression(
    rb"\d{4}[-/.]\d\d?[-/.]\d\d?(?:[T ]\d\d?:\d\d:\d\d)?[.,]?\d*Z?|\b\d\d?:\d\d:\d\d(?:[.,]\d+)?"
    rb"|\b[EWIF]\d{4} |\b1[5-9]\d{8}(?:\.\d+|\d{3})?\b|0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b|\d+:\d\d\b"
    rb"|\x1b\[[0-9;]*m|\b\d+(?:\.\d+){3}(?::\d+)?"
)
# The fill of a bar, as tqdm, rich and Keras draw it.
_BAR = expression(rb"(?<=%)\|[^|\n]*\|(?= *\d)|\[[=>.# -]{5,}\]|(?:\xe2[\x94-\x97][\x80-\xbf]){5,}")
_NUMBER = expression(rb"-?\d+(?:,\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?")
# What only work says, and what waiting, trying again and listing say.
_WORK = expression(
    rb"(?i)\b(?:global_?)?(?:step|iter|epoch|batch|update|episode|round|minibatch|timestep)s?\b"
    rb"|loss|\bppl\b|perplexity|accuracy|\bacc\b|reward|throughput|\blr\b|grad_?norm|\bETA\b"
    rb"|(?:samples|images|imgs?|tokens|examples|iters?|steps|it)\s?/\s?s"
    rb"|per[ _]sec|s/it\b|(?<![\w./-])\d+\s?/\s?\d+(?![\w./-])|\d%|tok/s|tflop|num_updates|wps\b"
    rb"|elbo|fid\b|\bin stage \d+\.\d+ \(TID \d"
)
_NO_WORK = expression(
    rb"(?i)wait|retry|retri|attempt|time[d]?[ -]?out|stuck|heart ?beat|not responding|pending|sleep"
    rb"|fail|error|exception|refused|stall|hang|frame #|^\s*#\d+ .* \(|\.so\b|\(\+0x|\bthread\b"
    rb"|queued|listening|backoff|unreachable|missing|watchdog|keep-?alive|NCCL|in queue|slowest"
    rb"|straggl|-bound|\|\s*$|File \"[^\"]*\", line \d"
)


@dataclass(frozen=True, slots=True)
class Beat:
    """One line of a cadence: where it begins in the data, and its counter."""

    start: int
    end: int
    counter: int


def beats(data: bytes) -> list[Beat]:
    """The first and the last lines of every template of `data` whose counter grows, in order."""
    groups: dict[tuple[bytes, bytes], list[tuple[int, int, list[bytes]]]] = defaultdict(list)
    for start, end in _lines(data):
        line = data[start:end]
        if not _works(shape(line)):
            continue
        author = author_of(line)
        text = _BAR.sub(b"|", _TIMES.sub(b"@", line))
        numbers = _NUMBER.findall(text)
        if 0 < len(numbers) <= _MOST_NUMBERS:
            groups[author, _NUMBER.sub(b"#", text)].append((start, end, numbers))
    found: set[Beat] = set()
    for lines in groups.values():
        counters = _counter([numbers for _, _, numbers in lines])
        if counters:
            told = [
                Beat(start, end, counter)
                for (start, end, _), counter in zip(lines, counters, strict=True)
            ]
            found.update((told[0], *told[-_TOLD:]))
    return sorted(found, key=lambda beat: beat.start)


@lru_cache(maxsize=4096)
def _works(line: bytes) -> bool:
    """Whether lines of a shape speak of work: these come again and again, in many sources."""
    return _WORK.search(line) is not None and _NO_WORK.search(line) is None


def _lines(data: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of the lines of the end of `data`; of a bar what the terminal showed last."""
    at = data.rfind(b"\n", 0, max(0, len(data) - REACH)) + 1
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        start = max(at, data.rfind(b"\r", at, max(at, end - 1)) + 1)
        if end > start:
            yield start, min(end, start + _LINE)
        at = end + 1


def _counter(rows: Sequence[Sequence[bytes]]) -> list[int]:
    """The values of the column of whole numbers that grows; none if there is none.

    One that never falls before others, then the one that grows most often: of an epoch and its
    steps these count.
    """
    found = []
    for column in zip(*rows, strict=True) if len(rows) >= _LEAST else ():
        if not all(value.isdigit() and len(value) < 16 for value in column):
            continue
        values = [int(value) for value in column]
        half, different = len(values) // 2, len(set(values))
        if different >= _LEAST and _mean(values[-half:]) > _mean(values[:half]):
            found.append((values == sorted(values), different, values))
    return max(found, key=itemgetter(0, 1))[2] if found else []


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)
